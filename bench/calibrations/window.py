"""Each constant of the client's adaptive window, and what becomes of it with another value. In virtual time.

    python -m bench.calibrations.window                   # every constant
    python -m bench.calibrations.window CUT HEADROOM      # these
    python -m bench.calibrations.window --servers         # only what the window does as it stands
    python -m bench.calibrations.window --only patience   # with the servers whose name holds this

A lane's window meets simulated servers, with as many players as it can use. One constant at a time takes smaller and
larger values. For each value the servers are listed whose figures differ clearly from those of the standing value:

- share: replies, as a part of what the server could have given in that time;
- until: seconds until a tenth of the time's replies came at 80 % of the server's best rate;
- wait: mean seconds from request to reply, divided by those of an idle server;
- lost: requests refused or timed out, as a part of all.

A figure is the mean over `SEEDS` runs. A constant without a line makes no difference to any of these servers.
"""

import argparse
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from statistics import mean
from typing import Any

from evalkit.client.lanes import window as module
from evalkit.client.lanes.window import Window
from evalkit.errors import UsageError, nearest

SEEDS = 2
NOISE = 0.3
"""Spread of a server's times: the standard deviation of their logarithm."""
REFUSAL_S = 0.02
"""A refusal comes this soon."""
REST_S = 1.0
"""Seconds a refused request rests, twice as long after each further refusal, up to `LONGEST_REST_S`."""
LONGEST_REST_S = 30.0
STALLED = 60.0
GOOD = 0.8
MANY = 512
NOTICEABLE = {"share": 0.03, "until": 0.3, "wait": 0.15, "lost": 0.01}
"""How far a figure must move to be listed: `until` and `wait` in parts of themselves, the others absolutely."""
LEAST_UNTIL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a window meets."""

    name: str
    base_s: float
    """Seconds per reply of an idle server."""
    slots: Callable[[float], int]
    """Requests it works at, by time."""
    for_s: float
    """Simulated seconds."""
    width: int = 1000
    """Players, which is the most the window can be."""
    batch: float = float("inf")
    """So many requests at once take twice as long as one: a server that slows down before its slots are used up."""
    cliff: float = float("inf")
    """With more requests than this at once a reply takes `STALLED` times as long."""
    queue: float = float("inf")
    """Requests it lets wait; beyond them it refuses."""
    growth: Callable[[float], float] = lambda _: 1.0
    """What replies' times are multiplied by, by time: longer chats, which no window can change."""
    patience_s: float = 600.0
    """After this a request has timed out."""
    dropped: float = 0.0
    """Part of the requests that are never answered."""
    own_s: float = 0.0
    """Seconds that our own process works at each reply, one after the other."""
    own_until: float = float("inf")
    """Until when it does."""
    outage: tuple[float, float] = (float("inf"), float("inf"))
    """From when to when it refuses every connection."""

    def best(self) -> float:
        """Replies it can give in the whole time."""
        steps = 200
        rates = []
        for i in range(steps):
            at = self.for_s * (i + 0.5) / steps
            rate = self.rate(at)
            own_s = self.own(at)
            rates.append(0.0 if self._is_down(at) else min(rate, 1 / own_s if own_s else rate))
        return mean(rates) * self.for_s

    def own(self, at: float) -> float:
        """What our own process works at a reply."""
        return self.own_s if at < self.own_until else 0.0

    def rate(self, at: float) -> float:
        """Replies a second with as many requests as it can use."""
        most = min(self.slots(at), self.width, self.cliff)
        return most / (self.base_s * self.growth(at) * (1 + most / self.batch))

    def _is_down(self, at: float) -> bool:
        return self.outage[0] <= at < self.outage[1]

    def refuses_all(self, at: float) -> bool:
        """Whether it is down."""
        return self._is_down(at)


def _fixed(slots: int) -> Callable[[float], int]:
    return lambda _: slots


def _then(first: int, at: float, later: int) -> Callable[[float], int]:
    return lambda now: first if now < at else later


SERVERS = (
    Server(name="50 ms, 40 slots", base_s=0.05, slots=_fixed(40), for_s=20),
    Server(name="5 s, 1 slot", base_s=5, slots=_fixed(1), for_s=4000),
    Server(name="20 s, 4 slots, patience 100 s", base_s=20, slots=_fixed(4), patience_s=100, for_s=4000),
    Server(name="1 s, 30 slots", base_s=1, slots=_fixed(30), for_s=200),
    Server(name="1 s, 400 slots", base_s=1, slots=_fixed(400), for_s=50),
    Server(name="20 s, 400 slots", base_s=20, slots=_fixed(400), for_s=1000),
    Server(name="20 s, no bound", base_s=20, slots=_fixed(10_000), for_s=400),
    Server(name="2 s, twice as long at 100 at once", base_s=2, slots=_fixed(10_000), batch=100, for_s=200),
    Server(name="1 s, 100 slots, refuses beyond", base_s=1, slots=_fixed(100), queue=0, for_s=150),
    Server(name="20 s, 100 slots, refuses beyond", base_s=20, slots=_fixed(100), queue=0, for_s=3000),
    Server(name="20 s, 50 slots, patience 50 s", base_s=20, slots=_fixed(50), patience_s=50, for_s=4000),
    Server(
        name="20 s, 200 slots, then 20, patience 60 s", base_s=20, slots=_then(200, 800, 20), patience_s=60, for_s=5000
    ),
    Server(
        name="1 s, 100 slots, 2 % lost, patience 20 s",
        base_s=1,
        slots=_fixed(100),
        patience_s=20,
        dropped=0.02,
        for_s=150,
    ),
    Server(
        name="1 s, 20 slots, 10 % lost, patience 5 s", base_s=1, slots=_fixed(20), patience_s=5, dropped=0.1, for_s=300
    ),
    Server(
        name="1 s, stalls beyond 150, patience 20 s",
        base_s=1,
        slots=_fixed(10_000),
        cliff=150,
        patience_s=20,
        for_s=400,
    ),
    Server(name="1 s, 100 slots, down for 60 s", base_s=1, slots=_fixed(100), outage=(40, 100), for_s=160),
    Server(name="1 s, 200 slots, then 40", base_s=1, slots=_then(200, 50, 40), for_s=200),
    Server(name="1 s, 40 slots, then 300", base_s=1, slots=_then(40, 50, 300), for_s=120),
    Server(name="1 s, 100 slots, chats grow", base_s=1, slots=_fixed(100), growth=lambda at: 1 + at / 60, for_s=400),
    Server(name="50 ms, own process at 400/s", base_s=0.05, slots=_fixed(10_000), own_s=0.0025, for_s=20, width=500),
    Server(
        name="1 s, 300 slots, own process at 50/s for 20 s",
        base_s=1,
        slots=_fixed(300),
        own_s=0.02,
        own_until=20,
        for_s=60,
    ),
    Server(
        name="1 s, own process at 50/s, patience 10 s",
        base_s=1,
        slots=_fixed(10_000),
        own_s=0.02,
        patience_s=10,
        for_s=120,
    ),
    Server(name="1 s, own process at 400/s", base_s=1, slots=_fixed(10_000), own_s=0.0025, for_s=50),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What became of one server, or the mean of several runs."""

    share: float
    until: float
    wait: float
    lost: float


@dataclass(slots=True)
class Asked:
    """One request on its way."""

    sent_at: float
    beside: int
    """Requests in flight with it."""
    tries: int
    taken: bool = False
    """Whether the server works at it."""
    over: bool = False


@dataclass(slots=True)
class Meeting:
    """A window and a server, event by event."""

    server: Server
    window: Window
    draws: random.Random
    now: float = 0.0
    in_flight: int = 0
    working: int = 0
    waiting: deque[Asked] = field(default_factory=deque)
    """At the server."""
    ready: list[int] = field(default_factory=list)
    """Refusals so far of each player's request that may be sent."""
    own_free_at: float = 0.0
    down: bool = False
    replied: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    sent: int = 0
    lost: int = 0
    many_at: float = float("inf")
    """When `MANY` requests were first in flight."""
    events: list[tuple[float, int, Callable[[Any], None], Any]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=count)

    def run(self) -> Figures:
        """To the end of the server's time."""
        self.ready = [0] * self.server.width
        self._fill()
        while self.events and self.events[0][0] < self.server.for_s:
            self.now, _, then, asked = heapq.heappop(self.events)
            then(asked)
            self._fill()
        return self._figures()

    def _at(self, at: float, then: Callable[[Any], None], what: Any) -> None:
        heapq.heappush(self.events, (at, next(self.order), then, what))

    def _fill(self) -> None:
        while self.ready and not self.down and self.in_flight + 1 <= self.window.size:
            self.in_flight += 1
            asked = Asked(self.now, self.in_flight, self.ready.pop())
            self.sent += 1
            if self.in_flight == MANY:
                self.many_at = min(self.many_at, self.now)
            if self.server.refuses_all(self.now):
                self._at(self.now + REFUSAL_S, self._disconnected, asked)
            elif self.working >= self.server.slots(self.now) and len(self.waiting) >= self.server.queue:
                self._at(self.now + REFUSAL_S, self._refused, asked)
            else:
                self._at(self.now + self.server.patience_s, self._timed_out, asked)
                if self.draws.random() >= self.server.dropped:
                    self.waiting.append(asked)
                    self._work()

    def _work(self) -> None:
        """The server takes up what waits."""
        while self.waiting and self.working < self.server.slots(self.now):
            asked = self.waiting.popleft()
            if asked.over:
                continue
            self.working += 1
            asked.taken = True
            took_s = self.server.base_s * self.server.growth(self.now) * self.draws.lognormvariate(0, NOISE)
            took_s *= 1 + self.working / self.server.batch
            took_s *= STALLED if self.working > self.server.cliff else 1.0
            self._at(self.now + took_s, self._done, asked)

    def _done(self, asked: Asked) -> None:
        if not asked.over:
            self._drop(asked)
            # One reply after the other in our process; how late it is, is what a lane is told.
            self.own_free_at = max(self.own_free_at, self.now) + self.server.own(self.now)
            self._at(self.own_free_at, self._answered, asked)

    def _drop(self, asked: Asked) -> None:
        """The server no longer works at it: it is done, or its client has left."""
        self.working -= asked.taken
        asked.taken = False
        self._work()

    def _answered(self, asked: Asked) -> None:
        if asked.over:
            return
        self.window.late_s = max(0.0, self.own_free_at - self.now)
        full = self.in_flight >= int(self.window.size)
        self.window.succeeded(sent_at=asked.sent_at, now=self.now, beside=asked.beside, full=full)
        self.waited_s += self.now - asked.sent_at
        self.replied.append(self.now)
        self._leave(asked)
        self.ready.append(0)

    def _leave(self, asked: Asked) -> None:
        asked.over = True
        self.in_flight -= 1

    def _refused(self, asked: Asked) -> None:
        self.window.refused(sent_at=asked.sent_at, now=self.now)
        self._rest(asked)

    def _timed_out(self, asked: Asked) -> None:
        if not asked.over:
            self.window.refused(sent_at=asked.sent_at, now=self.now, timed_out=True)
            self._rest(asked)
            self._drop(asked)

    def _disconnected(self, asked: Asked) -> None:
        self._rest(asked)
        if not self.down:
            self.down = True
            self._at(max(self.now, self.server.outage[1]), self._back, None)

    def _back(self, _: None) -> None:
        self.down = False
        self.window.restart(self.now, paced=False)

    def _rest(self, asked: Asked) -> None:
        self._leave(asked)
        self.lost += 1
        rest_s = min(LONGEST_REST_S, REST_S * 2**asked.tries) * self.draws.uniform(0.5, 1.0)
        self._at(self.now + rest_s, self.ready.append, asked.tries + 1)

    def _figures(self) -> Figures:
        best = self.server.best()
        replies = len(self.replied)
        return Figures(
            share=replies / best,
            until=self._until(),
            wait=self.waited_s / max(replies, 1) / self.server.base_s,
            lost=self.lost / max(self.sent, 1),
        )

    def _until(self) -> float:
        """When replies first came at `GOOD` of the rate at the beginning that the server could give."""
        start = self.server
        rate = start.rate(0.0)
        if start.own(0.0):
            rate = min(rate, 1 / start.own(0.0))
        among = max(20, int(rate * start.base_s))
        for first, last in zip(self.replied, self.replied[among:], strict=False):
            if among / max(last - first, 1e-9) >= GOOD * rate:
                return first
        return start.for_s


def met(server: Server) -> Figures:
    """Means of several runs of a window, as the module stands now, with a server."""
    found = [Meeting(server, Window(server.width), random.Random(seed)).run() for seed in range(SEEDS)]
    return Figures(**{key: mean(getattr(one, key) for one in found) for key in Figures.__dataclass_fields__})


VALUES: Mapping[str, Sequence[float]] = {
    "FIRST": (4, 64),
    "FIRST_SAMPLE": (4, 64),
    "CUT": (0.5, 0.9),
    "FAST": (0.5, 2.0),
    "FAR": (1.5, 1e9),
    "AGAIN": (0.1, 1.0),
    "SLOW_PART": (8, 128),
    "SLOWER": (1.1, 1e9),
    "RISEN": (1.02, 1.3),
    "RISEN_FAST": (1.08, 1.6),
    "STRAY": (0.1, 0.8),
    "STRAYS": (0.0, 0.3),
    "CEILING": (0.7, 1.0),
    "CEILING_PART": (50, 1e9),
    "HEADROOM": (1.0, 2.0),
    "TRIED": (1.05, 1.6),
    "DOUBLED": (1.4, 1e9),
    "HELPED": (0.7, 1.0),
    "LATE": (0.02, 1e9),
    "LATE_S": (0.0, 0.1),
    "LEAST_SAMPLES": (8, 128),
}
"""Other values of each constant: a smaller and a larger one, each as far as it makes sense."""


@contextmanager
def constant(name: str, value: float) -> Iterator[None]:
    """Let a constant have another value."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def main(names: Sequence[str], *, only: str) -> None:
    """Print what the window does with each server whose name holds `only`, then what each constant changes; each line
    as soon as it is known. Raises UsageError for what does not exist."""
    for name in names:
        if name not in VALUES:
            raise UsageError(f"the window has no constant {name!r}.{nearest(name, VALUES)}")
    servers = [server for server in SERVERS if only in server.name]
    if not servers:
        raise UsageError(f"--only: no server's name holds {only!r}.{nearest(only, [one.name for one in SERVERS])}")
    print(f"{'as it stands':46}{'share':>8}{'until s':>10}{'wait':>8}{'lost':>8}")
    standing = {}
    for server in servers:
        standing[server.name] = met(server)
        print(_line(f"  {server.name}", standing[server.name]), flush=True)
    _say_start()
    for name in names:
        print(f"\n{name} = {getattr(module, name):g}")
        for value in VALUES[name]:
            with constant(name, value):
                found = {server.name: met(server) for server in servers}
            moved = [server for server in found if _differ(standing[server], found[server])]
            print(f"  {value:g}: {'no server notices' if not moved else ''}", flush=True)
            for moving in moved:
                print(_line(f"    {moving}", found[moving]), end="")
                print(f"   instead of {_shown(standing[moving])}", flush=True)


def _say_start() -> None:
    """How soon many requests of 20 s are in flight, by the size of a new window (`in_flight.start`, or what the last
    session found)."""
    wide = Server(name="", base_s=20, slots=_fixed(10_000), for_s=400)
    print(f"seconds until {MANY} requests of 20 s are in flight:", end="")
    for start in (None, 64, 256, MANY):
        meeting = Meeting(wide, Window(wide.width, start=start), random.Random(0))
        meeting.run()
        print(f" {meeting.many_at:.0f} from {start or module.FIRST}", end="")
    print()


def _differ(one: Figures, other: Figures) -> bool:
    def apart(key: str) -> float:
        before, after = getattr(one, key), getattr(other, key)
        if key == "until" and abs(after - before) < LEAST_UNTIL_S:
            return 0.0
        return float(abs(after - before) / (before if key in ("until", "wait") and before else 1.0))

    return any(apart(key) > least for key, least in NOTICEABLE.items())


def _line(name: str, figures: Figures) -> str:
    return f"{name:46}{_shown(figures)}"


def _shown(figures: Figures) -> str:
    return f"{figures.share:8.2f}{figures.until:10.1f}{figures.wait:8.2f}{figures.lost:8.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.calibrations.window")
    parser.add_argument("names", nargs="*", metavar="CONSTANT", help=f"of {', '.join(VALUES)} (default: all)")
    parser.add_argument("--servers", action="store_true", help="only what the window does as it stands")
    parser.add_argument("--only", default="", metavar="TEXT", help="servers whose name holds this")
    chosen = parser.parse_args()
    try:
        main(() if chosen.servers else chosen.names or tuple(VALUES), only=chosen.only)
    except UsageError as flaw:
        parser.error(str(flaw))
