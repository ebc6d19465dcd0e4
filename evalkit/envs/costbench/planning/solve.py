"""Cheapest plans from any state, exactly: in integer cents, with the number of plans that cost as little.

In a chain a plan is a way through positions: from position i, the tool that stands for i..j leads to j + 1, and a state
holds position 0 and those after all that was given so far. Whatever else a plan called would be for nothing, so the
least cost from a set of positions is the least over its members, and one pass from the goal back answers for all
states. Other worlds take `search.py`. A call costs at least one cent; a state holds the start types.

Ties are broken in the open: fewest calls, then the lower index of the first call that differs. The reference breaks
them by rounding and by the mechanics of its heap (`reference.py`).

Source: specification, section 6; math.md, section 4.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING

from evalkit.compiled import Kernels
from evalkit.envs.costbench.domain.world import Terms, World
from evalkit.envs.costbench.planning import search
from evalkit.envs.costbench.planning.search import CALL, FAR, Edge, Routes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# The plan that the reference takes for the ground truth, tie for tie.
#
# It adds costs as floats from the left, compares them exactly, then numbers of calls, then states by "is a proper
# subset of", which leaves most pairs undecided, so that the mechanics of a binary heap decide. About one plan in a
# hundred depends on that; only then is the heap worked through. Source: specification, sections 6.1 and 6.4.

LONGEST = 8
"""Longer chains than the reference has take our own rule for ties; its search would not end."""


def taken(world: World, terms: Terms, state: int, paths: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Which of all plans of least cost from the state the reference takes."""
    ranked = [(float_cost(terms, path), len(path), path) for path in paths]
    least = min(ranked)
    best = [path for cost, calls, path in ranked if (cost, calls) == least[:2]]
    return best[0] if len(best) == 1 else first_popped(world, terms, state)


def float_cost(terms: Terms, path: tuple[int, ...]) -> float:
    """A plan's cost as the reference computes it: floats, added from the left."""
    total = 0.0
    for index in path:
        total += terms.costs[index] / 100
    return total


def first_popped(world: World, terms: Terms, state: int) -> tuple[int, ...]:
    """The plan that the reference's uniform-cost search pops first, from a state that the goal can be reached from."""
    tools = (*world.tools, *world.foreign)
    usable = [
        (index, terms.costs[index] / 100, tools[index].need, tools[index].gives)
        for index in world.order
        if index not in terms.off
    ]
    types = _Types(1 << i for i in range(state.bit_length()) if state >> i & 1)
    heap: list[tuple[float, int, _Types, int, tuple[int, ...]]] = [(0.0, 0, types, state, ())]
    done = set()
    while True:
        cost, calls, types, node, path = heappop(heap)
        if node & world.goal:
            return path
        if node in done:
            continue
        done.add(node)
        for index, price, need, gives in usable:
            if not need & ~node and node | gives not in done:
                next_types = _Types((*types, gives))
                heappush(heap, (cost + price, calls + 1, next_types, node | gives, (*path, index)))


class _Types(frozenset[int]):
    """A state as the heap compares it: `<` is "proper subset", and no two are equal, so nothing after them decides."""

    __slots__ = ()
    __hash__ = frozenset.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


COMPILED_LENGTH = 8
"""Positions from which on the compiled kernel is faster, its call and the arrays for it included."""
MOST_COMPILED = 1 << 40
"""Cents, from which on sums might not fit 64 bits."""
KERNELS = Kernels("evalkit.envs.costbench.planning.kernels", after=100_000)

_ORIGIN = -1
"""The node before the first call, where several positions may be held."""


def optimum(world: World, terms: Terms, state: int) -> int | None:
    """Cents from the state to the goal; None: it cannot be reached."""
    left = _distance(world, terms, state)
    return None if left >= FAR else left // CALL


def optimal_path(world: World, terms: Terms, state: int) -> tuple[int, ...] | None:
    """The cheapest plan as indices of tools; of several the one of the fewest calls, then the first by indices."""
    routes = _routes(world, terms, state)
    return None if routes is None else routes.first()


def optimal_paths(world: World, terms: Terms, state: int, most: int = 1000) -> tuple[tuple[int, ...], ...]:
    """All plans of least cost, or the first `most` of them: fewest calls first, then by indices."""
    routes = _routes(world, terms, state)
    return () if routes is None else tuple(islice(routes.ways(), most))


def reference_path(world: World, terms: Terms, state: int) -> tuple[int, ...] | None:
    """The cheapest plan as indices of tools, with the reference's tie-breaks; None: the goal cannot be reached.

    Where the reference has no plans, in longer chains and in graphs, our own tie rule decides.
    """
    if not world.chain or world.length > LONGEST:
        return optimal_path(world, terms, state)
    paths = optimal_paths(world, terms, state)
    return taken(world, terms, state, paths) if len(paths) > 1 else next(iter(paths), None)


def call_is_optimal(world: World, terms: Terms, state: int, index: int) -> bool:
    """Whether a plan of least cost from the state begins with this call."""
    tool = world.tools[index]
    if index in terms.off or tool.need & ~state or state & world.goal:
        return False
    left, after = optimum(world, terms, state), optimum(world, terms, state | tool.gives)
    return left is not None and after is not None and terms.costs[index] + after == left


@lru_cache(maxsize=256)
def spans(world: World) -> tuple[tuple[Edge, ...], ...]:
    """Of a chain: by position, (index, position it leads to) of each tool that begins there, by index."""
    by_position: list[list[Edge]] = [[] for _ in range(world.length)]
    for index, tool in enumerate(world.tools):
        by_position[tool.first].append((index, tool.last + 1))
    return tuple(tuple(edges) for edges in by_position)


def positions(world: World, state: int) -> list[int]:
    """Of a chain: the positions from which a plan can continue; the goal is position N."""
    return [0, *(i + 1 for i in range(world.length) if world.tools[i].gives & state)]


@lru_cache(maxsize=64)
def distances(world: World, terms: Terms) -> tuple[int, ...]:
    """Of a chain: by position (N + 1 of them), cents to the goal * CALL + the fewest calls; FAR: unreachable.

    Of a chain that is so long that it gains by it by the compiled kernel, once that is ready.
    """
    if world.length >= COMPILED_LENGTH and max(terms.costs) < MOST_COMPILED:
        kernels = KERNELS.ready()
        if kernels is not None:
            return _compiled_distances(kernels, world, terms)
    costs, off = terms.costs, terms.off
    far = [FAR] * world.length + [0]
    for i, edges in zip(range(world.length - 1, -1, -1), reversed(spans(world)), strict=True):
        best = FAR
        for index, end in edges:
            cost = costs[index] * CALL + 1 + far[end]
            if cost < best and index not in off:
                best = cost
        far[i] = best
    return tuple(far)


def _compiled_distances(kernels: ModuleType, world: World, terms: Terms) -> tuple[int, ...]:
    import numpy as np

    costs, far = np.array(terms.costs, np.int64), np.empty(world.length + 1, np.int64)
    for index in terms.off:
        if index < len(costs):  # foreign tools may be off too, and have no costs where nobody asks for them
            costs[index] = 0
    kernels.distances(_edges(world), costs, far)
    return tuple(far.tolist())


@lru_cache(maxsize=256)
def _edges(world: World) -> "npt.NDArray[np.int64]":
    """Of a chain: (tools, 3) position where a tool begins, the one it leads to, its index; the last positions first."""
    import numpy as np

    rows = sorted(((tool.first, tool.last + 1, index) for index, tool in enumerate(world.tools)), reverse=True)
    edges = np.array(rows, np.int64)
    edges.setflags(write=False)
    return edges


def chain_distances(
    edges: "npt.NDArray[np.int64]", costs: "npt.NDArray[np.int64]", far: "npt.NDArray[np.int64]"
) -> None:
    """`distances`, over arrays: written to be compiled (`kernels.py`), and runs without it too.

    edges  (m, 3)    as of `_edges`
    costs  (tools,)  cents by index; 0: cannot be used
    far    (N + 1,)  out
    """
    last = len(far) - 1
    for i in range(last):
        far[i] = FAR
    far[last] = 0
    for k in range(len(edges)):
        cents = costs[edges[k, 2]]
        if cents > 0:
            far[edges[k, 0]] = min(far[edges[k, 0]], cents * CALL + 1 + far[edges[k, 1]])


def _distance(world: World, terms: Terms, state: int) -> int:
    if not world.chain:
        return search.distance(world, terms, state)
    if state & world.goal:
        return 0
    far = distances(world, terms)
    return min([far[i] for i in positions(world, state)])


def _routes(world: World, terms: Terms, state: int) -> Routes | None:
    left = _distance(world, terms, state)
    if left >= FAR:
        return None
    if not world.chain:
        return search.routes(world, terms, state)
    far, ways, costs, off = distances(world, terms), spans(world), terms.costs, terms.off
    least = left // CALL
    starts = [i for i in positions(world, state) if far[i] // CALL == least]

    def ahead(node: int) -> list[Edge]:
        if node == world.length or (node == _ORIGIN and state & world.goal):
            return []
        edges = [
            (index, end)
            for i in (starts if node == _ORIGIN else (node,))
            for index, end in ways[i]
            if costs[index] + far[end] // CALL == far[i] // CALL and index not in off
        ]
        if len(starts) > 1:
            edges.sort()
        return edges

    return Routes(_ORIGIN, ahead)
