"""The paths that the reference calls greedy: no score stands on them, and goldens hold them."""

from collections.abc import Sequence

from evalkit.envs.costbench.domain.world import Terms, World
from evalkit.envs.costbench.planning.solve import positions, spans


def greedy_path(world: World, terms: Terms, state: int, last: int | None, most: int) -> tuple[int, ...]:
    """The plan of who takes the tool of least cost per component, each time one that uses what the last call gave.

    `last`: index of the last tool called; None: the first call is free. Ties take the first tool in the order offered.
    Ends at the goal, where no tool fits, or after `most` calls. Source: specification, section 6.2.
    """
    path: list[int] = []
    while len(path) < most and not state & world.goal:
        if world.chain:
            choice = _cheapest_share(world, terms, _offered(world, state, last))
        else:
            given = world.tools[last].gives if last is not None else 0
            fits = [
                index
                for index, tool in enumerate(world.tools)
                if not tool.need & ~state and (last is None or given & tool.need)
            ]
            choice = _cheapest_share(world, terms, fits)
        if choice is None:
            break
        path.append(choice)
        state |= world.tools[choice].gives
        last = choice
    return tuple(path)


def _offered(world: World, state: int, last: int | None) -> list[int]:
    ways = spans(world)
    starts = positions(world, state)
    if last is not None:
        starts = [i for i in starts if i == world.tools[last].last + 1]
    indices = [index for i in starts for index, _ in ways[i]]
    return sorted(indices) if len(starts) > 1 else indices


def _cheapest_share(world: World, terms: Terms, indices: Sequence[int]) -> int | None:
    best, choice = 0.0, None
    for index in indices:
        if index not in terms.off:
            share = terms.costs[index] / 100 / world.tools[index].size
            if choice is None or share < best:
                best, choice = share, index
    return choice
