"""Every dialect as its real provider speaks it: the formats that evalkit serves, Gemini's, those of clouds, and each
provider's ways with paths, keys, limits, lists and broken streams."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import orjson

from evalkit.dialogue import Request
from evalkit.integrations.gateway.anthropic_messages import SERVED_ANTHROPIC_MESSAGES
from evalkit.integrations.gateway.openai_responses import SERVED_OPENAI_RESPONSES
from evalkit.serve import openai_chat
from evalkit.serve.formats import Cutter, Event, ServedFormat, StreamWish, list_of, loaded
from evalkit.serve.limits import LimitStanding
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.wire.lenient import dumps_any
from evalkit.wire.table import ANTHROPIC_BEDROCK, ANTHROPIC_VERTEX, BEDROCK_VERSION, GEMINI_VERTEX, VERTEX_VERSION
from tests.provider.cache import Piece, pieces_of
from tests.provider.gemini import GEMINI_FORMAT, decode_request

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
"""A moment as RFC 3339 has it."""
CREATED_S = 1_700_000_000
"""The moment, in Unix time, at which every model was made, and a provider without a clock starts."""
Standings = Mapping[str, LimitStanding]


class Whole(Cutter):
    """Cuts nothing."""

    def __init__(self) -> None:
        """No draws decide."""

    def __call__(self, text: str) -> list[str]:
        """The text in one piece, if there is any."""
        return [text] if text else []


def _only(error: Event, _whole: Mapping[str, Any]) -> list[Event]:
    return [error]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenDialect(ServedFormat):
    """One wire format, and its real provider's ways."""

    decode: Callable[[bytes, str], tuple[str, Request]]
    """(body, the model that the path names, else empty) -> (model, request). Raises ValueError."""
    base_path: str = "/v1"
    """Before the dialect's path."""
    other_paths: tuple[str, ...] = ()
    """Further base paths at which its requests are taken."""
    id_header: str = ""
    """The header that names a request; empty: none does."""
    limit_headers: Callable[[Standings, float], Mapping[str, str]]
    """(where the limits stand, by kind; now in Unix time) -> headers."""
    wait_in_body: bool = False
    """Whether the wait that a refusal asks for stands in its body and not in a header."""
    keys: Callable[[str], Sequence[tuple[str, str]]]
    """A key -> the headers (name in lower case, value) of which any one carries it."""
    objection: Callable[[Mapping[str, str], Request], str] = lambda _headers, _request: ""
    """(headers, request) -> what is wrong with them together, as an error's message; empty: nothing."""
    bad_key_status: int = 401
    bad_key_code: str = "invalid_api_key"
    prompt_pieces: Callable[[Mapping[str, Any]], Iterator[Piece]]
    """A body -> what its prompt consists of, for the cache."""
    caches_by_marks: bool = False
    """Whether only what a request marks is cached; else every long beginning is."""
    limits_cached_input: bool = True
    """Whether input that was read from the cache counts against the limit on input."""
    stream_path: str = ""
    """The path of requests for a stream; empty: the body says that a stream is wanted."""
    line_end: bytes = b"\n"
    ping: Event | None = None
    """The event that only keeps a stream's connection alive; None: the format has none."""
    stream_errors: Callable[[Event, Mapping[str, Any]], list[Event]] = _only
    """(an error's body, the 200 body that it interrupts) -> the events that say so in the middle of a stream."""
    joined: Callable[[Mapping[str, Any], StreamWish], Iterator[Event]] | None = None
    """A 200 body in as few events as the format allows; None: with every delta whole."""

    @property
    def base_paths(self) -> tuple[str, ...]:
        """All base paths at which its requests are taken."""
        return (self.base_path, *self.other_paths)

    def model_of(self, path: str) -> str | None:
        """The model that a path names; empty if paths name none; None if the path is not this dialect's."""
        return model_in(self.dialect.path, path)


def model_in(pattern: str, path: str) -> str | None:
    """The model that a path like `pattern` names; empty if the pattern has no `{model}`; None if it is not like it."""
    before, holds, after = pattern.partition("{model}")
    if not holds:
        return "" if path == before else None
    model = path[len(before) : len(path) - len(after)]
    fits = path.startswith(before) and path.endswith(after) and model and "/" not in model
    return unquote(model) if fits else None


def _spoken(form: ServedFormat, **ways: Any) -> SpokenDialect:
    plain = {one.name: getattr(form, one.name) for one in fields(ServedFormat)}
    return SpokenDialect(**{"decode": lambda body, _model: form.decode_request(body), **plain, **ways})


def _bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


def _joined_chat(value: Mapping[str, Any], wish: StreamWish) -> Iterator[Event]:
    """One chunk says everything."""
    (choice,), shared = value["choices"], {**value, "object": "chat.completion.chunk"}
    usage = shared.pop("usage", None)
    shared |= {"usage": None} if wish.usage else {}
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    delta = {**choice["message"], **({"tool_calls": calls} if calls else {})}
    yield {**shared, "choices": [{**choice, "message": None, "delta": delta, "logprobs": None}]}
    if wish.usage and usage is not None:
        yield {**shared, "choices": [], "usage": usage}


def _failed(error: Event, whole: Mapping[str, Any]) -> list[Event]:
    """An error, and the response that failed by it."""
    said = {name: error["error"][name] for name in ("code", "message")}
    failed = {**whole, "status": "failed", "error": said, "incomplete_details": None, "output": [], "usage": None}
    return [{"type": "error", **said, "param": None}, {"type": "response.failed", "response": failed}]


def _openai(form: ServedFormat, pieces: Callable[[Mapping[str, Any]], Iterator[Piece]], **ways: Any) -> SpokenDialect:
    return _spoken(
        form,
        id_header="x-request-id",
        limit_headers=lambda standings, _wall_s: openai_chat.limit_headers(standings),
        keys=lambda key: [_bearer(key)],
        prompt_pieces=pieces,
        **ways,
    )


CHAT = _openai(SERVED_OPENAI_CHAT, pieces_of("tools", "messages"), joined=_joined_chat)
RESPONSES = _openai(
    SERVED_OPENAI_RESPONSES,
    pieces_of("tools", "instructions", "input"),
    stream_errors=_failed,
    # The keep-alive event is in no documentation, and the API sends it all the same.
    ping={"type": "keepalive"},
)


def _anthropic_limits(standings: Standings, wall_s: float) -> dict[str, str]:
    """`anthropic-ratelimit-*`: moments as RFC 3339 has them, rounded up to whole seconds, beside a date that is rounded
    down.

    Where input and output are limited apart, `tokens` stands for both together, as at the real provider.
    """
    if not standings:
        return {}
    known = dict(standings)
    if "tokens" not in known and {"input_tokens", "output_tokens"} <= known.keys():
        both = (known["input_tokens"], known["output_tokens"])
        known["tokens"] = LimitStanding(
            limit=sum(standing.limit for standing in both),
            remaining=sum(standing.remaining for standing in both),
            full_in_s=max(standing.full_in_s for standing in both),
        )
    headers = {"date": format_datetime(datetime.fromtimestamp(math.floor(wall_s), UTC), usegmt=True)}
    for kind, standing in known.items():
        start = f"anthropic-ratelimit-{kind.replace('_', '-')}"
        headers[f"{start}-limit"] = str(standing.limit)
        headers[f"{start}-remaining"] = str(standing.remaining)
        full = datetime.fromtimestamp(math.ceil(wall_s + standing.full_in_s), UTC)
        headers[f"{start}-reset"] = full.strftime(MOMENT)
    return headers


_VERSIONS = ("2023-06-01", "2026-10-21")


def _objection(headers: Mapping[str, str], request: Request) -> str:
    """Every request names a version of the API, and the newest has no sampling fields any more."""
    version, sampling = headers.get("anthropic-version", ""), request.sampling
    if version not in _VERSIONS:
        return f"anthropic-version: is required: one of {', '.join(_VERSIONS)}"
    if version == _VERSIONS[-1] and (sampling.temperature is not None or sampling.top_p is not None):
        return f"temperature, top_p: are not supported in version {version}"
    return ""


def _anthropic_pieces(value: Mapping[str, Any]) -> Iterator[Piece]:
    blocks = [("tools", block) for block in value.get("tools") or []]
    blocks += [("system", block) for block in _blocks(value.get("system") or [])]
    blocks += [(turn["role"], block) for turn in value["messages"] for block in _blocks(turn["content"])]
    for index, (section, block) in enumerate(blocks):
        plain = {name: field for name, field in block.items() if name != "cache_control"}
        whole = index == len(blocks) - 1 and bool(value.get("cache_control"))
        yield section, plain, whole or bool(block.get("cache_control"))


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_MOST_BREAKPOINTS = 4


def _messages_request(body: bytes, _model: str = "") -> tuple[str, Request]:
    value = loaded(body)
    blocks = [value, *list_of(value, "tools"), *(value["system"] if isinstance(value.get("system"), list) else ())]
    for turn in list_of(value, "messages"):
        content = turn.get("content") if isinstance(turn, dict) else None
        blocks += content if isinstance(content, list) else []
    if sum(isinstance(block, dict) and "cache_control" in block for block in blocks) > _MOST_BREAKPOINTS:
        raise ValueError(f"a maximum of {_MOST_BREAKPOINTS} blocks with cache_control may be provided")
    return SERVED_ANTHROPIC_MESSAGES.decode_request(body)


MESSAGES = _spoken(
    SERVED_ANTHROPIC_MESSAGES,
    decode=_messages_request,
    id_header="request-id",
    limit_headers=_anthropic_limits,
    # Its SDK sends the second since version 2.
    keys=lambda key: [("x-api-key", key), _bearer(key)],
    objection=_objection,
    prompt_pieces=_anthropic_pieces,
    caches_by_marks=True,
    limits_cached_input=False,
    ping={"type": "ping"},
)


GEMINI = _spoken(
    GEMINI_FORMAT,
    decode=decode_request,
    base_path="/v1beta",
    # The stable version of the API: the same requests.
    other_paths=("/v1",),
    # Google sends no headers of limits; the wait that an error asks for stands among its details.
    limit_headers=lambda _standings, _wall_s: {},
    wait_in_body=True,
    keys=lambda key: [("x-goog-api-key", key)],
    bad_key_status=400,
    bad_key_code="api_key_invalid",
    prompt_pieces=pieces_of("tools", "systemInstruction", "contents"),
    stream_path="/models/{model}:streamGenerateContent",
    line_end=b"\r\n",
    joined=lambda value, _wish: iter([dict(value)]),
)

PROJECT = "/projects/simulated/locations/global/publishers"
"""Of the simulated Vertex."""


def _cloud_request(body: bytes, model: str, *, version: str, streams: bool) -> tuple[str, Request]:
    """A request whose path names the model, and whose body names the version."""
    value = loaded(body)
    for name in value.keys() & ({"model"} if streams else {"model", "stream"}):
        raise ValueError(f"{name}: extra inputs are not permitted")
    if value.pop("anthropic_version", None) != version:
        raise ValueError(f"anthropic_version: is required, and must be {version!r}")
    return _messages_request(orjson.dumps({"model": model, **value}))


_CLOUD: dict[str, Any] = {
    "limit_headers": lambda _standings, _wall_s: {},
    "keys": lambda key: [_bearer(key)],
    "objection": lambda _headers, _request: "",
    "other_paths": ("/v1",),
}
"""The key is a bearer token. AWS's signatures are not checked here: with them, no key may be required."""

SERVED_DIALECTS: Mapping[str, SpokenDialect] = {
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "anthropic_messages": MESSAGES,
    "gemini": GEMINI,
    "anthropic_bedrock": replace(
        MESSAGES,
        dialect=ANTHROPIC_BEDROCK,
        decode=partial(_cloud_request, version=BEDROCK_VERSION, streams=False),
        encode_error=lambda _status, _code, message: dumps_any({"message": message}),
        base_path="",
        id_header="x-amzn-requestid",
        bad_key_status=403,
        **_CLOUD,
    ),
    "anthropic_vertex": replace(
        MESSAGES,
        dialect=ANTHROPIC_VERTEX,
        decode=partial(_cloud_request, version=VERTEX_VERSION, streams=True),
        base_path=f"/v1{PROJECT}/anthropic",
        sdk_path="/v1",
        **_CLOUD,
    ),
    "gemini_vertex": replace(
        GEMINI,
        dialect=GEMINI_VERTEX,
        base_path=f"/v1{PROJECT}/google",
        # The version that its SDK calls if it is not told otherwise. At `/v1`, where a run finds what it starts itself,
        # these requests are taken for Gemini's own: they are the same but for the key's header.
        other_paths=(f"/v1beta1{PROJECT}/google",),
        keys=lambda key: [_bearer(key)],
        bad_key_status=401,
        bad_key_code="access_token_expired",
    ),
}
