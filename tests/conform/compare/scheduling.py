"""Golden cases of scheduling that are about a market alone: instances, blocking pairs, denominators.

Not compared: timings, and the reference's bootstrap interval around its sampled denominators (its resampling is not
recorded); that the exact value lies in the interval is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.envs.mersenne import RandomStateSnapshot, RandomStateStream
from evalkit.envs.scheduling.instance import ALIKE, DIFFICULTIES, FAMILIES, family_of_seed, reference_market
from evalkit.envs.scheduling.market import (
    SchedulingMarket,
    blocking_pairs,
    expected_blocking,
    expected_denominator,
)
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, judged

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

SHIPPED_TRIALS = 10_000
"""Random matchings behind the reference's denominators, all from one stream with seed 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One reference instance."""

    name: str
    """`basic`, `medium` or `hard`."""
    seed: int
    n: int
    k: int
    """Blocking pairs shown at most."""
    market: SchedulingMarket
    after: RandomStateSnapshot
    """Where the reference's generator stands once the market is drawn."""


@lru_cache(maxsize=64)
def level(difficulty: str, seed: int) -> Level:
    """The reference's instance of a difficulty and seed. Raises ValueError for an unknown difficulty."""
    name = difficulty.lower()
    if name not in DIFFICULTIES:
        raise ValueError(f"there is no difficulty {difficulty!r}")
    n, k = DIFFICULTIES[name]
    market, after = reference_market(n, seed, FAMILIES[family_of_seed(seed)])
    return Level(name=name, seed=seed, n=n, k=k, market=market, after=after)


def of_row(row: Row) -> Level:
    """The instance a row is about; a row that names no difficulty is about basic."""
    return level(row.get("difficulty", "basic"), row["seed"])


def tasks_of_workers(market: SchedulingMarket, assignment: Mapping[str, str]) -> list[int]:
    """An assignment by ids as a matching by index. Raises KeyError or ValueError for what is no complete one."""
    index = {task: i for i, task in enumerate(market.tasks)}
    matching = [index[assignment[worker]] for worker in market.workers]
    if len(set(matching)) < market.n or len(assignment) != market.n:
        raise ValueError("the assignment does not give every worker a task of its own")
    return matching


def named(market: SchedulingMarket, pairs: list[tuple[int, int]]) -> list[list[str]]:
    """Pairs by ids, as golden files write them."""
    return [[market.workers[w], market.tasks[t]] for w, t in pairs]


def instances(row: Row, data: Path | None) -> GoldenVerdict:
    """Both sides' preference lists bit for bit, and the next draw after them."""
    del data
    at = of_row(row)
    gaps = FAMILIES[family_of_seed(at.seed)]
    ours = {
        "env": "scheduling",
        "difficulty": at.name.title(),
        "seed": at.seed,
        "n": at.n,
        "feedback_k": at.k,
        "score_gap_worker": None if gaps.worker == ALIKE else gaps.worker,
        "score_gap_task": None if gaps.task == ALIKE else gaps.task,
        "worker_ids": at.market.workers,
        "task_ids": at.market.tasks,
        "worker_prefs": _lists(at.market.worker_rank, at.market.workers, at.market.tasks),
        "task_prefs": _lists(at.market.task_rank_t.T, at.market.tasks, at.market.workers),
        "rng_probe_next_double": RandomStateStream(at.after).double(),
    }
    return judged(row, ours)


def matchings(row: Row, data: Path | None) -> GoldenVerdict:
    """The blocking pairs of one matching, in order."""
    del data
    at = of_row(row)
    matching = tasks_of_workers(at.market, row["matching"])
    pairs = blocking_pairs(at.market, matching)
    ours = {
        **row,
        "num_blocking": len(pairs),
        "blocking_pairs": named(at.market, pairs),
    }
    return judged(row, ours)


def baselines(row: Row, data: Path | None) -> GoldenVerdict:
    """The exact denominator as a fraction, and the reference's samples of it, draw for draw."""
    del data
    at = of_row(row)
    exact = expected_blocking(at.market)
    exactly = {
        "exact_numerator": at.market.numerator,
        "exact_denominator": expected_denominator(at.n),
        "exact_expectation": float(exact),
    }
    found = judged({key: row[key] for key in exactly}, exactly)
    if found != EQUAL:
        return found
    shipped = row["shipped_10000"]
    inside = shipped["confidence_interval_low"] <= exact <= shipped["confidence_interval_high"]
    if inside != row["exact_inside_shipped_ci"]:
        return differing(f"exact_inside_shipped_ci: golden {row['exact_inside_shipped_ci']}, ours {inside}")
    counts = sampled(at)
    samples = [
        ("shipped_10000", shipped["baseline_num_blocking_pairs"], None, SHIPPED_TRIALS),
        ("resampled", row.get("resampled_mean"), row.get("resampled_se"), row.get("resampled_trials", SHIPPED_TRIALS)),
        ("fast_10000", row.get("fast_10000_mean"), row.get("fast_10000_se"), SHIPPED_TRIALS),
    ]
    for what, mean, error, trials in samples:
        flaw = _sample_differs(counts[:trials], mean, error)
        if flaw:
            return differing(f"{what}: {flaw}")
    return EQUAL


@lru_cache(maxsize=64)
def _permutations(n: int) -> list[list[int]]:
    stream = RandomStateStream(0)
    return [stream.permutation(n) for _ in range(SHIPPED_TRIALS)]


def sampled(at: Level) -> "Ints":
    """Blocking pairs of the reference's 10,000 random matchings, shape (10000,)."""
    return _sampled(at.name, at.seed)


@lru_cache(maxsize=64)
def _sampled(name: str, seed: int) -> "Ints":
    """Several kinds of golden files have figures of one level."""
    import numpy as np

    at = level(name, seed)
    counts = np.array([len(blocking_pairs(at.market, matching)) for matching in _permutations(at.n)])
    counts.setflags(write=False)
    return counts


def _sample_differs(counts: "Ints", mean: float | None, error: float | None) -> str:
    if mean is not None and mean != float(counts.mean()):
        return f"mean: golden {mean!r}, ours {float(counts.mean())!r}"
    ours = float(counts.std(ddof=1)) / math.sqrt(len(counts))
    # The deviations' squares are summed in another order: the last digits of the sum are not the reference's.
    if error is not None and not math.isclose(error, ours, rel_tol=1e-9):
        return f"standard error: golden {error!r}, ours {ours!r}"
    return ""


def _lists(ranks: Any, who: tuple[str, ...], whom: tuple[str, ...]) -> dict[str, list[str]]:
    """Preference lists by id from ranks, shape (n, n): [who, whom]."""
    return {name: [whom[i] for i in row.argsort()] for name, row in zip(who, ranks, strict=True)}
