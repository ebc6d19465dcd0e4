"""How many requests a lane keeps in flight: found by trying, without being told. Arithmetic only, no clock.

It begins modestly and grows by half or more each round trip while it is full and more requests in flight bring more
replies a second. Where replies only become slower the server is full: the window goes back to what kept it busy, and
from then on tries a little more now and then. A 429, an overload or a timeout cuts it, at most once a round trip: what
was sent before the last cut cuts no more. A server that never refuses, and only slows down, is so met before its
requests time out.
"""

from statistics import median

FIRST = 8
"""Where a window begins."""
FIRST_SAMPLE = 16
"""Replies that the first median is taken of."""
CUT = 0.7
"""What a cut leaves of it."""
MODEST = 32
GENTLE = 0.5
"""From `MODEST` on it grows by this part of itself each round trip: replies tell of a width that is one trip old."""
AGAIN = 0.25
"""Where room is found later: growth of a round trip."""
SLOW_PART = 32
"""Once the way is known it grows each round trip by one, or by this part of itself."""
SLOWER = 1.25
"""While it grows fast, a reply that took so many times the median of those before it lets nobody else in."""
PATIENCE = 0.5
"""Once a request has timed out: replies that took more than this part of its time let nobody else in ..."""
AS_BEST = 1.15
"""... unless they took no longer than this, in medians of the best sample: the server is slow, and not full."""
RISEN = 1.08
RISEN_FAST = 1.25
"""Replies have become slower; what that brought must be worth it: throughput up by its square root at least. While it
grows fast the samples are small, and a full server shows clearly."""
STRAY = 1 / 3
STRAYS = 0.05
"""A request that times out while the median is below `STRAY` of its time is no sign of too many, unless it is one of
more than this part of a sample."""
CEILING = 0.9
"""Of the width at which requests timed out: it grows no further, ..."""
CEILING_PART = 1000
"""... but for this part of it each round trip: they are charged, and asked again."""
HEADROOM = 1.25
"""In flight at a full server, for each request that it works at: so much that it never waits for us."""
TRIED = 1.2
"""So much wider, and it is looked whether that was worth it."""
DOUBLED = 2.0
"""A median of so many times the best since the way is known cuts: the server has become slower."""
HELPED = 0.9
"""Such a cut helped if it brought the median below this part of what it was."""
LATE = 0.1
LATE_S = 0.01
"""Of the median reply, and at least in seconds: where our own process comes so late to what is due, replies are slow
because of us. That says nothing of the server."""
LEAST_SAMPLES = 32
"""Replies that a median is taken of, once the window grows slowly."""


class Window:
    """The adaptive width of one lane."""

    __slots__ = (
        "_before_s",
        "_before_size",
        "_before_speed",
        "_best_s",
        "_ceiling",
        "_cut_at",
        "_cut_median_s",
        "_growing_fast",
        "_healthy",
        "_latencies",
        "_least_s",
        "_looked_at",
        "_pace",
        "_patience_s",
        "_settling",
        "_strays",
        "_target",
        "_were_full",
        "late_s",
        "median_s",
        "most",
        "size",
    )

    def __init__(self, most: int) -> None:
        """`most`: never more than this (the lane's configured `in_flight`, or its players)."""
        self.most = float(most)
        self.size = float(min(FIRST, most))
        self.median_s = 0.0
        """Median latency of the last full sample; 0 before the first."""
        self.late_s = 0.0
        """How late this process comes to what is due."""
        self._best_s = 0.0
        """Lowest median since the window grew fast, or what it was just before."""
        self._least_s = float("inf")
        """Lowest median of all."""
        self._growing_fast = True
        self._pace = 1.0
        """Growth of a round trip while it grows fast."""
        self._cut_at = float("-inf")
        self._cut_median_s = 0.0
        self._patience_s = float("inf")
        self._ceiling = self.most
        self._settling = False
        """Whether the next sample is the first after a cut: the server still works off what came before."""
        self._healthy = self.size
        """Its size at the last reply."""
        self._before_s = self._before_speed = self._before_size = 0.0
        """Median, replies a second and size that the next sample is compared with; 0: with nothing."""
        self._latencies: list[float] = []
        self._were_full = self._strays = 0
        self._looked_at = 0.0
        self._target = 0
        self._begin_sample(0.0)

    def succeeded(self, *, sent_at: float, now: float, full: bool) -> None:
        """A reply came; `full`: whether the window was full just before."""
        if sent_at < self._cut_at:
            return  # it tells of a width that is no more
        latency_s = now - sent_at
        if full and self.size < self._ceiling and self._lets_in(latency_s):
            self.size = min(self._ceiling, self.size + self._step())
        self._healthy = self.size
        if not self._latencies and not self._looked_at:
            self._looked_at = sent_at
        self._latencies.append(latency_s)
        self._were_full += full
        if len(self._latencies) >= self._target:
            self._look(median(self._latencies), now)
            self._begin_sample(now)

    def refused(self, *, sent_at: float, now: float, timed_out: bool = False) -> bool:
        """The provider (or a timeout) said that this is too much. Returns whether the window was cut."""
        if sent_at < self._cut_at or (timed_out and self._is_stray(now - sent_at)):
            return False
        if timed_out and not self._is_quick(now - sent_at):
            self._patience_s = min(self._patience_s, now - sent_at)
            self._ceiling = max(1.0, min(self._ceiling, CEILING * self.size))
        self._cut(self.size * CUT, now)
        return True

    def restart(self, now: float, *, paced: bool) -> None:
        """After an outage: feel the way again, from half of what was well before it, or from all of it where a rate
        paces what goes. Where requests time out it was no clean outage: the window stays as it was cut."""
        if self._patience_s == float("inf"):
            self.size = min(self.most, max(float(FIRST), self._healthy if paced else self._healthy / 2))
            self._growing_fast, self._pace, self._best_s = True, 1.0, 0.0
            self._cut_at = now  # what was sent before is no measure
        self._before_s = 0.0
        self._begin_sample(now)

    def _step(self) -> float:
        """What one reply adds."""
        if not self._growing_fast:
            return max(1.0, self.size / SLOW_PART) / self.size
        return min(self._pace, 1.0 if self.size < MODEST else GENTLE)

    def _is_stray(self, patience_s: float) -> bool:
        self._strays += 1
        return self._is_quick(patience_s) and self._strays <= max(1.0, STRAYS * self._target)

    def _is_quick(self, patience_s: float) -> bool:
        """Whether replies come so fast that a request which times out is lost, and not late: that says nothing of the
        width that is too much. A ceiling for each of those would come down to one request at a time, and stay."""
        return 0 < self.median_s < STRAY * patience_s

    def _is_late(self, middle_s: float) -> bool:
        return self.late_s > max(LATE_S, LATE * middle_s)

    def _lets_in(self, latency_s: float) -> bool:
        if self._is_late(self.median_s) and latency_s < PATIENCE * self._patience_s:
            return True
        if latency_s > PATIENCE * self._patience_s and latency_s > AS_BEST * self._least_s:
            return False
        if self._best_s and latency_s > DOUBLED * self._best_s:
            return False
        return not (self._growing_fast and self.median_s and latency_s > SLOWER * self.median_s)

    def _begin_sample(self, now: float) -> None:
        """`now`: since when its replies are counted; 0: since its first request was sent."""
        self._latencies = []
        self._were_full = self._strays = 0
        self._looked_at = now
        self._target = max(FIRST_SAMPLE if self._growing_fast else LEAST_SAMPLES, int(self.size))

    def _look(self, middle_s: float, now: float) -> None:
        self.median_s = middle_s
        self._least_s = min(self._least_s, middle_s)
        self._ceiling = min(self.most, self._ceiling * (1 + 1 / CEILING_PART))
        full = self._were_full >= 0.8 * len(self._latencies)
        speed = len(self._latencies) / max(now - self._looked_at, 1e-9)
        if self._settling:
            self._settling = False
            return
        if self._is_late(middle_s):
            self._before_s = self._cut_median_s = 0.0
            if full and not self._growing_fast and self._patience_s == float("inf"):
                self._growing_fast, self._pace = True, AGAIN
            return
        if not self._growing_fast and self._cut_for_latency(middle_s, now):
            return
        if full and self._worth_it(middle_s, speed, now):
            self._before_s, self._before_speed, self._before_size = middle_s, speed, self.size

    def _worth_it(self, middle_s: float, speed: float, now: float) -> bool:
        """Whether the next samples are compared with this one; else the window went back, or has not grown enough."""
        if not self._before_s or self.size >= self.most:
            if self._growing_fast and self.size >= self.most:
                self._growing_fast, self._best_s = False, self._before_s
            return True
        if self.size < TRIED * self._before_size:
            return False
        before_s, fast = self._before_s, self._growing_fast
        slower, faster = middle_s / before_s, speed / self._before_speed
        if slower >= (RISEN_FAST if fast else RISEN) and faster < slower**0.5:
            known = HEADROOM * speed * before_s if fast else self._before_size
            self._cut(min(self.size, max(self.size / 2, known)), now)
            if fast:
                self._best_s = (before_s * self._least_s) ** 0.5  # between idle and full
            return False
        if not fast and slower < RISEN and faster >= TRIED**0.5 and self._patience_s == float("inf"):
            self._growing_fast, self._pace = True, AGAIN  # what was full has room now; not where requests timed out
        return True

    def _cut_for_latency(self, middle_s: float, now: float) -> bool:
        if self._cut_median_s:
            if middle_s > HELPED * self._cut_median_s:
                # Fewer requests are no faster: replies have become longer, which no window can help. This is the new
                # best; without that, growing chats would be cut down to one request at a time.
                self._best_s = middle_s
            self._cut_median_s = 0.0
        if not self._best_s or middle_s < self._best_s:
            self._best_s = middle_s
        elif middle_s > DOUBLED * self._best_s and self.size > FIRST:
            self._cut(self.size * CUT, now)
            self._cut_median_s = middle_s
            return True
        return False

    def _cut(self, size: float, now: float) -> None:
        self.size = max(1.0, size)
        if self._growing_fast:
            self._growing_fast, self._best_s = False, 0.0
        self._cut_at, self._cut_median_s, self._before_s, self._settling = now, 0.0, 0.0, True
        self._begin_sample(now)
