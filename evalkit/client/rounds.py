"""Sockets of streams that are read in rounds: what comes between two rounds waits in the kernel.

Every piece that is read wakes this process, and a provider sends hundreds a reply. A socket's low-water mark
(`SO_RCVLOWAT`) says with how many bytes it counts as readable. While the mark is raised, pieces gather, and one reading
takes them all. Nothing above the socket takes part, so it is the same with TLS and for both event loops. A connection's
end, or more bytes than the mark, wake this process at once: nothing is throttled, and no more is held than before.

A socket's rounds are further apart the longer its reply takes, and sockets that are due at about the same time are read
together. Only Linux looks at the mark while it waits for a socket; elsewhere each piece wakes this process.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import TypeVar

from evalkit.wire.lenient import ON_LOOP_BYTES

# Work whose cost grows with the size of a response: above a limit it runs off the event loop, so that it does not
# block others.

Result = TypeVar("Result")


async def aside(work: Callable[[], Result], size: int) -> Result:
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
