"""The nights' alarm in simulation: what it finds, beside a detector that knows the noise, and its false alarms.

    python -m bench.alarms                   # every row, some minutes
    python -m bench.alarms --series 100      # fewer series a row
    python -m bench.alarms --only 50         # the rows whose name holds this

A row is one cell: instances; the spread within an instance from night to night, or scores of yes and no (rare: with few
failures); the standard deviation of the effect that all instances of a night share; nights of baseline; the tolerance.
Effect and tolerance are in points.

- oracle: how often it finds a fall of 5 points within 7 nights. It knows the noise of a night and the fall's size, and
  takes the greatest likelihood ratio over all nights on which it may have begun; the level before is estimated. What
  raises its alarm is set so that 5 % of series have a false one in 30 nights under a fall equal to the tolerance.
- alarm: how often `evalkit.stats.watch` finds it.
- part: alarm / oracle.
- none, equal: series with a false alarm in the 30 nights after the baseline, under no change, and under a fall that is
  equal to the tolerance and comes at once after the baseline.
- visible: the fall that could be seen, as the nights' table says it after the baseline (mean), and in how many series
  one of that size is found within 7 nights.

Whether evidence can raise an alarm is first computed for all series at once. Where it can, or where a window is more
than 3.2 standard errors low, `watched` itself judges.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.alarm import HORIZON, WINDOWS
from evalkit.stats.lasting_fall import WITHIN, Levels, gathered, needed, scaled, visible_fall
from evalkit.stats.watch import CHECK, EVIDENCE_PART, check, watched

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

ALPHA = 0.05
FALL = 0.05
ORACLES, AT_ONCE = 4_000, 500
IN_SIGHT = 3.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell."""

    instances: int
    within: float | None
    """Spread of an instance's score; None: yes or no."""
    effect: float
    baseline: int
    tolerance: float
    means: tuple[float, float] = (0.4, 0.9)
    """Between which instances' means lie."""
    failing: float = 0.0
    """Share of scores that are 0 instead, on top; where there are any, a fall makes more of them."""

    @property
    def variance(self) -> float:
        """Of a score on one night, about its instance's mean."""
        low, high = self.means
        if self.within is not None:
            kept = 1 - self.failing
            return kept * self.within**2 + kept * self.failing * ((low + high) / 2) ** 2
        return (low + high) / 2 * (1 - (low + high) / 2) - (high - low) ** 2 / 12

    @property
    def name(self) -> str:
        """Its first columns."""
        rare = "rare" if self.within is None else "outright"
        spread = rare if self.means[0] > 0.9 else "yes/no" if self.within is None else f"{self.within:.2f}"
        return (
            f"{self.instances:9,} {spread:>8} {100 * self.effect:7.0f} {self.baseline:9} {100 * self.tolerance:10.0f}"
        )


def _row(
    instances: int,
    within: float | None,
    effect: float,
    baseline: int,
    tolerance: float,
    *,
    means: tuple[float, float] = (0.4, 0.9),
    failing: float = 0,
) -> Row:
    return Row(
        means=means,
        failing=failing / 100,
        instances=instances,
        within=within,
        effect=effect / 100,
        baseline=baseline,
        tolerance=tolerance / 100,
    )


ROWS = (
    _row(50, 0.15, 0, 30, 0),
    _row(50, 0.15, 1, 30, 0),
    _row(50, 0.15, 0, 30, 2),
    _row(50, 0.15, 1, 30, 2),
    _row(50, 0.15, 1, 14, 2),
    _row(50, 0.15, 1, 7, 2),
    _row(50, 0.15, 2, 30, 2),
    _row(50, 0.15, 1, 30, 1),
    _row(20, 0.15, 1, 30, 2),
    _row(200, 0.15, 1, 30, 2),
    _row(200, 0.15, 1, 7, 2),
    _row(50, 0.30, 1, 30, 2),
    _row(50, None, 0, 30, 2),
    _row(200, None, 1, 30, 2),
    _row(12, None, 0, 30, 2, means=(0.94, 1.0)),
    _row(36, None, 0, 30, 2, means=(0.94, 1.0)),
    _row(200, None, 0, 30, 2, means=(0.94, 1.0)),
    _row(12, None, 0, 7, 2, means=(0.94, 1.0)),
    _row(12, None, 0, 30, 2, means=(0.99, 1.0)),
    _row(36, None, 0, 14, 2, means=(0.99, 1.0)),
    _row(12, 0.01, 0, 30, 2, means=(0.95, 0.99), failing=1),
    _row(36, 0.01, 0, 14, 2, means=(0.95, 0.99), failing=1),
)


def scores(row: Row, draws: np.random.Generator, series: int, nights: int, fall: float) -> "Doubles":
    """Shape (series, nights, instances): lower by `fall` after the baseline."""
    shape = (series, nights, row.instances)
    level = draws.uniform(*row.means, (series, 1, row.instances)) + row.effect * draws.standard_normal(
        (series, nights, 1)
    )
    fallen = fall * (np.arange(nights) >= row.baseline)[:, None]
    if row.within is None:
        return (draws.random(shape) < level - fallen).astype(np.float64)
    values = level + row.within * draws.standard_normal(shape)
    if not row.failing:
        return np.asarray(values - fallen)
    return np.asarray(np.minimum(values, 1.0) * (draws.random(shape) >= row.failing + fallen / level))


def unexplained(values: "Doubles", first: int) -> "Iterator[Doubles]":
    """By series: the squares that instance and night leave unexplained in the first `first` nights, then one more."""
    _, nights, instances = values.shape
    # About each instance's mean: squares of what is left keep their digits.
    values = values - values.mean(axis=1, keepdims=True)
    squares = np.cumsum((values**2).sum(axis=2), axis=1)
    means, totals = values.mean(axis=2), np.cumsum(values, axis=1)
    for count in range(first, nights + 1):
        own = totals[:, count - 1] / count
        overall = own.mean(axis=1)
        left = squares[:, count - 1] - count * (own**2).sum(axis=1) - instances * (means[:, :count] ** 2).sum(axis=1)
        yield left + count * instances * overall**2


def alarms(row: Row, values: "Doubles") -> "npt.NDArray[np.bool_]":
    """By series: whether a night after the baseline raises an alarm."""
    means, raised = values.mean(axis=2), np.zeros(len(values), np.bool_)
    for night, left in enumerate(unexplained(values, row.baseline + 1), row.baseline + 1):
        seen = _levels(means[:, :night], left, row.instances)
        log, since = gathered(seen, row.tolerance)
        for place in np.flatnonzero((log >= needed(EVIDENCE_PART * ALPHA)) & ~raised):
            checked = check(_told(values[place, :night]), int(since[place]), row.tolerance, ALPHA, 1.0)
            raised[place] = checked.p <= CHECK * ALPHA
        sight = np.zeros(len(values), np.bool_)
        noise = left / ((night - 1) * (row.instances - 1)) / row.instances
        for size in WINDOWS:
            now, before = means[:, night - size : night].mean(axis=1), means[:, : night - size].mean(axis=1)
            error = np.sqrt(np.maximum(noise, 0.0) * (1 / size + 1 / (night - size)))
            sight |= before - now - row.tolerance > IN_SIGHT * error
        for place in np.flatnonzero(sight & ~raised):
            told = [{name: (value,) for name, value in one.items()} for one in _told(values[place, :night])]
            raised[place] = watched(told[:-1], told[-1], ALPHA, tolerance=row.tolerance).raised
    return raised


def _told(values: "Doubles") -> list[dict[str, float]]:
    return [{str(place): value for place, value in enumerate(night)} for night in values.tolist()]


def _levels(means: "Doubles", left: "Doubles", instances: int) -> Levels:
    nights = means.shape[-1]
    return scaled(means, left, (nights - 1) * (instances - 1), np.full(nights, instances), bounded=True)


def oracle(row: Row, draws: np.random.Generator) -> float:
    """How often the oracle finds the fall."""
    noise = row.variance / row.instances + row.effect**2

    def most(nights: int, fall: float) -> "Doubles":
        parts = [
            scores(row, draws, AT_ONCE, row.baseline + nights, fall).mean(axis=2) for _ in range(ORACLES // AT_ONCE)
        ]
        means = np.concatenate(parts)
        sums = np.concatenate([np.zeros((ORACLES, 1)), np.cumsum(means, axis=1)], axis=1)
        best = np.full(ORACLES, -np.inf)
        for night in range(row.baseline + 1, row.baseline + nights + 1):
            for first in range(row.baseline, night):
                size, beyond = night - first, FALL - row.tolerance
                lower = sums[:, first] / first - (sums[:, night] - sums[:, first]) / size - row.tolerance
                ratio = (lower * beyond - beyond**2 / 2) / (noise * (1 / size + 1 / first))
                best = np.maximum(best, ratio)
        return best

    least = np.quantile(most(HORIZON, row.tolerance), 1 - ALPHA)
    return float(np.mean(most(WITHIN, FALL) >= least))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print("instances   within  effect  baseline  tolerance  oracle  alarm  part   none  equal  visible  found")
    for place, row in enumerate(ROWS):
        if args.only in row.name:
            print(row.name, *_measured(row, np.random.Generator(np.random.Philox(place)), args.series), flush=True)


def _measured(row: Row, draws: np.random.Generator, series: int) -> list[str]:
    def share(nights: int, fall: float) -> float:
        return float(alarms(row, scores(row, draws, series, row.baseline + nights, fall)).mean())

    known, found = oracle(row, draws), share(WITHIN, FALL)
    least = _visible(row, scores(row, draws, 40, row.baseline, 0.0))
    none, equal = share(HORIZON, 0.0), share(HORIZON, row.tolerance)
    figures: list[tuple[Callable[[float], str], float]] = [
        (lambda value: f"{value:7.0%}", known),
        (lambda value: f"{value:6.0%}", found),
        (lambda value: f"{value:5.2f}", found / known),
        (lambda value: f"{value:6.1%}", none),
        (lambda value: f"{value:6.1%}", equal),
        (lambda value: f"{100 * value:8.1f}", least),
        (lambda value: f"{value:6.0%}", share(WITHIN, least)),
    ]
    return [show(value) for show, value in figures]


def _visible(row: Row, values: "Doubles") -> float:
    """The mean of the falls that could be seen."""
    falls = []
    for part in values:
        left = next(unexplained(part[None], len(part)))[0]
        seen = _levels(part.mean(axis=1), left, row.instances)
        falls.append(visible_fall(seen, row.tolerance, EVIDENCE_PART * ALPHA) or 1.0)
    return float(np.mean(falls))


if __name__ == "__main__":
    main()
