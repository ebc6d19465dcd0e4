"""How many requests a lane keeps in flight: found by trying, without being told. Arithmetic only, no clock.

It begins modestly and doubles each round trip while it is full. A sign of congestion (429, overload, timeout, a median
latency of twice the lane's best) cuts it, at most once a round trip: what was sent before the last cut cuts no more.
From the first cut on it grows slowly.
"""

from statistics import median

FIRST = 32
"""Where a window begins."""
CUT = 0.7
"""What a cut leaves of it."""
SLOW_PART = 32
"""After a refusal it grows each round trip by one, or by this part of itself: 32 round trips from 64 to 170."""
DOUBLED = 2.0
HELPED = 0.9
"""A cut for latency helped if it brought the median below this part of what it was."""
LEAST_SAMPLES = 32


class Window:
    """The adaptive width of one lane."""

    __slots__ = ("_best_s", "_cut_at", "_cut_median_s", "_growing_fast", "_latencies", "median_s", "most", "size")

    def __init__(self, most: int) -> None:
        """`most`: never more than this (the lane's configured `in_flight`, or its players)."""
        self.most = float(most)
        self.size = float(min(FIRST, most))
        self.median_s = 0.0
        """Median latency of the last full sample; 0 before the first."""
        self._best_s = 0.0
        self._growing_fast = True
        self._cut_at = float("-inf")
        self._cut_median_s = 0.0
        self._latencies: list[float] = []

    def succeeded(self, *, sent_at: float, now: float, full: bool) -> None:
        """A reply came; `full`: whether the window was full just before."""
        if sent_at < self._cut_at:
            return  # it tells of a width that is no more
        if full and self.size < self.most:
            step = 1.0 if self._growing_fast else max(1.0, self.size / SLOW_PART) / self.size
            self.size = min(self.most, self.size + step)
        latencies = self._latencies
        latencies.append(now - sent_at)
        if len(latencies) >= LEAST_SAMPLES and len(latencies) >= self.size:
            self._look(median(latencies), now)
            latencies.clear()

    def refused(self, *, sent_at: float, now: float) -> bool:
        """The provider (or a timeout) said that this is too much. Returns whether the window was cut."""
        if sent_at < self._cut_at:
            return False
        self._cut(now)
        return True

    def restart(self) -> None:
        """After an outage: feel the way again, so that its end is not met with everything at once."""
        self.size = min(self.size, float(FIRST))
        self._growing_fast = True

    def _look(self, middle_s: float, now: float) -> None:
        self.median_s = middle_s
        if self._cut_median_s:
            if middle_s > HELPED * self._cut_median_s:
                # Fewer requests are no faster: replies have become longer, which no window can help. This is the new
                # best; without that, growing chats would be cut down to one request at a time.
                self._best_s = middle_s
            self._cut_median_s = 0.0
        if not self._best_s or middle_s < self._best_s:
            self._best_s = middle_s
        elif middle_s > DOUBLED * self._best_s and self.size > FIRST:
            self._cut_median_s = middle_s
            self._cut(now)

    def _cut(self, now: float) -> None:
        self.size = max(1.0, self.size * CUT)
        self._growing_fast = False
        self._cut_at = now
        self._latencies.clear()
