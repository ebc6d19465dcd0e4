"""Which of several servers of one model a request is sent to. Arithmetic only, tested by table.

A request goes where the load is least: requests in flight, it included, relative to what the server may have in flight
now (its window). So a server that is twice as fast gets twice as many. Of equal ones the first counts.

The next request of an episode contains all that came before it, and the server that answered last has that in its
cache: elsewhere it is read anew. So it goes there again, unless that server's load is more than `STAYS` above the
least. Nobody waits for a full server while another has room. While all are full, requests wait in one queue, and the
first of them mostly belongs elsewhere than where the next reply came. So it lets a few behind it go first that belong
there (`LOOK_AHEAD`), but each is passed at most `MOST_PASSED` times.

A server that is down is sent a single request now and then. An attempt that failed is repeated elsewhere, so no request
probes twice in a row.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from evalkit.client.lanes.buckets import Need, open_buckets, wait_s
from evalkit.client.lanes.health import Health
from evalkit.client.lanes.stats import ServerStats
from evalkit.client.lanes.window import Window
from evalkit.spec.model import Limits, ServerSpec
from evalkit.waiting import Waiter

STAYS = 0.25
"""Of what it may have in flight. On a server that answers many at once, a request with a quarter more beside it takes
at most that much longer; a prompt of some thousand tokens that is read anew takes longer than a short answer, and holds
up all others meanwhile. `python -m bench.calibrations.servers`: with 0, half full servers give 27 % fewer replies, full
ones 42 %. With 0.1 the former give 10 % fewer, and with twice as many episodes as the servers take a third fewer. With
0.5 nothing changes there; but after an outage, the servers that stayed would keep their episodes for longer."""
LOOK_AHEAD = 64
"""Waiting requests that are looked at, the first included; so the work for a request stays the same however many wait.
Those that belong to the slowest server gather at the front. With 1, full servers give 28 % fewer replies, and half as
many where twice as many episodes play as the servers take; with 16 a third fewer there."""
MOST_PASSED = 16
NOWHERE = -1
"""In place of a server's number: none has the prompt in its cache."""


class Wish(NamedTuple):
    """Where a request should go, by numbers of servers."""

    cached: int = NOWHERE
    """The one that has its prompt in the cache."""
    failed: int = NOWHERE
    """The one at which its last attempt has failed."""


ANYWHERE = Wish()


class ServerLoad(NamedTuple):
    """One server at this moment."""

    wait_s: float
    """Seconds until a request may be sent to it; 0: now; `inf`: not before another one is answered."""
    in_flight: int
    most: float
    """Requests that it may have in flight."""
    down: bool
    """Whether a request to it would be a probe."""

    @property
    def with_one_more(self) -> float:
        """Its load if one more were sent to it."""
        return (self.in_flight + 1) / max(1.0, self.most)


def chosen(servers: Sequence[ServerLoad], wish: Wish = ANYWHERE) -> int:
    """The number of the server that a request is sent to now; `NOWHERE`: none can take it."""
    cached, failed = wish
    least, least_load = NOWHERE, math.inf
    for number, server in enumerate(servers):
        if server.wait_s <= 0 and number != failed:
            if server.down:
                return number
            load = server.with_one_more
            if load < least_load:
                least, least_load = number, load
    if least == NOWHERE and failed != NOWHERE and servers[failed].wait_s <= 0:
        return failed
    if NOWHERE in (least, cached) or cached == failed or servers[cached].wait_s > 0:
        return least
    return cached if servers[cached].with_one_more <= least_load + STAYS else least


def may_be_passed(servers: Sequence[ServerLoad], wish: Wish, passed: int) -> bool:
    """Whether the first of those who wait lets others go first: it belongs to a server that is only full, and was not
    passed too often."""
    if wish.cached == NOWHERE or passed >= MOST_PASSED:
        return False
    server = servers[wish.cached]
    return server.wait_s == math.inf and not server.down


def belongs(servers: Sequence[ServerLoad], wish: Wish) -> bool:
    """Whether the server that has a request's prompt in its cache can take it now."""
    cached = wish.cached
    return cached != NOWHERE and servers[cached].wait_s <= 0 and not servers[cached].down


# What a lane knows of one of its servers: whether it answers, how many requests it takes, and its own limits.
#
# Window, limits, pauses and health are each server's own. If one is slow, refuses or is away, nothing of that says
# how much the others take.

LEAST_S = 0.001
"""A server that is down has been so for this long at least."""


class LaneServer:
    """One server of one lane."""

    __slots__ = (
        *("announced", "buckets", "health", "in_flight", "most", "name", "number", "paused_until", "probes"),
        *("_paid_since", "paid", "replies", "window"),
    )

    def __init__(
        self, number: int, name: str, *, limits: Limits, width: int, start: int | None, now: float, replaceable: bool
    ) -> None:
        """`name`: empty for the only one. `width`: the most that may be in flight, unless its limit is lower. `start`:
        as many may be in flight then at once; None: a few. `replaceable`: whether others answer in its place."""
        self.number, self.name = number, name
        self.window = Window(min(width, limits.in_flight or width), start=start)
        self.buckets = open_buckets(limits, now)
        self.health = Health(replaceable=replaceable)
        self.in_flight = 0
        self.probes = 0
        self.most = math.inf
        """Requests in flight, where this process has a share of its limit."""
        self.paused_until = 0.0
        """As it asked, where others can take its place; else the lane itself pauses."""
        self.announced = False
        """Whether its headers have stated limits."""
        self.paid = 0
        """Attempts that may have been billed since the last reply, as far as they count (`MOST_PAID`)."""
        self._paid_since = 0.0
        """When the first of them failed."""
        self.replies = 0

    @property
    def at(self) -> str:
        """Where a failure came from, as an end of a lane's name."""
        return f" at {self.name}" if self.name else ""

    @property
    def size(self) -> float:
        """Requests that it may have in flight now."""
        return min(self.window.size, self.most)

    def paid_for(self, sent_at: float, now: float) -> None:
        """An attempt that may have been billed brought no reply. One that was in flight when the first failed does not
        count: an outage breaks all of them, once. `sent_at` infinite: it counts in any case."""
        if not self.paid:
            self._paid_since = now
        if not self.paid or sent_at >= self._paid_since:
            self.paid += 1

    def wait_s(self, need: Need, now: float) -> float:
        """Seconds until a request of that size may be sent to it: 0 now, `inf` not before another one is answered."""
        if now < self.paused_until:
            return self.paused_until - now
        if self.health.down:
            if self.probes or self.in_flight + 1 > self.most:
                return math.inf
            return max(self.health.next_probe - now, wait_s(self.buckets, need, now))
        if self.in_flight + 1 > self.window.size or self.in_flight + 1 > self.most:
            return math.inf
        return wait_s(self.buckets, need, now)

    def load(self, need: Need, now: float) -> ServerLoad:
        """For the choice among several."""
        return ServerLoad(self.wait_s(need, now), self.in_flight, self.size, self.health.down)

    def is_away(self, now: float) -> bool:
        """Whether it takes no requests but probes."""
        return self.health.down or now < self.paused_until

    def stats(self, now: float) -> ServerStats:
        """The server at this moment."""
        down, paused_s = self.health.down, max(0.0, self.paused_until - now)
        return ServerStats(
            server=self.name,
            in_flight=self.in_flight,
            window=int(self.size),
            replies=self.replies,
            down_s=max(LEAST_S, now - self.health.down_since) if down else 0.0,
            paused_s=paused_s,
            trouble=self.health.trouble(answered=self.replies > 0),
            latency_s=self.window.median_s,
        )


# The requests in a lane: those that were admitted, and those in its queue.


class Ticket:
    """One admitted request; every ticket is returned through `succeeded`, `failed` or `abandon` of its lane."""

    __slots__ = ("beside", "body_bytes", "need", "probe", "sent_at", "server")

    def __init__(
        self, need: Need, sent_at: float, probe: bool, body_bytes: int, server: LaneServer, beside: int
    ) -> None:
        self.need = need
        self.sent_at = sent_at
        self.probe = probe
        """Whether it asks if a provider that was down is back."""
        self.body_bytes = body_bytes
        self.server = server
        """Where it is sent."""
        self.beside = beside
        """Requests in flight there, with this one."""


class QueuedRequest(NamedTuple):
    """One request in the queue."""

    body_bytes: int
    max_tokens: int
    wish: Wish = ANYWHERE


# The servers of one lane together: which of them is asked, who of those who wait goes first, and whether any answers.
#
# Mostly there is one, and nothing is chosen.

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
        its part at most (`STAYS`)."""
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
