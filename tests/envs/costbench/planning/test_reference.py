import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.instances.costs import reference_costs
from evalkit.envs.costbench.planning import solve
from tests.envs.costbench.planning.test_solve import chain_world, drawn_state, drawn_terms
from tests.support.greedy_paths import greedy_path


def named(world: World, path: tuple[int, ...] | None) -> list[str]:
    assert path is not None
    return [world.tools[place].name for place in path]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [42, 1000])
def test_every_golden_plan_and_its_cost_are_met_bit_for_bit(shared: Path, seed: int) -> None:
    tied = 0
    with (shared / f"goldens/costbench/paths_seed{seed}.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        world = make_world(shipped("travel"), row["task"], row["task_length"], whole=False)
        terms = Terms(tuple(reference_costs(world, row["tool_creation_seed"], 15, 25, 0.1)))
        truth = solve.reference_path(world, terms, world.start)
        greedy = greedy_path(world, terms, world.start, None, 20)
        assert named(world, truth) == row["gt_path"]
        assert named(world, greedy) == row["greedy_path"]
        assert truth is not None
        assert solve.float_cost(terms, truth) == row["gt_cost"]
        assert solve.float_cost(terms, greedy) == row["greedy_cost"]
        tied += len(solve.optimal_paths(world, terms, world.start, 2)) > 1
    assert len(rows) == 2286
    assert tied > 100


def test_of_equal_cents_the_smaller_float_sum_wins_even_with_more_calls() -> None:
    world = chain_world(3)
    costs = [10_000] * (len(world.tools) + len(world.foreign))
    costs[0], costs[1], costs[2] = 10, 60, 10
    pair = world.place["Dining_Preference_and_Search"]
    costs[pair] = 70
    terms = Terms(tuple(costs))
    # 0.1 + 0.6 + 0.1 = 0.7999999999999999 as floats, 0.7 + 0.1 = 0.7999999999999999 too: the fewer calls win.
    assert solve.optimal_paths(world, terms, world.start) == ((pair, 2), (0, 1, 2))
    assert solve.reference_path(world, terms, world.start) == (pair, 2)
    costs[0], costs[1], costs[2], costs[pair] = 10, 20, 30, 30
    terms = Terms(tuple(costs))
    # 0.1 + 0.2 + 0.3 = 0.6000000000000001, 0.3 + 0.3 = 0.6.
    assert solve.reference_path(world, terms, world.start) == (pair, 2)
    costs[2], costs[1], costs[0], costs[pair] = 10, 30, 20, 50
    back = world.place["Dining_Finalize_from_Search"]
    costs[back] = 40
    terms = Terms(tuple(costs))
    paths = solve.optimal_paths(world, terms, world.start)
    sums = {path: solve.float_cost(terms, path) for path in paths}
    assert len(paths) == 3
    least = min(paths, key=lambda path: (sums[path], len(path)))
    assert sums[solve.reference_path(world, terms, world.start) or ()] == sums[least]


@pytest.mark.parametrize("length", [3, 5, 6])
def test_from_any_state_with_any_bans_the_winner_is_one_of_the_best_ranked(length: int) -> None:
    draws = np.random.default_rng(length)
    worked = 0
    for i in range(150):
        world = chain_world(length, ("location", "dining")[i % 2])
        terms = drawn_terms(world, draws, 1 + i % 3, banned=0.1)
        state = drawn_state(world, draws)
        paths = solve.optimal_paths(world, terms, state)
        found = solve.reference_path(world, terms, state)
        if not paths:
            assert found is None
            continue
        ranks = {path: (solve.float_cost(terms, path), len(path)) for path in paths}
        assert found is not None
        assert ranks[found] == min(ranks.values())
        worked += list(ranks.values()).count(min(ranks.values())) > 1
        # The whole search says the same whether or not anything is tied.
        assert solve.first_popped(world, terms, state) == found
    assert worked > 3


def test_tools_that_nobody_is_shown_take_part_in_the_ties() -> None:
    # Two plans of one cost and length; only the location chain's tools in the heap let the reference's one win.
    draws = np.random.default_rng(5)
    differing = 0
    for _ in range(60):
        world = chain_world(5)
        terms = drawn_terms(world, draws, 2, banned=0)
        hidden = range(len(world.tools), len(world.tools) + len(world.foreign))
        alone = Terms(terms.costs, frozenset(hidden))
        found = [solve.first_popped(world, one, world.start) for one in (terms, alone)]
        assert {solve.float_cost(terms, path) for path in found} == {solve.float_cost(terms, found[0])}
        differing += found[0] != found[1]
    assert differing > 0


def test_chains_that_the_reference_does_not_have_take_our_rule() -> None:
    world = chain_world(40)
    terms = Terms(tuple(10 * tool.size for tool in (*world.tools, *world.foreign)))
    found = solve.reference_path(world, terms, world.start)
    assert found == solve.optimal_path(world, terms, world.start)
    spans = [(world.tools[place].first, world.tools[place].last) for place in found or ()]
    assert spans[0][0] == 0
    assert spans[-1][1] == 39
    assert all(one[1] + 1 == other[0] for one, other in pairwise(spans))
