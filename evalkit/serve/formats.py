"""What a served format is: a wire format in the direction that a server speaks, whole and as a stream.

The client's direction is the dialect's own record in `wire/`, which knows nothing of this one. A stream is made from
the body that the same request would get whole, so that the two cannot differ.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from evalkit.dialogue import Reply, Request, ToolCall
from evalkit.seeds import Stream
from evalkit.wire.dialect import Dialect
from evalkit.wire.fields import RAW
from evalkit.wire.tokens import BYTES_PER_TOKEN

BASE_PATH = "/v1"
"""Before a format's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWish:
    """How a client wants its stream."""

    usage: bool = False
    """Whether the usage is stated at its end, where that must be asked for."""


class Cutter:
    """Cuts texts into deltas, at places that its draws decide."""

    def __init__(self, draws: Stream, tokens: int) -> None:
        self._draws, self._most = draws, 2 * tokens * BYTES_PER_TOKEN

    def __call__(self, text: str) -> list[str]:
        """The text in pieces of `tokens` tokens on average; none of an empty text. A character is never cut: a text
        that was read from JSON has no halves of surrogates."""
        pieces, start = [], 0
        while start < len(text):
            end = start + 1 + self._draws.below(self._most - 1)
            pieces.append(text[start:end])
            start = end
        return pieces


Event = dict[str, Any]
"""An event's data, as a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFormat:
    """How one format streams."""

    events: Callable[[Mapping[str, Any], StreamWish, Cutter], Iterator[Event]]
    """(a 200 body's value, how it is wanted, what cuts texts) -> its events, in order."""
    named: bool = False
    """Whether an event's name stands before its data; it is the data's `type`."""
    numbered: bool = False
    """Whether each event has a `sequence_number`."""
    end_mark: bytes = b""
    """The data after the last event; empty: nothing comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFormat:
    """One wire format, as a server speaks it."""

    dialect: Dialect
    """The client's direction of it."""
    decode_request: Callable[[bytes], tuple[str, Request]]
    """A body -> (model, request). Raises ValueError saying what is wrong."""
    encode_reply: Callable[[Reply], bytes]
    """A reply -> a 200 body."""
    stream: EventFormat
    """How the same body comes as a stream."""
    encode_error: Callable[[int, str, str], bytes]
    """(HTTP status, code as the verdicts know it, message) -> the body of an error."""
    reply_id: Callable[[str], str]
    """Hexadecimal digits, at least 48 -> a reply's id."""
    sdk_path: str
    """What the base URL that its official SDK wants ends in."""


def check_stream(value: Mapping[str, Any]) -> None:
    """Raises ValueError if a body's `stream` is not a truth value."""
    if not isinstance(value.get("stream"), bool | None):
        raise ValueError("stream: must be true or false")


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
