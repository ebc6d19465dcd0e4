"""How many bans leave a way to the goal: the paper's bound, and what it does not speak of."""

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import World, make_world
from evalkit.envs.costbench.instances.suite import fewest_breaks, load
from evalkit.errors import UsageError
from tests.envs.costbench.planning.test_search import graph_world, random_graph
from tests.support.costbench_lines import DINING


@pytest.mark.parametrize("length", range(3, 13))
def test_a_chain_without_its_whole_stands_two_bans_fewer_than_it_has_positions(length: int) -> None:
    world = make_world(shipped("travel"), "dining", length, False)
    assert fewest_breaks(world, 0, 40) == length - 1
    assert fewest_breaks(make_world(shipped("travel"), "dining", length, True), 0, 40) == length


def _cuts(world: World, tools: list[int], count: int) -> bool:
    """By trying all: whether some `count` tools leave no way."""
    for lost in combinations(tools, count):
        graph = nx.DiGraph((world.tools[i].first, world.tools[i].last + 1) for i in tools if i not in lost)
        if not (graph.has_node(0) and graph.has_node(world.length) and nx.has_path(graph, 0, world.length)):
            return True
    return False


@pytest.mark.parametrize("hidden", [0, 2, 3, 4])
def test_with_one_size_hidden_the_bound_is_that_of_trying_all(hidden: int) -> None:
    world = make_world(shipped("travel"), "dining", 5, False)
    tools = [place for place, tool in enumerate(world.tools) if not tool.size == hidden > 1]
    assert fewest_breaks(world, hidden, 9) == next(count for count in range(9) if _cuts(world, tools, count))


def _leads(world: World, tools: set[int]) -> bool:
    state = world.start
    for _ in world.types:
        for place in tools:
            if not world.tools[place].need & ~state:
                state |= world.tools[place].gives
    return bool(state & world.goal)


def _fewest(world: World, hidden: int) -> int:
    tools = {place for place, tool in enumerate(world.tools) if not tool.size == hidden > 1}
    return next(n for n in range(99) for lost in combinations(tools, n) if not _leads(world, tools - set(lost)))


@pytest.mark.parametrize("hidden", [0, 2, 3])
def test_in_a_graph_the_bound_is_that_of_trying_all(hidden: int) -> None:
    draws = np.random.default_rng(hidden)
    for world in (make_world(shipped("delivery"), "release", 3, True), *(random_graph(draws) for _ in range(40))):
        found = _fewest(world, hidden)
        assert fewest_breaks(world, hidden, 9) == found
        assert fewest_breaks(world, hidden, max(0, found - 1)) == found


def test_a_graph_of_many_ways_is_not_tried_out_set_by_set() -> None:
    # Seven ways of six tools: of 42 there are 27 million sets of seven.
    ways = [["S", *(f"W{way}{step}" for step in range(5)), "G"] for way in range(7)]
    world = graph_world([pair for way in ways for pair in pairwise(way)])
    assert fewest_breaks(world, 0, 3) == 4


def test_a_graph_is_tried_out() -> None:
    world = make_world(shipped("delivery"), "release", 0, False)
    found = fewest_breaks(world, 0, 3)
    assert 1 <= found <= 4
    assert fewest_breaks(world, 0, found - 1) == found


@pytest.mark.parametrize(("length", "blocks"), [(3, 2), (5, 4), (8, 7)])
def test_more_bans_than_the_tools_stand_are_refused(length: int, blocks: int) -> None:
    line = {**DINING, "length": length, "block": "ban_tool"}
    with pytest.raises(UsageError, match=rf"{blocks} bans may leave no way .* stand {blocks - 1} "):
        load({**line, "blocks": blocks})
    assert load({**line, "blocks": blocks - 1}).blocks == blocks - 1


def test_bans_behind_a_removal_are_counted_against_what_it_leaves() -> None:
    events = [{"at": 1, "kind": "remove_tools", "size": 2}, *({"at": at, "kind": "ban_tool"} for at in (2, 3))]
    with pytest.raises(UsageError, match=r"schedule: 2 bans .* stand 1, once those of 2 components are removed"):
        load({**DINING, "length": 5, "schedule": events})
    assert load({**DINING, "length": 5, "schedule": events[:2]}).schedule
