"""The plan that the reference takes for the ground truth, tie for tie.

It adds costs as floats from the left, compares them exactly, then numbers of calls, then states by "is a proper subset
of", which leaves most pairs undecided, so that the mechanics of a binary heap decide. About one plan in a hundred
depends on that; only then is the heap worked through. Source: specification, sections 6.1 and 6.4.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from evalkit.envs.costbench.domain.world import Terms, World

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
