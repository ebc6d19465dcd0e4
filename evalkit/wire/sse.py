"""Server-sent events, read from pieces of any size. Pure.

An event is a number of lines before a blank one; a line ends with CR, LF or both. Of its fields only `event` and `data`
matter here, and `error`, in which older versions of llama.cpp's server state an error. Comments (`: keep-alive`) and
other fields are passed over. Nothing is decoded: data are bytes, and several lines of them are joined by LF.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section on parsing.
"""

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
