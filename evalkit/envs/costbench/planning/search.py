"""Cheapest plans in worlds that are not chains: states are sets of types, the cheapest way on is known for each.

A call that gives nothing new changes no state, and a type from which no tool leads to the goal changes no plan: both
are left out, so that states only grow, and distances follow from the fullest states to the emptiest.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from evalkit.envs.costbench.domain.world import Terms, World
from evalkit.errors import UsageError

MOST_STATES = 20_000
CALL = 1 << 16
"""Distances are cents * CALL + calls: one comparison tells the cheaper plan, and of two the one of fewer calls."""
FAR = 1 << 62
"""A distance beyond all others: unreachable."""

Edge = tuple[int, int]
"""(index of the tool, node it leads to). Nodes are positions of a chain, or states of a graph."""


class Routes:
    """All cheapest ways from one node to the goal: the nodes where no edge begins."""

    __slots__ = ("_ahead", "_edges", "_sizes", "_start")

    def __init__(self, start: int, ahead: Callable[[int], list[Edge]]) -> None:
        """`ahead`: a node's edges that cheapest ways take, by index."""
        self._start, self._ahead = start, ahead
        self._edges: dict[int, list[Edge]] = {}
        self._sizes: dict[int, int] = {}

    def first(self) -> tuple[int, ...]:
        """The way of the fewest calls; of several the one whose first call has the lowest index, and so on."""
        return next(self.ways())

    def ways(self) -> Iterator[tuple[int, ...]]:
        """All ways as indices of tools: fewest calls first, then by indices."""
        sizes = self._calls(self._start)
        for calls in range(sizes.bit_length()):
            if sizes >> calls & 1:
                yield from self._of_size(self._start, calls)

    def _on(self, node: int) -> list[Edge]:
        if node not in self._edges:
            self._edges[node] = self._ahead(node)
        return self._edges[node]

    def _calls(self, node: int) -> int:
        # Bit k: whether there is a way of k calls.
        if node not in self._sizes:
            edges, lengths = self._on(node), 0
            for _, next_node in edges:
                lengths |= self._calls(next_node) << 1
            self._sizes[node] = lengths if edges else 1
        return self._sizes[node]

    def _of_size(self, node: int, calls: int) -> Iterator[tuple[int, ...]]:
        if calls == 0:
            yield ()
            return
        for index, next_node in self._on(node):
            if self._calls(next_node) >> (calls - 1) & 1:
                for rest in self._of_size(next_node, calls - 1):
                    yield (index, *rest)


def check_size(world: World, most: int = MOST_STATES) -> None:
    """Raises UsageError if a graph has more than `most` states; a chain never has too many."""
    if world.chain:
        return
    count = len(_states(world, world.start, most))
    if count > most:
        raise UsageError(
            f"task {world.task!r}: its tools can be called in so many orders that there are at least "
            f"{count} states; exact plans are limited to {most}. Let more tools depend on other tools' "
            "outputs, or merge some of them."
        )


def distance(world: World, terms: Terms, state: int) -> int:
    """Of a graph's state: cents to the goal * CALL + the fewest calls that cost as little; FAR where unreachable."""
    state &= _relevant(world)
    distances = _distances(world, terms, world.start & _relevant(world))
    return distances[state] if state in distances else _distances(world, terms, state)[state]


def routes(world: World, terms: Terms, state: int) -> Routes:
    """All cheapest ways from a state that is not FAR. The order of independent calls makes different ways."""
    state &= _relevant(world)
    distances = _distances(world, terms, world.start & _relevant(world))
    far = distances if state in distances else _distances(world, terms, state)
    usable = _usable(world, terms.off)

    def ahead(node: int) -> list[Edge]:
        if node & world.goal:
            return []
        left = far[node] // CALL
        return [
            (index, node | gives)
            for index, need, gives in usable
            if not need & ~node and not gives & node and terms.costs[index] + far[node | gives] // CALL == left
        ]

    return Routes(state, ahead)


@lru_cache(maxsize=64)
def _relevant(world: World) -> int:
    """The types that lie on a way to the goal."""
    types, previous = world.goal, 0
    while types != previous:
        previous = types
        for tool in world.tools:
            if tool.gives & types:
                types |= tool.need
    return types


def _usable(world: World, off: frozenset[int]) -> list[tuple[int, int, int]]:
    """(index, what it needs, what it gives) of tools that can help."""
    useful = _relevant(world)
    return [
        (index, tool.need, tool.gives)
        for index, tool in enumerate(world.tools)
        if index not in off and tool.gives & useful
    ]


@lru_cache(maxsize=16)
def _states(world: World, start: int, most: int) -> tuple[int, ...]:
    """All states that matter and can be reached from `start`, all tools being usable; stops beyond `most`."""
    start &= _relevant(world)
    tools = {(need, gives) for _, need, gives in _usable(world, frozenset())}
    states, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for need, gives in tools:
            after = state | gives
            if not need & ~state and after not in states and not state & world.goal:
                states.add(after)
                todo.append(after)
                if len(states) > most:
                    return tuple(states)
    return tuple(sorted(states, key=lambda state: (-state.bit_count(), state)))


@lru_cache(maxsize=16)
def _distances(world: World, terms: Terms, start: int) -> dict[int, int]:
    """Distance of each state that can be reached from `start`. Raises UsageError if there are too many."""
    states = _states(world, start, MOST_STATES)
    if len(states) > MOST_STATES:
        check_size(world)
    usable = [(terms.costs[index] * CALL + 1, need, gives) for index, need, gives in _usable(world, terms.off)]
    far: dict[int, int] = {}
    for state in states:
        best = 0 if state & world.goal else FAR
        if best:
            for cost, need, gives in usable:
                if not need & ~state and not gives & state and cost + far[state | gives] < best:
                    best = cost + far[state | gives]
        far[state] = best
    return far
