"""Confidence intervals of a mean score: instances are resampled, each with all its replicates.

The question is how the mean would vary with other instances of the same kind, so an instance is what is drawn, and its
replicates come along: drawing them again within it would count their variance twice (Davison and Hinkley, "Bootstrap
Methods and their Application", 3.8). The estimate is the mean of instance means, so that in a partial run an instance
that has got one replicate more than another weighs the same.

Chosen: percentiles of the resampled means, their distance from the estimate widened by sqrt(n/(n-1)) * t/z. Plain
percentiles are too narrow for a dozen instances (they cover 90 to 92 % there instead of 95 %), since a resample's
variance has n where n-1 belongs, and normal tails where Student's belong (Hesterberg 2015, "What Teachers Should Know
About the Bootstrap", corrects for the same two). BCa mends the skewness, not this.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

RESAMPLES = 10_000
LEVEL = 0.95
NORMAL = 1.959963984540054
"""The normal quantile at the upper end of `LEVEL`: `scipy.special.ndtri(0.975)`, which takes a quarter of a second to
import."""
LEAST_INSTANCES = 3
"""With fewer there is no interval: two points say nothing of a spread."""

_SEED = 0
_DRAWS_AT_ONCE = 1 << 14
"""So few that they stay in a core's own cache: 5 ns a draw where long pieces took 13."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % interval of a mean."""

    low: float
    high: float


def mean_of_instances(replicates: Mapping[str, Sequence[float]]) -> float:
    """The mean over instances of the mean over each one's replicates. Raises ValueError if there is none."""
    if not replicates:
        raise ValueError("no instance, no mean")
    return math.fsum(map(_mean, replicates.values())) / len(replicates)


def _mean(values: Sequence[float]) -> float:
    # Of one value `fsum` gives the same, a zero without its sign, and takes several times as long.
    return values[0] + 0.0 if len(values) == 1 else math.fsum(values) / len(values)


def mean_interval(
    replicates: Mapping[str, Sequence[float]],
    *,
    place: Sequence[str],
    strata: Mapping[str, str] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
) -> Interval | None:
    """The 95 % interval of `mean_of_instances`, or None with fewer than `LEAST_INSTANCES` instances.

    replicates  by instance: its replicates' values, at least one
    place       names the draws: the same place and values give the same interval, in every process
    strata      by instance: its stratum. Instances are then resampled within strata, which answers for this mix of
                strata; left aside where one has fewer than `LEAST_INSTANCES`, whose spread nobody can know
    least, most the bounds of the values there can be; the interval does not go beyond
    """
    if len(replicates) < LEAST_INSTANCES:
        return None
    groups = instance_means(replicates, strata)
    estimate = mean_of_instances(replicates)
    if all(np.ptp(means) == 0 for means in groups):
        return Interval(low=estimate, high=estimate)
    low, high = np.quantile(_resampled_means(groups, place), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    width = _widening(groups)
    # A bound on the wrong side of the estimate can only come from rounding.
    below, above = min(0.0, float(low) - estimate) * width, max(0.0, float(high) - estimate) * width
    return Interval(low=min(estimate, max(least, estimate + below)), high=max(estimate, min(most, estimate + above)))


def instance_means(replicates: Mapping[str, Sequence[float]], strata: Mapping[str, str] | None) -> "list[Doubles]":
    """Instance means by stratum; one group if strata cannot be used. Sorted, so that no order reaches the draws."""
    means_of: dict[str, list[float]] = {}
    for instance in sorted(replicates):
        stratum = strata[instance] if strata is not None else ""
        means_of.setdefault(stratum, []).append(_mean(replicates[instance]))
    if any(len(means) < LEAST_INSTANCES for means in means_of.values()):
        return [np.array([mean for stratum in sorted(means_of) for mean in means_of[stratum]])]
    return [np.array(means_of[stratum]) for stratum in sorted(means_of)]


def _resampled_means(groups: "list[Doubles]", place: Sequence[str]) -> "Doubles":
    """The estimate of each resample, shape (RESAMPLES,)."""
    stream = Stream(_SEED, "report", "bootstrap", *place)
    total = np.zeros(RESAMPLES)
    for means in groups:
        for rows, drawn in resamples(means, stream):
            total[rows] += drawn.sum(axis=1)
    return total / sum(map(len, groups))


def resamples(values: "Doubles", stream: Stream) -> "Iterator[tuple[slice, Doubles]]":
    """RESAMPLES resamples of `values`, shape (n,), in pieces: (which ones, their values with shape (count, n))."""
    n = len(values)
    rows = max(1, _DRAWS_AT_ONCE // n)
    for first in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - first)
        yield slice(first, first + count), values.take(stream.places(count * n, n)).reshape(count, n)


def _widening(groups: "list[Doubles]") -> float:
    """By how much percentiles are too near: the bias of a resample's variance, and Student's tails over normal ones."""
    from scipy.special import stdtrit

    free = sum(len(means) - 1 for means in groups)
    resampled = sum(len(means) * float(np.var(means)) for means in groups)
    unbiased = sum(len(means) * float(np.var(means, ddof=1)) for means in groups)
    if resampled == 0:
        return 1.0
    tail = (1 + LEVEL) / 2
    return math.sqrt(unbiased / resampled) * float(stdtrit(free, tail)) / NORMAL
