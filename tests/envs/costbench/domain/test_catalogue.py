import re

import pytest
from msgspec import to_builtins

from evalkit.envs.costbench.domain import ids
from evalkit.envs.costbench.domain.catalogue import SPLITS, Catalogue, title
from evalkit.envs.costbench.domain.catalogue_files import only_task, parse_catalogue, shipped, shipped_names
from evalkit.envs.costbench.domain.world import World, composite_spans, make_world, output_type, registry, tool_name
from evalkit.errors import UsageError

BOTH = ("delivery", "travel")
TASKS = [(name, task) for name in BOTH for task in shipped(name).tasks]
CHAINS = [(name, task) for name, task in TASKS if shipped(name).tasks[task].graph is None]


def reached(world: World) -> int:
    held = world.start
    while True:
        new = held
        for tool in world.tools:
            if tool.need & ~new == 0:
                new |= tool.gives
        if new == held:
            return held
        held = new


def test_these_catalogues_are_brought_along() -> None:
    assert tuple(shipped_names()) == BOTH
    assert shipped("travel") is shipped("travel")
    with pytest.raises(UsageError, match=r"no catalogue 'travle'\. Did you mean 'travel'"):
        shipped("travle")


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("length", range(3, 13))
def test_no_two_tools_of_a_catalogue_share_a_name_and_no_two_types(name: str, length: int) -> None:
    catalogue = shipped(name)
    chain = catalogue.chain
    assert chain is not None
    tasks = [task for task, found in catalogue.tasks.items() if found.graph is None]
    spans = [*((i, i) for i in range(length)), *composite_spans(length, whole=True)]
    tools = [tool_name(chain, task, length, *span) for task in tasks for span in spans]
    tools += [tool.name for found in catalogue.tasks.values() if found.graph for tool in found.graph.tools]
    types = [output_type(chain, task, length, i) for task in tasks for i in range(length)]
    assert len(tools) == len(set(tools)) >= len(tasks) * length * (length + 1) // 2
    assert len(types) == len(set(types))
    assert not any("{" in text for text in (*tools, *types))


@pytest.mark.parametrize(("name", "task"), TASKS)
@pytest.mark.parametrize("length", [3, 5, 8, 12])
def test_the_goal_of_every_world_can_be_reached(name: str, task: str, length: int) -> None:
    world = make_world(shipped(name), task, length, whole=True)
    assert reached(world) & world.goal
    assert not world.start & world.goal
    label = world.labels[world.goal_type]
    assert [world.labels[kind] for kind in world.labels].count(label) == 1
    assert not label[-1].isdigit()


def test_the_graph_joins_what_several_tools_give_and_has_more_than_one_way() -> None:
    world = make_world(shipped("delivery"), "release", 5, whole=False)
    assert not world.chain
    made = {tool.output for tool in world.tools}
    assert any(len(made.intersection(tool.inputs)) >= 2 for tool in world.tools)
    outputs = [tool.output for tool in world.tools if tool.size == 1]
    assert len(set(outputs)) < len(outputs)
    for tool in world.tools:
        if tool.size > 1:
            parts = [next(one for one in world.tools if one.name == part) for part in tool.components]
            held = set(tool.inputs)
            for part in parts:
                assert held.issuperset(part.inputs)
                held.add(part.output)
            assert parts[-1].output == tool.output


@pytest.mark.parametrize(("name", "task"), TASKS)
@pytest.mark.parametrize("split", SPLITS)
def test_ids_have_room_and_splits_share_no_value(name: str, task: str, split: str) -> None:
    catalogue = shipped(name)
    values = ids.split_values(catalogue, task, split)
    assert set(values) == set(catalogue.keys)
    assert {len(found) for found in values.values()} == {{"test": 4, "train": 6}[split]}
    assert len(str(ids.largest_number(catalogue, task, split))) <= catalogue.digits[split]
    other = ids.split_values(catalogue, task, "train" if split == "test" else "test")
    assert not any(set(values[key]) & set(other[key]) for key in catalogue.keys)


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_every_value_is_hinted_at_in_two_ways_of_its_own_that_do_not_name_one(name: str, task: str) -> None:
    catalogue = shipped(name)
    found = catalogue.tasks[task]
    names = [
        value for split in SPLITS for values in ids.split_values(catalogue, task, split).values() for value in values
    ]
    named = re.compile("|".join(rf"\b{re.escape(value).replace('_', '[ _-]')}\b" for value in names), re.IGNORECASE)
    phrases: list[str] = []
    for key in catalogue.keys:
        assert set(found.phrases[key]) == {*found.test[key], *found.train[key]}
        for texts in found.phrases[key].values():
            assert len(texts) == 2
            phrases += texts
    assert len(phrases) == len(set(phrases))
    for phrase in phrases:
        assert named.search(phrase) is None, phrase
        assert phrase[-1] not in ".!?"
        assert "{" not in phrase


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_one_task_alone_gives_the_same_worlds_ids_and_order_of_draws(name: str, task: str) -> None:
    whole = shipped(name)
    alone = parse_catalogue(only_task(whole, task), "line")
    assert list(registry(whole, 5)) == list(registry(alone, 5))
    assert alone.keys == whole.keys
    assert alone.tasks[task] == whole.tasks[task]
    for length in (3, 6):
        one, other = (make_world(catalogue, task, length, whole=False) for catalogue in (whole, alone))
        for field in ("tools", "foreign"):
            assert [shape(tool) for tool in getattr(one, field)] == [shape(tool) for tool in getattr(other, field)]
        for field in ("types", "start", "goal", "order", "labels", "dimensions", "sequence"):
            assert getattr(one, field) == getattr(other, field)
    for split in SPLITS:
        assert ids.largest_number(whole, task, split) == ids.largest_number(alone, task, split)
    again = parse_catalogue(only_task(alone, task), "line")
    assert to_builtins(again) == to_builtins(alone) != to_builtins(whole)


def shape(tool: object) -> tuple[object, ...]:
    return tuple(getattr(tool, field) for field in ("name", "inputs", "output", "need", "gives", "components", "text"))


def test_one_task_alone_leaves_out_what_others_need_for_themselves() -> None:
    plain = only_task(shipped("delivery"), "feature")
    assert list(plain["tasks"]) == ["service", "feature", "bugfix", "migration"]
    assert set(plain["tasks"]["bugfix"]) == {"about", "test"}
    assert plain["tasks"]["service"]["train"]
    assert "release" in only_task(shipped("delivery"), "release")["tasks"]
    with pytest.raises(UsageError, match=r"no task 'feautre'\. Did you mean 'feature'"):
        only_task(shipped("delivery"), "feautre")


def test_titles_join_the_words_of_a_task() -> None:
    assert title("dining") == "Dining"
    assert title("code_review") == "CodeReview"


def test_dimension_keys_are_counted_in_the_alphabet_s_order_and_declared_in_their_own() -> None:
    catalogue: Catalogue = shipped("delivery")
    assert catalogue.keys == ("concern", "pace", "target")
    world = make_world(catalogue, "feature", 5, whole=False)
    assert world.tools[0].inputs == ("FeatureTarget", "FeaturePace", "FeatureConcern", "ServiceBrief")
