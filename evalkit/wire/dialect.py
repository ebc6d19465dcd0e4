"""What a dialect is: one wire format as a frozen record of pure functions, in the client's direction.

A message is encoded once, when it joins the chat, and spliced into every later body: the cost of a turn, copying aside,
does not grow with the chat. If a format has several messages in one entry, they are merged as they join.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from evalkit.dialogue import Message, Reply, Sampling, Tool
from evalkit.wire.allowance import Allowance
from evalkit.wire.extras import NO_FIELDS, ExtraFields
from evalkit.wire.history import CALL_IDS, MALFORMED_ARGUMENTS, returnable
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, loads_lenient
from evalkit.wire.streams import StreamForm
from evalkit.wire.verdicts import unreadable

__all__ = ["MALFORMED_ARGUMENTS", "REFUSABLE", "Dialect", "MalformedReplyError", "Quirks", "splice"]

MAX_TOKENS, GEO, CACHE = "max_tokens", "inference_geo", "cache"
REFUSABLE = frozenset(
    {MAX_TOKENS, "temperature", "top_p", "seed", "parallel_calls", "tool_choice", "effort", "encrypted_reasoning"}
    | {"stream", "stream_options", MALFORMED_ARGUMENTS, CALL_IDS, GEO, CACHE}
)
"""What a provider's file may list as `refuses`. A model that refuses `max_tokens` is sent `max_completion_tokens`."""

AfterResults = Literal["user", "joined", "bridged"]
ThinkingBack = Literal["calls", "always", "filled", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How one model's API departs from its dialect's default; from the catalogue."""

    max_tokens_field: str = "max_tokens"
    refuses: frozenset[str] = frozenset()
    """Fields of `Sampling` (and `seed`) that the model's API refuses; never sent. `encrypted_reasoning`:
    the model does not have it (`openai_responses`). `stream`: its replies cannot be streamed; `stream_options`: they
    can, without that field. `MALFORMED_ARGUMENTS`, `CALL_IDS`. `CACHE`: its prompt cache lasts no longer by a wish."""
    after_results: AfterResults = "user"
    """What may follow the results of calls, if no reply does. `user`: a user's message. `joined`: nothing, so that its
    text joins the last result. `bridged`: a short message of the agent's, then the user's."""
    thinking_back: ThinkingBack = "calls"
    """With which of the agent's messages `reasoning_content` goes back. `calls`: those that have calls and thoughts.
    `always`: all, also if it is empty; `filled`: all, and a blank where it is. `never`: none."""


PLAIN = Quirks()
"""Of an API that departs in nothing."""


def _append(parts: list[bytes], encoded: Iterable[bytes], _: Quirks) -> None:
    parts.extend(encoded)


def _prepare(message: Message, quirks: Quirks) -> Message:
    return returnable(message, quirks.refuses)


class CacheLife(NamedTuple):
    """How long a prompt cache may last, by a request's own wish."""

    ask: Callable[[bytes], bytes]
    """(a request's body) -> the body that asks for it."""
    seconds: float
    write_times: int = 0
    """How many times the price of input a token costs that is written so; 0: as much as any that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format."""

    name: str
    path: str
    """Appended to the provider's base URL; `{model}` in it stands for the model's name."""
    overhead_tokens: int
    """Input tokens that a request may cost beyond one per byte of its body (from the chat template)."""
    head: Callable[[str, Sampling, Quirks], bytes]
    """(model, sampling, quirks) -> the part of a body that all requests of an agent share; computed once."""
    encode_tools: Callable[[Sequence[Tool]], bytes]
    encode_message: Callable[[Message], bytes]
    body: Callable[[bytes, bytes, Sequence[bytes], int | None], bytes]
    """(head, tools, parts as `join` left them, seed) -> the request body, by joining what is encoded already."""
    headers: Callable[[str], Mapping[str, str]]
    """(key) -> authentication headers; an empty key gives none."""
    read: Callable[[Any], Reply]
    """A 200 body's value, as `loads_lenient` gave it, as a reply. Raises MalformedReplyError if there is none."""
    judge: Callable[[HttpResponse], Verdict]
    allowances: Callable[[Mapping[str, str]], tuple[Allowance | None, Allowance | None]]
    """The remaining limits on (requests, tokens) that a response's headers state."""
    objections: Callable[[Sampling, Sequence[Tool]], Sequence[str]]
    """What the dialect cannot express of this, in sentences; checked before anything is sent."""
    extra_fields: ExtraFields = NO_FIELDS
    """What an agent's `extra` may set."""
    lacks: frozenset[str] = frozenset()
    """Fields of `Sampling` that the format does not have: an environment's default is left out, with a note, and an
    agent that sets one is refused."""
    stream: StreamForm | None = None
    """How replies are streamed; None: they are not."""
    cached_reads_count: bool = True
    """Whether tokens read from the prompt cache count against limits of input tokens."""
    efforts: tuple[str, ...] = ()
    """The values of `effort` that the format knows; empty: `objections` looks at them, or any is sent."""
    cache_key: str = ""
    """The field of a body, besides those of `head`, that lets requests of one name use the same prompt cache; empty:
    the format has none."""
    caches: Mapping[str, CacheLife] = field(default_factory=dict)
    """By lifetime (`1h`): how requests ask for a prompt cache that lasts longer than usual."""
    tier_field: str = ""
    """The field of a body that names the tier a request is served by; empty: the format has none."""
    tier_headers: Callable[[str], Mapping[str, str]] | None = None
    """(the provider's word for a tier) -> the headers that name it, where no field does."""
    served_header: str = ""
    """The header of a response that names the tier it was served by, where its body does not."""
    extend: Callable[[list[bytes], Iterable[bytes], Quirks], None] = _append
    """(parts of a chat, encoded messages): appends them, or merges them with some of the parts, in place."""
    prepare: Callable[[Message, Quirks], Message] = _prepare
    """The message as the model's API takes it back."""
    follows: frozenset[str] = frozenset()
    """Of a model's `after_results` and `thinking_back`, those that make a difference in this format; and `GEO` if
    requests may say where they are to be answered."""

    def join(self, parts: list[bytes], messages: Iterable[Message], quirks: Quirks = PLAIN) -> None:
        """Append messages to the parts of their chat, in place; each is encoded here and never again.

        Each part is copied: what orjson returns keeps the 4 KiB that it began with, ten times a message of a tool.
        """
        prepared = messages if quirks == PLAIN else [self.prepare(message, quirks) for message in messages]
        self.extend(parts, (bytes(memoryview(self.encode_message(message))) for message in prepared), quirks)

    def path_of(self, model: str) -> str:
        """The path for one model's requests."""
        return _path(self.path, model)

    def stream_path_of(self, model: str) -> str:
        """The path for one model's requests that ask for a stream."""
        return _path((self.stream and self.stream.path) or self.path, model)

    def stream_form(self, quirks: Quirks) -> StreamForm | None:
        """How one model's replies are streamed; None: they are not."""
        return None if self.stream is None or "stream" in quirks.refuses else self.stream.without(quirks.refuses)

    def understand(self, response: HttpResponse) -> tuple[Verdict, Reply | None, bool]:
        """(verdict, reply if it is accepted, whether a strict JSON parser refused its body); defined for every
        response.

        Linear in the body, and slow enough for a large one to be called in a thread (`ON_LOOP_BYTES`).
        """
        verdict = self.judge(response)
        if verdict.action != "accept":
            return verdict, None, False
        try:
            value, lenient = loads_lenient(response.body)
            reply = self.read(value)
            if self.served_header and not reply.tier:
                reply = replace(reply, tier=response.headers.get(self.served_header, ""))
            return verdict, reply, lenient
        except MalformedReplyError:
            return unreadable(response), None, False

    def decode(self, body: bytes) -> Reply:
        """A 200 body as a reply. Raises MalformedReplyError if it contains no reply."""
        return self.read(loads_lenient(body)[0])


def bearer(key: str) -> Mapping[str, str]:
    """The header of a key as most providers take it."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def plain_settings(sampling: Sampling, quirks: Quirks, *, top_p: str = "top_p", effort: str = "") -> dict[str, Any]:
    """The settings that formats have as plain fields, without those that the model refuses; `top_p`, `effort`: what the
    format calls them, empty if that is no plain field."""
    names = {"temperature": "temperature", "top_p": top_p} | ({"effort": effort} if effort else {})
    values = {name: getattr(sampling, field) for field, name in names.items() if field not in quirks.refuses}
    return {name: value for name, value in values.items() if value not in (None, "")}


def _path(path: str, model: str) -> str:
    return path.replace("{model}", quote(model, safe=""))


def splice(before: bytes, parts: Sequence[bytes], after: bytes) -> bytes:
    """What comes before a body's parts, the parts separated by commas, and what comes after them: copied once."""
    pieces = list(parts) or [b""]
    pieces[0] = before + pieces[0]
    pieces[-1] += after
    return b",".join(pieces)
