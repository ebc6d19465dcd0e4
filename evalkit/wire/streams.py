"""Streamed replies: how a dialect asks for one, and how its events become the body that the same reply has unstreamed.

The assembled body is then read as any other: judgement, reply, usage and opaque parts have one way through. Each
dialect has an assembler of its own beside it (`openai_chat_stream.py`, ...). Pure: `client/` waits and counts time.

A stream has ended well only if its dialect's end mark came. One that ends before is `truncated`, whatever it held, and
an error in place of its rest is `broken_off`: both count as billed. Usage that came before a break is not used. An
error that came before the model began, and says which HTTP status it stands for, is judged as one with this status.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from evalkit.wire.alike import Alike
from evalkit.wire.fields import object_of
from evalkit.wire.http import Failure
from evalkit.wire.lenient import ON_LOOP_BYTES, MalformedReplyError, dumps_any, loads_lenient

# Server-sent events, read from pieces of any size. Pure.
#
# An event is a number of lines before a blank one; a line ends with CR, LF or both. Of its fields only `event` and
# `data` matter here, and `error`, in which older versions of llama.cpp's server state an error. Comments (`:
# keep-alive`) and other fields are passed over. Nothing is decoded: data are bytes, and several lines of them are
# joined by LF.
#
# Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section on parsing.

_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which may begin a stream."""
_EVENT, _DATA = b"event: ", b"data: "


class EventParser:
    """The events of one stream, in blocks. What has come of the next event is kept: `held` bytes."""

    __slots__ = ("_begun", "_buffer", "_returned")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False
        self._returned = False
        """Whether the last piece ended with a CR, whose LF may be the first byte of the next."""

    @property
    def held(self) -> int:
        """Bytes of an event that has not ended."""
        return len(self._buffer)

    def feed(self, piece: bytes) -> bytes:
        """The events that end in the piece, with LF as the end of each line: to be read by `next_event`."""
        if self._returned or b"\r" in piece:
            piece = self._unreturned(piece)
        buffer, before = self._buffer, len(self._buffer)
        buffer += piece
        if not self._begun and len(buffer) >= len(_MARK):
            self._begun = True
            if buffer.startswith(_MARK):
                del buffer[: len(_MARK)]
        end = buffer.rfind(b"\n\n", max(0, before - len(_MARK) - 1))
        if end < 0:
            return b""
        block = bytes(memoryview(buffer)[: end + 2])
        del buffer[: end + 2]
        return block

    def end(self) -> bytes:
        """The last event, if the stream ended without the blank line after it."""
        block = bytes(self._buffer).rstrip(b"\n")
        self._buffer.clear()
        return block

    def _unreturned(self, piece: bytes) -> bytes:
        """The piece with LF as the end of each line."""
        if self._returned and piece.startswith(b"\n"):
            piece = piece[1:]
        elif not piece:
            return piece
        self._returned = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def next_event(block: bytes, at: int) -> tuple[bytes, bytes | None, int]:
    """(name, data, end) of the event at a place of a block; None: it has no data, so it is none."""
    end = block.find(b"\n\n", at)
    event = block[at:end] if end >= 0 else block[at:]
    after = at + len(event) + 2
    line = event.find(b"\n") + 1
    if not line and event.startswith(_DATA):  # nearly all are of one or two lines
        return b"", event[6:], after
    if event.startswith(_EVENT) and event.startswith(_DATA, line) and event.find(b"\n", line) < 0:
        return event[7 : line - 1], event[line + 6 :], after
    return *_fields(event), after


def _fields(event: bytes) -> tuple[bytes, bytes | None]:
    """(name, data) of an event; None: it has no data, so it is none."""
    name, data = b"", list[bytes]()
    for line in event.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error" and value:
            name = field
            data.append(value)
    return name, b"\n".join(data) if data else None


RAW_CAP = 8
"""A stream's own bytes are at most as many times those of a body: each event repeats what a body says once."""

CONTENT_TYPE = "text/event-stream"

MOST_WAITING = ON_LOOP_BYTES // 2
_SHOWN_BYTES = 1000
_HALF = b"\\ud"
"""What half of a pair in UTF-16 begins with, in JSON."""


class ErrorEvent(Exception):
    """The provider sent an error in place of the rest of a reply."""

    def __init__(self, error: Any) -> None:
        super().__init__(error)
        self.error: Mapping[str, Any] = error if isinstance(error, dict) else {"message": error}


class Assembler:
    """The events of one reply, as they come. Defined for all events: what is not as expected is passed over, or raises
    MalformedReplyError if there can be no reply any more."""

    __slots__ = ("begun", "done", "like", "size")

    def __init__(self) -> None:
        self.begun = False
        """Whether the model may have begun."""
        self.done = False
        """Whether the end mark came."""
        self.size = 0
        """Characters of texts that are kept."""
        self.like = Alike()

    def may_wait(self, piece: bytes) -> bool:
        """Whether a piece of a stream need not be read before more has come: it looks like events alike."""
        return self.like.framed(piece)

    def skim(self, block: bytes, at: int) -> tuple[int, int]:
        """(end, events): of those at a place of a block that were taken at once, as they are alike. With 0 events,
        those before `end` are to be taken one by one, and one in any case."""
        end, events, size = self.like.skim(block, at)
        self.size += size
        return end, events

    def take(self, name: bytes, data: bytes) -> None:
        """The next event. Raises ErrorEvent if it is an error."""
        raise NotImplementedError

    def may_end(self) -> bool:
        """Whether a connection that was closed in good order ends the reply; for formats without an end mark."""
        return False

    def value(self) -> Any:
        """The body that the reply would have had."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamForm:
    """How a dialect streams."""

    assembler: Callable[[], Assembler]
    fields: bytes = b""
    """Members of a body that ask for a stream, each with a comma after it."""
    options: bytes = b""
    """Further ones, which some servers refuse (`stream_options`)."""
    path: str = ""
    """Another path than for replies in one piece; empty: the same."""

    def body(self, body: bytes) -> bytes:
        """A request's body, as it asks for a stream."""
        if not self.fields and not self.options:
            return body
        return b"".join((b"{", self.fields, self.options, memoryview(body)[1:]))

    def without(self, refused: frozenset[str]) -> "StreamForm":
        """The form for a model that refuses these fields."""
        return replace(self, options=b"") if "stream_options" in refused else self


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedBody:
    """What a stream came to, in the terms of `HttpResponse`."""

    status: int = 200
    body: bytes = b""
    failure: Failure = ""
    detail: str = ""


def is_stream(content_type: str, start: bytes) -> bool:
    """Whether a response's body is a stream: it says so, or does not begin as JSON or markup do."""
    return content_type.startswith(CONTENT_TYPE) or not start.lstrip().startswith((b"{", b"[", b"<"))


class ReplyStream:
    """One streamed reply while it comes: fed with pieces of any size, then ended. Memory is bounded by `cap`."""

    __slots__ = ("_assembler", "_cap", "_error", "_events", "_flaw", "_oversize", "_raw", "_read", "_waiting", "events")

    def __init__(self, form: StreamForm, cap: int) -> None:
        """`cap`: bytes of the longest body."""
        self._assembler = form.assembler()
        self._events = EventParser()
        self._cap = cap
        self._raw = 0
        self._oversize = False
        self._error: Mapping[str, Any] | None = None
        self._flaw = b""
        """The data of an event that could not be read."""
        self.events = 0
        """That came."""
        self._read = 0
        self._waiting = bytearray()
        """Pieces that look like what was read before them: they are read together with the next that does not."""

    @property
    def over(self) -> bool:
        """Whether nothing more is needed of it."""
        return self._assembler.done or self._oversize or self._error is not None or bool(self._flaw)

    @property
    def done(self) -> bool:
        """Whether its end mark came."""
        return self._assembler.done

    @property
    def held(self) -> int:
        """Bytes that wait to be read: pieces, or an event that has not ended."""
        return len(self._waiting) + self._events.held

    @property
    def size(self) -> int:
        """Bytes that wait to be read or were kept: what the work of the next call grows with."""
        return self.held + self._assembler.size

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self._raw += len(piece)
        waiting = self._waiting
        if len(waiting) < MOST_WAITING and not self._events.held and self._assembler.may_wait(piece):
            waiting += piece
            self.events += piece.count(b"\n\n")
        elif waiting:
            waiting += piece
            self._read_waiting()
        else:
            self._feed(piece)

    def _read_waiting(self) -> None:
        pieces = bytes(self._waiting)
        self._waiting.clear()
        self._feed(pieces)

    def _feed(self, piece: bytes) -> None:
        self._take(self._events.feed(piece))
        self.events = self._read
        if not self._assembler.done and (
            self._raw > RAW_CAP * self._cap or self._assembler.size > self._cap or self._events.held > self._cap
        ):
            self._oversize = True

    def end(self, *, failure: Failure = "", detail: str = "") -> StreamedBody:
        """What came. `failure`: why no more comes, if the connection was not closed in good order."""
        if self._waiting:
            self._read_waiting()
        if not failure and not self.over:
            self._take(self._events.end(), last=True)
        assembler = self._assembler
        if self._error is not None:
            return self._broken(self._error)
        if self._flaw:
            return StreamedBody(body=b"an event that nothing expected: " + self._flaw)
        if assembler.done or (not failure and not self._oversize and assembler.may_end()):
            body = self._whole()
            return StreamedBody(body=body) if len(body) <= self._cap else self._too_large()
        if self._oversize:
            return self._too_large()
        ended = detail or "the stream ended"
        return StreamedBody(
            failure=failure or "truncated", detail=f"{ended} before its end mark, after {self._read} events"
        )

    def _take(self, block: bytes, *, last: bool = False) -> None:
        """The events of a block. `last`: it is what a stream ended with."""
        assembler, data = self._assembler, None
        at = single = 0
        try:
            while at < len(block) and not assembler.done:
                if at >= single:
                    single, alike = assembler.skim(block, at)
                    if alike:
                        self._read += alike
                        at = single
                        continue
                name, data, at = next_event(block, at)
                if data is not None:
                    self._read += 1
                    if name == b"error":
                        value = loads_event(data)
                        raise ErrorEvent(object_of(value, "error") or value if isinstance(value, dict) else value)
                    assembler.take(name, data)
        except ErrorEvent as event:
            self._error = event.error
        except MalformedReplyError:
            # A stream that was cut within its last event is a cut one.
            self._flaw = b"" if last or data is None else data[:_SHOWN_BYTES]

    def _whole(self) -> bytes:
        try:
            return dumps_any(self._assembler.value())
        except MalformedReplyError as flaw:
            return str(flaw).encode()

    def _broken(self, error: Mapping[str, Any]) -> StreamedBody:
        status = stated_status(error)
        body = dumps_any({"error": error})
        if status and not self._assembler.begun:
            return StreamedBody(status=status, body=body)
        return StreamedBody(status=status or 500, body=body, failure="broken_off")

    def _too_large(self) -> StreamedBody:
        return StreamedBody(failure="oversize", detail=f"a stream of more than {self._cap} bytes")


def loads_event(data: bytes) -> Any:
    """An event's data. Raises MalformedReplyError if they are not JSON.

    Half of a character stays as it is (`joined`): the other half may be in the next event.
    """
    if len(data) > ON_LOOP_BYTES:
        return loads_lenient(data)[0]
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    if _HALF in data.lower():
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            pass
    return loads_lenient(data)[0]


def raise_error(value: Mapping[str, Any]) -> None:
    """Raises ErrorEvent if an event holds one, as most formats write it."""
    if value.get("error"):
        raise ErrorEvent(value["error"])


_STATUSES: Mapping[str, int] = {
    "overloaded": 529,
    "rate_limit": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "unavailable": 503,
    "billing": 402,
    "authentication": 401,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "invalid": 400,
    "badrequest": 400,
    "exceed_context_size": 400,
    "context_length": 400,
    "content_filter": 400,
    "timeout": 504,
    "deadline_exceeded": 504,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
}
"""By a word in an error's code, type or status: the HTTP status that it stands for."""


def stated_status(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error in a stream stands for; 0 if it does not say."""
    words = [error.get(name) for name in ("code", "status", "type")]
    for word in words:
        number = int(word) if isinstance(word, str) and word.isascii() and word.isdigit() and len(word) == 3 else word
        if type(number) is int and 400 <= number < 600:
            return number
    text = " ".join(word for word in words if isinstance(word, str)).lower()
    return next((status for word, status in _STATUSES.items() if word in text), 0)


def joined(pieces: list[str]) -> str:
    """The pieces of a text, with characters whole that were cut in two: halves of a pair in UTF-16."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
