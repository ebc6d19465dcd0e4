"""A streamed reply as it comes over HTTP: its pieces, with a limit for silence between them.

Every piece that is read wakes this process, and a provider sends hundreds a reply. So a connection rests for a small
part of the time that its reply has taken so far, while what comes waits in the kernel: one wake then reads all of it.
A reply is at most `REST_SHARE` later for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp

from evalkit.client.aside import aside
from evalkit.wire.lenient import ON_LOOP_BYTES
from evalkit.wire.streams import ReplyStream

REST_SHARE = 1 / 16
LEAST_EVENTS = 2
"""A rest in which fewer are expected costs more than it saves."""
MOST_REST_S = 0.25
TAIL_S = 0.25
"""How long the connection's own end is waited for after a reply's: if it comes, the connection can be used again."""

Piece = Callable[[aiohttp.StreamReader], Awaitable[bytes]]


def join_pieces(body: aiohttp.StreamReader) -> None:
    """Have a body take its pieces so."""
    if JOINING and type(body) is aiohttp.StreamReader:
        body.__class__ = _Joining


class _Joining(aiohttp.StreamReader):
    """A body whose pieces that have come are taken as one. aiohttp takes each, which for a stream's many small ones is
    most of what their transport costs. Nothing is added to its objects, so one can be told to be of this class."""

    __slots__ = ()

    def _read_nowait(self, n: int) -> bytes:
        if len(self._buffer) > 1 and not self._buffer_offset:
            joined = b"".join(self._buffer)
            self._buffer.clear()
            self._buffer.append(joined)
        return super()._read_nowait(n)


JOINING = {"_buffer", "_buffer_offset"} <= set(getattr(aiohttp.StreamReader, "__slots__", ()))
"""Whether the installed aiohttp is built like this; else its own way is taken."""


async def feed(
    stream: ReplyStream,
    reply: aiohttp.ClientResponse,
    begun: bytes,
    piece: Piece,
    *,
    since: float,
    most_rest_s: float = MOST_REST_S,
) -> None:
    """Read a reply into `stream` until it is over, or the connection's body ends. `begun`: its first piece; `piece`
    gives the next one, empty at the end, and raises what ends the attempt. `since`: loop time of the request."""
    loop, content, data = asyncio.get_running_loop(), reply.content, begun
    first = loop.time()
    while data:
        if len(data) + stream.held <= ON_LOOP_BYTES:
            stream.feed(data)
        else:
            await _take(stream, data)
        if stream.over:
            break
        now = loop.time()
        rest_s = min(most_rest_s, (now - since) * REST_SHARE)
        many = rest_s * stream.events >= LEAST_EVENTS * (now - first) and not content.is_eof()
        transport = reply.connection.transport if many and reply.connection else None
        data = await (piece(content) if transport is None else _rested(piece(content), transport, rest_s))
    if stream.done and not content.is_eof():
        await _finish(reply)  # else the connection is given up: what it still has to say may be without end


async def _rested(piece: Awaitable[bytes], transport: asyncio.Transport, seconds: float) -> bytes:
    """The next piece; what comes is left to the kernel for a while."""
    if not transport.is_closing():
        transport.pause_reading()
    timer = asyncio.get_running_loop().call_later(seconds, _resume, transport)
    try:
        return await piece
    finally:
        timer.cancel()
        _resume(transport)


def _resume(transport: asyncio.Transport) -> None:
    if not transport.is_closing() and not transport.is_reading():
        transport.resume_reading()


async def _take(stream: ReplyStream, data: bytes) -> None:
    """Feed a piece in shares that the event loop can read, with others' turns between them: a thread costs more. An
    event that is longer is read in one."""
    at = 0
    while at < len(data) and not stream.over:
        if at:
            await asyncio.sleep(0)
        room = ON_LOOP_BYTES - stream.held
        share = data[at : at + room] if room > ON_LOOP_BYTES // 2 else data[at:]
        await aside(partial(stream.feed, share), len(share) + stream.held)
        at += len(share)


async def _finish(reply: aiohttp.ClientResponse) -> None:
    """Wait for the end of the body after the reply's: what comes until then, or breaks, is nobody's any more."""
    try:
        async with asyncio.timeout(TAIL_S):
            while await reply.content.readany():
                pass
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
