"""Whether two groups of numbers differ: Welch's test, and for pairs Student's, the sign test and the permutation test.

Each answers with a p-value or says why there is none; nothing here decides what is significant.

Source: section 4.1 of the paper (one-sided Welch tests); specification of the reference, section D.4. The tests
are scipy's, but for the permutation test, of which scipy has none that is exact for so many pairs.
Chosen: numbers that differ in their last digits only count as equal, so that rounding makes no significance.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
    """The p-value; None if the test is not defined."""
    statistic: float | None = None
    """Student's t, where it is the test's statistic."""
    free: float | None = None
    """Its degrees of freedom."""
    why: str = ""
    """Why there is no p-value; empty if there is one."""


def welch(first: Sequence[float], second: Sequence[float], *, greater: bool = False) -> HypothesisTest:
    """Whether the means of two independent groups differ, their variances unknown and perhaps unequal.

    Two-sided, or with `greater` one-sided: whether the first mean is the greater one.
    """
    from scipy.stats import ttest_ind

    if min(len(first), len(second)) < 2:
        return HypothesisTest(why=FEW)
    if _constant(first) and _constant(second):
        return HypothesisTest(why=CONSTANT)
    with _one_side_may_be_constant():
        return _of(ttest_ind(first, second, equal_var=False, alternative="greater" if greater else "two-sided"))


def paired(differences: Sequence[float]) -> HypothesisTest:
    """Whether the mean of paired differences is other than 0, two-sided."""
    from scipy.stats import ttest_1samp

    if len(differences) < 2:
        return HypothesisTest(why=FEW)
    return HypothesisTest(why=CONSTANT) if _constant(differences) else _of(ttest_1samp(differences, 0.0))


def signs(differences: Sequence[float]) -> HypothesisTest:
    """The exact two-sided sign test: whether one sign is commoner among the differences; zeros are left aside."""
    from scipy.special import bdtr

    if len(differences) < 2:
        return HypothesisTest(why=FEW)
    up = sum(value > _SAME for value in differences)
    down = sum(value < -_SAME for value in differences)
    if not up + down:
        return HypothesisTest(why=NO_DIFFERENCE)
    # What `scipy.stats.binomtest` gives for a half, without loading scipy.stats: 0.4 CPU s.
    return HypothesisTest(p=min(1.0, 2 * float(bdtr(min(up, down), up + down, 0.5))))


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


def _of(result: Any) -> HypothesisTest:
    """What scipy says of a t test."""
    return HypothesisTest(p=float(result.pvalue), statistic=float(result.statistic), free=float(result.df))


def _constant(values: Sequence[float]) -> bool:
    """Whether values differ by no more than rounding does."""
    return max(values) - min(values) <= _SAME * max(1.0, *map(abs, values))


@contextmanager
def _one_side_may_be_constant() -> Iterator[None]:
    # scipy warns where the values of one group are all alike; its figures are right then.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        yield
