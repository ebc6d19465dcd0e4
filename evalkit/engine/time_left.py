"""Seconds to the end of a call of `run`: the requests that remain, at the pace of each lane. For the display alone.

An episode is expected to take the requests of the forecast (its stand-in's, corrected by episodes that have ended),
less those that it has made. So there is an estimate from the first replies on, and lanes whose episodes all end
together do not make it jump. A lane takes as long as its requests at its present width, or as its longest episode,
whose requests follow one another. Lanes play side by side: the slowest one counts. At first lanes play less than their
width, since their windows open gradually: the whole width is assumed, and what is seen replaces it.

Lanes also share things. While the budget lets no further episode start, the episodes of all lanes together share the
places of those that play now, however few of them a lane has just then: it gets others' places when they end. While
this process has no processor time left, a lane gets faster as others end: the more of its time the process runs or
waits for a processor, the more the estimate is that of one queue for all.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import thread_time

from evalkit.engine.episode import ActiveEpisode
from evalkit.engine.forecast import Forecast, beyond
from evalkit.engine.scheduler import LaneJob

EVERY_S = 1.0
PACE_OVER_S, PACE_LEAST_S = 20.0, 2.0
"""Seconds over which the pace of a lane is averaged, and at first: the first replies are slower than later ones."""
SETTLED_S = 3.0
"""Seconds after a lane's first reply before which nothing is said of its pace."""
OPENS_WITHIN_S = 20.0
"""Seconds after a lane's first reply in which its window opens, roughly."""
CALM, CALM_MOST_S = 0.25, 10.0
"""What is shown follows the estimate within this part of it, and within so many seconds."""
LOOKED_AT = 256
"""Episodes in flight of a lane that are looked at; of more, so many stand for all."""
SPREAD = 0.25
"""Relative standard deviation of an episode's requests: how much one that is longer than expected still takes."""


@dataclass(slots=True)
class _Tempo:
    """How long an episode of a lane takes from one request to the next."""

    steps_before: int = 0
    steps: float = 0.0
    busy_s: float = 0.0
    """Seconds of all episodes in flight, over which `steps` were made; older ones count less."""
    age_s: float = 0.0
    """Since the first reply."""

    def look(self, job: LaneJob, passed_s: float) -> float | None:
        """Seconds per step of one episode; None before the first."""
        made, self.steps_before = job.context.steps - self.steps_before, job.context.steps
        if not self.steps and not made:
            return None
        kept = math.exp(-passed_s / min(PACE_OVER_S, max(PACE_LEAST_S, self.age_s / 2)))
        self.steps = self.steps * kept + made
        self.busy_s = self.busy_s * kept + job.context.playing * passed_s
        self.age_s += passed_s
        return max(self.busy_s / self.steps, job.lane.median_s if job.lane is not None else 0.0)

    def width(self, job: LaneJob, left: int) -> float:
        """The episodes that the lane plays at once, of `left`."""
        seen, most = max(1, job.context.playing), min(job.width, left)
        return max(seen, most + (seen - most) * -math.expm1(-self.age_s / OPENS_WITHIN_S))


def busy_s() -> float:
    """Seconds that this thread has run or, where the system says it (Linux), waited for a processor."""
    try:
        ran, waited, *_ = Path("/proc/thread-self/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return thread_time()


class TimeLeft:
    """Looks at the lanes while they play."""

    def __init__(
        self, jobs: Sequence[LaneJob], forecast: Forecast, now: float, *, busy: Callable[[], float] = busy_s
    ) -> None:
        self._jobs, self._forecast = jobs, forecast
        self._tempos = {job.name: _Tempo() for job in jobs}
        self._looked_at, self._end = now, math.nan
        """The last look, and when the call is expected to end, in the clock's time; NaN: not known."""
        self._busy, self._busy_before, self._busy_share = busy, busy(), 0.0

    def look(self, now: float) -> float | None:
        """Seconds to the end; None if it is not known."""
        passed_s = now - self._looked_at
        if passed_s >= EVERY_S:
            self._looked_at = now
            self._follow(self._estimate(passed_s), now, passed_s)
        return None if math.isnan(self._end) else max(0.0, self._end - now)

    def requests(self) -> int | None:
        """The requests that are expected to remain, over lanes of models; None if it is not known."""
        total = sum(remaining_of(job, self._forecast)[0] for job in self._jobs if job.lane is not None)
        return None if math.isnan(total) else round(total)

    def _follow(self, left_s: float | None, now: float, passed_s: float) -> None:
        if left_s is None:
            self._end = math.nan
        elif math.isnan(self._end):
            self._end = now + left_s
        else:
            within_s = max(EVERY_S, min(CALM_MOST_S, CALM * left_s))
            self._end += (now + left_s - self._end) * -math.expm1(-passed_s / within_s)

    def _estimate(self, passed_s: float) -> float | None:
        loaded = self._loaded(passed_s)
        slowest, work_s, places, held = 0.0, 0.0, 0.0, False
        for job in self._jobs:
            tempo = self._tempos[job.name]
            step_s = tempo.look(job, passed_s)
            requests, longest = remaining_of(job, self._forecast)
            if not longest:
                continue
            if step_s is None or tempo.age_s < SETTLED_S or math.isnan(requests):
                return None
            left = _left(job)
            held_here = bool(job.held_by)
            width = min(job.width, left) if held_here else tempo.width(job, left)
            slowest = max(slowest, step_s * max(requests / width, longest))
            work_s += step_s * requests
            places += job.context.playing if held_here else width
            held = held or held_here
        together = work_s / max(1.0, places)
        apart = max(slowest, together) if held else slowest
        return apart + (together - apart) * loaded

    def _loaded(self, passed_s: float) -> float:
        """The share of its time that this process lately ran or waited for a processor."""
        busy, before = self._busy(), self._busy_before
        self._busy_before = busy
        share = min(1.0, max(0.0, (busy - before) / passed_s))
        self._busy_share += (share - self._busy_share) * -math.expm1(-passed_s / PACE_OVER_S)
        return self._busy_share


def _left(job: LaneJob) -> int:
    """Episodes that this call has still to end in a lane."""
    return 0 if job.context.stopping else max(0, job.planned - job.done - job.broken_before)


def rest_of(active: ActiveEpisode, forecast: Forecast) -> float:
    """Requests that an episode in flight still takes: 1 at least."""
    known = forecast.whole(active.episode.cell.agent.name, active.episode.suite.name).requests
    return max(1.0, beyond(known, SPREAD, active.position.step)) if known > 0 else 1.0


def remaining_of(
    job: LaneJob, forecast: Forecast, flying: Sequence[tuple[tuple[str, str], int]] | None = None
) -> tuple[float, float]:
    """(requests that remain in a lane; those of its longest episode). NaN and 1 if nothing is known of its episodes.
    `flying`: agent and suite of those in flight, and requests made; None: this process plays them."""
    left = _left(job)
    if not left:
        return 0.0, 0.0
    means = {place: forecast.whole(*place).requests for place in job.cells}
    known = [mean for mean in means.values() if mean > 0]
    if not known:
        return math.nan, 1.0
    usual = sum(known) / len(known)
    requests, longest, playing = 0.0, 0.0, Counter[tuple[str, str]]()
    if flying is None:
        own = [(active.episode, active.position.step) for active in job.context.flying.values()]
        flying = [((episode.cell.agent.name, episode.suite.name), step) for episode, step in own]
    stride = max(1, len(flying) // LOOKED_AT)
    for place, step in islice(flying, 0, None, stride):
        playing[place] += stride
        rest = max(1.0, beyond(means.get(place) or usual, SPREAD, step))
        requests += rest * stride
        longest = max(longest, rest)
    fresh = {place: max(0, cell.planned - cell.ended - playing[place]) for place, cell in job.cells.items()}
    waiting = max(0, left - len(flying))
    share = min(1.0, waiting / max(1, sum(fresh.values())))  # less than 1 with `--limit`
    for place, count in fresh.items():
        if count and share:
            mean = means[place] or usual
            requests += count * share * mean
            longest = max(longest, mean)
    return requests, longest
