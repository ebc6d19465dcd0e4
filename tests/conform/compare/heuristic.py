"""Golden rows of the naive heuristic: averages over repetitions, which other draws can only meet within a bound.

The bound is four standard errors of the difference: for the mean score from the golden deviation between repetitions,
for the other figures, whose deviations are not recorded, from ours. A figure that did not vary must be met exactly.
The heuristic is played on the market alone, with the reference's feedback; that the policy of the same name does the
same through the environment is what the forced walks show.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev

from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.scheduling.instance import REFERENCE_SEEDS
from evalkit.envs.scheduling.market import blocking_pairs, expected_blocking
from evalkit.seeds import Stream
from tests.conform.compare.goldens import GoldenVerdict, Row, differing
from tests.conform.compare.scheduling import Level, level

PERIODS = 100
REPETITIONS = 20
STANDARD_ERRORS = 4.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One play of the heuristic on one instance."""

    score: float
    """Of the last assignment; 1 is stable."""
    best: float
    """Of the best assignment."""
    periods: int
    solved: bool


def heuristic(row: Row, data: Path | None) -> GoldenVerdict:
    """One row: a difficulty, and whether the walks start from the identity or at random."""
    del data
    repetitions = played(row["difficulty"], row["start"])
    figures: dict[str, Callable[[Walk], float]] = {
        "mean_score": lambda walk: 100 * walk.score,
        "mean_best_score": lambda walk: 100 * walk.best,
        "frac_solved": lambda walk: float(walk.solved),
        "mean_periods": lambda walk: float(walk.periods),
    }
    said = []
    for name, of in figures.items():
        ours = [fmean(of(walk) for walk in repetition) for repetition in repetitions]
        deviation = row["sd_between_reps"] if name == "mean_score" else stdev(ours)
        bound = STANDARD_ERRORS * deviation * math.sqrt(1 / row["reps"] + 1 / len(ours)) + _ROUNDING
        said.append(f"{name} {row[name]:.6g}, ours {fmean(ours):.6g} (bound {bound:.2g})")
        if not abs(row[name] - fmean(ours)) <= bound:
            return differing(f"{said[-1]}: too far apart")
    return GoldenVerdict(status="statistical", detail="; ".join(said))


@lru_cache(maxsize=8)
def played(difficulty: str, start: str) -> tuple[tuple[Walk, ...], ...]:
    """Our repetitions, each over the reference's twelve instances. Raises ValueError for an unknown start."""
    if start not in ("identity", "random"):
        raise ValueError(f"there is no start {start!r}")
    levels = [level(difficulty, seed) for seed in REFERENCE_SEEDS]
    return tuple(
        tuple(walk(at, start, Stream(at.seed, "conform", start, repetition)) for at in levels)
        for repetition in range(REPETITIONS)
    )


def walk(at: Level, start: str, draws: Stream) -> Walk:
    """Submit, repair a random one of the pairs shown, and again, until nothing blocks or 100 periods have passed.

    Feedback is the reference's: all pairs if they are few, otherwise k of them by the instance's own generator, and
    the same ones for an assignment that was submitted before.
    """
    feedback = RandomStateStream(at.after)
    shown: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    matching = draws.permutation(at.n) if start == "random" else list(range(at.n))
    counts: list[int] = []
    while len(counts) < PERIODS:
        pairs = blocking_pairs(at.market, matching)
        counts.append(len(pairs))
        if not pairs:
            break
        if tuple(matching) not in shown:
            few = pairs if len(pairs) <= at.k else [pairs[i] for i in feedback.sample(len(pairs), at.k)]
            shown[tuple(matching)] = few
        told = shown[tuple(matching)]
        worker, task = told[draws.below(len(told))]
        holder = matching.index(task)
        matching[worker], matching[holder] = task, matching[worker]
    expected = float(expected_blocking(at.market))
    return Walk(
        score=1 - counts[-1] / expected,
        best=1 - min(counts) / expected,
        periods=len(counts),
        solved=counts[-1] == 0,
    )
