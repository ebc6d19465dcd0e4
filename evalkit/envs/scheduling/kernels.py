"""Compiled kernels for the matchings of a market. Callers check the arguments; kernels do not.

Only `evalkit/compiled.py` imports this file: numba costs most of a second before its first result.
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


def warm() -> None:
    """Call the kernels that steps call, with values of the types that those have."""
    ranks = np.zeros((1, 1), np.int16)
    ranks.setflags(write=False)
    ints, scratch = np.zeros(1, np.int64), np.zeros(1, np.int16)
    rows_blocking(ints, ranks, ranks, scratch, scratch)
    pick_blocking(np.zeros(0, np.int64), ints, ranks, ranks, scratch, scratch)
