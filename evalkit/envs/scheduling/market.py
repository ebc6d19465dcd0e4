"""A two-sided market and what is exactly true of it: blocking pairs, their expected number, a stable matching.

A matching is the task of each worker: `matching[w] == t`, a permutation of 0..n-1. A pair (w, t) blocks it if w would
rather have t than its own task, and t would rather have w than its own worker. Ranks count from 0, 0 is best.

numpy is imported where it is used: whoever only lists environments does not pay for it.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from evalkit.compiled import Kernels

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ranks = npt.NDArray[np.int16]
    Places = npt.NDArray[np.int64]

COMPILED_N = 200
"""Workers from which on the compiled kernels serve."""
KERNELS = Kernels("evalkit.envs.scheduling.kernels", after=2_000)

MOST_N = 2000
"""Workers (and tasks) at most: an assignment of more would not fit the bound on a tool call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchedulingMarket:
    """The preferences of n workers over n tasks and of the tasks over the workers. Its arrays are read-only."""

    n: int
    worker_rank: "Ranks"
    """(n, n) [w, t]: place of t in w's list."""
    task_rank_t: "Ranks"
    """(n, n) [w, t]: place of w in t's list. Transposed, so that a worker's row is contiguous in both tables."""
    digest: str
    """Hex digest of both tables."""
    numerator: int
    """The sum in the expected number of blocking pairs; see `expected_blocking`."""

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers' ids, in order."""
        return worker_ids(self.n)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' ids, in order."""
        return task_ids(self.n)


@lru_cache(maxsize=64)
def worker_ids(n: int) -> tuple[str, ...]:
    """`W1` to `Wn`."""
    return tuple(f"W{i}" for i in range(1, n + 1))


@lru_cache(maxsize=64)
def task_ids(n: int) -> tuple[str, ...]:
    """`T1` to `Tn`."""
    return tuple(f"T{i}" for i in range(1, n + 1))


def make_market(
    worker_prefs: "Sequence[Sequence[int]] | Places", task_prefs: "Sequence[Sequence[int]] | Places"
) -> SchedulingMarket:
    """A market from preference lists, best first: (n, n) tasks by worker, (n, n) workers by task.

    Raises ValueError if a row is not a permutation of 0..n-1, or the two sides differ in size.
    """
    import numpy as np

    by_worker, by_task = _ranks(worker_prefs), _ranks(task_prefs)
    if by_worker.shape != by_task.shape:
        raise ValueError("both sides must have the same number of members")
    task_rank_t = np.ascontiguousarray(by_task.T)
    for table in (by_worker, task_rank_t):
        table.setflags(write=False)
    n = len(by_worker)
    tables = by_worker.astype("<i2").tobytes() + task_rank_t.astype("<i2").tobytes()
    return SchedulingMarket(
        n=n,
        worker_rank=by_worker,
        task_rank_t=task_rank_t,
        digest=hashlib.sha256(n.to_bytes(4, "little") + tables).hexdigest()[:32],
        numerator=expected_numerator(by_worker, task_rank_t),
    )


def _ranks(prefs: "Sequence[Sequence[int]] | Places") -> "Ranks":
    import numpy as np

    lists = np.asarray(prefs, dtype=np.int64)
    n = len(lists)
    if lists.shape != (n, n) or n == 0 or not (np.sort(lists, axis=1) == np.arange(n)).all():
        raise ValueError("every preference list must hold each of 0..n-1 once")
    ranks = np.empty((n, n), np.int16)
    np.put_along_axis(ranks, lists, np.arange(n, dtype=np.int16)[None, :], axis=1)
    return ranks


def expected_numerator(worker_rank: "Ranks", task_rank_t: "Ranks") -> int:
    """Sum over all pairs (w, t) of (tasks w likes less than t) * (workers t likes less than w), exactly."""
    import numpy as np

    last = np.int16(len(worker_rank) - 1)
    return int(np.multiply(last - worker_rank, last - task_rank_t, dtype=np.int64).sum())


def expected_blocking(market: SchedulingMarket) -> Fraction:
    """Expected number of blocking pairs of a uniformly random matching, exactly: numerator / (n (n - 1)); 0 for n = 1.

    Why: for t' != t and w' != w, (n-2)! of the n! matchings give t' to w and t to w', so each such (t', w') has
    probability 1 / (n (n-1)). (w, t) blocks if and only if t' is worse than t for w, and w' worse than w for t.
    Differs: the reference estimates this with 10,000 random matchings.
    """
    return Fraction(market.numerator, expected_denominator(market.n))


def expected_denominator(n: int) -> int:
    """n (n - 1), and 1 where there is one matching only."""
    return n * (n - 1) or 1


class BlockingPairs:
    """The blocking pairs of a matching, numbered by worker, then by task. They are many, and few are ever looked at."""

    __slots__ = ("_find", "_n", "count")

    def __init__(self, n: int, count: int, find: "Callable[[Places], Places]") -> None:
        """find: numbers of pairs, as w * n + t."""
        self.count, self._n, self._find = count, n, find

    def pairs(self, chosen: Iterable[int]) -> list[tuple[int, int]]:
        """The pairs (w, t) of these numbers."""
        import numpy as np

        flat = self._find(np.array(list(chosen), np.int64))
        return [divmod(number, self._n) for number in flat.tolist()]


def blocking(market: SchedulingMarket, matching: Sequence[int]) -> BlockingPairs:
    """The blocking pairs of a matching, of a large one by the compiled kernels once they are ready."""
    import numpy as np

    kernels = KERNELS.ready() if market.n >= COMPILED_N else None
    if kernels is None:
        places = _blocks(market, matching).ravel().nonzero()[0]
        return BlockingPairs(market.n, len(places), places.__getitem__)
    tasks = np.array(matching, np.int64)
    tables = market.worker_rank, market.task_rank_t, np.empty(market.n, np.int16), np.empty(market.n, np.int16)

    def find(chosen: "Places") -> "Places":
        kernels.pick_blocking(chosen, tasks, *tables)
        return chosen

    return BlockingPairs(market.n, kernels.rows_blocking(tasks, *tables), find)


def blocking_pairs(market: SchedulingMarket, matching: Sequence[int]) -> list[tuple[int, int]]:
    """All blocking pairs (w, t), by worker, then by task."""
    import numpy as np

    workers, tasks = np.nonzero(_blocks(market, matching))
    return list(zip(workers.tolist(), tasks.tolist(), strict=True))


def _blocks(market: SchedulingMarket, matching: Sequence[int]) -> "npt.NDArray[np.bool_]":
    """(n, n) [w, t]: whether the pair blocks."""
    import numpy as np

    task_of = np.asarray(matching, dtype=np.intp)
    places = _row_places(market.n) + task_of
    held_rank = np.empty(market.n, np.int16)
    held_rank[task_of] = market.task_rank_t.take(places)
    return (market.worker_rank < market.worker_rank.take(places)[:, None]) & (market.task_rank_t < held_rank)


@lru_cache(maxsize=64)
def _row_places(n: int) -> "Places":
    """(n,) [w]: where row w of an (n, n) table begins."""
    import numpy as np

    return np.arange(0, n * n, n)


def stable_matching(market: SchedulingMarket) -> list[int]:
    """The stable matching that is best for every worker: workers propose, tasks keep the best so far.

    Source: Gale and Shapley (1962). At most n * n proposals.
    """
    import numpy as np

    wishes = np.argsort(market.worker_rank, axis=1).tolist()
    rank = market.task_rank_t.tolist()
    next_wish = [0] * market.n
    holder = [-1] * market.n
    free = list(range(market.n))
    while free:
        worker = free.pop()
        task = wishes[worker][next_wish[worker]]
        next_wish[worker] += 1
        rival = holder[task]
        if rival < 0 or rank[worker][task] < rank[rival][task]:
            holder[task] = worker
            worker = rival
        if worker >= 0:
            free.append(worker)
    matching = [0] * market.n
    for task, worker in enumerate(holder):
        matching[worker] = task
    return matching
