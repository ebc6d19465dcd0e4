"""What a policy can see: the tools it is offered and what they have answered so far in this chat.

A policy is a pure function `(Request, Stream) -> Reply`, like a model without memory: it decides from the request
alone, and its only randomness is the stream, which the caller makes from the request's seed.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Reply, Request, Tool, ToolCall
from evalkit.seeds import Stream
from evalkit.wire.tokens import cut

PolicyFn = Callable[[Request, Stream], Reply]

_QUOTED = re.compile(r"""['"]([^'"\\\[\]]+)['"]""")
_NUMBERED_ID = re.compile(r"\b[A-Za-z]+[_-]?\d+\b")


def offered(request: Request, name: str) -> Tool | None:
    """The tool of that name, if the request offers it."""
    return next((tool for tool in request.tools if tool.name == name), None)


def results(request: Request) -> dict[str, list[str]]:
    """What the tools have answered in this chat, by the tool's name, in order.

    Answers to calls whose arguments were no JSON object are left out: they say what was wrong with the call, and an
    agent that sees its own mistake asks again.
    """
    names: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    for message in request.messages:
        for call in message.calls:
            if _is_object(call.arguments):
                names[call.id] = call.name
        if message.role == "tool" and message.call_id in names:
            answers.setdefault(names[message.call_id], []).append(message.text)
    return answers


def _is_object(arguments: str) -> bool:
    if arguments == "{}":
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def turns(request: Request) -> int:
    """How often the agent has replied in this chat."""
    return sum(message.role == "assistant" for message in request.messages)


def calling(request: Request, wanted: Sequence[tuple[str, str]], text: str = "") -> Reply:
    """A reply that calls tools: (name, arguments text) each, in order.

    Ids count all calls of the chat (`call_0`, `call_1`, ...), so they are unique in it and the same in every run.
    """
    so_far = sum(len(message.calls) for message in request.messages)
    calls = tuple(
        ToolCall(id=f"call_{so_far + i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(wanted)
    )
    return Reply(text=text, calls=calls, finish="tool_calls" if calls else "stop")


def asking(request: Request, known: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> Reply | None:
    """Calls of those wanted tools that are offered and have not answered yet, in one reply; None if there are none.

    `known` is what `results` found. Where calls go one by one, it is the first of them only.
    """
    missing = [name for name in wanted if name not in known and offered(request, name)]
    if request.sampling.parallel_calls is False:
        missing = missing[:1]
    return calling(request, [(name, "{}") for name in missing]) if missing else None


def ids_in(text: str) -> list[str]:
    """The ids of a getter's answer: the quoted entries of its list, or whatever looks like a numbered id."""
    start, end = text.find("["), text.rfind("]")
    inside = text[start:end] if 0 <= start < end else ""
    return _QUOTED.findall(inside) or list(dict.fromkeys(_NUMBERED_ID.findall(text)))


def action_arguments(tool: Tool, value: Mapping[str, object]) -> str:
    """Arguments that give `value` to a tool whose only argument is a mapping.

    The argument's name and type are the schema's; where a string is asked for, the mapping goes as a Python literal.
    """
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return json.dumps(dict(value))
    name, schema = next(iter(properties.items()))
    as_object = isinstance(schema, Mapping) and schema.get("type") == "object"
    return json.dumps({name: dict(value) if as_object else repr(dict(value))})


def acting(request: Request, action: str, value: Mapping[str, object]) -> Reply:
    """The reply that gives `value` to the action's tool, in the form that the tool asks for."""
    tool = offered(request, action)
    return calling(request, [(action, action_arguments(tool, value) if tool else "{}")])


# The record of a policy: how it plays one environment, or any.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one policy plays one environment, or any. Exactly one of `reply`, `oracle`, `script` and `outside` is
    set."""

    help: str
    """One line for people."""
    reply: PolicyFn | None = None
    """Plays from the conversation alone; such a policy can also be served as a model."""
    oracle: Callable[[Any], PolicyFn] | None = None
    """Privileged: it is made for one instance and sees its hidden data."""
    script: Callable[[str], PolicyFn] | None = None
    """Made from the agent's script, a JSON text."""
    outside: str | None = None
    """Somebody outside evalkit plays; the command that lets them."""
    recognises: Callable[[Request], bool] | None = None
    """Whether `reply` can answer a request. A policy that is served as a model is not told the environment, so this
    finds the one that can play. None: it can answer any request."""
    acts_with: str = ""
    """What `recognises` looks for, in words: a tool's name."""


# One reply of a policy to one request: the same for the simulated provider and for a policy in this process.
#
# The stream comes from the request's seed and the policy's name, and a reply longer than the request's `max_tokens`
# is cut as a provider would cut it; so a sweep over HTTP and the same sweep in this process give the same replies.


def answer(name: str, play: PolicyFn, request: Request) -> Reply:
    """What the policy of that name, played by `play`, says to the request."""
    return cut(play(request, Stream(request.seed, "policy", name)), request.sampling.max_tokens)
