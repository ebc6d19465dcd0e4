"""What a lane knows of one of its servers: whether it answers, how many requests it takes, and its own limits.

Window, limits, pauses and health are each server's own. If one is slow, refuses or is away, nothing of that says how
much the others take.
"""

import math

from evalkit.client.lanes.buckets import Need, open_buckets, wait_s
from evalkit.client.lanes.health import Health
from evalkit.client.lanes.servers import ServerLoad
from evalkit.client.lanes.stats import ServerStats
from evalkit.client.lanes.window import Window
from evalkit.spec.model import Limits

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
