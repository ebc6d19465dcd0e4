"""What a served dialect is: a wire format in the direction that a server speaks, and the ways of its real provider.

The client's direction is the dialect's own record in `wire/`, which knows nothing of this one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import orjson

from evalkit.dialogue import Reply, Request, ToolCall
from evalkit.serve.cache import Piece
from evalkit.serve.dialects.streamed import EventFormat
from evalkit.serve.limits import LimitStanding
from evalkit.wire.dialect import Dialect
from evalkit.wire.fields import RAW

CREATED_S = 1_700_000_000
"""The moment, in Unix time, at which every model claims to have been made, and a provider without a clock to start."""

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
"""A moment as RFC 3339 has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDialect:
    """One wire format, and its real provider's ways, as the simulated provider speaks it."""

    dialect: Dialect
    """The client's direction of it."""
    decode_request: Callable[[bytes, str], tuple[str, Request]]
    """(body, the model that the path names, else empty) -> (model, request). Raises ValueError saying what is wrong."""
    encode_reply: Callable[[Reply], bytes]
    """A reply -> a 200 body."""
    stream: EventFormat
    """How the same body comes as a stream."""
    encode_error: Callable[[int, str, str], bytes]
    """(HTTP status, code as the verdicts know it, message) -> the body of an error."""
    base_path: str
    """Before the dialect's path."""
    sdk_path: str
    """What the base URL that its official SDK wants ends in."""
    other_paths: tuple[str, ...] = ()
    """Further base paths at which its requests are taken."""
    id_header: str = ""
    """The header that names a request; empty: none does."""
    reply_id: Callable[[str], str]
    """Hexadecimal digits, at least 48 -> a reply's id."""
    limit_headers: Callable[[Mapping[str, LimitStanding], float], dict[str, str]]
    """(where the limits stand, by kind; now in Unix time) -> headers."""
    wait_in_body: bool = False
    """Whether the wait that a refusal asks for stands in its body and not in a header."""
    keys: Callable[[str], Sequence[tuple[str, str]]]
    """A key -> the headers (name in lower case, value) of which any one carries it."""
    objection: Callable[[Mapping[str, str], Request], str] = lambda _headers, _request: ""
    """(headers, request) -> what is wrong with them together, as an error's message; empty: nothing."""
    bad_key_status: int = 401
    bad_key_code: str = "invalid_api_key"
    models: Callable[[Sequence[str]], object]
    """The list of models, as a JSON value."""
    model: Callable[[str], object]
    """One model of that list."""
    prompt_pieces: Callable[[Mapping[str, Any]], Iterator[Piece]]
    """A body -> what its prompt consists of, for the cache."""
    caches_by_marks: bool = False
    """Whether only what a request marks is cached; else every long beginning is."""
    limits_cached_input: bool = True
    """Whether input that was read from the cache counts against the limit on input."""

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


def retry_headers(served: ServedDialect, wait_s: float | None, form: str, wall_s: float) -> dict[str, str]:
    """The headers that ask to wait; `form` is `seconds` or `date`, `wall_s` now in Unix time.

    Whole seconds are rounded up, and so is a date beside the response's own, so that nobody comes too early.
    """
    if wait_s is None or served.wait_in_body:
        return {}
    if form == "date":
        return {"retry-after": http_date(math.ceil(wall_s + wait_s)), "date": http_date(math.floor(wall_s))}
    return {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}


def with_wait(served: ServedDialect, body: bytes, wait_s: float | None) -> bytes:
    """An error's body with the wait in it, where the provider says it there."""
    if wait_s is None or not served.wait_in_body:
        return body
    value = orjson.loads(body)
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(wait_s * 1000) / 1000:g}s"}
    value["error"]["details"] = [*value["error"].get("details", []), retry]
    return orjson.dumps(value)


def http_date(unix_s: float) -> str:
    """A moment in Unix time as HTTP headers have it."""
    return format_datetime(datetime.fromtimestamp(unix_s, UTC), usegmt=True)


def bearer(key: str) -> tuple[str, str]:
    """The header that carries a key at most providers."""
    return "authorization", f"Bearer {key}"


def as_written(call: ToolCall) -> ToolCall:
    """The call with arguments that `object_text` wrapped as they were before."""
    value = orjson.loads(call.arguments)
    wrapped = isinstance(value, dict) and value.keys() == {RAW} and isinstance(value[RAW], str)
    return replace(call, arguments=value[RAW]) if wrapped else call


def loaded(body: bytes) -> dict[str, Any]:
    """A request's body, without members that are null: frameworks write them for what they leave out, and the formats
    call them nullable. What a schema, arguments or a result hold stays as it is. Raises ValueError."""
    value = orjson.loads(body)  # its JSONDecodeError is a ValueError
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return _without_nulls(value) if b"null" in body else value


_DATA = frozenset({"parameters", "parametersJsonSchema", "parameters_json_schema", "input_schema", "input", "args"}) | {
    *("response", "response_format", "metadata", "schema")
}
"""Objects that are not the format's own; `input` is a list where it is."""


def _without_nulls(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item, depth + 1) for item in value] if depth < DEPTH else value
    if not isinstance(value, dict) or depth >= DEPTH:
        return value
    return {
        name: member if name in _DATA and isinstance(member, dict) else _without_nulls(member, depth + 1)
        for name, member in value.items()
        if member is not None
    }


DEPTH = 12
"""The formats' own objects are nested less deeply."""


def list_of(value: Mapping[str, Any], name: str) -> list[Any]:
    """A field of a request; empty where it is null or missing. Raises ValueError where it is no list."""
    items = value.get(name)
    if items is not None and not isinstance(items, list):
        raise ValueError(f"{name}: must be a list")
    return items or []
