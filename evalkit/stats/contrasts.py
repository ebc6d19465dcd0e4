"""Whether two groups of numbers differ: Welch's test, and for pairs Student's, the sign test and the permutation test.

Each answers with a p-value or says why there is none; nothing here decides what is significant.

Source: section 4.1 of the paper (one-sided Welch tests); specification of the reference, section D.4. Welch's and
Student's figures are those of `scipy.stats.ttest_ind(equal_var=False)` and `ttest_rel`.
Chosen: numbers that differ in their last digits only count as equal, so that rounding makes no significance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEW = "fewer than two"
CONSTANT = "no spread"
NO_DIFFERENCE = "no difference"
MANY = "too many pairs"

MOST_FLIPPED = 20
"""Pairs whose signs are flipped in every combination: beyond, these would be more than a million."""

_SAME = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisTest:
    """What a test says."""

    p: float | None = None
    """The p-value; None where the test is not defined."""
    statistic: float | None = None
    """Student's t, where it is the test's statistic."""
    free: float | None = None
    """Its degrees of freedom."""
    why: str = ""
    """Why there is no p-value; empty where there is one."""


def welch(first: Sequence[float], second: Sequence[float], *, greater: bool = False) -> HypothesisTest:
    """Whether the means of two independent groups differ, their variances unknown and perhaps unequal.

    Two-sided, or with `greater` one-sided: whether the first mean is the greater one.
    """
    if min(len(first), len(second)) < 2:
        return HypothesisTest(why=FEW)
    parts = [_variance(group) / len(group) for group in (first, second)]
    if sum(parts) == 0:
        return HypothesisTest(why=CONSTANT)
    t = (_mean(first) - _mean(second)) / math.sqrt(sum(parts))
    squares = sum(part * part / (len(group) - 1) for part, group in zip(parts, (first, second), strict=True))
    free = sum(parts) ** 2 / squares
    return HypothesisTest(p=_tail(free, t) if greater else 2 * _tail(free, abs(t)), statistic=t, free=free)


def paired(differences: Sequence[float]) -> HypothesisTest:
    """Whether the mean of paired differences is other than 0, two-sided."""
    if len(differences) < 2:
        return HypothesisTest(why=FEW)
    variance = _variance(differences)
    if variance == 0:
        return HypothesisTest(why=CONSTANT)
    t = _mean(differences) / math.sqrt(variance / len(differences))
    free = len(differences) - 1
    return HypothesisTest(p=2 * _tail(free, abs(t)), statistic=t, free=free)


def signs(differences: Sequence[float]) -> HypothesisTest:
    """The exact two-sided sign test: whether one sign is commoner among the differences; zeros are left aside."""
    if len(differences) < 2:
        return HypothesisTest(why=FEW)
    up = sum(value > _SAME for value in differences)
    down = sum(value < -_SAME for value in differences)
    if not up + down:
        return HypothesisTest(why=NO_DIFFERENCE)
    ways = sum(math.comb(up + down, k) for k in range(min(up, down) + 1))
    return HypothesisTest(p=min(1.0, 2 * ways / 2 ** (up + down)))


def flips(differences: Sequence[float]) -> HypothesisTest:
    """The exact two-sided permutation test of paired differences, over all combinations of their signs."""
    import numpy as np

    if len(differences) < 2:
        return HypothesisTest(why=FEW)
    sizes = [abs(value) for value in differences if abs(value) > _SAME]
    if not sizes:
        return HypothesisTest(why=NO_DIFFERENCE)
    if len(sizes) > MOST_FLIPPED:
        return HypothesisTest(why=MANY)
    # By symmetry the first sign can stay: each combination and its mirror have sums of one size.
    sums = np.array([sizes[0]])
    for size in sizes[1:]:
        sums = np.concatenate([sums + size, sums - size])
    # Sums that are equal but for the order of adding must count as equal.
    least = abs(math.fsum(differences)) - 1e-9 * math.fsum(sizes)
    return HypothesisTest(p=float(np.mean(np.abs(sums) >= least)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    """The unbiased variance; exactly 0 where the values differ by no more than rounding does."""
    if max(values) - min(values) <= _SAME * max(1.0, *map(abs, values)):
        return 0.0
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _tail(free: float, t: float) -> float:
    """The chance of Student's t being greater than `t`."""
    from scipy.special import stdtr

    return float(stdtr(free, -t))
