"""Many chains at once: cheapest plans from any state, and greedy plans, over arrays of span costs.

Small jobs take the loops of `chain_loops.py` as they are, big ones compiled (`kernels.py`). Both give the same numbers,
those of `solve.py`. Source: specification, section 6; math.md, section 4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.envs.costbench.domain.world import MOST_LENGTH, Terms, World
from evalkit.envs.costbench.planning.chain_loops import UNAVAILABLE, greedy_rows, solve_rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Places = npt.NDArray[np.int8]

_COMPILED_START_S = 0.7
"""What numba's import and first call cost, its cache being warm."""
_PLAIN_SPAN_S = 0.4e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """One plan for each of m chains of N positions."""

    costs: "Ints"
    """(m,) cents; -1: the goal is not reached."""
    number: "Ints"
    """(m,) how many plans cost as little; 0: the goal is not reached. Of greedy plans always 1 or 0."""
    path: "Places"
    """(m, N + 1) the position where the plan begins, then the one each call leads to; after the end -1."""


def span_costs(world: World, terms: Terms) -> "Ints":
    """Of a chain: (N, N), [i, j] the cents of the tool for the positions i..j, UNAVAILABLE where there is none."""
    import numpy as np

    cents = np.full((world.length, world.length), UNAVAILABLE, np.int64)
    for index, tool in enumerate(world.tools):
        if index not in terms.off:
            cents[tool.first, tool.last] = terms.costs[index]
    return cents


def held_positions(world: World, state: int) -> int:
    """Of a chain: the positions that a state holds as bits 0..N; N is the goal."""
    return 1 | sum(2 << i for i in range(world.length) if world.tools[i].gives & state)


def cheapest(costs: "Ints", held: "Ints", compiled: bool | None = None) -> Plans:
    """The cheapest plan of each chain; of several the one of the fewest calls, then the first by (size, position).

    costs  (m, N, N)  [k, i, j]: cents of the tool for positions i..j, at least 1; entries with i > j play no part
    held   (m,)       bits 0..N: from which positions a plan can begin; bit N: the goal is reached already

    `compiled` is which path to take; None: whichever is sooner done. Raises ValueError for arrays of other shapes,
    more than 40 positions, costs below 1 and chains that hold nothing.
    """
    return _run(costs, held, compiled, solve_rows, "solve_all")


def greedy(costs: "Ints", held: "Ints", compiled: bool | None = None) -> Plans:
    """The plan of each chain that takes the least cost per component, from what the last call gave; see `cheapest`.

    The first call is free to begin at any position held.
    """
    return _run(costs, held, compiled, greedy_rows, "greedy_all")


def _run(costs: "Ints", held: "Ints", compiled: bool | None, plain: Callable[..., bool], name: str) -> Plans:
    import numpy as np

    costs, held = np.ascontiguousarray(costs, np.int64), np.ascontiguousarray(held, np.int64)
    if costs.ndim != 3 or costs.shape[1] != costs.shape[2] or held.shape != costs.shape[:1]:
        raise ValueError("costs must have shape (m, N, N), and held shape (m,)")
    m, n = costs.shape[:2]
    if not 1 <= n <= MOST_LENGTH:
        raise ValueError(f"chains have 1 to {MOST_LENGTH} positions")
    if not ((held > 0) & (held < 2 << n)).all():
        raise ValueError(f"held must have the bit of at least one position 0..{n} set")
    kernel = plain
    if m * n * (n + 1) / 2 * _PLAIN_SPAN_S > _COMPILED_START_S if compiled is None else compiled:
        from evalkit.envs.costbench.planning import kernels

        kernel = getattr(kernels, name)
    plans = Plans(costs=np.empty(m, np.int64), number=np.empty(m, np.int64), path=np.empty((m, n + 1), np.int8))
    scratch = np.empty((3, n + 1), np.int64) if plain is solve_rows else ()
    if not kernel(costs, held, plans.costs, plans.number, plans.path, *scratch):
        raise ValueError("every cost must be at least 1 cent")
    return plans
