"""How many requests a lane keeps in flight: found by experiment, without configuration. Arithmetic only, no clock.

It starts small and doubles in each round trip while it is full and more requests in flight bring more
replies per second. If replies only become slower, the server is full: the window returns to the size that kept it busy,
and from then on tries a little more now and then. A 429, an overload or a timeout cuts it, at most once per round trip:
requests sent before the last cut do not cut it again. So a server that never refuses, and only slows down, is
recognised before its requests time out.

`python -m bench.calibrations.window` sets each constant: in virtual time it meets servers that are full, slow,
refusing, stalling, out of order for a while, or waiting for our own process, with a smaller and a larger value. What
stands below each constant is what it showed; a server is used to the given part of the replies that it could give.
"""

from statistics import fmean

FIRST = 16
"""The size of a new window. With 4, a server of 400 slots and 20 s a reply is full 43 s later. With 64 it is so 47 s
sooner; but one of 4 slots, with a timeout of 100 s, loses 19 % of its requests instead of 2 %."""
FIRST_SAMPLE = 16
"""Replies in the first middle. With 64, replies of a server with one slot wait twice as long."""
CUT = 0.7
"""The part that remains after a cut. 0.5 leaves a server that refuses beyond its slots used to 60 % instead of 77 %;
with 0.9 replies of a full server wait up to half as long again, and one that stalls beyond a width is used to 10 %
instead of 24 %."""
FAST = 1.0
"""A reply admits so many more at first: 512 requests of 20 s are in flight after six round trips, with 2.0 after four.
The price is met once, where the server is full: with 2.0 one that stalls beyond a width loses 16 % instead of 14 %, one
of 50 slots, with a timeout of 2.5 replies, 1.6 % instead of 0.7 %, and one that only slows down, with a timeout of
three replies, 4 % instead of 0.5 %."""
FAR = 2.5
"""A reply that took this many times the quickest admits no further request before there is a sample: a server with few
slots answers its first requests one after another. Without it, one of 4 slots loses 6 % instead of 2 %."""
AGAIN = 0.25
"""Growth per round trip if room is found later, after an outage, and while our own process is late. With 1.0 a process
that answers 50 requests a second loses 35 % to timeouts instead of 3 %."""
SLOW_PART = 32
"""After the fast growth it grows in each round trip by one, or by this part of itself. With 8, replies wait a quarter
longer after capacity has fallen; with 128, growing chats use 73 % instead of 88 %."""
SLOWER = 1.25
"""During fast growth, a reply that took this many times the middle of the earlier ones admits no further request.
Without it, a server of 50 slots, with a timeout of 2.5 replies, loses 4 % instead of 0.7 %; with 1.1 replies of 20 s
find room 24 s later."""
RISEN = 1.08
RISEN_FAST = 1.25
"""If replies have become slower by this factor, the throughput must have grown by its square root at least. During fast
growth the samples are small, and a full server is clearly visible: with `RISEN_FAST` at 1.6 replies wait more than
twice as long after an outage."""
STRAY = 1 / 3
STRAYS = 0.05
"""A request that times out while the middle is below `STRAY` of its time does not mean that there are too many, unless
more than this part of a sample does so. With `STRAY` at 0.1 a server that loses a tenth of all requests is used to 18 %
instead of 38 %; with 0.8 one that has become ten times as slow loses 10 % of its requests instead of 6 %. With `STRAYS`
at 0.3 a server that loses a tenth is used to 94 %, but one that stalls when it has too many to 20 % instead of 24 %."""
CEILING = 0.9
"""The part of the width at which requests timed out, beyond which it does not grow, ..."""
CEILING_PART = 1000
"""... except by this part of it in each round trip: requests that time out are charged and repeated. Where replies of
20 s with a natural spread time out after 50, 41 % of the server is used with a ceiling of 0.7 instead of 59 %, 67 %
with none, and 81 % with a part of 50."""
HEADROOM = 1.25
"""Requests in flight per request that a full server processes: enough that it never waits for us. With 2, one that
loses a tenth is used to 41 % instead of 38 %; with 1, replies wait a sixth less long, and nothing is lost in the
experiment, whose players are always ready to ask."""
TRIED = 1.2
"""Growth after which the throughput is compared with the previous sample. With 1.05, replies of a full server wait half
as long again; with 1.6, they wait a quarter longer after capacity has fallen."""
DOUBLED = 2.0
"""A middle of this many times the best one since the fast growth cuts the window: the server has become slower. With
1.4, growing chats use 66 % instead of 88 %; without it replies of a full server wait half as long again."""
HELPED = 0.9
"""Such a cut helped if the middle fell below this part of its earlier value. With 1.0, growing chats use 80 %
instead of 88 %; with 0.7 they use 94 %, but replies of a full server wait a fifth longer."""
LATE = 0.1
LATE_S = 0.01
"""As a part of the middle reply, and at least in seconds: if our own process is this late, replies are slow because of
us. That shows nothing about the server. Where our process is busy for the first 20 s, 89 % of the server is used, and
84 % without; meanwhile replies wait for us longer."""
LEAST_SAMPLES = 32
"""Replies in a middle, once the window grows slowly, however narrow it is. With 8 a server that loses a tenth of all
requests is used to 43 % instead of 38 %, with 128 to 18 %."""


class Window:
    """The adaptive width of one lane."""

    __slots__ = (
        "_before_s",
        "_before_size",
        "_before_speed",
        "_beside",
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
        "_settling",
        "_strays",
        "_target",
        "_too_late",
        "_were_full",
        "late_s",
        "median_s",
        "most",
        "size",
    )

    def __init__(self, most: int, *, start: int | None = None) -> None:
        """`most`: never more than this (the lane's configured `in_flight`, or its players). `start`: its first size,
        where one is known; else `FIRST`."""
        self.most = float(most)
        self.size = float(min(start or FIRST, most))
        self.median_s = 0.0
        """Median latency of the last full sample; 0 before the first."""
        self.late_s = 0.0
        """How late this process runs what is due."""
        self._best_s = 0.0
        """Lowest median since the fast growth, or the one just before its end."""
        self._least_s = float("inf")
        """Lowest median of all."""
        self._growing_fast = True
        self._pace = FAST
        """Growth per round trip during fast growth."""
        self._cut_at = float("-inf")
        self._cut_median_s = 0.0
        self._too_late = False
        """Whether requests have timed out that were late, not lost."""
        self._ceiling = self.most
        self._settling = False
        """Whether the next sample is the first after a cut: the server still processes earlier requests."""
        self._healthy = self.size
        """Its size at the last reply."""
        self._before_s = self._before_speed = self._before_size = 0.0
        """Median, replies per second and size that the next sample is compared with; 0: with nothing."""
        self._latencies: list[float] = []
        self._beside = self._were_full = self._strays = 0
        self._looked_at = 0.0
        self._target = 0
        self._begin_sample(0.0)

    def succeeded(self, *, sent_at: float, now: float, beside: int, full: bool) -> None:
        """A reply came; `beside`: requests in flight when its own was sent; `full`: whether the window was full just
        before."""
        if sent_at < self._cut_at:
            return  # it describes a width that no longer applies
        latency_s = now - sent_at
        if full and self.size < self._ceiling and self._lets_in(latency_s):
            self.size = min(self._ceiling, self.size + self._step())
        self._healthy = self.size
        if not self._latencies and not self._looked_at:
            self._looked_at = sent_at
        self._latencies.append(latency_s)
        self._beside += beside
        self._were_full += full
        if len(self._latencies) >= self._target:
            self._look(_middle(self._latencies), now)
            self._begin_sample(now)

    def refused(self, *, sent_at: float, now: float, timed_out: bool = False) -> bool:
        """A refusal or a timeout shows that this is too much. Returns whether the window was cut."""
        if sent_at < self._cut_at or (timed_out and self._is_stray(now - sent_at)):
            return False
        if timed_out and not self._is_quick(now - sent_at):
            self._too_late = True
            self._ceiling = max(1.0, min(self._ceiling, CEILING * self.size))
        self._cut(self.size * CUT, now)
        return True

    @property
    def proven(self) -> int:
        """Its size at the last reply, once a sample of replies has come; 0 before."""
        return int(self._healthy) if self.median_s else 0

    def open_to(self, size: float, now: float) -> None:
        """The provider says that it takes so many: grow to that at once, if nothing was refused so far."""
        wide = min(self._ceiling, size)
        if self._growing_fast and wide > self.size:
            self.size = wide
            self._before_s = 0.0
            self._begin_sample(now)

    def restart(self, now: float, *, paced: bool) -> None:
        """After an outage: grow again, from half of the earlier good width, or from all of it if a rate limits what is
        sent. If requests time out, it was not a clean outage: the window stays as it was cut."""
        if not self._too_late:
            self.size = min(self.most, max(float(FIRST), self._healthy if paced else self._healthy / 2))
            self._growing_fast, self._pace, self._best_s = True, AGAIN, 0.0
            self._cut_at = now  # earlier requests are not comparable
        self._before_s = 0.0
        self._begin_sample(now)

    def _step(self) -> float:
        """The growth for one reply."""
        if not self._growing_fast:
            return max(1.0, self.size / SLOW_PART) / self.size
        return AGAIN if self._is_late(self.median_s) else self._pace

    def _is_stray(self, patience_s: float) -> bool:
        self._strays += 1
        return self._is_quick(patience_s) and self._strays <= max(1.0, STRAYS * self._target)

    def _is_quick(self, patience_s: float) -> bool:
        """Whether replies come so fast that a request which times out is lost, not late. It then shows nothing about
        the right width. A ceiling for each of those would fall to one request at a time, and stay there."""
        usual_s = self.median_s or (_middle(self._latencies) if self._latencies else 0.0)
        return 0 < usual_s < STRAY * patience_s

    def _is_late(self, middle_s: float) -> bool:
        return self.late_s > max(LATE_S, LATE * middle_s)

    def _lets_in(self, latency_s: float) -> bool:
        if self._is_late(self.median_s):
            return True
        if self._best_s and latency_s > DOUBLED * self._best_s:
            return False
        if not self._growing_fast:
            return True
        return latency_s <= (SLOWER * self.median_s or FAR * min(self._latencies, default=latency_s))

    def _begin_sample(self, now: float) -> None:
        """`now`: since when its replies are counted; 0: since its first request was sent."""
        self._latencies = []
        self._beside = self._were_full = self._strays = 0
        self._looked_at = now
        self._target = max(FIRST_SAMPLE if self._growing_fast else LEAST_SAMPLES, int(self.size))

    def _look(self, middle_s: float, now: float) -> None:
        self.median_s = middle_s
        self._least_s = min(self._least_s, middle_s)
        self._ceiling = min(self.most, self._ceiling * (1 + 1 / CEILING_PART))
        full = self._were_full >= 0.8 * len(self._latencies)
        replies = len(self._latencies)
        size, speed = self.size, replies / max(now - self._looked_at, 1e-9)
        if self._growing_fast:  # its size changes within the sample: a reply tells of the one when it was asked for
            size = self._beside / replies
            speed = size / max(middle_s, 1e-9)
        if self._settling:
            self._settling = False
            return
        if self._is_late(middle_s):
            self._before_s = self._cut_median_s = 0.0
            if full and not self._growing_fast and not self._too_late:
                self._growing_fast, self._pace = True, AGAIN
            return
        if not self._growing_fast and self._cut_for_latency(middle_s, now):
            return
        if full and self._worth_it(middle_s, speed, size, now):
            self._before_s, self._before_speed, self._before_size = middle_s, speed, size

    def _worth_it(self, middle_s: float, speed: float, size: float, now: float) -> bool:
        """Whether the next samples are compared with this one; else the window went back, or has not grown enough."""
        if not self._before_s or self.size >= self.most:
            if self._growing_fast and self.size >= self.most:
                self._growing_fast, self._best_s = False, self._before_s
            return True
        if size < TRIED * self._before_size:
            return False
        before_s, fast = self._before_s, self._growing_fast
        slower, faster = middle_s / before_s, speed / self._before_speed
        if slower >= (RISEN_FAST if fast else RISEN) and faster < slower**0.5:
            known = HEADROOM * speed * before_s if fast else self._before_size
            self._cut(min(self.size, max(self.size / (1 + FAST), known)), now)
            if fast:
                self._best_s = (before_s * self._least_s) ** 0.5  # between idle and full
            return False
        if not fast and slower < RISEN and faster >= TRIED**0.5 and not self._too_late:
            self._growing_fast, self._pace = True, AGAIN  # what was full has room now; not if requests timed out
        return True

    def _cut_for_latency(self, middle_s: float, now: float) -> bool:
        if self._cut_median_s:
            if middle_s > HELPED * self._cut_median_s:
                # Fewer requests are not faster: replies have become longer, which no window can change. This is the new
                # best; otherwise growing chats would be cut down to one request at a time.
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


def _middle(latencies: list[float]) -> float:
    """The mean of the middle half: a server with few slots answers in whole turns, so a median jumps by one of them."""
    aside = len(latencies) // 4
    return fmean(sorted(latencies)[aside : len(latencies) - aside])
