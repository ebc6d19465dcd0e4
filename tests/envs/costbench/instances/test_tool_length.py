"""`control_tool_length` and `max_tool_length`: composites of more atomic tools are left out, as in the reference."""

from itertools import product

import pytest

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.events import course_of, terms_of, world_of
from evalkit.envs.costbench.instances.blocks import planned_blocks, removed_ranges
from evalkit.envs.costbench.instances.costs import query_seed
from evalkit.envs.costbench.score import score
from evalkit.errors import UsageError
from tests.support.costbench_episodes import Episode, make_instance
from tests.support.costbench_lines import DINING, PARCEL


@pytest.mark.parametrize(("length", "longest", "whole"), [*product((3, 5, 8), (1, 2, 4, 8), (False, True))])
def test_longer_composites_are_left_out_and_nothing_else_changes(length: int, longest: int, whole: bool) -> None:
    free = make_instance(length=length, whole=whole)
    bound = make_instance(length=length, whole=whole, control_tool_length=True, max_tool_length=longest)
    kept = [tool.name for tool in world_of(free).tools if tool.size <= max(1, longest)]
    assert [tool.name for tool in world_of(bound).tools] == kept
    costs = dict(zip((tool.name for tool in world_of(free).tools), terms_of(free).costs, strict=False))
    assert [costs[name] for name in kept] == list(terms_of(bound).costs[: len(kept)])
    foreign = [tool.name for tool in world_of(free).foreign if tool.size <= max(1, longest)]
    assert [tool.name for tool in world_of(bound).foreign] == foreign
    assert all(world_of(bound).tools[world_of(bound).place[name]].size <= longest for name in course_of(bound).path)


def test_without_the_switch_the_number_says_nothing() -> None:
    assert world_of(make_instance(max_tool_length=2)) is world_of(make_instance())
    assert len(world_of(make_instance(control_tool_length=True)).tools) == len(world_of(make_instance()).tools)


def test_paths_are_counted_that_the_offered_tools_can_make() -> None:
    for longest, possible in ((1, 1), (2, 8), (3, 13), (4, 15), (8, 15)):
        found = Episode(make_instance(control_tool_length=True, max_tool_length=longest))
        found.answer()
        figures = score(found.instance, found.facts).metrics
        assert (figures["paths_possible"], figures["paths_whole"]) == (possible, 16)


@pytest.mark.parametrize("most", [3, 4, 8])
def test_sizes_that_vanish_are_drawn_up_to_the_bound_as_in_the_reference(most: int) -> None:
    found = make_instance(block="remove_tools", blocks=2, control_tool_length=True, max_tool_length=most)
    base = query_seed(found.seed, found.query.id)
    drawn = [block.reach for block in planned_blocks(found, world_of(found))]
    assert drawn == removed_ranges("reference", base, 2, most)


def test_lines_say_what_is_not_the_default_and_graphs_refuse_it() -> None:
    plain = COSTBENCH.describe(COSTBENCH.load(DINING))
    assert not {"control_tool_length", "max_tool_length"} & plain.keys()
    said = {"control_tool_length": True, "max_tool_length": 3}
    told = COSTBENCH.describe(COSTBENCH.load({**DINING, **said}))
    assert {key: told[key] for key in said} == said
    assert COSTBENCH.describe(COSTBENCH.load({**told, "digest": "", "optimum": None})) == told
    with pytest.raises(UsageError, match="control_tool_length: task 'parcel' is no chain"):
        COSTBENCH.load({**PARCEL, "control_tool_length": True})
