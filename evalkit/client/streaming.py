"""A streamed reply as it comes over HTTP: its pieces, with a limit for silence between them.

Every piece that is looked at wakes a task, and a provider sends hundreds a reply. Nothing in them is needed before the
reply's end. So they are looked at seldom, and an end of the body at once; and where several pieces come meanwhile, the
socket itself is read in rounds (`Rounds`).
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import aiohttp

from evalkit.wire.lenient import ON_LOOP_BYTES
from evalkit.wire.streams import ReplyStream

# Sockets of streams that are read in rounds: what comes between two rounds waits in the kernel.
#
# Every piece that is read wakes this process, and a provider sends hundreds a reply. A socket's low-water mark
# (`SO_RCVLOWAT`) says with how many bytes it counts as readable. While the mark is raised, pieces gather, and one
# reading takes them all. Nothing above the socket takes part, so it is the same with TLS and for both event loops. A
# connection's end, or more bytes than the mark, wake this process at once: nothing is throttled, and no more is held
# than before.
#
# A socket's rounds are further apart the longer its reply takes, and sockets that are due at about the same time are
# read together. Only Linux looks at the mark while it waits for a socket; elsewhere each piece wakes this process.

# Work whose cost grows with the size of a response: above a limit it runs off the event loop, so that it does not
# block others.

Result = TypeVar("Result")


async def offloaded(work: Callable[[], Result], size: int) -> Result:
    """The result of `work`: computed directly for up to `ON_LOOP_BYTES` bytes, which costs no await, else in a thread.

    A thread that nobody waits for any longer runs to its end, and its result is ignored.
    """
    if size <= ON_LOOP_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


SHARE = 1 / 16
"""Of the time that a reply has taken so far: its end is seen at most so much later."""
MOST_S = 0.25
MARK_BYTES = 2**16
TICKS_PER_S = 256
_EARLY_S = 0.002
"""How much too early a loop's timers may be: they count whole milliseconds."""
SUPPORTED = sys.platform == "linux"


class Gathering:
    """One socket whose pieces gather between rounds."""

    __slots__ = ("_raised", "_socket", "left", "most_s", "since")

    def __init__(self, own: socket.socket, *, since: float, most_s: float) -> None:
        """`own`: a duplicate of the socket, which is closed with `leave`."""
        self._socket = own
        self._raised = False
        self.since = since
        self.most_s = most_s
        self.left = False

    def hold(self, *, raised: bool) -> None:
        """Raise the mark, or put it down."""
        if raised != self._raised:
            self._raised = raised
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MARK_BYTES if raised else 1)

    def leave(self) -> None:
        """Read each piece at once from now on. To be called however the stream ended: the connection goes on."""
        if not self.left:
            self.left = True
            try:
                self.hold(raised=False)
            finally:
                self._socket.close()


class Rounds:
    """The rounds of all streams of one event loop that share them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, list[Gathering]] = {}
        """By tick."""
        self._timer: asyncio.TimerHandle | None = None
        self._aim = 0
        """The timer's tick."""

    def join(self, transport: asyncio.BaseTransport, *, since: float, most_s: float = MOST_S) -> Gathering | None:
        """Read a connection's socket in rounds; None: it cannot be. `since`: loop time when its reply began."""
        known = transport.get_extra_info("socket")
        if not SUPPORTED or known is None or transport.is_closing():
            return None
        try:
            own = socket.socket(known.family, known.type, known.proto, os.dup(known.fileno()))
        except OSError:  # no descriptor is left
            return None
        gathering = Gathering(own, since=since, most_s=most_s)
        gathering.hold(raised=True)
        self._plan(gathering)
        return gathering

    def close(self) -> None:
        """Hold no more rounds. Whoever takes part has left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, gathering: Gathering) -> None:
        """Choose its next round: the latest that is not too late, at a tick that others are likely to choose too."""
        now = self._loop.time()
        tick = int(now * TICKS_PER_S)
        ticks = int(min(gathering.most_s, (now - gathering.since) * SHARE) * TICKS_PER_S)
        together = 1 << max(0, ticks.bit_length() - 3)
        tick = max(tick + 1, (tick + ticks) // together * together)
        self._due.setdefault(tick, []).append(gathering)
        if self._timer is None or tick < self._aim:
            self._set_timer(tick)

    def _set_timer(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._aim = tick
        self._timer = self._loop.call_at(tick / TICKS_PER_S, self._begin)

    def _begin(self) -> None:
        """A round: what has gathered is read as soon as the loop looks at its sockets."""
        self._timer = None
        now = (self._loop.time() + _EARLY_S) * TICKS_PER_S
        opened = list[Gathering]()
        for tick in sorted(tick for tick in self._due if tick <= now):
            opened += [gathering for gathering in self._due.pop(tick) if not gathering.left]
        for gathering in opened:
            gathering.hold(raised=False)
        if self._due:
            self._set_timer(min(self._due))
        if opened:
            # The loop looks at its sockets once before the second of two turns.
            self._loop.call_soon(self._loop.call_soon, self._end, opened)

    def _end(self, opened: list[Gathering]) -> None:
        for gathering in opened:
            if not gathering.left:
                gathering.hold(raised=True)
                self._plan(gathering)


# Timeouts for many requests from one timer: aiohttp's own take about a tenth of a request's CPU time, these a
# hundredth.
#
# All timeouts of one `Timeouts` have the same length, so the first started is the first due: one timer, aimed at the
# oldest, is enough. One that expires cancels the task that started it, as `asyncio.timeout` does, and
# `caused_cancellation` tells that cancellation from one that came from outside.


class Timeout:
    """One running timeout."""

    __slots__ = ("_cancelling", "_task", "due", "expired")

    def __init__(self, task: "asyncio.Task[Any]", due: float) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self.due = due
        self.expired = False

    def expire(self) -> None:
        """Interrupt the task."""
        self.expired = True
        self._task.cancel()

    def caused_cancellation(self) -> bool:
        """To be called on CancelledError: whether this timeout caused it, and nothing else did as well."""
        return self.expired and self._task.uncancel() <= self._cancelling


class Timeouts:
    """Timeouts of one length."""

    __slots__ = ("_loop", "_pending", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Timeout, None] = {}
        """In the order in which they are due."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Timeout:
        """A timeout for the running task, `seconds` from now."""
        task = asyncio.current_task()
        assert task is not None
        timeout = Timeout(task, self._loop.time() + self.seconds)
        self._pending[timeout] = None
        if self._timer is None:
            self._timer = self._loop.call_at(timeout.due, self._expire_due)
        return timeout

    def clear(self, timeout: Timeout) -> None:
        """Stop the timeout. To be called however the work ended."""
        self._pending.pop(timeout, None)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._pending:
            timeout = next(iter(self._pending))
            if timeout.due > now:
                self._timer = self._loop.call_at(timeout.due, self._expire_due)
                return
            del self._pending[timeout]
            timeout.expire()


LEAST_EVENTS = 1.25
"""Rounds in which fewer are expected cost more than they save."""
PAUSE_SHARE = 1.0
"""Of the time that a reply has taken so far: for so long its pieces are not looked at, unless its body ends."""
MOST_PAUSE_S = 1.0
"""A body that breaks, or goes on although its reply is complete, is seen so much later."""
PAUSE_BYTES = 2**15
"""Expected in a pause, at most: the reader of a body has room for four times as many."""
TAIL_S = 0.25
"""How long the connection's own end is waited for after a reply's: if it comes, the connection can be used again."""

Piece = Callable[[aiohttp.StreamReader], Awaitable[bytes]]


def join_pieces(body: aiohttp.StreamReader) -> None:
    """Have a body take its pieces so."""
    if JOINING and type(body) is aiohttp.StreamReader:
        body.__class__ = _JoinedBody


class _JoinedBody(aiohttp.StreamReader):
    """A body whose pieces that have come are taken as one, and whose chunks of HTTP are not counted. aiohttp takes each
    piece, and notes where each chunk ends, which for a stream's many small ones is most of what their transport costs.
    Nothing is added to its objects, so one can be told to be of this class."""

    __slots__ = ()

    def _read_nowait(self, n: int) -> bytes:
        if len(self._buffer) > 1 and not self._buffer_offset:
            joined = b"".join(self._buffer)
            self._buffer.clear()
            self._buffer.append(joined)
            if self._http_chunk_splits:
                self._http_chunk_splits.clear()
        return super()._read_nowait(n)

    def begin_http_chunk_receiving(self) -> None:
        """Nobody asks for a chunk."""

    def end_http_chunk_receiving(self) -> None:
        """As for its beginning."""


_USED = {"_buffer", "_buffer_offset", "_http_chunk_splits"}
JOINING = set(getattr(aiohttp.StreamReader, "__slots__", ())) >= _USED
"""Whether the installed aiohttp is built like this; else its own way is taken."""


async def feed(
    stream: ReplyStream,
    reply: aiohttp.ClientResponse,
    begun: bytes,
    piece: Piece,
    *,
    rounds: Rounds,
    since: float,
    silence_s: float,
) -> None:
    """Read a reply into `stream` until it is over, or the connection's body ends. `begun`: its first piece; `piece`
    gives the next one, empty at the end, and raises what ends the attempt. `since`: loop time of the request.
    `silence_s`: how long `piece` waits; a silence is noticed at most a quarter later, since it may begin in a pause."""
    content, data = reply.content, begun
    pauses = _Pauses(reply, rounds, since=since, most_s=min(MOST_PAUSE_S, silence_s / 4))
    try:
        while data:
            if len(data) + stream.held <= ON_LOOP_BYTES:
                stream.feed(data)
            else:
                await _take(stream, data)
            if stream.over:
                break
            if not content.is_eof():
                await pauses.pause(stream.events, len(data))
            data = content.read_nowait() or await piece(content)
    finally:
        pauses.end()
    if stream.done and not content.is_eof():
        await _finish(reply)  # else the connection is given up: what it still has to say may be without end


class _Pauses:
    """The times in which one reply's pieces are not looked at."""

    __slots__ = ("_first", "_gathering", "_loop", "_most_s", "_reply", "_rounds", "_since", "_size", "_waiter")

    def __init__(self, reply: aiohttp.ClientResponse, rounds: Rounds, *, since: float, most_s: float) -> None:
        self._reply, self._rounds, self._since, self._most_s = reply, rounds, since, most_s
        self._loop = asyncio.get_running_loop()
        self._first = self._loop.time()
        self._size = 0
        self._gathering: Gathering | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def pause(self, events: int, size: int) -> None:
        """Return at the body's end, or after a while. `events`: that have come; `size`: of the last piece."""
        self._size += size
        now = self._loop.time()
        past, reading_s = now - self._since, now - self._first
        self._gather(min(MOST_S, past * SHARE) * events >= LEAST_EVENTS * reading_s)
        if self._waiter is None:
            self._reply.content.on_eof(self._wake)
        self._waiter = self._loop.create_future()
        seconds = min(self._most_s, past * PAUSE_SHARE, PAUSE_BYTES * reading_s / self._size)
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()

    def end(self) -> None:
        """Nothing more is read."""
        self._gather(False)

    def _gather(self, wanted: bool) -> None:
        """Read the socket in rounds from now on, or no longer."""
        if not wanted and self._gathering is not None:
            self._gathering.leave()
            self._gathering = None
        elif wanted and self._gathering is None and self._reply.connection is not None:
            transport = self._reply.connection.transport
            if transport is not None:
                self._gathering = self._rounds.join(transport, since=self._since, most_s=min(MOST_S, self._most_s))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def _take(stream: ReplyStream, data: bytes) -> None:
    """Feed a piece in shares that the event loop can read, with others' turns between them: a thread costs more. An
    event that is longer is read in one."""
    at = 0
    while at < len(data) and not stream.over:
        if at:
            await asyncio.sleep(0)
        room = ON_LOOP_BYTES - stream.held
        share = data[at : at + room] if room > ON_LOOP_BYTES // 2 else data[at:]
        await offloaded(partial(stream.feed, share), len(share) + stream.held)
        at += len(share)


async def _finish(reply: aiohttp.ClientResponse) -> None:
    """Wait for the end of the body after the reply's: what comes until then, or breaks, is nobody's any more."""
    try:
        async with asyncio.timeout(TAIL_S):
            while await reply.content.readany():
                pass
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
