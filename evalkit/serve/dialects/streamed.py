"""A reply as a stream: what a dialect says of its events, and the cutter that all dialects share.

A stream is made from the body that the same request would get whole, so that the two cannot differ.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.seeds import Stream
from evalkit.wire.tokens import BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWish:
    """How a client wants its stream."""

    usage: bool = False
    """Whether the usage is stated at its end, where that must be asked for."""
    as_list: bool = False
    """Whether it comes as one JSON list instead of server-sent events."""


class Cutter:
    """Cuts texts into deltas, at places that its draws decide."""

    def __init__(self, draws: Stream, tokens: int, *, joined: bool = False) -> None:
        self._draws, self._most = draws, 2 * tokens * BYTES_PER_TOKEN
        self.joined = joined
        """Whether deltas come joined, as far as the dialect allows it."""

    def __call__(self, text: str) -> list[str]:
        """The text in pieces of `tokens` tokens on average; none of an empty text. A character is never cut: a text
        that was read from JSON has no halves of surrogates."""
        if self.joined or not text:
            return [text] if text else []
        pieces, start = [], 0
        while start < len(text):
            end = start + 1 + self._draws.below(self._most - 1)
            pieces.append(text[start:end])
            start = end
        return pieces

    def either(self) -> bool:
        """One of two forms that the real provider uses both."""
        return self._draws.below(2) == 1


Event = dict[str, Any]
"""An event's data, as a JSON object."""


def only(error: Event, _whole: Mapping[str, Any]) -> list[Event]:
    """The body of an error as the one event that says it."""
    return [error]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFormat:
    """How one dialect streams."""

    events: Callable[[Mapping[str, Any], StreamWish, Cutter], Iterator[Event]]
    """(a 200 body's value, how it is wanted, what cuts texts) -> its events, in order."""
    errors: Callable[[Event, Mapping[str, Any]], list[Event]] = only
    """(an error's body, the 200 body that it interrupts) -> the events that say so in the middle of a stream."""
    named: bool = False
    """Whether an event's name stands before its data; it is the data's `type`."""
    numbered: bool = False
    """Whether each event has a `sequence_number`."""
    end_mark: bytes = b""
    """The data after the last event; empty: nothing comes after it."""
    line_end: bytes = b"\n"
    ping: Event | None = None
    """The event that only keeps the connection alive; None: the format has none."""
    path: str = ""
    """The path of requests for a stream, as `Dialect.path`; empty: the body says that a stream is wanted."""


def check_stream(value: Mapping[str, Any]) -> None:
    """Raises ValueError if a body's `stream` is not a truth value."""
    if not isinstance(value.get("stream"), bool | None):
        raise ValueError("stream: must be true or false")
