"""Limits that a provider counts over several lanes together, and whose turn it is.

A lane stands here with the request at its head, once that request may go as far as the lane's own limits are concerned.
Of the lanes that stand, the one that was served longest ago is next, and what it needs is saved up for it however much
that is: thousands who wait in one lane hold up a lane with few by one request each, and a long prompt is overtaken by
each other lane at most once. A step costs the logarithm of the lanes that stand.
"""

import asyncio
import math
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from evalkit.client.lanes.buckets import Need, book, correct, heed, open_buckets, scarcest, unbook, wait_s
from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance

LONGEST_PAUSE_S = 60.0
"""For what one lane was refused the others pause no longer: these limits are a minute's, whatever else it was told."""
_SAME = 0.01
"""Headers whose limit is so near a configured one speak of that one."""


class Member(Protocol):
    """A lane, as seen from the limits it shares."""

    def serve(self) -> None:
        """Admit whoever may go."""


class Pool:
    """Requests and tokens a minute, and requests in flight, of several lanes within one event loop."""

    def __init__(self, name: str, *, limits: Limits) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._buckets = open_buckets(limits, self._loop.time())
        self._most = limits.in_flight or math.inf
        self._in_flight = 0
        self._paused_until = 0.0
        self._heap: list[tuple[int, int, Member]] = []
        """(turn at which it was served last, order of arrival, lane); entries of lanes that have left are stale."""
        self._standing: dict[Member, int] = {}
        """Lanes that stand, with their order of arrival."""
        self._served: dict[Member, int] = {}
        self._turns = 0
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._called = False
        """Whether the lanes that stand are about to be looked after."""

    def admits(self, lane: Member, need: Need, now: float) -> bool:
        """Whether the lane's next request may go. Else the lane stands here and is served again when it may."""
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
        """Whether a request of a lane in which nobody waits may go at once."""
        return not self._standing and self._wait_s(need, now) == 0

    def take(self, lane: Member, need: Need, now: float) -> None:
        """A request of the lane goes."""
        self._turns += 1
        self._served[lane] = self._turns
        self._standing.pop(lane, None)
        self._in_flight += 1
        book(self._buckets, need, now)
        self._call()

    def withdraw(self, lane: Member) -> None:
        """The lane has nothing to send just now."""
        if self._standing.pop(lane, None) is not None:
            self._call()

    def leave(self) -> None:
        """A request came back."""
        self._in_flight -= 1
        self._call()

    def unbook(self, need: Need, *, sent: bool) -> None:
        """A request used no tokens; where it was not even `sent`, it counts as none."""
        unbook(self._buckets, need, sent=sent)

    def correct(self, booked: Need, used: Need) -> None:
        """The booking was an estimate: put it right."""
        correct(self._buckets, booked, used)

    def refused(self, wait_s: float | None, now: float) -> None:
        """The provider told one lane that this is too much: nothing is saved up, and all pause as it was told."""
        self._paused_until = max(self._paused_until, now + min(wait_s or 0.0, LONGEST_PAUSE_S))
        for bucket in self._buckets.values():
            bucket.lower(0.0, now)

    def heed(self, name: str, allowance: Allowance, now: float) -> bool:
        """Believe a header if it speaks of a limit of these; returns whether it does."""
        limit = self._limits.requests_per_minute if name == "requests" else None
        if limit is None or abs(allowance.limit - limit) > _SAME * limit:
            return False
        heed(self._buckets, name, allowance, now)
        return True

    def waits_for(self, need: Need, now: float) -> str:
        """What a request waits for here, in words; empty: for nothing."""
        what = ""
        if now < self._paused_until:
            what = "pause"
        elif self._in_flight + 1 > self._most:
            what = "requests in flight"
        else:
            what = scarcest(self._buckets, need, now) or ("its turn" if self._standing else "")
        return what and f"{what}, shared limit of {self.name}"

    def _wait_s(self, need: Need, now: float) -> float:
        if self._in_flight + 1 > self._most:
            return math.inf
        return max(self._paused_until - now, wait_s(self._buckets, need, now), 0.0)

    def _next(self) -> Member | None:
        """The lane whose turn it is."""
        while self._heap:
            _, arrival, lane = self._heap[0]
            if self._standing.get(lane) == arrival:
                return lane
            heappop(self._heap)
        return None

    def _call(self) -> None:
        """Look after the lanes that stand, once whoever is being served is done."""
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
        self._called = True  # what happens meanwhile is seen here
        try:
            while (lane := self._next()) is not None:
                turns = self._turns
                lane.serve()
                if self._turns == turns and self._next() is lane:
                    return  # it waits, for us or for others
        finally:
            self._called = False
