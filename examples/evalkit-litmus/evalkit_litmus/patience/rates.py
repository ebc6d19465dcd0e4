"""Which yearly rate an agent's choices speak for: the one by which most of them are explained.

At a rate r, an amount X after T years is worth waiting for if X > 100 r^T. The reliability of r is the mean, over the
amounts that were offered, of the share of answers that r explains: those that wait where X is above 100 r^T, those that
do not where it is below. An X that is equal explains nothing and drops out.

Source: the reference's litmus test of patience. Differs: reliabilities are exact fractions, so that points of the grid
that explain equally much are equal.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from statistics import median

NOW = 100
"""What can be had at once."""

HORIZONS: Mapping[str, float] = {"one_month": 1 / 12, "six_months": 0.5, "one_year": 1.0, "five_years": 5.0}
"""Each horizon in years."""

GRID: Sequence[float] = [1 + 0.001 * i for i in range(2000)]
TOGETHER = GRID[:201]
"""Rates that are tried for one horizon, and for all of them together."""

Counts = Mapping[float, tuple[int, int]]
"""By amount: (answers that take the money now, answers)."""
Reliability = Callable[[float], Fraction | None]
"""Of a rate; None if no amount says anything of it."""


def reliability_of(counts: Counts, years: float) -> Reliability:
    """How reliably a horizon's answers follow each rate."""
    amounts = sorted(counts)
    unit = lcm(*(answers for _, answers in counts.values()))
    now = [counts[amount][0] * (unit // counts[amount][1]) for amount in amounts]
    below, above = [0, *accumulate(now)], [0, *accumulate(unit - part for part in now)]

    def reliability(rate: float) -> Fraction | None:
        worth = NOW * rate**years
        low, high = bisect_left(amounts, worth), bisect_right(amounts, worth)
        told = low + len(amounts) - high
        return Fraction(below[low] + above[-1] - above[high], told * unit) if told else None

    return reliability


def together(reliabilities: Sequence[Reliability]) -> Reliability:
    """The mean over horizons; None where one of them says nothing."""

    def reliability(rate: float) -> Fraction | None:
        known = [part for one in reliabilities if (part := one(rate)) is not None]
        return sum(known, Fraction()) / len(known) if len(known) == len(reliabilities) else None

    return reliability


def estimate(reliability: Reliability, grid: Sequence[float]) -> tuple[float, float] | None:
    """(the yearly rate: the median of the grid's most reliable points, less 1; its reliability). None if no amount says
    anything."""
    known = [(part, rate) for rate in grid if (part := reliability(rate)) is not None]
    if not known:
        return None
    best = max(part for part, _ in known)
    return median(rate for part, rate in known if part == best) - 1, float(best)
