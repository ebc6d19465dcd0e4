"""One episode as Inspect plays it: the model is asked through Inspect, the environment is evalkit's."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, GenerateConfig, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import checkpointer, registry_info

from evalkit.api.games import Game, Instance, env, suite
from evalkit.dialogue import Reply
from evalkit.errors import UsageError
from evalkit.integrations.inspect.chats import PolicyModel, from_output, to_choice, to_messages, to_tools
from evalkit.replies import decode_reply, encode_reply
from evalkit.seeds import derive
from evalkit.shipped import folders
from evalkit.spec.suites import suite_folders, suites_in

FACTS, ENDING = "evalkit:facts", "evalkit:ending"
"""Where a sample's store has the facts of the episode, and why it ended."""


def metadata_of(instance: Instance) -> dict[str, Any]:
    """A sample's metadata: all of the instance, so that a log alone can be scored."""
    return {
        "environment": instance.environment,
        "instance": instance.id,
        "suite": instance.suite,
        "digest": instance.digest,
        "stratum": instance.stratum,
        "line": dict(instance.line),
    }


def instance_of(metadata: Mapping[str, Any]) -> Instance:
    """The instance that a sample's metadata has."""
    return Instance(id=metadata["instance"], **{key: metadata[key] for key in _SAME})


_SAME = ("environment", "suite", "digest", "stratum", "line")


@solver
def play_episode(prompts: str = "standard", notes: bool = True) -> Solver:
    """Play a sample's episode to its end. Each period starts a new chat; the sample's messages keep all of them.

    The facts are in the store after each reply, so that a sample that a limit ends is scored too. With checkpoints, a
    sample that is retried continues behind its last one: the replies are replayed, and the model is not asked again.
    """

    async def solve(state: TaskState, _: Generate) -> TaskState:
        game = Game(instance_of(state.metadata), prompts=prompts, notes=notes)
        facts = list[Mapping[str, Any]]()
        async with checkpointer() as held:
            replies = list[str]()
            state.messages = to_messages(game.messages, game.period)
            before = held.track("evalkit:replies", lambda: replies, replies, value_type=list[str])
            state.messages = held.track(
                "evalkit:messages", lambda: state.messages, state.messages, value_type=list[ChatMessage]
            )
            # Only here: a sample that is retried has got its store back from the checkpoint, with a list of its own.
            state.store.set(FACTS, facts)
            for encoded in before:
                facts.append(game.reply(decode_reply(encoded.encode())).facts)
                replies.append(encoded)
            while not game.ending and await _turn(state, game, replies, facts):
                await held.tick()
        state.store.set(ENDING, game.ending or "context_length")
        state.completed = True
        return state

    return solve


async def _turn(state: TaskState, game: Game, replies: list[str], facts: list[Mapping[str, Any]]) -> bool:
    """Ask the model once and tell the environment; False if the chat has become longer than the model's context."""
    model, step = get_model(), game.step
    # A policy's draws are those of the episode, so that epochs differ and a sample played again does not.
    own = isinstance(model.api, PolicyModel) and model.config.seed is None
    seed = derive(game.instance.digest, state.epoch, step) if own else None
    state.output = await model.generate(
        state.messages[-len(game.messages) :],
        tools=to_tools(game.tools),
        tool_choice=to_choice(game.tool_choice),
        config=GenerateConfig(seed=seed),
    )
    if state.output.stop_reason == "model_length":
        return False
    reply: Reply = from_output(state.output)
    turn = game.reply(reply)
    state.messages.append(state.output.message)
    state.messages.extend(to_messages(turn.messages, turn.period))
    if turn.new_chat:
        state.messages.extend(to_messages(game.messages, game.period))
    replies.append(encode_reply(reply).decode())
    facts.append(turn.facts)
    transcript().info(dict(turn.facts), source="evalkit")
    return True


# A task for each suite, and the scorer that they share.


@scorer(metrics={"score": [mean(), stderr()], "solved": [mean(), stderr()]})
def exact_score() -> Scorer:
    """The environment's score of the facts: 1 is the optimum. An episode without an end is scored as far as it got."""

    async def score(state: TaskState, _: Target) -> Score:
        instance = instance_of(state.metadata)
        environment, facts = env(instance.environment), state.store.get(FACTS, [])
        result = environment.score(environment.load(instance.line), facts)
        return Score(
            value={"score": result.value, "solved": float(result.solved)},
            metadata={"ending": state.store.get(ENDING, ""), "steps": len(facts), "metrics": dict(result.metrics)},
        )

    return score


_PACKAGE = "" if "/" in registry_info(exact_score).name else "evalkit/"
"""Inspect itself puts the package before a name if the package is in site-packages, but not if it is installed editable
and its distribution has another name, as evalkit's has."""


def suite_task(
    name: str,
    /,
    *,
    prompts: str = "standard",
    notes: bool = True,
    instances: str | Sequence[str] = (),
    **parameters: Any,
) -> Task:
    """A suite as a task.

    Args:
        name: a suite's name, or the path of a file that ends in `.jsonl`.
        prompts: a prompt pack, by name or path.
        notes: whether the agent has the tools to write and read notes, if the environment has them.
        instances: the ids to use (default: all).
        parameters: parameters of the environment; of a list of values, each gives samples of its own.

    The environment's sampling is the task's configuration: options of the command line go before it. Raises UsageError.
    """
    ids = [instances] if isinstance(instances, str) else list(map(str, instances))
    vary = {key: value if isinstance(value, list) else [value] for key, value in parameters.items()}
    chosen = suite(name, instances=ids, vary=vary)
    asked = env(chosen[0].environment).defaults
    many = len({one.suite for one in chosen}) > 1
    return Task(
        dataset=MemoryDataset([_sample(one, many) for one in chosen], name=name),
        solver=play_episode(prompts=prompts, notes=notes),
        scorer=exact_score(),
        config=GenerateConfig(
            temperature=asked.temperature, max_tokens=asked.max_tokens, parallel_tool_calls=asked.parallel_calls
        ),
    )


def _sample(instance: Instance, many: bool) -> Sample:
    """`many`: whether the values of parameters tell apart samples of one instance."""
    values = instance.suite.partition("?")[2] if many else ""
    name = f"{instance.id}?{values}" if values else instance.id
    return Sample(id=name, input=f"{instance.suite} {instance.id}", metadata=metadata_of(instance))


def _suites() -> Iterator[str]:
    """The names of all suites that can be found: those in folders, then those of packages."""
    for folder in folders("instances"):
        yield from suites_in(folder)
    brought = suite_folders()
    for name in brought:
        if name not in brought.built_in:
            with suppress(UsageError):  # whoever plays it is told; the other suites are not at fault
                yield from (f"{name}/{one}" for one in suites_in(brought[name]))


def _task_of(name: str) -> Callable[..., Task]:
    def make(
        prompts: str = "standard", notes: bool = True, instances: str | Sequence[str] = (), **parameters: Any
    ) -> Task:
        return suite_task(name, prompts=prompts, notes=notes, instances=instances, **parameters)

    make.__doc__ = f"The suite {name}."
    made: Callable[..., Task] = task(name=_PACKAGE + re.sub(r"\W", "_", name))(make)
    return made


@task(name=f"{_PACKAGE}suite")
def _any_suite(
    file: str, prompts: str = "standard", notes: bool = True, instances: str | Sequence[str] = (), **parameters: Any
) -> Task:
    """A suite that `-T file=` names: `inspect eval evalkit/suite -T file=mine.jsonl`."""
    return suite_task(file, prompts=prompts, notes=notes, instances=instances, **parameters)


TASKS = {name: _task_of(name) for name in dict.fromkeys(_suites())}
"""Each suite's task, by the suite's name."""
