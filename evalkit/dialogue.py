"""The types that environments, dialects, policies and the engine share: questions and answers.

Everything here is a frozen value without behaviour beyond its own bytes. Nothing here knows a provider or an
environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass, replace
from typing import Literal, TypeVar

import msgspec

StructT = TypeVar("StructT", bound=type[msgspec.Struct])

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "required", "none"]


def as_dataclass(kind: StructT) -> StructT:
    """What every reply is made of is a msgspec struct: making one costs a tenth of what a frozen dataclass takes. The
    functions of `dataclasses` (`replace`, `fields`, `asdict`) take it as one."""
    words = {"__doc__": kind.__doc__}  # else it words one of its own, which takes most of its time
    like = make_dataclass(
        kind.__name__, kind.__annotations__.items(), namespace=words, init=False, repr=False, eq=False
    )
    kind.__dataclass_fields__ = like.__dataclass_fields__  # type: ignore[attr-defined]
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the agent may call.

    name          as it is called
    description   what it does, for the agent
    parameters    a mapping: the JSON schema of the object of arguments

    >>> import evalkit
    >>> game = evalkit.game(evalkit.suite("scheduling/basic")[0])
    >>> [tool.name for tool in game.tools][:2]
    ['get_previous_attempts_data', 'get_attempt_number']
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of the arguments object."""


@as_dataclass
class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool, exactly as the model wrote it. Untrusted: nothing in it has been checked.

    id          by which its result names it
    name        of the tool
    arguments   a string: JSON of an object, if the model followed the format

    >>> import json
    >>> from evalkit import ToolCall
    >>> ToolCall(id="1", name="set_prices", arguments=json.dumps({"prices": {"1": 2.5}}))
    ToolCall(id='1', name='set_prices', arguments='{"prices": {"1": 2.5}}')
    """

    id: str
    name: str
    arguments: str
    """The arguments as a string; a JSON object, if the model followed the format."""


@as_dataclass
class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a chat.

    role      `system`, `user`, `assistant` (the agent) or `tool` (the result of a call)
    text      what it says
    calls     of the agent: a tuple of `ToolCall`, in the order in which it made them
    call_id   of a result: the id of the call that it answers
    name      of a result: the tool that was called
    named     of a result: whether formats say its tool's name that need not
    opaque    of the agent: bytes of JSON that only the provider's format understands, such as signatures
    reasoning
              of the agent: what it thought, as far as `opaque` does not hold it

    >>> import evalkit
    >>> game = evalkit.game(evalkit.suite("pricing/basic")[0])
    >>> [message.role for message in game.messages]
    ['system', 'user']
    """

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Assistant only: the tool calls, in the order the model made them."""
    call_id: str = ""
    """Tool only: the call this answers."""
    name: str = ""
    """Tool only: the name of the tool that was called, for dialects that send it."""
    named: bool = False
    """Tool only: whether dialects send the name that may leave it out."""
    opaque: bytes = b""
    """Assistant only: the part of a reply that only its dialect understands (JSON), sent back verbatim."""
    reasoning: str = ""
    """Assistant only: what the model thought, of which only some APIs want to be told again."""


@as_dataclass
class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one reply, as the provider counts them.

    input          of the request, cached ones included
    output         of the reply, reasoning included
    cached_read    of the input: read from the provider's prompt cache
    cached_write   of the input: written to it
    lasting        of what was written: kept for longer than usual
    reasoning      of the output: hidden reasoning
    unknown        names of the figures that the provider did not state: they are 0 here
    doubtful       whether the provider's figures contradict each other

    >>> from evalkit import Usage
    >>> Usage(input=1200, output=80).reasoning
    0
    """

    input: int = 0
    """All prompt tokens, cached ones included."""
    output: int = 0
    """All reply tokens, reasoning included."""
    cached_read: int = 0
    """Part of `input` that was read from the provider's prompt cache."""
    cached_write: int = 0
    """Part of `input` that was written to the provider's prompt cache."""
    lasting: int = 0
    """Part of `cached_write` that is kept for longer, for all that the provider says. Two usages that differ in nothing
    else are equal: the log does not hold it."""
    reasoning: int = 0
    """Part of `output` that was hidden reasoning."""
    unknown: tuple[str, ...] = ()
    """Names of the figures above that the provider did not state, or not as numbers of tokens: they are 0 here. Two
    usages with the same figures are equal, whatever this names."""
    doubtful: bool = False
    """Whether the provider's figures contradict each other: the larger reading of them is here. It makes no difference
    for whether two usages are equal."""

    def __eq__(self, other: object) -> bool:
        return self._figures == other._figures if isinstance(other, Usage) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._figures)

    @property
    def _figures(self) -> tuple[int, ...]:
        return self.input, self.output, self.cached_read, self.cached_write, self.reasoning


@as_dataclass
class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a model, a policy or you have answered.

    text          what it says
    calls         a tuple of `ToolCall`, in order
    finish        `stop`, `tool_calls`, `length`, `content_filter`, `refusal`, `malformed_call` (the provider could not
                  read the model's call), or the provider's own word
    usage         `Usage`; replies that are read from a log have none, its columns have the tokens
    model, fingerprint, response_id
                  what the provider reports about itself; empty if it reports nothing
    opaque        bytes of JSON that only the provider's format understands; sent back as they are
    reasoning     what the model thought, as far as it is shown and not part of `opaque`; few APIs want it back
    tier          the tier that served it, in the provider's words; empty if it names none

    >>> from evalkit import Reply, ToolCall
    >>> reply = Reply(text="First the notes.", calls=(ToolCall(id="1", name="read_notes", arguments="{}"),))
    >>> reply.message().role
    'assistant'
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    """`stop`, `tool_calls`, `length`, `content_filter`, `refusal`, or the provider's own word."""
    usage: Usage = Usage()
    model: str = ""
    """The model that was served, in the provider's words."""
    fingerprint: str = ""
    """The provider's fingerprint of the deployment, if it gives one."""
    response_id: str = ""
    opaque: bytes = b""
    """JSON that only the dialect understands (reasoning items, signatures); stored and sent back verbatim."""
    reasoning: str = ""
    """What the model thought, where the provider shows it and most do not want it back; stored for readers."""
    tier: str = ""
    """The tier that served it, in the provider's words, after a slash where, if that costs more; empty: not named."""

    def message(self) -> Message:
        """The reply as it joins the chat."""
        return Message(role="assistant", text=self.text, calls=self.calls, opaque=self.opaque, reasoning=self.reasoning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a model is asked. The environment gives defaults; the agent may override each."""

    temperature: float | None = None
    max_tokens: int = 4096
    """Always sent: it bounds the worst case of a request."""
    tool_choice: ToolChoice = "auto"
    parallel_calls: bool | None = None
    top_p: float | None = None
    effort: str = ""
    """Reasoning effort, in the provider's words; empty: not sent."""
    extra: str = ""
    """Further body fields: a JSON object as a string; empty: none."""
    seed: int | bool | None = None
    """None: each request has its own, made from episode and step. False: no seed is sent. An integer: every request has
    this one. Never True."""

    def with_overrides(self, overrides: Mapping[str, object]) -> "Sampling":
        """A copy with the given fields replaced; the caller has checked names and types."""
        return replace(self, **overrides)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question, provider-neutral: what a policy sees, and what a simulated provider decodes."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sampling: Sampling
    seed: int
    """Made from (episode, step); the only randomness a policy may use."""
