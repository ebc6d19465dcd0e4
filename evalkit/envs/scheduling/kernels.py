"""Compiled kernels for the matchings of a market. Callers check the arguments; kernels do not.

Only `batch.py`, for big jobs, and `evalkit/compiled.py` import this file: numba costs most of a second before its first
result.
Ranks stay 16 bits wide and so do the sums within a row: that is what lets a compiler compare many pairs at once.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from evalkit.compiled import keep_here

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Ranks = npt.NDArray[np.int16]
    Doubles = npt.NDArray[np.float64]


keep_here()


@njit(cache=True, nogil=True)
def rows_blocking(
    matching: "Ints", worker_rank: "Ranks", task_rank_t: "Ranks", held_rank: "Ranks", by_worker: "Ranks"
) -> int:
    """Number of blocking pairs of a matching; by_worker receives each worker's.

    matching     (n,)    task of worker w
    worker_rank  (n, n)  [w, t]: place of t in w's list, 0 is best
    task_rank_t  (n, n)  [w, t]: place of w in t's list
    held_rank    (n,)    scratch: place of t's worker in t's list
    by_worker    (n,)    out
    """
    n = matching.shape[0]
    for w in range(n):
        held_rank[matching[w]] = task_rank_t[w, matching[w]]
    total = 0
    for w in range(n):
        own = worker_rank[w, matching[w]]
        count: Any = np.int16(0)
        for t in range(n):
            count = np.int16(count + np.int16((worker_rank[w, t] < own) & (task_rank_t[w, t] < held_rank[t])))
        by_worker[w] = count
        total += count
    return total


@njit(cache=True, nogil=True)
def pick_blocking(
    chosen: "Ints", matching: "Ints", worker_rank: "Ranks", task_rank_t: "Ranks", held_rank: "Ranks", by_worker: "Ranks"
) -> None:
    """Blocking pairs by their numbers, counted by worker, then by task: each number becomes w * n + t.

    chosen                (k,)  in: numbers below what `rows_blocking` returned; out: the pairs
    held_rank, by_worker  (n,)  as `rows_blocking` has left them
    """
    n = matching.shape[0]
    for i in range(chosen.shape[0]):
        left = chosen[i]
        w = 0
        while left >= by_worker[w]:
            left -= by_worker[w]
            w += 1
        own, t = worker_rank[w, matching[w]], -1
        while left >= 0:
            t += 1
            left -= (worker_rank[w, t] < own) & (task_rank_t[w, t] < held_rank[t])
        chosen[i] = w * n + t


@njit(cache=True, nogil=True)
def all_matchings(rows: "Ints") -> bool:
    """Whether each row (m, n) holds each of 0..n-1 once."""
    n = rows.shape[1]
    last_seen = np.full(n, -1, np.int64)
    for i in range(rows.shape[0]):
        for w in range(n):
            t = rows[i, w]
            if t < 0 or t >= n or last_seen[t] == i:
                return False
            last_seen[t] = i
    return True


@njit(cache=True, nogil=True)
def count_all(matchings: "Ints", worker_rank: "Ranks", task_rank_t: "Ranks", counts: "Ints") -> None:
    """Number of blocking pairs of each matching.

    matchings  (m, n)  [i, w]: task of worker w
    counts     (m,)    out
    """
    n = matchings.shape[1]
    held_rank, by_worker = np.empty(n, np.int16), np.empty(n, np.int16)
    for i in range(matchings.shape[0]):
        counts[i] = rows_blocking(matchings[i], worker_rank, task_rank_t, held_rank, by_worker)


@njit(cache=True, nogil=True)
def repair_all(
    matchings: "Ints", uniforms: "Doubles", worker_rank: "Ranks", task_rank_t: "Ranks", counts: "Ints"
) -> None:
    """Repair one uniformly random blocking pair after another; a run stops where its matching is stable.

    matchings  (m, n)      in: starts; out: where each run stopped
    uniforms   (m, p - 1)  in [0, 1): which pair each repair takes
    counts     (m, p)      out: blocking pairs of each submitted matching, 0 from the stable one on
    """
    n = matchings.shape[1]
    held_rank, by_worker = np.empty(n, np.int16), np.empty(n, np.int16)
    for run in range(matchings.shape[0]):
        matching = matchings[run]
        for period in range(counts.shape[1]):
            blocking = rows_blocking(matching, worker_rank, task_rank_t, held_rank, by_worker)
            counts[run, period] = blocking
            if blocking == 0:
                counts[run, period:] = 0
                break
            if period + 1 == counts.shape[1]:
                break
            left = int(uniforms[run, period] * blocking)
            w = 0
            while left >= by_worker[w]:
                left -= by_worker[w]
                w += 1
            own, t = worker_rank[w, matching[w]], -1
            while left >= 0:
                t += 1
                left -= (worker_rank[w, t] < own) & (task_rank_t[w, t] < held_rank[t])
            for other in range(n):
                if matching[other] == t:
                    matching[other] = matching[w]
                    break
            matching[w] = t


def warm() -> None:
    """Call the kernels that steps call, with values of the types that those have."""
    ranks = np.zeros((1, 1), np.int16)
    ranks.setflags(write=False)
    ints, scratch = np.zeros(1, np.int64), np.zeros(1, np.int16)
    rows_blocking(ints, ranks, ranks, scratch, scratch)
    pick_blocking(np.zeros(0, np.int64), ints, ranks, ranks, scratch, scratch)
