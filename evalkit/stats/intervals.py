"""Which 95 % interval suits a figure: one function that chooses, and says what it chose.

What is drawn is an instance (a cluster): its replicates are averaged first, since they are not independent draws.

    all instances alike             their mean alone
    all instance means 0 or 1       Wilson's, of a share
    bounded on both sides           Wilson's with the spread that was seen, Student's quantile and skewness; never wider
                                    than Wilson's itself
    else                            Hall's and Student's together

Chosen: Wilson's interval, not Clopper and Pearson's, which never covers less than 95 % and so covers 97 or 98 % with a
dozen instances (Brown, Cai and DasGupta 2001, "Interval Estimation for a Binomial Proportion"). No bootstrap: a few
values resample to a few means only, and where most instances are optimal resamples know too little of the rare losses
(88 % with 20 instances). A bound that holds for any bounded draws (Gaffke's) is two to eight times as wide for losses
that are small.

Chosen: what was seen and what few instances cannot exclude are two intervals. The first one is of instances like those
that were met, and narrows with their spread. Of 12 instances, as many as 24 % may be of a kind that none of them was,
however little these vary; the second one (`Estimate.unmet`) says where the mean would be then. So an agent that is
nearly optimal and fails outright on one instance in 20 is covered in 50 % of studies of 12 instances by the first, and
in 98 by the second. Of differences one interval has to decide: `Estimate.cautious`, which is between the two.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

Method = Literal["none", "Wilson", "alike", "bounded", "Hall", "betting"]
"""The last one is of sequences, which hold at every look (`sequential.py`)."""

NONE: Method = "none"

ALPHA = 0.05
LEAST_INSTANCES = 3
"""With fewer there is no interval: two points say nothing of a spread."""

TRIFLE = 0.01
"""A standard deviation of instance means, 1 for 100 %, from which instances no longer count as alike for
`Estimate.cautious`. Up to there what may never have been met weighs less and less, so that no rounding error decides
it."""

_NEARLY_SHARES = 0.05
"""Of the variance that answers of yes and no with the same mean would have, how much may lack for Wilson's interval to
have a part in the result."""

_SAME = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % interval of a mean, or one that leaves it out in another share `alpha` of studies."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over instances, with the interval that suits it."""

    mean: float
    interval: Interval | None
    """Of instances like those that were met, by their spread. None if there is no honest one."""
    unmet: Interval | None
    """Where it may be if as many instances as so few cannot exclude are unlike all that were met. None: nothing is said
    of these."""
    cautious: Interval | None
    """What a claim rests on: as `unmet` where the instances that were met hardly differ, else nearer to `interval`."""
    method: Method
    stratified: bool = False
    """Whether it answers for this mix of strata."""
    instances: int
    values: int
    """Replicates of all instances together."""
    why: str = ""
    """Why there is no interval; empty if there is one."""


def estimate(
    replicates: Mapping[str, Sequence[float]],
    *,
    strata: Mapping[str, str] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
    unmet: tuple[float, float] | None = None,
    alpha: float = ALPHA,
) -> Estimate:
    """The mean of instance means with its interval.

    replicates  by instance: its replicates' values, at least one; 1 is 100 %
    strata      by instance: its stratum; left aside where one has fewer than 3 instances, and by Wilson's interval,
                which is then somewhat too wide
    least, most the bounds of the values there can be; the interval does not go beyond
    alpha       share of studies in which the interval may leave out the mean
    unmet       (lowest, highest) value that an instance unlike all that were met is taken to have, where values have no
                two bounds; else these. None: nothing is said of such instances

    Raises ValueError without instances.
    """
    mean = mean_of_instances(replicates)
    if unmet is None and math.isfinite(least) and math.isfinite(most):
        unmet = (least, most)
    groups = instance_means(replicates, strata)
    if len(replicates) < LEAST_INSTANCES:
        seen, method, why = None, NONE, f"fewer than {LEAST_INSTANCES} instances"
    else:
        seen, method, why = _seen(groups, (least, most), unmet is not None, alpha)
    kept: list[Interval | None] = [None, None, None]
    if seen is not None:
        # Wilson's own ends are those of answers that may not have been met.
        said = unmet is not None and method != "Wilson"
        wide = _with_unmet(seen, groups, *unmet, alpha) if unmet is not None and said else (seen, seen)
        kept = [_kept(one, mean, least, most) for one in (seen, *wide)]
    return Estimate(
        mean=mean,
        interval=kept[0],
        unmet=kept[1] if unmet is not None else None,
        cautious=kept[2],
        method=method,
        stratified=method not in (NONE, "Wilson") and len(groups) > 1,
        instances=len(replicates),
        values=sum(map(len, replicates.values())),
        why=why,
    )


def _seen(
    groups: "Sequence[Doubles]", bounds: tuple[float, float], though_alike: bool, alpha: float
) -> tuple[Interval | None, Method, str]:
    least, most = bounds
    values = np.concatenate(groups)
    mean, error = _mean_and_error(groups)
    method: Method = "bounded" if math.isfinite(least) and math.isfinite(most) else "Hall"
    if error <= _SAME * max(1.0, float(np.abs(values).max())):
        return (Interval(low=mean, high=mean), "alike", "") if though_alike else (None, NONE, "all instances agree")
    if bounds == (0.0, 1.0) and np.isin(values, bounds).all():
        return wilson(float(values.sum()), len(values), alpha), "Wilson", ""
    return (bounded(groups, least, most, alpha) if method == "bounded" else hall(groups, alpha)), method, ""


def instance_means(replicates: Mapping[str, Sequence[float]], strata: Mapping[str, str] | None) -> "list[Doubles]":
    """Instance means by stratum; one group if strata cannot be used. Sorted, so that no order reaches the draws."""
    means_of: dict[str, list[float]] = {}
    for instance in sorted(replicates):
        stratum = strata[instance] if strata is not None else ""
        means_of.setdefault(stratum, []).append(_mean(replicates[instance]))
    if any(len(means) < LEAST_INSTANCES for means in means_of.values()):
        return [np.array([mean for stratum in sorted(means_of) for mean in means_of[stratum]])]
    return [np.array(means_of[stratum]) for stratum in sorted(means_of)]


def wilson(yes: float, n: int, alpha: float = ALPHA) -> Interval:
    """Wilson's interval (1927) of a share, from `yes` of `n` independent answers. Raises ValueError."""
    if not 0 <= yes <= n or n < 1:
        raise ValueError(f"{yes} of {n} is no share")
    z2 = NormalDist().inv_cdf(1 - alpha / 2) ** 2
    middle = (yes + z2 / 2) / (n + z2)
    half = math.sqrt(z2) / (n + z2) * math.sqrt(yes * (n - yes) / n + z2 / 4)
    low = 0.0 if yes == 0 else middle - half
    return Interval(low=low, high=1.0 if yes == n else middle + half)


def unmet_share(n: int, alpha: float = ALPHA) -> float:
    """The share of instances of a kind that none of `n` was of which is not excluded: Wilson's upper end of 0 of n.

    About 4 / (n + 4): 0.49 of 4 instances, 0.24 of 12, 0.1 of 36.
    """
    return wilson(0, n, alpha).high


def _with_unmet(
    interval: Interval, groups: "Sequence[Doubles]", lowest: float, highest: float, alpha: float
) -> tuple[Interval, Interval]:
    """(`unmet`, `cautious`): the interval with instances unlike all that were met, which lie from `lowest` to
    `highest`.

    - A share `unmet_share` of the instances may be at either bound. For the second one that weighs less the more those
      that were met differ, and nothing from a spread of `TRIFLE` on.
    - No end is nearer to a bound than had all instances been on that bound: without losses such a share of failures is
      not excluded, so with small losses it is not either.
    """
    n = sum(map(len, groups))
    mean, error = _mean_and_error(groups)
    q = unmet_share(n, alpha)
    low, high = min(interval.low, highest - q * (highest - lowest)), max(interval.high, lowest + q * (highest - lowest))
    found = (
        Interval(low=min(low, mean - part * (mean - lowest)), high=max(high, mean + part * (highest - mean)))
        for part in (q, q * max(0.0, 1 - error * math.sqrt(n) / TRIFLE))
    )
    return next(found), next(found)


def bounded(groups: "Sequence[Doubles]", least: float, most: float, alpha: float = ALPHA) -> Interval:
    """The interval of the mean of values from `least` to `most`, over groups (strata) of two or more of them.

    The hull of two intervals, each of which sees what the other one misses:

    - Wilson's, of as many answers of yes and no as would give the standard error that was seen, with Student's
      quantile. Its degrees of freedom are those that the variance was estimated with, 2 n / (kurtosis - (n - 3) /
      (n - 1)) (Satterthwaite 1946): n - 1 for normal values, few where a few losses make all of the spread.
    - Student's, moved towards the longer tail by the third moment (Johnson 1978; Hall 1992, "On the Removal of Skewness
      by Transformation").

    As far as Wilson's own goes, of n answers with that mean: no bounded values vary more. Where nearly all values are
    0 or 1 the ends are Wilson's, by and by.

    Raises ValueError if all values agree, or those of each group.
    """
    from scipy.special import stdtrit

    n, level, width = sum(map(len, groups)), 1 - alpha / 2, most - least
    mean, error = _mean_and_error(groups)
    if error <= _SAME * width:
        raise ValueError("all values agree: their spread says nothing")
    parts = [values - values.mean() for values in groups]
    apart = np.concatenate(parts) / math.sqrt(float(np.mean(np.concatenate(parts) ** 2)))
    free, known = n - len(groups), known_freedom(parts)
    share, spread = (mean - least) / width, (error / width) ** 2
    # One over as many answers of yes and no; not below 1, whatever rounding put beyond the bounds.
    rarity = spread / max(share * (1 - share), spread)
    t2 = float(stdtrit(known, level)) ** 2
    middle = (share + rarity * t2 / 2) / (1 + rarity * t2)
    half = math.sqrt(t2) / (1 + rarity * t2) * math.sqrt(spread + t2 * rarity**2 / 4)
    t = float(stdtrit(free, level))
    moved = mean + error * float(np.mean(apart**3)) * (1 + 2 * t * t) / (6 * math.sqrt(n))
    low = min(least + width * (middle - half), moved - t * error)
    high = max(least + width * (middle + half), moved + t * error)
    return _towards_wilson(Interval(low=low, high=high), groups, least, most, alpha)


def known_freedom(apart: "Sequence[Doubles | Sequence[float]]") -> float:
    """Degrees of freedom of a variance (Satterthwaite 1946), from what values are off the means of their groups.

    2 n / (kurtosis - (n - 3) / (n - 1)), at least 1, at most n less the groups; not all values may be 0.
    """
    values = np.concatenate([np.asarray(part) for part in apart])
    n, square = len(values), float(np.mean(values**2))
    kurtosis = float(np.mean(values**4)) / square**2
    return min(float(n - len(apart)), max(1.0, 2 * n / (kurtosis - (n - 3) / (n - 1))))


def _towards_wilson(
    interval: Interval, groups: "Sequence[Doubles]", least: float, most: float, alpha: float
) -> Interval:
    """The interval within Wilson's of the same mean, and the nearer to it the more of the values are 0 or 1."""
    shares = np.clip((np.concatenate(groups) - least) / (most - least), 0.0, 1.0)
    mean = float(shares.mean())
    wilson_interval = wilson(mean * len(shares), len(shares), alpha)
    low, high = least + wilson_interval.low * (most - least), least + wilson_interval.high * (most - least)
    # 0 of values of 0 and 1 only, 1 of values that are all the same.
    lack = float(np.mean(shares * (1 - shares))) / (mean * (1 - mean)) if 0 < mean < 1 else 0.0
    part = max(0.0, 1 - lack / _NEARLY_SHARES)
    kept_low, kept_high = max(interval.low, low), min(interval.high, high)
    return Interval(low=kept_low + part * (low - kept_low), high=kept_high + part * (high - kept_high))


def student(groups: "Sequence[Doubles]", alpha: float = ALPHA) -> Interval:
    """Student's interval of the mean over groups (strata) of instance means, each with two or more of them."""
    from scipy.special import stdtrit

    mean, error = _mean_and_error(groups)
    half = float(stdtrit(sum(len(values) - 1 for values in groups), 1 - alpha / 2)) * error
    return Interval(low=mean - half, high=mean + half)


def hall(groups: "Sequence[Doubles]", alpha: float = ALPHA) -> Interval:
    """The interval of the mean of skewed values, over groups (strata) of two or more; not all may agree.

    The hull of Student's, and of his quantiles sent back through the cubic that takes the skewness a of the mean out of
    its ratio T to the standard error, T + a T^2 / 3 + a^2 T^3 / 27 + a / 6 (Hall 1992, "On the Removal of Skewness by
    Transformation"). The cubic alone would cover two to three points less of values with two heavy tails.
    """
    from scipy.special import stdtrit

    plain, n = student(groups, alpha), sum(map(len, groups))
    mean, error = _mean_and_error(groups)
    # Below, skewness is rounding; its limit there is Student's own.
    skew = math.fsum(float(np.sum((values - values.mean()) ** 3)) for values in groups) / (n * error) ** 3
    if abs(skew) < _SAME:
        return plain
    t = float(stdtrit(n - len(groups), 1 - alpha / 2))
    low, high = (3 / skew * (float(np.cbrt(1 + skew * (end - skew / 6))) - 1) for end in (-t, t))
    return Interval(low=min(plain.low, mean - error * high), high=max(plain.high, mean - error * low))


def _mean_and_error(groups: "Sequence[Doubles]") -> tuple[float, float]:
    """The mean over all and its standard error, the mix of groups taken as given."""
    n = sum(map(len, groups))
    squares = math.fsum(len(values) * float(np.var(values, ddof=1)) for values in groups)
    return math.fsum(float(values.sum()) for values in groups) / n, math.sqrt(squares) / n


def _kept(interval: Interval, mean: float, least: float, most: float) -> Interval:
    """The interval within the bounds of what can be, and around the mean whatever rounding does."""
    return Interval(low=min(mean, max(least, interval.low)), high=max(mean, min(most, interval.high)))
