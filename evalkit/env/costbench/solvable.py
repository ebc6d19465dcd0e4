"""How many tools may break before no way to the goal is left, whatever the agent does.

A state only grows, so every way that leads from the start stays open until its tools are broken: the bound at the start
holds all along. In a chain a tool is an edge between positions, and the fewest edges that cut start from goal are as
many as there are ways that share none (Menger): a maximum flow. With all spans but the whole that is N - 1, as the
paper proves (B.5); with one size hidden it is less.
"""

from collections.abc import Collection
from functools import lru_cache
from itertools import combinations

from evalkit.env.costbench.world import World


@lru_cache(maxsize=1024)
def fewest_breaks(world: World, hidden: int, most: int) -> int:
    """The fewest tools whose loss leaves no way from start to goal, where composites of size `hidden` are gone (0:
    none); `most + 1` where that is more than `most`.
    """
    tools = [place for place, tool in enumerate(world.tools) if not tool.size == hidden > 1]
    if world.chain:
        return min(most + 1, _chain_cut(world, tools))
    for count in range(most + 1):
        if any(not _reaches(world, set(tools) - set(lost)) for lost in combinations(tools, count)):
            return count
    return most + 1


def _chain_cut(world: World, tools: Collection[int]) -> int:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(world.length + 1))
    graph.add_edges_from((world.tools[place].first, world.tools[place].last + 1, {"capacity": 1}) for place in tools)
    return int(nx.maximum_flow_value(graph, 0, world.length))


def _reaches(world: World, tools: Collection[int]) -> bool:
    state, before = world.start, -1
    while state != before:
        before = state
        for place in tools:
            if not world.tools[place].need & ~state:
                state |= world.tools[place].gives
    return bool(state & world.goal)
