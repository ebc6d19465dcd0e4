"""By which tier of a list a lane's requests go: the cheap, slow one while all would end in time, the next one for what
would be remaining.

Everything ends in time if the requests that remain take no longer, on average, than the time left allows. List
scheduling bounds that time: with W episodes side by side, R requests in all and L in the longest episode, it takes at
most s (R / W + L (1 - 1 / W)) where a request takes s (Graham, Bounds on multiprocessing timing anomalies, 1969). So s
may be s* = time left / (R / W + L (1 - 1 / W)); and for an episode with l requests before it, time left / l. A part x
of the requests goes by the slow tier, so that x slow + (1 - x) quick = s*. All of it is looked at anew for every
request: what a slow reply has cost in time, the next ones win back. A reply of the slow tier is not waited for longer
than leaves the quick one time for the rest of the lane. While the slow tier loses requests, one at a time goes there:
who waited in vain is charged for it.

Arithmetic only: the engine says what remains, the client how long requests took.
"""

import math
from collections.abc import Callable

LOOKED_EVERY_S = 1.0
KEPT = 64
"""Requests over which the pace of a tier is averaged."""
SPREADS = 3.0
"""Standard deviations of a chain of replies that are kept free: the latest of some hundreds is no later."""


FIRST = 0.125
"""The part of the requests that goes by the slow tier while it has answered none: so both become known, and little is
lost if there is no time for it."""


class TierSpeed:
    """How long requests take by one tier, from when they are asked to the reply: queue and refusals included."""

    __slots__ = ("_count", "_since", "_squares", "loses", "mean_s", "waiting")

    def __init__(self) -> None:
        self._count, self._since, self._squares = 0, 0.0, 0.0
        self.mean_s = 0.0
        """Of those that were answered; 0: none was."""
        self.waiting = 0
        self.loses = False
        """Whether the last one that is over was given up."""

    def asked(self, now: float) -> None:
        """A request begins to go by it."""
        self.waiting += 1
        self._since += now

    def ended(self, since: float, now: float, *, answered: bool, lost: bool = False) -> None:
        """It is over; without an answer it went elsewhere, and took longer than that. `lost`: it was given up."""
        self.waiting -= 1
        self._since -= since
        self.loses = lost or (self.loses and not answered)
        took_s = now - since
        if answered or took_s > self.mean_s:
            self._count = min(KEPT, self._count + 1)
            self._squares += ((took_s - self.mean_s) ** 2 - self._squares) / self._count
            self.mean_s += (took_s - self.mean_s) / self._count

    def spare_s(self, requests: float) -> float:
        """By how much so many requests in a row may take longer than on average."""
        return SPREADS * math.sqrt(self._squares * requests)

    def expected_s(self, now: float) -> float:
        """What the next one is expected to take: the mean of the last ones, or of how long those wait that are not
        answered yet, if that is longer."""
        return max(self.mean_s, now - self._since / self.waiting if self.waiting else 0.0)


class TierPace:
    """Chooses for the requests of one lane, under a deadline."""

    def __init__(
        self, deadline: float, remaining: Callable[[], tuple[float, float, int]], rest: Callable[[str], float]
    ) -> None:
        """`deadline` in the loop's time. `remaining`: of the lane, the requests in all, those of its longest episode,
        and the episodes side by side. `rest`: of an episode by its id, the requests before it."""
        self.deadline, self._remaining, self._rest = deadline, remaining, rest
        self.slow, self.quick = TierSpeed(), TierSpeed()
        self._looked_at, self._turns = -math.inf, 0.0

    def turns(self, now: float) -> float:
        """Requests in a row before the lane has ended."""
        return self._ahead("", now)

    def share(self, episode: str, now: float) -> float:
        """The part of requests like the next one of an episode that may go by the slow tier: 0 to 1."""
        turns, slow_s, quick_s = self._ahead(episode, now), self.slow.expected_s(now), self.quick.mean_s
        spare_s = self.slow.spare_s(1) + self.quick.spare_s(turns)
        if self.limit_s(episode, now) <= slow_s + spare_s or (self.slow.loses and self.slow.waiting):
            return 0.0
        if not self.slow.mean_s:
            return FIRST
        allowed_s = (self.deadline - now - self.quick.spare_s(turns)) / turns
        if allowed_s >= slow_s:
            return 1.0
        if not quick_s:  # it has to be found out
            return 0.0
        return max(0.0, (allowed_s - quick_s) / (slow_s - quick_s))

    def limit_s(self, episode: str, now: float) -> float:
        """How long a reply of the slow tier may be waited for, so that the quick one can end everything."""
        turns, own = self._ahead(episode, now), max(1.0, self._rest(episode))
        needed_s = max(turns * self.quick.mean_s, own * self.quick.mean_s + self.quick.spare_s(own))
        return self.deadline - now - needed_s

    def _ahead(self, episode: str, now: float) -> float:
        """Requests in a row before the lane has ended: R / W + L (1 - 1 / W), or those of an episode if they are
        more."""
        if now - self._looked_at >= LOOKED_EVERY_S:
            requests, longest, width = self._remaining()
            self._looked_at, self._turns = now, requests / max(1, width) + longest * (1 - 1 / max(1, width))
        return max(1.0, self._rest(episode), 0.0 if math.isnan(self._turns) else self._turns)
