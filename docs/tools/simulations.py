"""What `coverage.py` simulates: what is drawn, which function of evalkit judges it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalkit.stats import pairs
from evalkit.stats.intervals import Interval, estimate, student
from evalkit.stats.pairs import change, pair, sign_flips
from evalkit.stats.sequential import capital, filled, sequence, sequential_p

Draws = np.random.Generator
Values = np.ndarray
Figures = list[tuple[float, float]]
"""(figure, standard deviation of one study's share in it); the latter nan where the figure is a share in percent."""

SIGNS = 2000
"""Of a permutation test here: enough for a share of many studies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One table."""

    head: str
    """Title of the first column."""
    rows: Mapping[str, Any]
    """By title: what is drawn."""
    columns: Mapping[str, Any]
    """By title: how many, or which case."""
    cell: Callable[[Any, Any, Draws, int], Figures]
    """(row, column, draws, studies) to figures."""
    shown: Callable[[Figures], str]
    numbers: tuple[tuple[int, ...], ...]
    """For each number that `shown` writes: which figures it is made of."""
    studies: int


def named(values: Values) -> dict[str, list[float]]:
    """Values by instance: shape (instances,) or (instances, replicates)."""
    return {f"{i:04}": [float(one) for one in np.atleast_1d(row)] for i, row in enumerate(values)}


def share(hits: int, studies: int) -> tuple[float, float]:
    """A share in percent."""
    return 100 * hits / studies, math.nan


def mean(values: list[float]) -> tuple[float, float]:
    """A mean, with the spread of its studies."""
    return float(np.mean(values)), float(np.std(values)) + 1e-9


def holds(found: Interval | None, truth: float) -> bool:
    """Whether an interval holds the truth, rounding aside."""
    return found is not None and found.low - 1e-9 <= truth <= found.high + 1e-9


# ---- Intervals of a mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What instances are drawn from."""

    draw: Callable[[Draws, int], Values]
    truth: float


def mixed(part: float, other: Callable[[Draws, int], Values], mean_of_other: float, value: float) -> Kind:
    """`part` of the instances have a value, the others are drawn otherwise."""
    return Kind(
        draw=lambda draws, n: np.where(draws.random(n) < part, value, other(draws, n)),
        truth=part * value + (1 - part) * mean_of_other,
    )


def graded(low: float, high: float) -> Callable[[Draws, int], Values]:
    """Uniform between two scores."""
    return lambda draws, n: draws.uniform(low, high, n)


def failing(part: float, low: float, high: float) -> Kind:
    """Scores from `low` to `high`, and `part` of the instances fail outright."""
    return mixed(part, graded(low, high), (low + high) / 2, 0.0)


BOUNDED = {
    "normal, 0.5 ± 0.05": Kind(draw=lambda draws, n: draws.normal(0.5, 0.05, n), truth=0.5),
    "uniform": Kind(draw=graded(0, 1), truth=0.5),
    "Beta(1.5, 0.5)": Kind(draw=lambda draws, n: draws.beta(1.5, 0.5, n), truth=0.75),
    "Beta(8, 1)": Kind(draw=lambda draws, n: draws.beta(8, 1, n), truth=8 / 9),
    "Beta(30, 1)": Kind(draw=lambda draws, n: draws.beta(30, 1, n), truth=30 / 31),
    "1 - exponential losses of 0.2": Kind(
        draw=lambda draws, n: np.maximum(0.0, 1 - draws.exponential(0.2, n)), truth=1 - 0.2 * (1 - math.exp(-5))
    ),
    "1 - exponential losses of 0.05": Kind(
        draw=lambda draws, n: np.maximum(0.0, 1 - draws.exponential(0.05, n)), truth=1 - 0.05 * (1 - math.exp(-20))
    ),
    "0.1 or 0.9": Kind(draw=lambda draws, n: np.where(draws.random(n) < 0.5, 0.1, 0.9), truth=0.5),
    "50 % are 1, the others uniform": mixed(0.5, graded(0, 1), 0.5, 1.0),
    "80 % are 1, the others uniform": mixed(0.8, graded(0, 1), 0.5, 1.0),
    "95 % are 1, the others uniform": mixed(0.95, graded(0, 1), 0.5, 1.0),
    "80 % are 1, the others Beta(9, 1)": mixed(0.8, lambda draws, n: draws.beta(9, 1, n), 0.9, 1.0),
    "90 % are 1, the others 0.2": mixed(0.9, graded(0.2, 0.2), 0.2, 1.0),
    "yes or no, 5 replicates": Kind(draw=lambda draws, n: draws.binomial(5, draws.beta(3, 2, n)) / 5, truth=0.6),
    "yes or no at 90 %, 3 replicates": Kind(draw=lambda draws, n: draws.binomial(3, 0.9, n) / 3, truth=0.9),
}

RARE = {
    "1, 2 % fail": failing(0.02, 1, 1),
    "1, 5 % fail": failing(0.05, 1, 1),
    "0.95 to 1, 2 % fail": failing(0.02, 0.95, 1),
    "0.95 to 1, 5 % fail": failing(0.05, 0.95, 1),
    "0.95 to 1, 10 % fail": failing(0.1, 0.95, 1),
    "0.75 to 0.85, 2 % fail": failing(0.02, 0.75, 0.85),
    "0.75 to 0.85, 5 % fail": failing(0.05, 0.75, 0.85),
    "0.75 to 0.85, 10 % fail": failing(0.1, 0.75, 0.85),
}

OTHER = {
    "normal": Kind(draw=lambda draws, n: draws.normal(0.6, 0.2, n), truth=0.6),
    "normal, 3 replicates an instance": Kind(
        draw=lambda draws, n: draws.normal(0.6, 0.2, (n, 1)) + draws.normal(0, 0.3, (n, 3)), truth=0.6
    ),
    "skewed, Beta(1.5, 0.5)": Kind(draw=lambda draws, n: draws.beta(1.5, 0.5, n), truth=0.75),
    "1 - exponential losses": Kind(draw=lambda draws, n: 1 - draws.exponential(0.2, n), truth=0.8),
    "cost gaps: lognormal, sd 1": Kind(draw=lambda draws, n: draws.lognormal(0, 1, n), truth=math.exp(0.5)),
    "cost gaps: 70 % none, the others exponential": mixed(0.7, lambda draws, n: draws.exponential(1, n), 1.0, 0.0),
    "two heavy tails: Student's t with 3": Kind(draw=lambda draws, n: draws.standard_t(3, n), truth=0.0),
    "90 % from 0.9 to 1, the others from -3 to 1": Kind(
        draw=lambda draws, n: np.where(draws.random(n) < 0.9, draws.uniform(0.9, 1, n), draws.uniform(-3, 1, n)),
        truth=0.9 * 0.95 - 0.1,
    ),
}


def bounded_cell(kind: Kind, n: int, draws: Draws, studies: int) -> Figures:
    """Of scores from 0 to 1: how often the interval of instances like those met holds the truth, its width, and
    Student's; then how often the one with instances unlike these does, and its width."""
    held = held_unmet = 0
    widths, others, widths_unmet = [], [], []
    for _ in range(studies):
        values = kind.draw(draws, n)
        found, plain = estimate(named(values), least=0.0, most=1.0), student([values])
        assert found.interval is not None
        assert found.unmet is not None
        held += holds(found.interval, kind.truth)
        held_unmet += holds(found.unmet, kind.truth)
        widths.append(found.interval.high - found.interval.low)
        others.append(min(1.0, plain.high) - max(0.0, plain.low))
        widths_unmet.append(found.unmet.high - found.unmet.low)
    return [share(held, studies), mean(widths), mean(others), share(held_unmet, studies), mean(widths_unmet)]


def other_cell(kind: Kind, n: int, draws: Draws, studies: int) -> Figures:
    """How often the interval of values without bounds holds the truth, and how often Student's."""
    held = students = 0
    for _ in range(studies):
        values = kind.draw(draws, n)
        held += holds(estimate(named(values)).interval, kind.truth)
        students += holds(student([np.asarray(values).reshape(n, -1).mean(axis=1)]), kind.truth)
    return [share(held, studies), share(students, studies)]


# ---- Comparisons


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """One agent on both sides."""

    draw: Callable[[Draws, int, int], Values]
    """(draws, instances, replicates) to values: the same agent each time, on instances of the same kind."""
    n: int
    first: int
    second: int


def answers(p: float) -> Callable[[Draws, int, int], Values]:
    """Yes and no."""
    return lambda draws, n, r: (draws.random((n, r)) < p) * 1.0


def scores(draws: Draws, n: int, r: int) -> Values:
    """Graded scores, most of them high."""
    values: Values = draws.beta(8, 2, (n, r))
    return values


ALIKE = {
    "graded, 12 pairs, 1 and 1 replicate": Sides(draw=scores, n=12, first=1, second=1),
    "graded, 12 pairs, 2 and 6": Sides(draw=scores, n=12, first=2, second=6),
    "yes or no at 90 %, 12 pairs, 3 and 3": Sides(draw=answers(0.9), n=12, first=3, second=3),
    "yes or no at 90 %, 12 pairs, 1 and 10": Sides(draw=answers(0.9), n=12, first=1, second=10),
    "yes or no at 95 %, 36 pairs, 1 and 5": Sides(draw=answers(0.95), n=36, first=1, second=5),
}


def alike_cell(sides: Sides, signs: bool, draws: Draws, studies: int) -> Figures:
    """False differences at 5 %, and how often the interval holds 0; `signs`: by flipping signs whatever the counts."""
    wrong = held = 0
    kept, pairs.LEAST_DRAWS = pairs.LEAST_DRAWS, SIGNS - 1
    for study in range(studies):
        both = pair(*(named(sides.draw(draws, sides.n, r)) for r in (sides.first, sides.second)))
        if signs:
            values = both.differences
            p = sign_flips(list(values.values()), place=(str(study),))[0].p
            found = estimate({name: [one] for name, one in values.items()}, least=-1.0, most=1.0).cautious
        else:
            made = change(both, place=(str(study),), width=1.0)
            p, found = made.test.p, made.difference.interval
        wrong += p is not None and p <= 0.05
        held += holds(found, 0.0)
    pairs.LEAST_DRAWS = kept
    return [share(wrong, studies), share(held, studies)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Two agents on the same instances."""

    draw: Callable[[Draws, int], tuple[Values, Values]]
    truth: float
    """How much the second one's mean is above the first's."""


def failed(draws: Draws, values: Values, part: float) -> Values:
    """The values, of which `part` are 0."""
    return np.where(draws.random(len(values)) < part, 0.0, values)


def graded_pair(low: float, high: float, parts: tuple[float, float]) -> Apart:
    """Scores of the same range, of which a part fails outright, apart on both sides."""
    ours, theirs = (graded(low, high) for _ in parts)
    return Apart(
        draw=lambda draws, n: (
            failed(draws, ours(draws, n), parts[0]),
            failed(draws, theirs(draws, n), parts[1]),
        ),
        truth=(low + high) / 2 * (parts[0] - parts[1]),
    )


def near(spread: float, gain: float) -> Callable[[Draws, int], tuple[Values, Values]]:
    """Graded scores of one difficulty, and `gain` on the second side."""

    def drawn(draws: Draws, n: int) -> tuple[Values, Values]:
        base = draws.uniform(0.3, 0.6, n)
        return tuple(base + draws.normal(0, spread, n) + more for more in (0.0, gain))  # type: ignore[return-value]

    return drawn


def flipped(part: float) -> Callable[[Draws, int], tuple[Values, Values]]:
    """Answers of yes and no, alike but for a part."""

    def drawn(draws: Draws, n: int) -> tuple[Values, Values]:
        ours = (draws.random(n) < 0.5) * 1.0
        return ours, np.where(draws.random(n) < part, 1 - ours, ours)

    return drawn


PAIRED = {
    "0.95 to 1, 2 and 6 % fail": graded_pair(0.95, 1, (0.02, 0.06)),
    "0.95 to 1, 5 and 5 % fail": graded_pair(0.95, 1, (0.05, 0.05)),
    "0.75 to 0.85, 2 and 6 % fail": graded_pair(0.75, 0.85, (0.02, 0.06)),
    "0.4 to 0.6, 2 and 6 % fail": graded_pair(0.4, 0.6, (0.02, 0.06)),
    "yes or no, 90 and 80 %": Apart(
        draw=lambda draws, n: (answers(0.9)(draws, n, 1)[:, 0], answers(0.8)(draws, n, 1)[:, 0]), truth=-0.1
    ),
    "yes or no, alike on 90 %": Apart(draw=flipped(0.1), truth=0.0),
    "graded, pairs vary by 13 points": Apart(draw=near(0.09, 0.0), truth=0.0),
    "graded, 5 points apart": Apart(draw=near(0.09, 0.05), truth=0.05),
}


def paired_cell(kind: Apart, n: int, draws: Draws, studies: int) -> Figures:
    """How often the interval of a difference holds the truth and its width in points; both of what was seen alone."""
    held = plainly = 0
    widths, others = [], []
    kept, pairs.LEAST_DRAWS = pairs.LEAST_DRAWS, 9
    for _ in range(studies):
        both = pair(*map(named, kind.draw(draws, n)))
        found = change(both, place=(), width=1.0).difference.interval
        alone = estimate({name: [one] for name, one in both.differences.items()}, least=-1.0, most=1.0).cautious
        assert found is not None
        assert alone is not None
        held, plainly = held + holds(found, kind.truth), plainly + holds(alone, kind.truth)
        widths.append(100 * (found.high - found.low))
        others.append(100 * (alone.high - alone.low))
    pairs.LEAST_DRAWS = kept
    return [share(held, studies), mean(widths), share(plainly, studies), mean(others)]


LOOKS = range(20, 201, 20)


def looking_cell(draw: Callable[[Draws, int], Values], sequence: bool, draws: Draws, studies: int) -> Figures:
    """How often like agents are called different at some look, every 20 pairs up to 200."""
    wrong = 0
    kept, pairs.LEAST_DRAWS = pairs.LEAST_DRAWS, SIGNS - 1
    for study in range(studies):
        values = draw(draws, 200)
        if sequence:
            wrong += sequential_p((values + 1) / 2, (values + 1) / 2, 0.5) <= 0.05
        else:
            ps = (sign_flips(values[:n].tolist(), place=(str(study), str(n)))[0].p for n in LOOKS)
            wrong += any(p is not None and p <= 0.05 for p in ps)
    pairs.LEAST_DRAWS = kept
    return [share(wrong, studies)]


def against(gains: Callable[[Draws, int], Values]) -> Callable[[Draws, int], tuple[Values, Values]]:
    """A side of graded scores, and one that gains on it."""

    def drawn(draws: Draws, n: int) -> tuple[Values, Values]:
        ours = draws.uniform(0.5, 0.6, n)
        return ours, np.clip(ours + gains(draws, n), 0.0, 1.0)

    return drawn


def rarely(gain: float, part: float) -> Callable[[Draws, int], tuple[Values, Values]]:
    """Sides of equal means: on `part` of the instances the second loses as much as it gains on all others."""
    loss = -gain * (1 - part) / part
    return against(lambda draws, n: np.where(draws.random(n) < part, loss, gain) + draws.normal(0, 0.001, n))


UNLIKE: Mapping[str, Callable[[Draws, int], tuple[Values, Values]]] = {
    "equal: 95 % gain 2 points, 5 % lose 38": rarely(0.02, 0.05),
    "equal: 98 % gain 1 point, 2 % lose 49": rarely(0.01, 0.02),
    "equal: 90 % lose 3 points, 10 % gain 27": rarely(-0.03, 0.1),
    "equal: losses exponential, 5 points, less their mean": against(lambda draws, n: 0.05 - draws.exponential(0.05, n)),
    "10 points apart, ± 10": against(lambda draws, n: draws.normal(0.1, 0.1, n)),
    "20 points apart, yes or no": lambda draws, n: (
        (draws.random(n) < 0.6) * 1.0,
        (draws.random(n) < 0.8) * 1.0,
    ),
}


def unlike_cell(draw: Callable[[Draws, int], tuple[Values, Values]], n: int, draws: Draws, studies: int) -> Figures:
    """How often the test by signs rejects, how often the mean is said to differ, how often the wins alone are."""
    refused = better = oftener = 0
    kept, pairs.LEAST_DRAWS = pairs.LEAST_DRAWS, SIGNS - 1
    for study in range(studies):
        made = change(pair(*map(named, draw(draws, n))), place=(str(study),), width=1.0)
        found = made.test.p is not None and made.test.p <= 0.05
        refused += found
        better += found and made.shown
        oftener += found and not made.shown and made.signs.p is not None and made.signs.p <= 0.05
    pairs.LEAST_DRAWS = kept
    return [share(count, studies) for count in (refused, better, oftener)]


# ---- Runs that are cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A run that is killed."""

    planned: int
    width: int
    """Episodes in flight."""


CUTS = {
    "60 planned, 32 in flight": Cut(planned=60, width=32),
    "200 planned, 32 in flight": Cut(planned=200, width=32),
    "200 planned, 64 in flight": Cut(planned=200, width=64),
    "200 planned, 8 in flight": Cut(planned=200, width=8),
}


def killed(cut: Cut, part: float, draws: Draws) -> tuple[list[float | None], float]:
    """(scores in admission order of what had begun when `part` of the time was over, None of what had not ended; the
    truth). Long episodes score lower."""
    values = draws.beta(4, 1, cut.planned)
    lasts = (1.2 - values) * draws.uniform(0.5, 1.5, cut.planned)
    free, ends = np.zeros(cut.width), np.empty(cut.planned)
    starts = np.empty(cut.planned)
    for i in range(cut.planned):
        first = int(free.argmin())
        starts[i], ends[i] = free[first], free[first] + lasts[i]
        free[first] = ends[i]
    kill = part * float(ends.max())
    begun = int((starts < kill).sum())
    return [float(value) if end <= kill else None for value, end in zip(values[:begun], ends, strict=False)], 0.8


def killed_cell(cut: Cut, part: float, draws: Draws, studies: int) -> Figures:
    """How far the means of all that ended and of the prefix are off, in points; how often an interval of a fixed length
    of the prefix holds the truth, how often the sequence."""
    naive, prefixes, fixed, held = [], [], 0, 0
    for _ in range(studies):
        values, truth = killed(cut, part, draws)
        ended = [one for one in values if one is not None]
        prefix = [one for one in values[: values.index(None)] if one is not None] if None in values else ended
        naive += [100 * (float(np.mean(ended)) - truth)] if ended else []
        prefixes += [100 * (float(np.mean(prefix)) - truth)] if prefix else []
        interval = estimate(named(np.array(prefix)), least=0.0, most=1.0).interval if prefix else None
        fixed += interval is None or holds(interval, truth)
        goal = math.log(40)
        low, high = filled(values, 0.0), filled(values, 1.0)
        held += max(capital(low, truth, up=True)[-1], capital(high, truth, up=False)[-1]) < goal
    return [mean(naive), mean(prefixes), share(fixed, studies), share(held, studies)]


def in_strata(means: tuple[float, ...], draw: Callable[[Draws, Values], Values]) -> tuple[Any, int, float]:
    """(draws in turns of the strata with these means, draws of a turn, their mean)."""
    return lambda draws, n: draw(draws, np.resize(np.array(means), n)), len(means), float(np.mean(means))


STRATA = {
    "4 strata, ± 5 points around 20, 40, 60 and 80": in_strata(
        (0.2, 0.4, 0.6, 0.8), lambda draws, means: np.clip(draws.normal(means, 0.05), 0, 1)
    ),
    "4 strata, yes or no at 20, 40, 60 and 80 %": in_strata(
        (0.2, 0.4, 0.6, 0.8), lambda draws, means: (draws.random(len(means)) < means) * 1.0
    ),
    "strata as 1 : 2 : 3, yes or no at 90, 60 and 30 %": in_strata(
        (0.9, 0.6, 0.3, 0.6, 0.3, 0.3), lambda draws, means: (draws.random(len(means)) < means) * 1.0
    ),
    "2 strata alike, ± 20 points around 60": in_strata(
        (0.6, 0.6), lambda draws, m: np.clip(draws.normal(m, 0.2), 0, 1)
    ),
}


def strata_cell(kind: tuple[Callable[[Draws, int], Values], int, float], n: int, draws: Draws, studies: int) -> Figures:
    """How often the sequence of whole turns holds the truth at all looks; its width in points, and that of a sequence
    of the averages of turns."""
    (draw, turn, truth), held, mine, averaged = kind, 0, [], []
    for _ in range(studies):
        values = draw(draws, n)[: n // turn * turn]
        ends, other = sequence(values, values, turn), sequence(*[values.reshape(-1, turn).mean(axis=1)] * 2)
        assert ends is not None
        assert other is not None
        held += ends[0] <= truth <= ends[1]
        mine.append(100 * (ends[1] - ends[0]))
        averaged.append(100 * (other[1] - other[0]))
    return [share(held, studies), mean(mine), mean(averaged)]


def width_cell(draw: Callable[[Draws, int], Values], n: int, draws: Draws, studies: int) -> Figures:
    """Half the width, in points, of the sequence and of the interval for one look."""
    mine, plain = [], []
    for _ in range(studies):
        values = draw(draws, n)
        ends = sequence(values, values)
        found = estimate(named(values), least=0.0, most=1.0).interval
        assert found is not None
        assert ends is not None
        mine.append(50 * (ends[1] - ends[0]))
        plain.append(50 * (found.high - found.low))
    return [mean(mine), mean(plain)]
