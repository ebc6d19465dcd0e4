"""evalkit's suites for TRL's trainers: a class for `environment_factory`, and the rows of its data set.

    GRPOTrainer(..., train_dataset=Dataset.from_list(dataset(SUITE)), environment_factory=environment(SUITE))

A tool is a method, as TRL wants it: its name, signature and docstring say what the tool's schema says. A rollout is one
chat with fixed tools: where the environment begins a new chat, its opening is behind the result of the call. Nothing of
TRL is imported.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from evalkit.api.games import Game, Instance, env, game, suite
from evalkit.dialogue import Reply, Tool, ToolCall
from evalkit.errors import UsageError

_TYPES: Mapping[object, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_OWN = frozenset({"reset", "get_reward", "say"})


class TrlRollout:
    """One rollout at a time of an instance of the suite; `environment` adds a method for each tool."""

    # TRL takes every name that does not begin with an underscore for a tool.
    _prompts: ClassVar[str]
    _notes: ClassVar[bool]

    def __init__(self) -> None:
        """Before the first `reset`."""
        self._game: Game | None = None

    def reset(self, **row: Any) -> str:
        """Begin the instance of a row of `dataset`; gives what the agent reads first."""
        given = json.loads(row["line"])
        instance = Instance(**{field.name: given[field.name] for field in fields(Instance)})
        self._game = game(instance, prompts=self._prompts, notes=self._notes)
        return _joined([message.text for message in self._game.messages])

    def get_reward(self) -> float:
        """The score of the episode so far; 1 is the optimum."""
        return self._game.score().value if self._game is not None else 0.0

    def _answer(self, reply: Reply) -> str:
        """What the agent reads after a reply. Raises ValueError before `reset`, and once the episode has ended."""
        if self._game is None or self._game.ending:
            raise ValueError("The episode is over." if self._game else "The episode has not begun.")
        turn = self._game.reply(reply)
        opening = [message.text for message in self._game.messages if message.role == "user"] if turn.new_chat else []
        ending = [f"The episode is over: {turn.ending}."] if turn.ending else []
        return _joined([*(message.text for message in turn.messages), *opening, *ending])


class TalkingRollout(TrlRollout):
    """A rollout of an environment in which a text alone is an act."""

    def say(self, text: str) -> str:
        """Say something, or give the final answer, without calling a tool.

        Args:
            text: What to say.
        """
        return self._answer(Reply(text=text))


def environment(
    name: str,
    *,
    instances: Sequence[str] = (),
    vary: Mapping[str, Sequence[Any]] = {},
    prompts: str = "standard",
    notes: bool = True,
) -> type[TrlRollout]:
    """The class whose objects TRL plays: `reset`, `get_reward`, and a method for each tool of the suite.

    Where a text alone is an act, `say(text)` says it. Arguments are those of `evalkit.suite` and `evalkit.game`.
    Raises UsageError where instances offer different tools: a trainer knows one list of them.
    """
    found = suite(name, instances=instances, vary=vary)
    first, *others = (game(one, prompts=prompts, notes=notes) for one in found)
    for one in others:
        if one.tools != first.tools:
            ids = f"{first.instance.id} and {one.instance.id}"
            raise UsageError(f"{name}: {ids} offer different tools. Choose `instances` that do not.")
    tools, instance = first.tools, first.instance
    methods = {tool.name: _method(tool) for tool in tools}
    wrong = [tool for tool in methods if tool in _OWN or tool.startswith("_") or not tool.isidentifier()]
    if wrong:
        raise UsageError(f"{name}: a method cannot have the name of the tool {wrong[0]!r}.")
    base = TalkingRollout if env(instance.environment).talk else TrlRollout
    return type(f"evalkit_{instance.environment}", (base,), {"_prompts": prompts, "_notes": notes, **methods})


def dataset(
    name: str, *, instances: Sequence[str] = (), vary: Mapping[str, Sequence[Any]] = {}
) -> list[dict[str, Any]]:
    """A row for each instance, for `datasets.Dataset.from_list`: an empty `prompt`, which `reset` fills, and `line`."""
    prompt = [{"role": "user", "content": ""}]
    rows = suite(name, instances=instances, vary=vary)
    lines = [{key.name: getattr(one, key.name) for key in fields(one)} for one in rows]
    return [{"prompt": prompt, "line": json.dumps(line)} for line in lines]


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _method(tool: Tool) -> Callable[..., str]:
    """A method that calls a tool, and describes it as its schema does."""

    def method(self: TrlRollout, **arguments: Any) -> str:
        call = ToolCall(id="call_0", name=tool.name, arguments=json.dumps(arguments))
        return self._answer(Reply(calls=(call,), finish="tool_calls"))

    properties: Any = tool.parameters.get("properties", {})
    required: Any = tool.parameters.get("required", list(properties))
    parameters, lines = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)], []
    for name, about in properties.items():
        default = inspect.Parameter.empty if name in required else None
        kind = _TYPES.get(about.get("type"), str)
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        choices = f" (choices: {json.dumps(about['enum'])})" if about.get("enum") else ""
        lines.append(f"    {name}: {' '.join(about.get('description', name).split())}{choices}")
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = tool.description + ("\n\nArgs:\n" + "\n".join(lines) if lines else "")
    method.__annotations__ = {one.name: one.annotation for one in parameters[1:]}
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method
