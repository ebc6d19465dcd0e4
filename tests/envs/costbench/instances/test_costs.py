import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.envs.costbench.domain.world import make_world
from evalkit.envs.costbench.instances.costs import costs_of, hash31, query_seed, reference_costs, show_cost
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import DISTRIBUTIONS
from tests.conform.compare.costbench_costs import costs
from tests.support.costbench_lines import GRAPH, TRAVEL, bare_instance, catalogue_with_a_graph

WHOLE_RANGE = 0.005  # a cent's half: what rounding adds to a range

made = partial(bare_instance, low=15.0, high=25.0)
"""An instance of which only what costs depend on is of interest."""


def named(instance: PlanningProblem, draw_seed: int | None = None) -> dict[str, int]:
    """The costs by tool; of the reference, foreign ones among them."""
    world = make_world(instance.catalogue, instance.task, instance.length, instance.whole)
    drawn = costs_of(instance, world, draw_seed)
    return {tool.name: cents for tool, cents in zip((*world.tools, *world.foreign), drawn, strict=False)}


def test_the_example_of_the_specification() -> None:
    assert query_seed(42, "<Query00001>") == 815343802
    assert hash31("42:<Query00001>") == 815343802


def _rows(shared: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((shared / "goldens" / "costbench").glob("costs_*.jsonl")):
        yield from map(orjson.loads, path.read_bytes().splitlines())


def test_every_golden_table_is_the_reference_s_bit_for_bit(shared: Path) -> None:
    found = Counter(costs(row, None).status for row in _rows(shared))
    assert found["equal"] == sum(found.values()) >= 816


def test_a_golden_table_that_is_another_one_is_noticed(shared: Path) -> None:
    row = next(row for row in _rows(shared) if "global_seed" in row)
    first, *others = row["costs"]
    wrong: list[dict[str, Any]] = [
        {"tool_creation_seed": row["tool_creation_seed"] + 1},
        {"global_seed": row["global_seed"] + 1},
        {"costs": {**row["costs"], first: math.nextafter(row["costs"][first], math.inf)}},
        {"costs": {name: row["costs"][name] for name in (*others, first)}},
        {"ban_longest_tool": not row["ban_longest_tool"]},
        {"refinement_level": 1},
    ]
    assert [costs({**row, **change}, None).status for change in wrong] == ["differing"] * len(wrong)


def test_costs_are_shown_as_the_reference_prints_them() -> None:
    assert [show_cost(cents) for cents in (2050, 2000, 1, 100, 101, 6491)] == [
        "20.5",
        "20.0",
        "0.01",
        "1",
        "1.01",
        "64.91",
    ]


@given(st.integers(0, 10**11))
def test_a_shown_cost_is_the_rounded_float(cents: int) -> None:
    assert float(show_cost(cents)) == round(cents / 100, 2)
    assert round(float(show_cost(cents)) * 100) == cents


@given(st.integers(0, 2**31 - 2), st.sampled_from([3, 5, 8, 13]), st.sampled_from(list(TRAVEL.tasks)), st.booleans())
def test_the_reference_s_rules_one_by_one(seed: int, length: int, task: str, whole: bool) -> None:
    world = make_world(TRAVEL, task, length, whole)
    found = reference_costs(world, seed, 15, 25, 0.5)
    by_name = dict(zip((tool.name for tool in (*world.tools, *world.foreign)), found, strict=True))
    # The context's own tools cost in its own world what they cost as foreign ones.
    context = make_world(TRAVEL, "location", length, whole)
    own = zip(context.tools, reference_costs(context, seed, 15, 25, 0.5), strict=True)
    assert all(by_name.get(tool.name, cents) == cents for tool, cents in own)
    assert reference_costs(world, seed, 15, 25, 0.5, foreign=False) == found[: len(world.tools)]
    for tool, cents in zip((*world.tools, *world.foreign), found, strict=True):
        if tool.size > 1:
            total = 0.0
            for name in tool.components:
                total += by_name[name] / 100
            noise = np.random.default_rng(hash31(f"{seed}:{tool.name}")).normal(0, 0.5 * np.sqrt(tool.size))
            assert cents / 100 == round(max(1, total + noise), 2)
        else:
            assert 1500 <= cents <= 2500


def test_only_the_reference_s_costs_follow_the_length_of_the_chain() -> None:
    kept = {"Dining_Refinement_Step1", "Search_Dining_Candidates", "Select_Final_Dining"}
    native, longer = named(made()), named(made(length=6))
    assert {name: native[name] for name in kept} == {name: longer[name] for name in kept}
    drawn, shifted = named(made(generator="reference")), named(made(generator="reference", length=6))
    assert all(drawn[name] != shifted[name] for name in kept)
    assert drawn["Decide_Dining_Preference"] == shifted["Decide_Dining_Preference"]


def test_native_costs_stay_what_they_were() -> None:
    # Frozen: suites hold optima, and no later version may draw other costs for them.
    assert [
        [named(made(distribution=one, noise=2.0))[name] for name in ("Select_Final_Dining", "Dining_Refine_to_Step2")]
        for one in DISTRIBUTIONS
    ] == [[1705, 5392], [1977, 4354], [1557, 5015], [1500, 5594], [1914, 4299]]


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(DISTRIBUTIONS),
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.floats(0, 50),
)
def test_native_costs_keep_to_their_range(seed: int, distribution: str, one: float, other: float, noise: float) -> None:
    low, high = sorted((one, other))
    world = make_world(TRAVEL, "dining", 5, True)
    found = costs_of(made(seed=seed, distribution=distribution, low=low, high=high, noise=noise, whole=True), world)
    assert found == costs_of(made(seed=seed, distribution=distribution, low=low, high=high, noise=noise), world)
    for tool, cents in zip(world.tools, found, strict=True):
        assert cents >= 1
        if tool.size == 1:
            assert max(0.01, low) - WHOLE_RANGE <= cents / 100 <= max(0.01, high) + WHOLE_RANGE
        if distribution == "two_point" and tool.size == 1:
            assert cents in (max(1, round(100 * low)), max(1, round(100 * high)))


def test_native_distributions_are_shaped_as_they_say() -> None:
    shares: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
    for distribution in DISTRIBUTIONS:
        world = make_world(TRAVEL, "shopping", 40, False)
        cents = [
            costs_of(made(task="shopping", length=40, seed=seed, noise=0.0, distribution=distribution), world)
            for seed in range(25)
        ]
        shares[distribution] = (np.array(cents)[:, :40].ravel() / 100 - 15) / 10
    mean = {name: float(values.mean()) for name, values in shares.items()}
    deviation = {name: float(values.std()) for name, values in shares.items()}
    # 1000 draws each: within four standard errors.
    assert abs(mean["uniform"] - 0.5) < 0.04
    assert abs(deviation["uniform"] - 12**-0.5) < 0.03
    assert abs(mean["normal"] - 0.5) < 0.025
    assert abs(deviation["normal"] - 1 / 6) < 0.02
    assert abs(mean["exponential"] - (1 - math.exp(-4)) / 4) < 0.035
    logs = np.log(15 + 10 * shares["lognormal"])
    assert abs(logs.mean() - np.log(15 * 25) / 2) < 0.011
    assert abs(logs.std() - np.log(25 / 15) / 6) < 0.01
    assert set(np.unique(shares["two_point"])) == {0.0, 1.0}
    assert abs(mean["two_point"] - 0.5) < 0.07


def test_costs_of_a_list_are_drawn_as_often_as_they_stand_there() -> None:
    world = make_world(TRAVEL, "shopping", 40, False)
    drawn = [
        cents
        for seed in range(25)
        for cents in costs_of(made(task="shopping", length=40, seed=seed, listed="3, 8.25,8.25, 40"), world)[:40]
    ]
    assert set(drawn) == {300, 825, 4000}
    assert abs(drawn.count(825) / len(drawn) - 0.5) < 0.07


@pytest.mark.parametrize("generator", ["native", "reference"])
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_noise_grows_as_its_power_says(generator: str, power: float) -> None:
    world = make_world(TRAVEL, "dining", 8, True)
    for seed in range(3):
        plain, root, grown = (
            costs_of(made(length=8, whole=True, generator=generator, seed=seed, **more), world)
            for more in ({"noise": 0.0}, {"noise": 0.5}, {"noise": 0.5, "noise_power": power})
        )
        for place, tool in enumerate(world.tools):
            wanted = (root[place] - plain[place]) * tool.size ** (power - 0.5)
            # Both are rounded to cents.
            assert abs(grown[place] - plain[place] - wanted) <= 1 + tool.size**power


def test_native_noise_is_the_root_of_the_size_and_none_is_a_sum() -> None:
    world = make_world(TRAVEL, "dining", 8, True)
    spread: dict[int, list[float]] = {}
    for seed in range(60):
        plain = costs_of(made(length=8, whole=True, seed=seed, noise=0.0), world)
        noisy = costs_of(made(length=8, whole=True, seed=seed, noise=1.0), world)
        for place, tool in enumerate(world.tools):
            assert plain[place] == sum(plain[world.place[name]] for name in tool.components)
            if tool.size > 1:
                spread.setdefault(tool.size % 2, []).append((noisy[place] - plain[place]) / 100 / tool.size**0.5)
            else:
                assert noisy[place] == plain[place]
    for values in spread.values():
        assert abs(float(np.mean(values))) < 0.12
        assert abs(float(np.std(values)) - 1) < 0.1


def test_explicit_costs_stand_in_for_those_drawn_until_the_costs_change() -> None:
    for generator in ("native", "reference"):
        plain = made(generator=generator)
        said = replace(plain, costs={"Select_Final_Dining": 7, "Dining_Refine_to_Step2": 123456})
        assert named(said) == {**named(plain), **said.costs}
        assert named(said, draw_seed=77) == named(plain, draw_seed=77) != named(plain)


def test_a_cost_change_s_seed_is_used_as_it_is() -> None:
    one, other = made(generator="reference"), made(generator="reference", seed=1)
    assert named(one, draw_seed=815343802) == named(one)
    assert named(one, draw_seed=5) == named(other, draw_seed=5)
    assert named(made(), draw_seed=5) == named(made(seed=1), draw_seed=5)
    assert named(made(), draw_seed=815343802) == named(made())


def test_a_graph_s_costs_are_keyed_by_tool_wherever_a_composite_stands() -> None:
    found = named(made(catalogue=catalogue_with_a_graph(), task=GRAPH, noise=0.0))
    assert next(iter(found)) == "Pack_And_Send"
    assert found["Pack_And_Send"] == found["Pack"] + found["Send"]
    assert all(1500 <= found[name] <= 2500 for name in ("Pack", "Send", "Weigh"))
