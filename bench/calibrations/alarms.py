"""The nights' alarm in simulation: what it finds, beside a detector that knows the noise, and its false alarms.

    python -m bench.calibrations.alarms                   # every row, some minutes
    python -m bench.calibrations.alarms --series 100      # fewer series a row
    python -m bench.calibrations.alarms --only 50         # the rows whose name holds this
    python -m bench.calibrations.alarms --few             # falls that sit in few instances, by their own test alone
    python -m bench.calibrations.alarms --dear            # rises of what an episode takes, in money and tokens

A row is one cell: instances; the spread within an instance from night to night, or scores of yes and no (rare: with few
failures); the standard deviation of the effect that all instances of a night share; nights of baseline; the tolerance.
Effect and tolerance are in points.

- oracle: how often a fall of 5 points is found within 7 nights by a detector that knows the noise of a night. It does
  not know the level before, nor the fall's size, nor when it began: it takes the greatest likelihood ratio over all
  falls beyond the tolerance and all nights.
- best: the same of one that also knows that the fall is of 5 points and did not begin in the baseline.
- What raises either's alarm is set so that 5 % of series have a false one in 30 nights under a fall equal to the
  tolerance that comes at once after the baseline: to no more than this the alarm is held too.
- alarm: how often `evalkit.stats.alarm` finds it, in twice the series.
- part: alarm / oracle, and alarm / best.
- none, equal: series with a false alarm in the 30 nights after the baseline, under no change (of a quarter of the
  series), and under a fall that is equal to the tolerance and comes at once after the baseline (of all).
- visible: the fall that could be seen, as the nights' table says it after the baseline (mean), and in how many series
  one of that size is found within 7 nights.

The evidence is computed for all series at once; where it would raise an alarm, and levels are less than 3.6 standard
errors low or not normal, the permutation test is asked. Where a window is more than 3.2 standard errors low, `watched`
itself judges.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalkit.report.nights.dearer import MORE, Took, dearer
from evalkit.stats.alarm import (
    CHECK,
    EARLY_PART,
    EVIDENCE_PART,
    FEW,
    HORIZON,
    INSTANCES_PART,
    LATE_PART,
    WINDOWS,
    check,
    watched,
)
from evalkit.stats.few_instances import SIZES, few_fallen
from evalkit.stats.sustained_drop import WITHIN, Levels, Residuals, allowance, gathered, needed, scaled, visible_fall

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

ALPHA = 0.05
FALL = 0.05
ORACLES, AT_ONCE, TOGETHER = 20_000, 500, 250
IN_SIGHT, CLEAR = 3.2, 3.6
HEADING = " oracle   best  alarm   part   part   none  equal  visible  found"


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
    def noise(self) -> float:
        """Standard deviation of a night's mean."""
        return math.sqrt(self.variance / self.instances + self.effect**2)

    def clear(self, means: "Doubles", since: int) -> bool:
        """Whether the last `since` levels are so low that `check` need not be asked: far more than its p-value allows.

        Never where failures are rare: they are not normal.
        """
        if self.failing or self.means[0] > 0.9:
            return False
        fall = float(means[:-since].mean() - means[-since:].mean()) - self.tolerance
        return fall > CLEAR * math.sqrt(self.variance / self.instances * (1 / since + 1 / (len(means) - since)))

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
    _row(50, 0.15, 1, 2, 2),
    _row(50, 0.15, 2, 7, 2),
    _row(20, 0.15, 2, 30, 2),
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


def _means(row: Row, draws: np.random.Generator, series: int, nights: int, fall: float) -> "Doubles":
    """The means of `scores` over instances, but for a constant; of shape (series, nights)."""
    if row.within is None or row.failing:
        return np.asarray(scores(row, draws, series, nights, fall).mean(axis=2))
    fallen = fall * (np.arange(nights) >= row.baseline)
    return np.asarray(row.noise * draws.standard_normal((series, nights)) - fallen)


def unexplained(values: "Doubles", first: int) -> Iterator[Residuals]:
    """By series: what instance and night leave unexplained in the first `first` nights, then in one more each."""
    _, nights, instances = values.shape
    # About each instance's mean: squares of what is left keep their digits.
    values = values - values.mean(axis=1, keepdims=True)
    squares = np.cumsum((values**2).sum(axis=2), axis=1)
    means, totals = values.mean(axis=2), np.cumsum(values, axis=1)
    for count in range(first, nights + 1):
        own = totals[:, count - 1] / count
        overall = own.mean(axis=1)
        left = squares[:, count - 1] - count * (own**2).sum(axis=1) - instances * (means[:, :count] ** 2).sum(axis=1)
        rest = values[:, :count] - own[:, None] - (means[:, :count] - overall[:, None])[..., None]
        yield Residuals(
            squares=left + count * instances * overall**2,
            free=(count - 1) * (instances - 1),
            cubes=(rest * rest * rest).sum(axis=(1, 2)),
            shown=count * instances * math.prod(1 - part / of for of in (count, instances) for part in (1, 2)),
        )


def alarms(row: Row, values: "Doubles") -> "npt.NDArray[np.bool_]":
    """By series: whether a night after the baseline raises an alarm."""
    means, raised = values.mean(axis=2), np.zeros(len(values), np.bool_)
    for night, left in enumerate(unexplained(values, row.baseline + 1), row.baseline + 1):
        seen = _levels(means[:, :night], left, row.instances)
        log, since = gathered(seen, row.tolerance)
        for place in np.flatnonzero((log >= needed(EVIDENCE_PART * ALPHA)) & ~raised):
            if row.clear(means[place, :night], int(since[place])):
                raised[place] = True
                continue
            checked = check(_told(values[place, :night]), int(since[place]), row.tolerance, ALPHA, 1.0)
            raised[place] = checked.p <= CHECK * ALPHA
        sight = np.zeros(len(values), np.bool_)
        noise = left.squares / left.free / row.instances
        part = EARLY_PART if night <= FEW + 1 else LATE_PART
        for size in [size for size in WINDOWS if size < night]:
            now, before = means[:, night - size : night].mean(axis=1), means[:, : night - size].mean(axis=1)
            error = np.sqrt(np.maximum(noise, 0.0) * (1 / size + 1 / (night - size)))
            beyond = before - now - row.tolerance - IN_SIGHT * error
            near = np.flatnonzero((beyond > 0) & ~raised)
            if near.size:
                low = Levels(means=seen.means[near, :-1], noise=seen.noise[near, :-1])
                sight[near] |= beyond[near] > allowance(low, part * ALPHA / HORIZON)
        for place in np.flatnonzero(sight & ~raised):
            told = [{name: (value,) for name, value in one.items()} for one in _told(values[place, :night])]
            raised[place] = watched(told[:-1], told[-1], ALPHA, tolerance=row.tolerance).raised
    return raised


def _told(values: "Doubles") -> list[dict[str, float]]:
    return [{str(place): value for place, value in enumerate(night)} for night in values.tolist()]


def _levels(means: "Doubles", left: Residuals, instances: int) -> Levels:
    return scaled(means, left, np.full(means.shape[-1], instances), bounded=True)


def oracle(row: Row, draws: np.random.Generator, *, knows_the_fall: bool) -> float:
    """How often an oracle finds the fall."""
    noise = row.noise**2

    def most(nights: int, fall: float) -> "Doubles":
        parts = [_means(row, draws, AT_ONCE, row.baseline + nights, fall) for _ in range(ORACLES // AT_ONCE)]
        means = np.concatenate(parts)
        sums = np.concatenate([np.zeros((ORACLES, 1)), np.cumsum(means, axis=1)], axis=1)
        best = np.full(ORACLES, -np.inf)
        for night in range(row.baseline + 1, row.baseline + nights + 1):
            for first in range(row.baseline if knows_the_fall else 1, night):
                size = night - first
                lower = sums[:, first] / first - (sums[:, night] - sums[:, first]) / size - row.tolerance
                beyond = FALL - row.tolerance if knows_the_fall else np.maximum(lower, 0.0)
                ratio = (lower * beyond - beyond**2 / 2) / (noise * (1 / size + 1 / first))
                best = np.maximum(best, ratio)
        return best

    least = np.quantile(most(HORIZON, row.tolerance), 1 - ALPHA)
    return float(np.mean(most(WITHIN, FALL) >= least))


FEW_BASELINE, FEW_NIGHTS = 14, 15
FEW_ROWS: tuple[tuple[str, int, float], ...] = (
    ("graded", 50, 0.1),
    ("graded", 50, 0.2),
    ("graded", 20, 0.1),
    ("yes/no", 50, 0.1),
    ("heavy tails", 50, 0.1),
    ("few fail", 36, 0.1),
)
"""What scores are, instances, and the part of these in which a fall of `FALL` on average sits."""


def few_scores(kind: str, instances: int, part: float, draws: np.random.Generator, fall: float) -> "Doubles":
    """One series, shape (nights, instances), with an effect of the night of a point."""
    shape = (FEW_BASELINE + FEW_NIGHTS, instances)
    level = draws.uniform(0.4, 0.9, instances) + 0.01 * draws.standard_normal((shape[0], 1))
    fallen = np.zeros(shape)
    fallen[FEW_BASELINE:, : max(1, round(part * instances))] = fall / part
    if kind == "yes/no":
        return np.asarray(draws.random(shape) < level - fallen, np.float64)
    if kind == "few fail":
        values = 0.95 + 0.02 * draws.standard_normal(shape)
        return np.asarray(np.where(draws.random(shape) < 0.03, 0.0, values) - fallen)
    noise = 0.1 * draws.standard_t(3, shape) if kind == "heavy tails" else 0.15 * draws.standard_normal(shape)
    return np.asarray(level + noise - fallen)


def few_alarm(values: "Doubles") -> float:
    """The night after the baseline in which the test of few instances alone is clear; inf if in none."""
    threshold = INSTANCES_PART * ALPHA / HORIZON / len(SIZES)
    told = _told(values)
    for night in range(FEW_BASELINE + 1, len(values) + 1):
        ps = (few_fallen(told[:night], size, size, 1.0, math.ceil(3 / threshold)) for size in SIZES)
        if any(p <= threshold for p in ps):
            return float(night - FEW_BASELINE)
    return math.inf


def few_line(place: int, series: int, seed: int) -> str:
    """A row of `--few`."""
    kind, instances, part = FEW_ROWS[place]
    draws = np.random.Generator(np.random.Philox([place, seed]))
    found, false = (
        np.array([few_alarm(few_scores(kind, instances, part, draws, fall)) for _ in range(series)])
        for fall in (FALL, 0.0)
    )
    by = "".join(f"{np.mean(found <= night):7.0%}" for night in (2, 4, 7, 15))
    return f"{kind:>12} {instances:9} {part:7.0%} {by} {np.isfinite(false).mean():7.1%}"


DEAR_BASELINE, DEAR_SIGHT = 14, 2.8
DEAR_ROWS: tuple[tuple[str, int, float, float], ...] = (
    ("lognormal", 50, 0.3, 1.0),
    ("lognormal", 20, 0.3, 1.0),
    ("lognormal", 50, 0.8, 1.0),
    ("lognormal", 60, 0.3, 0.33),
    ("some run on", 50, 0.2, 1.0),
)
"""What an episode takes, instances, the logarithm's spread from night to night, and the part that a night plays."""
RISES = (1.2, 1.5)


def taken(row: int, draws: np.random.Generator, nights: int, rise: float) -> list[Took]:
    """Nights of one series, dearer by the factor `rise` after the baseline, with an effect of the night of 3 %.

    Money goes with tokens but for a tenth (what is cached). Some that run on take four times as much, one in 20.
    """
    kind, instances, within, part = DEAR_ROWS[row]
    shape = (nights, instances)
    tokens = 9 + draws.normal(0, 0.7, instances) + 0.03 * draws.standard_normal((nights, 1))
    tokens = tokens + within * draws.standard_normal(shape)
    tokens += math.log(4) * (draws.random(shape) < 0.05) * (kind == "some run on")
    tokens += math.log(rise) * (np.arange(nights) >= DEAR_BASELINE)[:, None]
    money = np.exp(tokens + 0.1 * draws.standard_normal(shape))
    plays = draws.random(shape) < part
    return [
        {
            str(place): (float(money[night, place]), math.exp(tokens[night, place]))
            for place in np.flatnonzero(plays[night])
        }
        for night in range(nights)
    ]


def dear_word(nights: Sequence[Took]) -> float:
    """The night after the baseline in which the first word is said; inf if in none."""
    names = sorted({name for night in nights for name in night})
    logs = np.log([[night.get(name, (math.nan, math.nan)) for name in names] for night in nights])
    for night in range(DEAR_BASELINE + 1, len(nights) + 1):
        if _may_be_dearer(logs[:night]) and dearer(nights[: night - 1], nights[night - 1], ALPHA):
            return float(night - DEAR_BASELINE)
    return math.inf


def _may_be_dearer(logs: "Doubles") -> bool:
    """Whether a window is high enough that the test has to be made; shape (nights, instances, figures)."""
    for size in WINDOWS:
        known = np.isfinite(logs[..., 0])  # a night has both figures or none
        shared = known[:-size].any(axis=0) & known[-size:].any(axis=0)
        rise = np.nanmean(logs[-size:, shared], axis=0) - np.nanmean(logs[:-size, shared], axis=0) - math.log1p(MORE)
        if np.any(rise.mean(axis=0) > DEAR_SIGHT * rise.std(axis=0) / math.sqrt(max(1, len(rise)))):
            return True
    return False


def dear_line(place: int, series: int, seed: int) -> str:
    """A row of `--dear`."""
    kind, instances, within, part = DEAR_ROWS[place]
    draws = np.random.Generator(np.random.Philox([place, seed, 1]))

    def said(rise: float, nights: int) -> "Doubles":
        return np.array([dear_word(taken(place, draws, DEAR_BASELINE + nights, rise)) for _ in range(series)])

    found = "".join(
        f"{np.mean(at <= 1):8.0%}{np.mean(at <= WITHIN):6.0%}" for at in (said(rise, WITHIN) for rise in RISES)
    )
    false = "".join(f"{np.isfinite(said(rise, HORIZON)).mean():7.1%}" for rise in (1.0, 1 + MORE))
    return f"{kind:>12} {instances:9} {within:7.1f} {part:6.0%} {found} {false}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0, help="other series")
    parser.add_argument("--few", action="store_true", help="falls that sit in few instances")
    parser.add_argument("--dear", action="store_true", help="rises of what an episode takes")
    args = parser.parse_args()
    if args.few or args.dear:
        few = "      scores instances  part  found by 2      4      7     15   false"
        dear = "  an episode instances  within  plays  x1.2: 1    7  x1.5: 1    7  false: x1   x1.1"
        print(few if args.few else dear)
        for place in range(len(FEW_ROWS if args.few else DEAR_ROWS)):
            print((few_line if args.few else dear_line)(place, args.series, args.seed), flush=True)
        return
    print("instances   within  effect  baseline  tolerance", HEADING)
    for place, row in enumerate(ROWS):
        if args.only in row.name:
            draws = np.random.Generator(np.random.Philox(place + args.seed * len(ROWS)))
            print(row.name, *_measured(row, draws, args.series), flush=True)


def _measured(row: Row, draws: np.random.Generator, series: int) -> list[str]:
    def share(nights: int, fall: float, part: float = 1.0) -> float:
        count = math.ceil(part * series)
        sizes = [min(TOGETHER, count - done) for done in range(0, count, TOGETHER)]
        raised = [alarms(row, scores(row, draws, size, row.baseline + nights, fall)) for size in sizes]
        return float(np.concatenate(raised).mean())

    best, known = (oracle(row, draws, knows_the_fall=knows) for knows in (True, False))
    found = share(WITHIN, FALL, 2.0)
    least = _visible(row, scores(row, draws, 20, row.baseline, 0.0))
    equal = share(HORIZON, row.tolerance)
    none = share(HORIZON, 0.0, 0.25) if row.tolerance else equal
    figures: list[tuple[Callable[[float], str], float]] = [
        (lambda value: f"{value:7.0%}", known),
        (lambda value: f"{value:6.0%}", best),
        (lambda value: f"{value:6.0%}", found),
        (lambda value: f"{value:6.2f}", found / known),
        (lambda value: f"{value:6.2f}", found / best),
        (lambda value: f"{value:6.1%}", none),
        (lambda value: f"{value:6.1%}", equal),
        (lambda value: f"{100 * value:8.1f}", least),
        (lambda value: f"{value:6.0%}", share(WITHIN, least, 0.2)),
    ]
    return [show(value) for show, value in figures]


def _visible(row: Row, values: "Doubles") -> float:
    """The mean of the falls that could be seen."""
    falls = []
    for part in values:
        seen = _levels(part.mean(axis=1)[None], next(unexplained(part[None], len(part))), row.instances)
        assert seen.base is not None
        one = Levels(means=seen.means[0], noise=seen.noise[0], base=seen.base[0])
        falls.append(visible_fall(one, row.tolerance, EVIDENCE_PART * ALPHA) or 1.0)
    return float(np.mean(falls))


if __name__ == "__main__":
    main()
