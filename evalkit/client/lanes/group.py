"""The servers of one lane together: which of them is asked, who of those who wait goes first, and whether any answers.

Mostly there is one, and nothing is chosen. `servers.py` decides; this knows the servers and the queue.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from evalkit.client.lanes.buckets import Need
from evalkit.client.lanes.server import LaneServer
from evalkit.client.lanes.servers import LOOK_AHEAD, NOWHERE, STAYS, Wish, belongs, chosen, may_be_passed
from evalkit.client.lanes.stats import ServerStats
from evalkit.client.lanes.ticket import QueuedRequest, Ticket
from evalkit.spec.model import Limits, ServerSpec
from evalkit.waiting import Waiter

Waiting = Waiter[QueuedRequest, Ticket]


class LaneServers:
    """All servers of a lane."""

    __slots__ = ("_all", "_passed", "only")

    def __init__(
        self, servers: Sequence[ServerSpec], limits: Limits, *, width: int, start: int | None, now: float
    ) -> None:
        """`servers`: by name, with the limits of each; fewer than two: there is one, and `limits` are its own. `width`:
        the most that may be in flight. `start`: as many may be in flight then at once; None: a few."""
        if len(servers) < 2:
            one = LaneServer(0, "", limits=limits, width=width, start=start, now=now, replaceable=False)
            self._all: tuple[LaneServer, ...] = (one,)
        else:
            each = None if start is None else max(1, start // len(servers))
            self._all = tuple(
                LaneServer(
                    number,
                    spec.url,
                    limits=spec.limits,
                    width=width,
                    start=each,
                    now=now,
                    replaceable=True,
                )
                for number, spec in enumerate(servers)
            )
        self.only = self._all[0] if len(self._all) == 1 else None
        """The server, if there is one alone."""
        self._passed = 0
        """How often the first in the queue has let others go first."""

    def __iter__(self) -> Iterator[LaneServer]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> LaneServer:
        return self._all[number]

    def pick(self, need: Need, now: float, wish: Wish) -> LaneServer | None:
        """The one that a request is sent to now; None: none can take it."""
        number = chosen([server.load(need, now) for server in self._all], wish)
        return None if number == NOWHERE else self._all[number]

    def wait_s(self, need: Need, now: float) -> float:
        """Seconds until one of them can take a request."""
        return self.only.wait_s(need, now) if self.only is not None else min(s.wait_s(need, now) for s in self._all)

    def next_one(self, need: Need, now: float) -> LaneServer:
        """The one that can take a request first."""
        return min(self._all, key=lambda server: server.wait_s(need, now))

    def pair(self, queue: Iterable[Waiting], head: Waiting, need: Need, now: float) -> tuple[Waiting, LaneServer]:
        """Who of those who wait goes first, and where to: mostly the head. One of them can be taken now."""
        if self.only is not None:
            return head, self.only
        loads = [server.load(need, now) for server in self._all]
        if may_be_passed(loads, head.item.wish, self._passed):
            for waiter in islice(queue, 1, LOOK_AHEAD):
                if belongs(loads, waiter.item.wish):
                    return waiter, self._all[waiter.item.wish.cached]
        return head, self._all[chosen(loads, head.item.wish)]

    def went(self, *, head: bool) -> None:
        """One of those who waited was sent: the head, or one that has passed it."""
        self._passed = 0 if head else self._passed + 1

    def are_down(self) -> bool:
        """Whether none answers."""
        return self.only.health.down if self.only is not None else all(server.health.down for server in self._all)

    def hasten(self, now: float) -> None:
        """None answers: each is probed as if it were the only one."""
        for server in self._all:
            server.health.hasten(now)

    def given_up(self, now: float) -> bool:
        """Whether all have been down for too long."""
        return all(server.health.given_up(now) for server in self._all)

    def others(self, server: LaneServer, now: float) -> bool:
        """Whether another one takes requests in place of this one."""
        return any(other is not server and not other.is_away(now) for other in self._all)

    def there(self, now: float) -> Sequence[LaneServer]:
        """Those that take more than probes."""
        return [server for server in self._all if not server.is_away(now)]

    def is_full(self, server: LaneServer, *, all_here: bool) -> bool:
        """Whether one had as many requests as it may have. `all_here`: whether every episode that was let in is asking,
        and only their work between requests keeps the number lower; of several servers one then has a quarter less than
        its part at most (`servers.py`)."""
        if server.in_flight >= int(server.window.size):
            return True
        return all_here and (self.only is not None or server.in_flight >= (1 - STAYS) * server.window.size)

    def have_limits(self) -> bool:
        """Whether any has limits per minute of its own."""
        return any(server.buckets for server in self._all)

    def trouble(self) -> str:
        """Why none answers now, in words; empty: one does."""
        troubles = [server.health.trouble(answered=server.replies > 0) for server in self._all]
        return troubles[0] if all(troubles) else ""

    def paused_until(self) -> float:
        """When the first of them continues, as it was asked to."""
        return min(server.paused_until for server in self._all)

    def proven(self) -> int:
        """Requests that were allowed in flight when the last replies came."""
        return sum(server.window.proven for server in self._all)

    def median_s(self) -> float:
        """Of recent replies of the quickest; 0 before a full sample."""
        return min((server.window.median_s for server in self._all if server.window.median_s), default=0.0)

    def late(self, seconds: float) -> None:
        """How late this process runs what is due."""
        for server in self._all:
            server.window.late_s = seconds

    def stats(self, now: float) -> tuple[ServerStats, ...]:
        """Of each; nothing of an only one, whose figures are the lane's."""
        return () if self.only is not None else tuple(server.stats(now) for server in self._all)


class JointWindow:
    """The windows of several servers as one, for those who start episodes: those that are down count for nothing,
    unless all are."""

    __slots__ = ("_most", "_servers")

    def __init__(self, servers: LaneServers, most: float) -> None:
        """`most`: requests in flight of all together."""
        self._servers, self._most = servers, most

    @property
    def size(self) -> float:
        """Requests that may be in flight now."""
        return min(self._most, sum(server.size for server in self._there()))

    @property
    def most(self) -> float:
        """More never may be."""
        return min(self._most, sum(min(server.window.most, server.most) for server in self._there()))

    def _there(self) -> Sequence[LaneServer]:
        return [server for server in self._servers if not server.health.down] or list(self._servers)
