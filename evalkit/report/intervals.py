"""Which 95 % interval suits a figure: one function that chooses, and says what it chose.

What is drawn is an instance (a cluster): its replicates are averaged first, since they are no independent draws.

    yes or no, one value an instance    Wilson's, of a share
    all instances agree                 from the chance that an instance which differs was never met
    bounded on both sides               Wilson's with the spread that was seen, Student's quantile and skewness
    else, fewer than 20 instances       Student's t: a few values resample to a few means only
    else, 20 and more                   bootstrap-t; where one value is so common that a resample may hold no other,
                                        percentiles as in `bootstrap.py`

Chosen: Wilson's interval, not Clopper and Pearson's, which never covers less than 95 % and so covers 97 or 98 % with a
dozen instances (Brown, Cai and DasGupta 2001, "Interval Estimation for a Binomial Proportion"). Bootstrap-t (Davison
and Hinkley 1997, 5.2; Efron and Tibshirani 1993, 12.5), not percentiles: scores are skewed near the optimum, and with
20 instances whose losses are exponential percentiles cover 91 %, Student's t as well, bootstrap-t 94 %. For bounded
scores no bootstrap: where most instances are optimal, resamples know too little of the rare losses (88 % with 20
instances). A bound that holds for any bounded draws (Gaffke's) is two to eight times as wide for losses that are small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from evalkit.report.bootstrap import (
    LEAST_INSTANCES,
    LEVEL,
    RESAMPLES,
    Interval,
    instance_means,
    mean_interval,
    mean_of_instances,
    resamples,
)
from evalkit.seeds import Stream

if TYPE_CHECKING:
    from evalkit.report.bootstrap import Doubles

Method = Literal["none", "Wilson", "no difference met", "bounded", "t", "bootstrap-t", "bootstrap"]

ENOUGH_TO_RESAMPLE = 20
"""Instances from which a bootstrap is preferred to Student's t, where values are not bounded on both sides."""

_SEED = 0
_SAME = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over instances, with the interval that suits it."""

    mean: float
    interval: Interval | None
    """None where there is no honest one."""
    method: Method
    stratified: bool = False
    """Whether it answers for this mix of strata."""
    instances: int
    values: int
    """Replicates of all instances together."""
    why: str = ""
    """Why there is no interval; empty where there is one."""


def estimate(
    replicates: Mapping[str, Sequence[float]],
    *,
    place: Sequence[str],
    strata: Mapping[str, str] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
) -> Estimate:
    """The mean of instance means with its 95 % interval.

    replicates  by instance: its replicates' values, at least one
    place       names the draws: the same place and values give the same interval, in every process
    strata      by instance: its stratum; left aside where one has fewer than 3 instances, and by Wilson's interval,
                which is then somewhat too wide
    least, most the bounds of the values there can be; the interval does not go beyond

    Raises ValueError without instances.
    """
    mean = mean_of_instances(replicates)
    found, method, why = _interval(replicates, place, strata, least, most)
    within = method in ("bounded", "t", "bootstrap-t", "bootstrap") and len(instance_means(replicates, strata)) > 1
    return Estimate(
        mean=mean,
        interval=None if found is None else _kept(found, mean, least, most),
        method=method,
        stratified=within,
        instances=len(replicates),
        values=sum(map(len, replicates.values())),
        why=why,
    )


def _interval(
    replicates: Mapping[str, Sequence[float]],
    place: Sequence[str],
    strata: Mapping[str, str] | None,
    least: float,
    most: float,
) -> tuple[Interval | None, Method, str]:
    if len(replicates) < LEAST_INSTANCES:
        return None, "none", f"fewer than {LEAST_INSTANCES} instances"
    if is_share(replicates, least, most):
        yes = round(sum(values[0] for values in replicates.values()))
        return wilson(yes, len(replicates)), "Wilson", ""
    groups = instance_means(replicates, strata)
    whole = np.concatenate(groups)
    open_ended = math.isinf(least) or math.isinf(most)
    if np.ptp(whole) <= _SAME * max(1.0, float(np.abs(whole).max())):
        if open_ended:
            return None, "none", "all instances agree"
        return agreement(float(whole[0]), len(whole), least, most), "no difference met", ""
    if not open_ended:
        return bounded(groups, least, most), "bounded", ""
    if len(whole) >= ENOUGH_TO_RESAMPLE:
        found = bootstrap_t(groups, place)
        if found is not None:
            return found, "bootstrap-t", ""
        return mean_interval(replicates, place=place, strata=strata, least=least, most=most), "bootstrap", ""
    return student(groups), "t", ""


def is_share(replicates: Mapping[str, Sequence[float]], least: float = 0.0, most: float = 1.0) -> bool:
    """Whether these are answers of yes and no (1 and 0), one an instance."""
    single = all(len(values) == 1 and values[0] in (0.0, 1.0) for values in replicates.values())
    return single and least >= 0.0 and most <= 1.0


def wilson(yes: int, n: int) -> Interval:
    """Wilson's 95 % interval (1927) of a share, from `yes` of `n` independent answers. Raises ValueError."""
    from scipy.special import ndtri

    if not 0 <= yes <= n or n < 1:
        raise ValueError(f"{yes} of {n} is no share")
    z2 = float(ndtri((1 + LEVEL) / 2)) ** 2
    middle = (yes + z2 / 2) / (n + z2)
    half = math.sqrt(z2) / (n + z2) * math.sqrt(yes * (n - yes) / n + z2 / 4)
    low = 0.0 if yes == 0 else middle - half
    return Interval(low=low, high=1.0 if yes == n else middle + half)


def agreement(value: float, n: int, least: float, most: float) -> Interval:
    """The 95 % interval of a mean when all of `n` instances gave `value` and none can be beyond `least` and `most`.

    If more than a share q of instances were other than `value`, a sample of `n` would hold none of them with a chance
    below (1 - q)^n; q is where that is 5 % (the rule of three: q is about 3 / n).
    """
    q = 1 - (1 - LEVEL) ** (1 / n)
    return Interval(low=value - q * (value - least), high=value + q * (most - value))


def bounded(groups: "Sequence[Doubles]", least: float, most: float) -> Interval:
    """The 95 % interval of the mean of values from `least` to `most`, over groups (strata) of two or more of them.

    The hull of two intervals, each of which sees what the other one misses:

    - Wilson's, of as many answers of yes and no as would give the standard error that was seen, with Student's
      quantile. Its degrees of freedom are those that the variance was estimated with, 2 n / (kurtosis - (n - 3) /
      (n - 1)) (Satterthwaite 1946): n - 1 for normal values, few where a few losses make all of the spread.
    - Student's, moved towards the longer tail by the third moment (Johnson 1978; Hall 1992, "On the Removal of Skewness
      by Transformation").

    Strata are left aside where each agrees within itself. Raises ValueError where all values agree.
    """
    from scipy.special import stdtrit

    n, level, width = sum(map(len, groups)), (1 + LEVEL) / 2, most - least
    mean, error = _mean_and_error(groups)
    if error <= _SAME * width:
        if len(groups) == 1:
            raise ValueError("all values agree: their spread says nothing")
        return bounded([np.concatenate(groups)], least, most)
    apart = np.concatenate([one - one.mean() for one in groups])
    apart /= math.sqrt(float(np.mean(apart**2)))
    free = n - len(groups)
    known = min(free, max(1.0, 2 * n / (float(np.mean(apart**4)) - (n - 3) / (n - 1))))
    share, spread = (mean - least) / width, (error / width) ** 2
    # One over as many answers of yes and no; not below 1, whatever rounding put beyond the bounds.
    rarity = spread / max(share * (1 - share), spread)
    t2 = float(stdtrit(known, level)) ** 2
    middle = (share + rarity * t2 / 2) / (1 + rarity * t2)
    half = math.sqrt(t2) / (1 + rarity * t2) * math.sqrt(spread + t2 * rarity**2 / 4)
    t = float(stdtrit(free, level))
    moved = mean + error * float(np.mean(apart**3)) * (1 + 2 * t * t) / (6 * math.sqrt(n))
    return Interval(
        low=min(least + width * (middle - half), moved - t * error),
        high=max(least + width * (middle + half), moved + t * error),
    )


def student(groups: "Sequence[Doubles]") -> Interval:
    """Student's 95 % interval of the mean over groups (strata) of instance means, each with two or more of them."""
    from scipy.special import stdtrit

    mean, error = _mean_and_error(groups)
    half = float(stdtrit(sum(len(one) - 1 for one in groups), (1 + LEVEL) / 2)) * error
    return Interval(low=mean - half, high=mean + half)


def _mean_and_error(groups: "Sequence[Doubles]") -> tuple[float, float]:
    """The mean over all and its standard error, the mix of groups taken as given."""
    n = sum(map(len, groups))
    squares = math.fsum(len(one) * float(np.var(one, ddof=1)) for one in groups)
    return math.fsum(float(one.sum()) for one in groups) / n, math.sqrt(squares) / n


def bootstrap_t(groups: "Sequence[Doubles]", place: Sequence[str]) -> Interval | None:
    """The bootstrap-t interval of the mean over groups of instance means, each resampled within itself.

    None if so many resamples have no spread that a bound is not defined.
    """
    stream = Stream(_SEED, "report", "bootstrap-t", *place)
    n = sum(map(len, groups))
    mean, error = _mean_and_error(groups)
    total, squares = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for one in groups:
        size, centre = len(one), float(one.mean())
        for rows, drawn in resamples(one - centre, stream):
            sums = drawn.sum(axis=1)
            total[rows] += sums
            # size * s^2 of the resample, s^2 with size - 1 below.
            squares[rows] += (np.einsum("ij,ij->i", drawn, drawn) - sums * sums / size) * (size / (size - 1))
    spread = squares > 1e-9 * (error * n) ** 2
    # A resample without spread is as far out as can be, on its side.
    ts = np.where(total > 0, np.inf, -np.inf)
    ts[spread] = total[spread] / np.sqrt(squares[spread])
    low, high = np.quantile(ts, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="nearest")
    if not math.isfinite(low) or not math.isfinite(high):
        return None
    return Interval(low=mean - float(high) * error, high=mean - float(low) * error)


def _kept(found: Interval, mean: float, least: float, most: float) -> Interval:
    """The interval within the bounds of what can be, and around the mean whatever rounding does."""
    return Interval(low=min(mean, max(least, found.low)), high=max(mean, min(most, found.high)))
