"""Many matchings of one market at once: how many pairs block each, and what repairing pairs at random leads to.

Small jobs take the plain path, which is the definition in numpy; big ones are compiled. Both give the same numbers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalkit.envs.scheduling.market import SchedulingMarket, blocking_pairs, count_blocking_pairs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Doubles = npt.NDArray[np.float64]

_COMPILED_START_S = 0.7
"""What numba's import and first call cost, its cache being warm."""
_PLAIN_CALL_S = 10e-6
_PLAIN_PAIR_S = 2e-9


def blocking_counts(
    market: SchedulingMarket, matchings: "Ints | Sequence[Sequence[int]]", compiled: bool | None = None
) -> "Ints":
    """Number of blocking pairs of each matching: (m, n) tasks by worker -> (m,).

    `compiled` is which path to take; None: whichever is sooner done. Raises ValueError for what is not a matching.
    """
    import numpy as np

    compiled = _worth_it(market, len(matchings)) if compiled is None else compiled
    rows = _checked(market, matchings, compiled)
    if not compiled:
        return np.array([count_blocking_pairs(market, row) for row in rows], dtype=np.int64)
    from evalkit.envs.scheduling.kernels import count_all

    counts = np.empty(len(rows), np.int64)
    count_all(rows, market.worker_rank, market.task_rank_t, counts)
    return counts


def repair_runs(
    market: SchedulingMarket,
    starts: "Ints | Sequence[Sequence[int]]",
    uniforms: "Doubles",
    compiled: bool | None = None,
) -> "Ints":
    """The paper's heuristic, many runs at once: submit, repair one random shown pair, submit again.

    starts (m, n): the first matching of each run. uniforms (m, p - 1), in [0, 1): which pair each repair takes.
    Returns (m, p): the number of blocking pairs of each submitted matching, 0 from the stable one on.
    One of k pairs that were drawn from all is one drawn from all, so k plays no part where feedback is drawn afresh.
    Source: appendix D.3, after Knuth (1976); math.md, section 1.3.
    """
    import numpy as np

    draws = np.ascontiguousarray(uniforms, dtype=np.float64)
    compiled = _worth_it(market, len(starts) + draws.size) if compiled is None else compiled
    rows = _checked(market, starts, compiled)
    if draws.ndim != 2 or len(draws) != len(rows) or not ((draws >= 0) & (draws < 1)).all():
        raise ValueError("uniforms must have one row a run, with values in [0, 1)")
    counts = np.zeros((len(rows), draws.shape[1] + 1), np.int64)
    if not compiled:
        for run, matching in enumerate(rows.tolist()):
            _repair(market, matching, draws[run].tolist(), counts[run])
        return counts
    from evalkit.envs.scheduling.kernels import repair_all

    repair_all(rows, draws, market.worker_rank, market.task_rank_t, counts)
    return counts


def _repair(market: SchedulingMarket, matching: list[int], draws: Sequence[float], counts: "Ints") -> None:
    for period in range(len(counts)):
        pairs = blocking_pairs(market, matching)
        counts[period] = len(pairs)
        if not pairs or period == len(draws):
            return
        w, t = pairs[int(draws[period] * len(pairs))]
        other = matching.index(t)
        matching[w], matching[other] = t, matching[w]


def _checked(market: SchedulingMarket, matchings: "Ints | Sequence[Sequence[int]]", compiled: bool) -> "Ints":
    """A copy of the matchings, each a permutation: kernels that count do not look."""
    import numpy as np

    if len(matchings) == 0:
        return np.empty((0, market.n), np.int64)
    rows = np.array(matchings, dtype=np.int64, order="C")
    fits = rows.ndim == 2 and rows.shape[1] == market.n
    if fits and compiled:
        from evalkit.envs.scheduling.kernels import all_matchings

        fits = all_matchings(rows)
    elif fits:
        fits = bool((np.sort(rows, axis=1) == np.arange(market.n)).all())
    if not fits:
        raise ValueError(f"every matching must hold each of 0..{market.n - 1} once")
    return rows


def _worth_it(market: SchedulingMarket, matchings: int) -> bool:
    return matchings * (_PLAIN_CALL_S + market.n**2 * _PLAIN_PAIR_S) > _COMPILED_START_S
