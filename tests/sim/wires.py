"""The connections of workers with their coordinators: streams whose bytes come late, or never, or break off.

What is replaced are asyncio's streams: all that evalkit says over them is its own, from the proof that both ends know
the token to questions that are repeated on another connection. As over TCP, what was sent on one connection arrives in
order or not at all. What is reordered are the messages of two connections: a worker that waited for too long repeats
its question on a new one, and the one before arrives after that.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from evalkit.engine.machines.joined import Listener
from evalkit.engine.machines.tcp import Address
from evalkit.seeds import Stream
from tests.sim.crew_plan import WirePlan
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

TOKEN = "simulated"
LEAST_S, MOST_S = 0.001, 0.02
"""What a message takes."""
GIVEN_UP_S = 20.0
"""After which the system of one end ends a connection whose other end was lost without a word."""

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class SimSocket:
    """Stands in for what a coordinator listens at."""

    def __init__(self, port: int) -> None:
        self.port = port

    def setsockopt(self, *_: object) -> None:
        """Nothing: the world says when a connection is given up."""


@dataclass(slots=True, eq=False)
class _End:
    """One end of a connection, as its process has it."""

    wires: "Wires"
    process: Process
    reader: asyncio.StreamReader
    place: tuple[int, str]
    """Of what is drawn: number of the connection, and who sends."""
    other: "_End | None" = None
    sent: int = 0
    arrives: float = 0.0
    """When what was sent last arrives; infinite: that, and what follows, never does."""
    over: bool = False
    """Whether it was closed, or is broken off."""

    # What is used of a StreamWriter.

    def write(self, data: bytes) -> None:
        if not self.over:
            self.wires.send(self, data)

    async def drain(self) -> None:
        if self.over:
            raise ConnectionResetError("simulated")

    def close(self) -> None:
        if not self.over:
            self.over = True
            self.wires.ends(self)

    def get_extra_info(self, name: str) -> SimSocket:
        assert name == "socket"
        return SimSocket(0)

    def hears(self, at: float, what: Callable[..., None], *given: Any) -> None:
        """Its reader is given something at that time, if its process lives then."""
        if not self.process.dead:
            self.process.loop.call_at(at, what, *given)

    def receives(self, data: bytes) -> None:
        """A message has come."""
        if not self.over:
            self.reader.feed_data(data)

    def breaks(self) -> None:
        """The connection is no more."""
        if not self.over:
            self.over = True
            self.reader.feed_eof()


@dataclass(slots=True, eq=False)
class _Server:
    """What listens."""

    wires: "Wires"
    port: int

    def close(self) -> None:
        self.wires.listening.pop(self.port, None)


@dataclass(slots=True, eq=False)
class Wires:
    """All connections of a world."""

    world: "World"
    plan: WirePlan = field(default_factory=WirePlan)
    listening: dict[int, tuple[Process, Connected]] = field(default_factory=dict)
    """By port: the coordinators."""
    counts: Counter[str] = field(default_factory=Counter)
    _ends: list[_End] = field(default_factory=list)
    _ports: int = 0
    _connections: int = 0

    def opened(self, *_: object) -> Listener:
        """Stands in for `joined.opened`."""
        self._ports += 1
        return Listener(
            socket=cast(Any, SimSocket(self._ports)),
            address=Address(host="127.0.0.1", port=self._ports),
            context=None,
            token=TOKEN,
            token_file=None,
        )

    async def listen(self, connected: Connected, *, sock: SimSocket, ssl: object) -> _Server:
        """Stands in for `asyncio.start_server`."""
        del ssl
        assert self.world.process is not None
        self.listening[sock.port] = self.world.process, connected
        return _Server(self, sock.port)

    async def connect(self, host: str, port: int, *, ssl: object) -> tuple[asyncio.StreamReader, _End]:
        """Stands in for `asyncio.open_connection`."""
        del host, ssl
        own = self.world.process
        assert own is not None
        number = self._connections = self._connections + 1
        draws = Stream(self.world.scenario.seed, "connection", number)
        if self._cut_off(own, own.loop.time()):
            await asyncio.sleep(GIVEN_UP_S)
        await asyncio.sleep(_latency(draws))
        if port not in self.listening or self.listening[port][0].dead:
            raise ConnectionRefusedError("simulated")
        coordinator, connected = self.listening[port]
        here = _End(self, own, asyncio.StreamReader(loop=own.loop), (number, "worker"))
        there = _End(self, coordinator, asyncio.StreamReader(loop=coordinator.loop), (number, "coordinator"))
        here.other, there.other = there, here
        self._ends = [end for end in self._ends if not end.process.dead and not (end.over and end.other.over)]  # type: ignore[union-attr]
        self._ends += [here, there]
        own.heeds = coordinator.number
        there.hears(own.loop.time() + _latency(draws), self._accepts, port, connected, there)
        return here.reader, here

    def _accepts(self, port: int, connected: Connected, end: _End) -> None:
        """A connection has come to a coordinator, if that still listens."""
        if port in self.listening:
            connected(end.reader, cast(Any, end))
        else:
            end.close()

    def send(self, end: _End, data: bytes) -> None:
        """A message leaves."""
        other, now = end.other, end.process.loop.time()
        assert other is not None
        draws = Stream(self.world.scenario.seed, "message", *end.place, end.sent)
        end.sent += 1
        takes, fate = _latency(draws), draws.uniform()
        worker = end.process if end.place[1] == "worker" else other.process
        if end.arrives == math.inf:
            return
        if self._cut_off(worker, now) or fate < self.plan.lost:
            self._note("lost_messages" if fate < self.plan.lost else "cut_off", end)
            end.arrives = math.inf
            return
        fate -= self.plan.lost
        if fate < self.plan.broken:
            self._note("broken_connections", end)
            lost = draws.uniform() < 0.5
            if not lost:
                other.hears(max(end.arrives, now + takes), other.receives, data)
            end.process.loop.call_soon(end.breaks)
            other.hears(max(end.arrives, now + takes), other.breaks)
            end.arrives = math.inf
            return
        if fate - self.plan.broken < self.plan.late:
            self._note("late_messages", end)
            takes += 10 ** (2 * draws.uniform())
        end.arrives = max(end.arrives, now + takes)
        other.hears(end.arrives, other.receives, data)

    def ends(self, end: _End) -> None:
        """One end is closed: the other hears of it behind all that was sent, or when its system gives up."""
        other = end.other
        assert other is not None
        now = end.process.loop.time()
        at = max(end.arrives, now + MOST_S)
        other.hears(now + GIVEN_UP_S if at == math.inf else at, other.breaks)

    def died(self, process: Process) -> None:
        """A process is gone: its connections are closed by its system, or were lost with its machine."""
        for end in self._ends:
            if end.process is process and not end.over:
                end.over = True
                if Stream(self.world.scenario.seed, "lost with its machine", process.number).uniform() < 0.5:
                    end.arrives = math.inf
                self.ends(end)
        self.listening = {port: one for port, one in self.listening.items() if one[0] is not process}

    def _cut_off(self, worker: Process, now: float) -> bool:
        span = worker.cut_off
        return span is not None and span[0] <= now < span[1]

    def _note(self, what: str, end: _End) -> None:
        self.counts[what] += 1
        number, sender = end.place
        self.world.say(f"{what}: message {end.sent} of the {sender} on connection {number}")


def _latency(draws: Stream) -> float:
    return LEAST_S + (MOST_S - LEAST_S) * draws.uniform()
