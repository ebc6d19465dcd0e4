"""Limits that a provider counts over several lanes together, and the order in which these lanes are served.

A lane queues here with the request at its head, once the lane's own limits admit that request. The queued lane that was
served longest ago is next, and its whole need is saved up for it. So a lane with few requests waits for at most one
request of a lane with thousands, and each other lane overtakes a long prompt at most once. The cost of a step grows
with the logarithm of the number of queued lanes.
"""

import asyncio
import math
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from evalkit.client.lanes.buckets import (
    Need,
    apply_allowance,
    book,
    open_buckets,
    reshare,
    scarcest,
    wait_s,
)
from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance

LONGEST_PAUSE_S = 60.0
"""If one lane is refused, the others pause no longer than this: these limits are per minute, whatever else the refusal
says."""
_SAME = 0.01
"""A header whose limit is this near a configured one means that one."""


class Member(Protocol):
    """A lane, as seen from the limits it shares."""

    def serve(self) -> None:
        """Admit every request that may be sent."""


class Pool:
    """Requests and tokens per minute, and requests in flight, of several lanes within one event loop."""

    def __init__(self, name: str, *, limits: Limits) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self.buckets = open_buckets(limits, self._loop.time())
        """The limits by the minute: one object, whatever they become."""
        self._most = limits.in_flight or math.inf
        self._in_flight = 0
        self._paused_until = 0.0
        self._heap: list[tuple[int, int, Member]] = []
        """(turn at which it was served last, order of arrival, lane); entries of lanes that have left are stale."""
        self._standing: dict[Member, int] = {}
        """Queued lanes, with their order of arrival."""
        self._served: dict[Member, int] = {}
        self._turns = 0
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._called = False
        """Whether the queued lanes are about to be served."""

    def reshare(self, rates: Mapping[str, float], most: float) -> None:
        """This process may use so much of the limits from now on: `rates` a minute, `most` requests in flight."""
        reshare(self.buckets, rates, self._loop.time())
        self._most = most
        self._call()

    def admits(self, lane: Member, need: Need, now: float) -> bool:
        """Whether the lane's next request may be sent. If not, the lane queues here and is served when it may."""
        if not self._standing:
            wait = self._wait_s(need, now)
            if wait == 0:
                return True
        if lane not in self._standing:
            arrival = next(self._arrivals)
            self._standing[lane] = arrival
            heappush(self._heap, (self._served.get(lane, 0), arrival, lane))
        if self._next() is not lane:
            return False
        wait = self._wait_s(need, now)
        if 0 < wait < math.inf:
            self._look_at(now + wait)
        return wait == 0

    def quick(self, need: Need, now: float) -> bool:
        """Whether a request of a lane without a queue may be sent at once."""
        return not self._standing and self._wait_s(need, now) == 0

    def take(self, lane: Member, need: Need, now: float) -> None:
        """A request of the lane is sent."""
        self._turns += 1
        self._served[lane] = self._turns
        self._standing.pop(lane, None)
        self._in_flight += 1
        book(self.buckets, need, now)
        self._call()

    def withdraw(self, lane: Member) -> None:
        """The lane has nothing to send now."""
        if self._standing.pop(lane, None) is not None:
            self._call()

    def leave(self) -> None:
        """A request came back."""
        self._in_flight -= 1
        self._call()

    def refused(self, wait_s: float | None, now: float) -> None:
        """The provider refused one lane because of the rate: nothing stays saved up, and all lanes pause as it asks."""
        self._paused_until = max(self._paused_until, now + min(wait_s or 0.0, LONGEST_PAUSE_S))
        for bucket in self.buckets.values():
            bucket.lower(0.0, now)

    def apply_allowance(self, name: str, allowance: Allowance, now: float) -> bool:
        """Apply a header if it states one of these limits; returns whether it does."""
        limit = self._limits.requests_per_minute if name == "requests" else None
        if limit is None or abs(allowance.limit - limit) > _SAME * limit:
            return False
        apply_allowance(self.buckets, name, allowance, now)
        return True

    def waits_for(self, need: Need, now: float) -> str:
        """What a request waits for here, in words; empty: for nothing."""
        what = ""
        if now < self._paused_until:
            what = "pause"
        elif self._in_flight + 1 > self._most:
            what = "requests in flight"
        else:
            what = scarcest(self.buckets, need, now) or ("its turn" if self._standing else "")
        return what and f"{what}, shared limit of {self.name}"

    def _wait_s(self, need: Need, now: float) -> float:
        if self._in_flight + 1 > self._most:
            return math.inf
        return max(self._paused_until - now, wait_s(self.buckets, need, now), 0.0)

    def _next(self) -> Member | None:
        """The lane whose turn it is."""
        while self._heap:
            _, arrival, lane = self._heap[0]
            if self._standing.get(lane) == arrival:
                return lane
            heappop(self._heap)
        return None

    def _call(self) -> None:
        """Serve the queued lanes, after the current one."""
        if self._standing and not self._called:
            self._called = True
            self._loop.call_soon(self._serve)

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() == when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._serve()

    def _serve(self) -> None:
        self._called = True  # what happens meanwhile is noticed here
        try:
            while (lane := self._next()) is not None:
                turns = self._turns
                lane.serve()
                if self._turns == turns and self._next() is lane:
                    return  # it waits, for us or for others
        finally:
            self._called = False
