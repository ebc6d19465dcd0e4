import itertools
from typing import Any

import pytest

from evalkit.envs.costbench.domain.catalogue_files import only_task
from evalkit.envs.costbench.instances.suite import check_optimum, describe, generate, load
from evalkit.errors import UsageError
from tests.support.costbench_lines import (
    GRAPH,
    TRAVEL,
    again,
    plain_catalogue,
)


def test_generated_lines_load_to_themselves_and_depend_on_their_place_alone() -> None:
    lines = list(generate({}, 14, seed=3))
    assert [line["task"] for line in lines[:7]] == [*TRAVEL.tasks, "location"]
    assert [line["id"] for line in lines[:2]] == ["location-0000", "transportation-0001"]
    assert len({line["id"] for line in lines}) == len({line["seed"] for line in lines}) == 14
    for line in lines:
        assert again(describe(load(again(line)))) == again(line)
        check_optimum(load(line))
        assert line["alternatives_seed"] == line["seed"]
        wishes = [line["query"]["preferences"], *(one["preferences"] for one in line["alternatives"])]
        assert len(wishes) == 4
        assert all(one != other for one, other in itertools.combinations(wishes, 2))
    assert lines[:5] == list(generate({}, 5, seed=3))
    assert all(one["seed"] != other["seed"] for one, other in zip(lines, generate({}, 14, seed=4), strict=True))


def test_what_is_asked_for_is_generated() -> None:
    asked = {
        "task": "dining",
        "length": 7,
        "split": "train",
        "block": "preference_change",
        "blocks": 5,
        "example": None,
    }
    for line in generate({**asked, "generator": "reference"}, 3, seed=1):
        assert {name: line[name] for name in asked if asked[name] is not None} == {
            name: value for name, value in asked.items() if value is not None
        }
        assert len(line["alternatives"]) == 5
        assert len(load(line).alternatives) == 5
    whole = next(generate({"whole": True, "distribution": "two_point", "seed": 9}, 1, seed=1))
    assert whole["whole"]
    assert whole["seed"] != 9


def test_a_catalogue_of_one_s_own_is_generated_from() -> None:
    lines = list(generate({"catalogue": plain_catalogue(), "length": 6}, 7, seed=1))
    assert [line["task"] for line in lines] == [*TRAVEL.tasks, GRAPH]
    assert [line.get("length") for line in lines] == [6] * 6 + [None]
    for line in lines:
        assert line["catalogue"] == only_task(load(line).catalogue, line["task"])
        assert again(describe(load(again(line)))) == again(line)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lenght": 5}, "lenght: costbench has no such parameter. Did you mean 'length'?"),
        ({"task": "dinning"}, "task: there is no 'dinning'"),
        ({"catalogue": "my.toml"}, "no catalogue 'my.toml'. Valid: delivery, travel. To use your own file"),
        ({"split": "tests"}, "split: there is no 'tests'. Did you mean 'test'?"),
        ({"catalogue": plain_catalogue(), "task": GRAPH, "split": "train"}, "split: task 'parcel'"),
        ({"catalogue": plain_catalogue(), "task": GRAPH, "length": 4}, "length: task 'parcel' is no chain"),
        ({"low": 99}, "low: 99.0 is above high"),
        ({"blocks": "3"}, "blocks: expected a whole number, got '3'"),
    ],
)
def test_what_cannot_be_generated_is_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        list(generate(parameters, 1, seed=1))
    assert words in str(flaw.value)
