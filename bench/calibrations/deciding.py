"""What a comparison that stops when it is answered costs, and how often it is wrong: simulated, by evalkit's evidence.

    python -m bench.calibrations.deciding                    # all tables, as Markdown (some minutes)
    python -m bench.calibrations.deciding ranking            # these: pairs, leaning, eight, forecast, ranking
    python -m bench.calibrations.deciding --write            # into docs/deciding.md, below its marks
    python -m bench.calibrations.deciding --studies 40       # fewer studies, rougher figures

Every study looks after each draw (each turn, where a turn has several) up to `LOOKS` draws. `deciding_shapes.py` says
what is drawn. A fixed design is a paired test at 95 % by Student's interval, looked at once.
"""

import argparse
import hashlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.calibrations.deciding_shapes import SHAPES, Draw, Shape, Values, graded, permuted, yes_no_alike, yes_no_pairs
from bench.calibrations.lanes import ENDS, SPEEDS, UNEQUAL, played, speeds
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.stats.deciding import AHEAD, reach
from evalkit.stats.deciding import graded as graded_pairs
from evalkit.stats.evidence import Answer, centre, left
from evalkit.stats.sequential import capital, log_gains, mixed, sequence

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deciding.md"
MARGIN, ALPHA, LOOKS = 0.02, 0.05, 1000
APART = 0.05
"""The difference whose price is shown."""
LEANING = ("graded, pairs vary by 13 points", "yes or no at 80 %")
POWER = 0.9
AGENTS = 8
PAIRS = tuple(combinations(range(AGENTS), 2))
AT_ONCE = 100
"""Studies in one call of numpy: what bounds its memory."""
STUDIES = {
    "pairs": 1000,
    "leaning": 1000,
    "eight": 120,
    "forecast": 200,
    "lanes": 1000,
    "hour": 1000,
    "suite": 1000,
    "once": 1000,
    "sizes": 1000,
    "bets": 1000,
    "ranking": 40,
}

INSTANCES = 6000
"""Of the ranking's suite: who has no answer by then has none."""
TOKENS_IN, TOKENS_OUT = 27_613, 745
"""Of an episode: the means of the agent `noisy` on costbench/basic in `evalkit run quickstart`, as
`evalkit sql quickstart` sums them."""
MODELS = (
    ("openai", "gpt-4.1-nano"),
    ("anthropic", "claude-haiku-5-5"),
    ("openai", "gpt-4.1-mini"),
    ("google", "gemini-3.5-flash-lite"),
    ("google", "gemini-3.8-flash"),
    ("openai", "gpt-4.1"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-opus-5-5"),
)
"""The eight of the ranking, the cheapest first: for their prices alone. What they are taken to score is supposed."""
WIDE = "3 to 5 points between neighbours"
STRENGTHS = {
    WIDE: (0.0, 0.03, 0.06, 0.1, 0.13, 0.17, 0.22, 0.26),
    "all within 6 points": (0.0, 0.003, 0.012, 0.02, 0.031, 0.04, 0.053, 0.06),
    "all alike": (0.0,) * 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """When studies were answered, and how; shapes (studies,)."""

    draws: Values
    """inf where never."""
    answer: Values
    """`above`, `below`, `equal` or `undecided`."""

    def wrong(self, difference: float, margin: float) -> Values:
        """Whether the answer is false for the true difference."""
        false: dict[Answer, bool] = {
            "above": difference <= 0,
            "below": difference >= 0,
            "equal": abs(difference) >= margin,
            "undecided": False,
        }
        return np.array([false[one] for one in self.answer])


def generator(*names: str) -> np.random.Generator:
    """The draws of one row: the same whatever else is simulated."""
    key = hashlib.sha256("/".join(names).encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(key[:16], "little")))


def ended(
    differences: Values,
    *,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    turn: int = 1,
    centred: bool = False,
    once: bool = False,
    plugged: bool = False,
) -> Ended:
    """The first answer of each study; differences of shape (studies, draws), -1 to 1.

    once     whether these are all there are, and it is their mean that is sought
    plugged  whether a half of the capital is a bet that is learnt from the draws (`plugged_in`)
    """
    parts = [
        _ended(differences[i : i + AT_ONCE], margin, alpha, turn, centred, once, plugged)
        for i in range(0, len(differences), AT_ONCE)
    ]
    return Ended(
        draws=np.concatenate([part.draws for part in parts]), answer=np.concatenate([part.answer for part in parts])
    )


def _ended(
    differences: Values, margin: float, alpha: float, turn: int, centred: bool, once: bool, plugged: bool
) -> Ended:
    room, total = np.zeros(1), differences.shape[1]
    if centred:
        turns = differences.shape[1] // turn
        draws = differences[:, : turns * turn].reshape(-1, turns, turn)
        sums, squares = (np.cumsum(one, axis=1) - one for one in (draws, draws**2))
        off = centre(sums, squares, np.arange(turns)[:, None])
        room = np.repeat(np.abs(off).max(axis=2), turn, axis=1) / 2
        differences = (draws - off).reshape(len(draws), -1)
    shares, enough = (differences + 1) / 2, math.log(2 / alpha)

    sums, begun = np.cumsum(differences, axis=1), np.arange(total) // turn * turn
    ends = np.arange(turn, total + 1, turn)

    def refuted(mean: float, up: bool) -> Values:
        guess = (mean + 1) / 2
        if plugged:
            return plugged_in(shares, guess, up=up) >= enough
        if not once:
            return capital(shares, guess, up=up, turn=turn, room=room) >= enough
        after = left(mean, sums[:, ends - 1], ends, total)
        sure = np.logical_or.accumulate(after < -1 - 1e-9 if up else after > 1 + 1e-9, axis=1)
        still = (left(mean, np.where(begun, sums[:, begun - 1], 0.0), begun, total) + 1) / 2
        return sure | (capital(shares, still, up=up, turn=turn) >= enough)

    equal = refuted(-margin, True) & refuted(margin, False)
    above, below = refuted(0.0, True), refuted(0.0, False)
    known = equal | above | below
    at = known.argmax(axis=1)
    rows = np.arange(len(differences))
    said = np.select([equal[rows, at], above[rows, at], below[rows, at]], ["equal", "above", "below"], "undecided")
    return Ended(draws=np.where(known.any(axis=1), (at + 1.0) * turn, math.inf), answer=said)


def plugged_in(shares: Values, guess: float, *, up: bool) -> Values:
    """Log of the most that fixed bets with a half of the capital, and one that is learnt with the other, have made.

    The latter is what would have grown the most with draws of the mean x and the variance v seen so far, (x - guess) /
    (v + (x - guess)^2), up to 95 % of what can be staked (Waudby-Smith and Ramdas 2024, appendix B.3).
    """
    values, least = (shares, guess) if up else (1 - shares, 1 - guess)
    counts = np.arange(1, values.shape[1] + 1)
    means = (0.5 + np.cumsum(values, axis=1)) / (counts + 1)
    spreads = (0.25 + np.cumsum((values - means) ** 2, axis=1)) / (counts + 1)
    bets = np.clip((means - least) / (spreads + (means - least) ** 2), 0.0, 0.95 / least)
    # Of the draws before this one.
    bets = np.concatenate([np.zeros((len(values), 1)), bets[:, :-1]], axis=1)
    learnt = np.cumsum(np.log1p(bets * (values - least)), axis=1)
    fixed = mixed(np.cumsum(log_gains(shares, guess, up=up), axis=-1))
    return np.asarray(np.maximum.accumulate(np.logaddexp(fixed, learnt) - math.log(2), axis=1))


def fixed_size(differences: Values, turn: int, power: float = POWER) -> float:
    """The draws with which Student's interval, looked at once, is above 0 in this share of studies; inf if in none."""
    from scipy.special import stdtrit

    turns = differences[:, : differences.shape[1] // turn * turn].reshape(len(differences), -1, turn).mean(axis=2)
    counts = np.arange(1, turns.shape[1] + 1)
    means = np.cumsum(turns, axis=1) / counts
    squares = np.cumsum(turns**2, axis=1) / counts - means**2
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.sqrt(np.maximum(squares, 0) / (counts - 1))
        found = (means - stdtrit(np.maximum(counts - 1, 1), 1 - ALPHA / 2) * errors > 0)[:, 2:].mean(axis=0)
    return float((np.argmax(found >= power) + 3) * turn) if (found >= power).any() else math.inf


def percent(hits: Values) -> str:
    """A share."""
    return f"{100 * float(np.mean(hits)):.1f}"


def number(value: float) -> str:
    """A count of draws."""
    return f"{value:,.0f}" if math.isfinite(value) else f"> {LOOKS:,}"


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


# ---- Two agents


def pair(shape: Shape, difference: float, studies: int) -> Values:
    """Differences of two agents whose means differ so, shape (studies, draws)."""
    draws = generator("pairs", shape.name, str(difference))
    scores = shape.draw(draws, studies, LOOKS, np.array([0.0, difference]))
    return scores[:, 1] - scores[:, 0]


def pair_row(shape: Shape, studies: int) -> list[str]:
    """Wrong answers, then what a difference of `APART` costs."""
    wrong = [
        ended(pair(shape, d, studies), turn=shape.turn, centred=shape.centred).wrong(d, MARGIN) for d in (0.0, MARGIN)
    ]
    differences = pair(shape, APART, studies)
    found = ended(differences, turn=shape.turn, centred=shape.centred)
    costs = np.minimum(found.draws, LOOKS)
    return [
        shape.name,
        *map(percent, wrong),
        percent(found.answer == "above"),
        number(float(np.quantile(found.draws, 0.5, method="higher"))),
        number(float(costs.mean())),
        number(float(np.quantile(found.draws, POWER, method="higher"))),
        number(fixed_size(differences, shape.turn)),
    ]


def pairs_table(studies: int) -> str:
    """Two agents."""
    head = (
        "scores",
        "wrong if alike, %",
        "wrong if 2 points apart, %",
        "5 points: right, %",
        "median pairs",
        "mean pairs",
        "pairs for 90 %",
        "fixed n for 90 %",
    )
    return table(head, (pair_row(shape, studies) for shape in SHAPES))


def leaning_row(shape: Shape, difference: float, studies: int) -> list[str]:
    """What runs show when they answer `above`, which a true difference is."""
    differences = pair(shape, difference, studies)
    found = ended(differences, turn=shape.turn, centred=shape.centred)
    above = np.flatnonzero(found.answer == "above")
    shown, intervals = [], []
    for study in above:
        shares = (differences[study, : int(found.draws[study])] + 1) / 2
        shown.append(200 * shares.mean() - 100)
        intervals.append(np.array(sequence(shares, shares, shape.turn)) * 200 - 100)
    low, high = np.array(intervals).T
    holds = (low <= 100 * difference) & (100 * difference <= high)
    return [
        shape.name,
        f"{100 * difference:g}",
        percent(found.answer == "above"),
        f"{np.mean(shown):.1f}",
        f"{low.mean():.1f} to {high.mean():.1f}",
        percent(holds),
    ]


def leaning_table(studies: int) -> str:
    """How far a mean at a stop leans outward."""
    head = ("scores", "points apart", "`above`, %", "shown, points", "interval, points", "of these right, %")
    chosen = [shape for shape in SHAPES if shape.name in LEANING]
    return table(head, (leaning_row(shape, d, studies) for shape in chosen for d in (0.01, 0.02, 0.05, 0.1)))


# ---- Eight agents


def eight_row(shape: Shape, studies: int) -> list[str]:
    """How often any of 28 answers about eight like agents is wrong."""
    scores = shape.draw(generator("eight", shape.name), studies, LOOKS, np.zeros(AGENTS))
    wrong = np.zeros(studies, bool)
    for first, second in PAIRS:
        found = ended(
            scores[:, second] - scores[:, first], alpha=ALPHA / len(PAIRS), turn=shape.turn, centred=shape.centred
        )
        wrong |= found.wrong(0.0, MARGIN)
    return [shape.name, percent(wrong)]


def eight_table(studies: int) -> str:
    """Eight agents that are alike."""
    return table(("scores", "any answer wrong, %"), (eight_row(shape, studies) for shape in SHAPES))


# ---- This suite

SUITE_LOOKS = 3 * LOOKS


def suite(instances: int, between: float, within: float) -> Callable[[np.random.Generator, int, float], Values]:
    """Differences of one suite's instances, turn after turn: apart by `between` (from end to end), each by `within`."""

    def draw(draws: np.random.Generator, studies: int, difference: float) -> Values:
        own = draws.permuted(np.tile(np.linspace(-between / 2, between / 2, instances), (studies, 1)), axis=1)
        turns = SUITE_LOOKS // instances
        return np.asarray(np.tile(own, turns) + difference + draws.normal(0, within, (studies, turns * instances)))

    return draw


def solved(instances: int, a: float, b: float) -> Callable[[np.random.Generator, int, float], Values]:
    """Of answers of yes and no: chances are Beta(a, b) by instance, the second agent's the same in another order."""

    def draw(draws: np.random.Generator, studies: int, difference: float) -> Values:
        chance, turns = 0.9 * draws.beta(a, b, (studies, instances)), SUITE_LOOKS // instances
        first, second = np.tile(chance, turns), np.tile(draws.permuted(chance, axis=1) + difference, turns)
        return (draws.random(first.shape) < second) * 1.0 - (draws.random(first.shape) < first)

    return draw


SUITES: Mapping[str, tuple[Callable[[np.random.Generator, int, float], Values], int]] = {
    "12 instances, apart by 90 points, greedy": (suite(12, 0.9, 0.0), 12),
    "12 instances, apart by 90 points, each ± 10": (suite(12, 0.9, 0.1), 12),
    "36 instances, apart by 90 points, each ± 10": (suite(36, 0.9, 0.1), 36),
    "12 instances, yes or no, Beta(0.3, 0.3)": (solved(12, 0.3, 0.3), 12),
    "12 instances, yes or no, Beta(8, 8)": (solved(12, 8, 8), 12),
    "50 instances, all alike, each ± 20": (suite(50, 0.0, 0.2), 50),
}


def suite_row(name: str, studies: int) -> list[str]:
    """With and without what earlier turns say of single instances."""
    draw, turn = SUITES[name]
    cells = [name]
    for difference in (0.0, APART):
        values = np.clip(draw(generator("suite", name, str(difference)), studies, difference), -1, 1)
        found = [ended(values, turn=turn, centred=centred) for centred in (False, True)]
        cells += [] if difference else [percent(one.wrong(0.0, MARGIN)) for one in found]
        halves = (float(np.quantile(one.draws, 0.5, method="higher")) for one in found)
        cells += [f"{half:,.0f}" if math.isfinite(half) else f"> {SUITE_LOOKS:,}" for half in halves]
    return cells


def suite_table(studies: int) -> str:
    """Questions about one suite."""
    head = ("differences", "wrong if alike, %", "centred", "alike, median", "centred", "5 points", "centred")
    return table(head, (suite_row(name, studies) for name in SUITES))


# ---- This suite once

SUITE_SIZE = 200
"""Of the suites in the table by scores: as many whole turns as fit."""
SIZES = (12, 36, 100, 400)


def exactly(differences: Values, mean: float, draws: np.random.Generator) -> Values:
    """Suites whose means are just `mean`: graded differences are moved, of yes and no some pairs are changed."""
    if not np.isin(differences, (-1.0, 0.0, 1.0)).all():
        moved = differences
        for _ in range(50):  # what is cut at the ends is made up for by the others
            moved = np.clip(moved + mean - moved.mean(axis=1, keepdims=True), -1, 1)
        return moved
    found = differences.copy()
    for one in found:
        while surplus := round(float(one.sum()) - mean * len(one)):
            way = math.copysign(1.0, surplus)
            one[draws.choice(np.flatnonzero(one > -1 if way > 0 else one < 1))] -= way
    return found


def once_row(shape: Shape, studies: int) -> list[str]:
    """Wrong answers about suites whose means are at what an answer depends on, then what `APART` costs."""
    size = SUITE_SIZE // shape.turn * shape.turn
    draws, found = generator("once", shape.name), []
    for mean in (0.0, MARGIN, APART):
        scores = shape.draw(draws, studies, size, np.array([0.0, mean]))
        found.append(ended(exactly(scores[:, 1] - scores[:, 0], mean, draws), turn=shape.turn, once=True))
    alike, apart, far = found
    # A mean that is just the margin apart is as well called above as equal: moved by rounding, it may be either.
    wrong = [alike.wrong(0.0, MARGIN) & (alike.draws < size), apart.wrong(MARGIN, MARGIN) & (apart.draws < size)]
    halves = (number(float(np.quantile(one.draws, 0.5, method="higher"))) for one in (alike, far))
    return [shape.name, *map(percent, wrong), percent(far.answer == "above"), *halves, percent(far.draws < size)]


def once_table(studies: int) -> str:
    """One suite, each instance once."""
    head = (
        *("scores", "wrong if alike, %", "wrong if 2 points apart, %", "5 points: right, %"),
        *("alike, median", "5 points, median", "before the end, %"),
    )
    rows = (once_row(shape, studies) for shape in SHAPES if not shape.centred and shape.draw is not permuted)
    return table(head, rows)


def sizes_rows(studies: int) -> Iterator[Sequence[str]]:
    """Small suites, with both scopes and the forecast."""
    for size in SIZES:
        for kind, spread in (("graded, ± 25", 0.25), ("yes or no, 30 % differ", math.sqrt(0.3))):
            for difference in (0.0, 0.05, 0.1, 0.2):
                draws = generator("sizes", str(size), kind, str(difference))
                if kind.startswith("graded"):
                    values = np.clip(draws.normal(difference, spread, (studies, size)), -1, 1)
                else:
                    supposed = yes_no_pairs(difference, 0.3)
                    values = draws.choice(np.array(supposed.values), p=supposed.weights, size=(studies, size))
                such, once = ended(values), ended(values, once=True)
                means = values.mean(axis=1)
                wrong = [once.wrong(float(mean), MARGIN)[i] for i, mean in enumerate(means)]
                said = reach(graded_pairs(difference, spread), margin=MARGIN, alpha=ALPHA, total=size)
                yield [
                    f"{size} instances, {kind}",
                    f"{100 * difference:g}",
                    percent(such.answer != "undecided"),
                    percent(once.draws < size),
                    f"{np.median(once.draws):.0f}",
                    f"{said.half:.0f}",
                    percent(np.array(wrong) & (once.draws < size)),
                ]


def sizes_table(studies: int) -> str:
    """Small suites."""
    head = (
        *("suite", "points apart", "such instances: answered, %", "this suite: before the end, %"),
        *("median instances", "forecast", "wrong, %"),
    )
    return table(head, sizes_rows(studies))


# ---- Other bets


def bets_row(shape: Shape, studies: int) -> list[str]:
    """Fixed bets beside half of the capital on one that is learnt: mean draws, of `LOOKS` at most."""
    cells = [shape.name]
    for difference in (0.0, MARGIN, APART):
        differences = pair(shape, difference, studies)
        fixed, half = (ended(differences, plugged=plugged) for plugged in (False, True))
        if not difference:
            cells.append(percent(half.wrong(difference, MARGIN)))
        cells += [number(float(np.minimum(one.draws, LOOKS).mean())) for one in (fixed, half)]
    return cells


def bets_table(studies: int) -> str:
    """Fixed bets beside learnt ones."""
    head = (
        *("scores", "wrong if alike, half learnt, %", "alike: fixed", "half learnt", "2 points: fixed", "half learnt"),
        *("5 points: fixed", "half learnt"),
    )
    return table(head, (bets_row(shape, studies) for shape in SHAPES if shape.turn == 1))


# ---- What is forecast


def forecast_rows(studies: int) -> Iterator[Sequence[str]]:
    """Forecasts of `evalkit.stats.deciding` beside simulated runs."""
    for name, suppose, size in (
        ("graded, 13 points", graded_pairs, 0.13),
        ("yes or no, 34 % differ", yes_no_pairs, 0.34),
    ):
        for difference in (0.0, 0.01, 0.02, 0.05, 0.1):
            supposed = suppose(difference, size)
            said = reach(supposed, margin=MARGIN, alpha=ALPHA)
            most = int(min(1.5 * said.nine_tenths, 30_000.0)) + 20
            shape = (max(40, studies * 2000 // most) if most > 2000 else studies, most)
            draws = generator("forecast", name, str(difference))
            found = ended(draws.choice(np.array(supposed.values), p=supposed.weights, size=shape))
            half, nine = (float(np.quantile(found.draws, share, method="higher")) for share in (0.5, 0.9))
            yield [
                name,
                f"{100 * difference:g}",
                *(
                    f"{one:,.0f}" if math.isfinite(one) else "longer"
                    for one in (said.half, half, said.nine_tenths, nine)
                ),
            ]


def forecast_table(studies: int) -> str:
    """Forecast beside simulation."""
    head = ("pairs", "points apart", "half, forecast", "simulated", "90 %, forecast", "simulated")
    return table(head, forecast_rows(studies))


# ---- Lanes of unequal speed


def lanes_rows(studies: int) -> Iterator[Sequence[str]]:
    """Eight agents 5 points apart, graded: what is played by how far a fast one may be ahead."""
    most, lead = 2 * LOOKS, APART * np.arange(AGENTS) - APART * (AGENTS - 1) / 2
    draws, known = generator("lanes"), np.full((studies, AGENTS, AGENTS), math.inf)
    for i in range(0, studies, AT_ONCE):
        scores = graded(draws, min(AT_ONCE, studies - i), most, lead)
        for first, second in PAIRS:
            found = ended(scores[:, second] - scores[:, first], alpha=ALPHA / len(PAIRS)).draws
            known[i : i + AT_ONCE, first, second] = known[i : i + AT_ONCE, second, first] = found
    for name in SPEEDS:
        for ahead in (math.inf, AHEAD):
            lengths = generator("lengths", name)
            runs = [
                played(at, speeds(name, lengths), lengths, ahead=ahead, most=most, ends=ENDS.get(name, math.inf))
                for at in known
            ]
            yield [
                name,
                "any" if math.isinf(ahead) else str(ahead),
                f"{np.mean([run.begun.sum() for run in runs]):,.0f}",
                f"{np.mean([run.time for run in runs]):,.0f}",
                percent(np.array([1 - run.open / len(PAIRS) for run in runs])),
            ]


def lanes_table(studies: int) -> str:
    """How far ahead."""
    head = ("seconds of an episode", "ahead", "episodes", "time", "answered, %")
    return table(head, lanes_rows(studies))


# ---- The hour


SLOWER, LASTS = 5, 500
"""How many times longer the second agent's draws take, and how many of the first one's draws an effect lasts."""


def effects(draws: np.random.Generator, studies: int, times: Values, points: float) -> Values:
    """An effect of the hour at these times, in draws of the first agent: stationary, with a correlation that falls to
    1 / e within `LASTS`; shape (studies, times)."""
    kept = np.exp(-np.diff(times) / LASTS)
    found = np.empty((studies, len(times)))
    found[:, 0] = draws.normal(0, points, studies)
    for i, keep in enumerate(kept):
        found[:, i + 1] = keep * found[:, i] + draws.normal(0, points * math.sqrt(1 - keep**2), studies)
    return found


def hour_row(name: str, points: float, own: bool, ahead: float, studies: int) -> list[str]:
    """How often like agents are called different: `own`: each has an effect of its own; else both have one."""
    draws, places = generator("hour", name, str(points), str(ahead)), np.arange(LOOKS)
    slow = SLOWER * places
    fast = np.maximum(places, SLOWER * (places - min(ahead, LOOKS)))
    differences = draws.normal(0, 0.13, (studies, LOOKS))
    if own:
        differences += draws.normal(0, points * math.sqrt(2) / 100, (studies, 1))
    else:
        times, where = np.unique(np.concatenate([slow, fast]), return_inverse=True)
        both = effects(draws, studies, times, points / 100)[:, where]
        differences += both[:, :LOOKS] - both[:, LOOKS:]
    found = ended(np.clip(differences, -1, 1))
    said = "any" if math.isinf(ahead) else str(int(ahead))
    return [name, f"{points:g}", said, percent((found.answer == "above") | (found.answer == "below"))]


def hour_table(studies: int) -> str:
    """What changes with the hour."""
    head = ("what changes", "points", "ahead", "like agents called different, %")
    rows = [
        *[("one effect a run, each agent its own", points, True, math.inf) for points in (1.0, 2.0)],
        *[
            ("one effect of both that changes", points, False, ahead)
            for points in (2.0, 5.0)
            for ahead in (math.inf, AHEAD)
        ],
    ]
    return table(head, (hour_row(*row, studies) for row in rows))


# ---- The ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What one way of ranking took: each of shape (studies,)."""

    answers: Values
    """Of the 28 pairs."""
    wrong: Values
    episodes: Values
    usd: Values

    def shown(self, name: str, way: str) -> list[str]:
        """A row. Dollars are spent on wrong answers as far as these are a part of all."""
        spent_wrongly = self.usd * self.wrong / np.maximum(self.answers, 1)
        return [
            name,
            way,
            percent(self.answers / len(PAIRS)),
            f"{self.episodes.mean():,.0f}",
            f"{self.usd.mean():,.0f}",
            percent(self.wrong > 0),
            f"{spent_wrongly.mean():.2f}",
        ]


def prices() -> Values:
    """Dollars of an episode, by model."""
    found = []
    for provider, name in MODELS:
        price = find_model(read_provider(provider), name).price
        if price is None:
            raise ValueError(f"{name} has no price")
        found.append((price.input * TOKENS_IN + price.output * TOKENS_OUT) * 1e-12)
    return np.array(found)


def rankings(draw: Draw, strengths: Sequence[float], spread: float, studies: int) -> Mapping[str, Design]:
    """The same scores, ranked by each design."""
    lead = np.array(strengths) - float(np.mean(strengths))
    scores = draw(generator("ranking", repr(strengths), str(spread)), studies, INSTANCES, lead)
    alpha, usd = ALPHA / len(PAIRS), prices()
    planned = min(INSTANCES, _planned(spread, alpha))
    sizes = np.unique(np.append(np.geomspace(30, INSTANCES, 80).astype(int), planned))
    known = np.full((studies, AGENTS, AGENTS), math.inf)
    wrong, answers = np.zeros(studies), np.zeros(studies)
    wrong_at, answers_at = np.zeros((2, len(sizes), studies))
    for first, second in PAIRS:
        differences = scores[:, second] - scores[:, first]
        true = strengths[second] - strengths[first]
        found = ended(differences, alpha=alpha)
        known[:, first, second] = known[:, second, first] = found.draws
        wrong += found.wrong(true, MARGIN)
        answers += found.answer != "undecided"
        for place, once in enumerate(at_once(differences, sizes, alpha)):
            wrong_at[place] += once.wrong(true, MARGIN)
            answers_at[place] += once.answer != "undecided"
    lengths = generator("lengths", repr(strengths), str(spread))
    when = np.array([played(at, speeds(UNEQUAL, lengths), lengths, ahead=AHEAD, most=INSTANCES).begun for at in known])
    stopping = Design(answers=answers, wrong=wrong, episodes=when.sum(axis=1), usd=when @ usd)

    def fixed(place: int) -> Design:
        n = np.full(studies, float(sizes[place]))
        return Design(answers=answers_at[place], wrong=wrong_at[place], episodes=n * AGENTS, usd=n * float(usd.sum()))

    as_many = answers_at.mean(axis=1) >= answers.mean()
    designs = {"stopping": stopping, "fixed, planned": fixed(int(np.searchsorted(sizes, planned)))}
    return {**designs, "fixed, in hindsight": fixed(int(as_many.argmax()))} if as_many.any() else designs


def _planned(spread: float, alpha: float) -> int:
    """The size at which a normal interval is half the margin to each side: whatever the difference, it then leaves out
    0 or lies within the margin."""
    from scipy.special import ndtri

    return math.ceil((float(ndtri(1 - alpha / 2)) * spread / (MARGIN / 2)) ** 2)


def at_once(differences: Values, sizes: Values, alpha: float) -> Iterator[Ended]:
    """What a normal interval of the first draws says, for each size as if it alone were looked at."""
    from scipy.special import ndtri

    sums, squares = np.cumsum(differences, axis=1), np.cumsum(differences**2, axis=1)
    for n in sizes:
        means = sums[:, n - 1] / n
        errors = np.sqrt(np.maximum(0, squares[:, n - 1] / n - means**2) / (n - 1))
        low, high = means - float(ndtri(1 - alpha / 2)) * errors, means + float(ndtri(1 - alpha / 2)) * errors
        equal = (low >= -MARGIN) & (high <= MARGIN)
        said = np.select([equal, low > 0, high < 0], ["equal", "above", "below"], "undecided")
        yield Ended(draws=np.full(len(differences), float(n)), answer=said)


def ranking_rows(studies: int) -> Iterator[Sequence[str]]:
    """Each supposition, by each design."""
    for kind, draw, spread in (
        ("graded", graded, math.sqrt(2) * 0.16 / math.sqrt(3)),
        ("yes or no, alike on half", yes_no_alike, math.sqrt(0.5 * 2 * 0.7 * 0.3)),
    ):
        for name, strengths in STRENGTHS.items():
            if kind == "graded" or name == WIDE:
                for way, design in rankings(draw, strengths, spread, studies).items():
                    yield design.shown(f"{kind}; {name}", way)


def ranking_table(studies: int) -> str:
    """Eight models ranked."""
    head = ("scores", "design", "answered, %", "episodes", "USD", "any wrong, %", "USD on wrong answers")
    return table(head, ranking_rows(studies))


TABLES: Mapping[str, Callable[[int], str]] = {
    "pairs": pairs_table,
    "leaning": leaning_table,
    "eight": eight_table,
    "forecast": forecast_table,
    "lanes": lanes_table,
    "hour": hour_table,
    "suite": suite_table,
    "once": once_table,
    "sizes": sizes_table,
    "bets": bets_table,
    "ranking": ranking_table,
}

_MARKED = '[//]: # "deciding: {}, {} studies"\n\n'


def _place(text: str, name: str) -> re.Match[str]:
    """A table below its mark. Raises ValueError where there is no such mark, or another."""
    mark = r'^\[//\]: # "deciding: ' + name + r', (?P<studies>\d+) studies"\n\n(?P<table>(\|.*\n)*)'
    found = list(re.finditer(mark, text, re.MULTILINE))
    if len(found) != 1:
        raise ValueError(f"the page needs one place for the table {name}")
    return found[0]


def placed(text: str, name: str, studies: int, made: str) -> str:
    """The page with a table below its mark. Raises ValueError where there is no such mark."""
    place = _place(text, name)
    # Without an empty line what follows would be a row.
    return text[: place.start()] + _MARKED.format(name, studies) + made + "\n" + text[place.end() :].lstrip("\n")


def cells(text: str, name: str) -> tuple[int, list[list[str]]]:
    """(studies, the rows without the head) of a table in its page. Raises ValueError where there is no such mark."""
    place = _place(text, name)
    lines = place["table"].splitlines()[2:]
    return int(place["studies"]), [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def main(
    arguments: Sequence[str] | None = None,
    *,
    tables: Mapping[str, Callable[[int], str]] = TABLES,
    usual: Mapping[str, int] = STUDIES,
    page: Path = PAGE,
) -> int:
    """Print the tables, or write them into their page. `usual`: studies by table."""
    reader = argparse.ArgumentParser(description="Simulate comparisons that stop when they are answered.")
    reader.add_argument("tables", nargs="*", choices=[*tables, []], help="which (default: all)")
    reader.add_argument("--studies", type=int, help="studies of each row (default: as many as the page has)")
    reader.add_argument("--write", action="store_true", help=f"write them into docs/{page.name}")
    asked = reader.parse_args(arguments)
    for name in asked.tables or tables:
        studies = asked.studies or usual[name]
        made = tables[name](studies)
        print(f"{name}, {studies} studies\n\n{made}", flush=True)
        if asked.write:
            text = page.read_text(encoding="utf-8")
            page.write_text(placed(text, name, studies, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
