"""A suite's lines: each read as an instance, checked, written back, and made afresh.

Loading a line is cheap: costs are drawn and the optimum is found when an episode starts or the line is written. A
stored optimum and digest are then compared with what was found.
"""

from collections.abc import Collection
from functools import lru_cache

from evalkit.envs.costbench.domain.world import World
from evalkit.envs.costbench.instances.blocks import planned_blocks
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.errors import UsageError
from evalkit.text import many

# Whether an instance's events can be played: they have the queries they need, and leave a way to the goal.

# How many tools may break before no way to the goal is left, whatever the agent does.
#
# A state only grows, so every way that leads from the start stays open until its tools are broken: the bound at the
# start holds all along. In a chain a tool is an edge between positions, and the fewest edges that cut start from goal
# are as many as there are ways that share none (Menger): a maximum flow. With all spans but the whole that is N - 1,
# as the paper proves (B.5); with one size hidden it is less. In a graph, one tool of every way must break: a search
# that takes any way and breaks each of its tools in turn.


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


def check_events(instance: PlanningProblem, world: World) -> None:
    """Raises UsageError naming the field that asks for what cannot be played."""
    if instance.schedule and instance.block != "none":
        raise UsageError("block: a schedule says all that happens; leave `block` and `blocks` out beside it.")
    if instance.block in ("preference_change", "mixed"):
        _check_seed(instance)
    _check_way(instance, world)


def _check_seed(instance: PlanningProblem) -> None:
    drawn_for = instance.alternatives_seed
    if instance.generator == "reference" and drawn_for != instance.seed:
        raise UsageError(
            f"alternatives_seed: the reference draws alternatives by seed, and these were drawn for "
            f"{'no seed that the line says' if drawn_for is None else drawn_for}, not for {instance.seed}. "
            "Import or generate the suite again with that seed."
        )


def _check_way(instance: PlanningProblem, world: World) -> None:
    """Whether a way to the goal is left whichever tools an agent's calls ban (B.5 of the paper)."""
    blocks = planned_blocks(instance, world)
    bans = sum(block.kind == "ban_tool" for block in blocks)
    where = "schedule" if instance.schedule else "blocks"
    for size in sorted({0, *(block.size for block in blocks)}) if bans or not world.chain else ():
        stands = fewest_breaks(world, size, bans) - 1
        hidden = f"once those of {size} components are removed" if size else ""
        if stands < 0:
            raise UsageError(
                f"{where}: no way to the goal is left among the tools of task {instance.task!r}, {hidden}."
            )
        if stands < bans:
            raise UsageError(
                f"{where}: {many(bans, 'ban')} may leave no way to the goal; the tools of task {instance.task!r} "
                f"stand {stands or 'none'}{f', {hidden}' if hidden else ''} (appendix B.5 of the paper). Ask for fewer"
                f"{', or for a longer chain' if world.chain else ''}."
            )
