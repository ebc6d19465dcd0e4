"""How many tools may break before no way to the goal is left, whatever the agent does.

A state only grows, so every way that leads from the start stays open until its tools are broken: the bound at the start
holds all along. In a chain a tool is an edge between positions, and the fewest edges that cut start from goal are as
many as there are ways that share none (Menger): a maximum flow. With all spans but the whole that is N - 1, as the
paper proves (B.5); with one size hidden it is less. In a graph, one tool of every way must break: a search that takes
any way and breaks each of its tools in turn.
"""

from collections.abc import Collection
from functools import lru_cache

from evalkit.envs.costbench.domain.world import World


@lru_cache(maxsize=1024)
def fewest_breaks(world: World, hidden: int, most: int) -> int:
    """The fewest tools whose loss leaves no way from start to goal, where composites of size `hidden` are gone (0:
    none); `most + 1` where that is more than `most`.
    """
    tools = [index for index, tool in enumerate(world.tools) if not tool.size == hidden > 1]
    if world.chain:
        return min(most + 1, _chain_cut(world, tools))
    for count in range(most + 1):
        if _breakable(world, frozenset(tools), count, set()):
            return count
    return most + 1


def _chain_cut(world: World, tools: Collection[int]) -> int:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(world.length + 1))
    graph.add_edges_from((world.tools[index].first, world.tools[index].last + 1, {"capacity": 1}) for index in tools)
    return int(nx.maximum_flow_value(graph, 0, world.length))


def _breakable(world: World, tools: frozenset[int], count: int, seen: set[frozenset[int]]) -> bool:
    """Whether the loss of `count` of a graph's tools leaves no way. `seen`: sets of tools known to stand it."""
    way = _way(world, tools)
    if way is None:
        return True
    if not count or tools in seen:
        return False
    if any(_breakable(world, tools - {index}, count - 1, seen) for index in way):
        return True
    seen.add(tools)
    return False


def _way(world: World, tools: Collection[int]) -> list[int] | None:
    """Tools of one way to the goal, each needed in it; None: there is none."""
    state, giver_of, grown = world.start, dict[int, int](), True
    while grown and not state & world.goal:
        grown = False
        for index in tools:
            tool = world.tools[index]
            if not tool.need & ~state and not tool.gives & state:
                state, giver_of[tool.gives], grown = state | tool.gives, index, True
    if not state & world.goal:
        return None
    way, wanted = list[int](), [world.goal]
    while wanted:
        kind = wanted.pop()
        if kind in giver_of:
            way.append(giver_of.pop(kind))
            wanted += [world.bit[name] for name in world.tools[way[-1]].inputs]
    return way
