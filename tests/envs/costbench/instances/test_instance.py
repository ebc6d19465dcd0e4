from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.costbench.domain.catalogue_files import only_task
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import Terms, make_world
from evalkit.envs.costbench.instances import suite
from evalkit.envs.costbench.instances.costs import costs_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.line import read_query, show_query
from evalkit.envs.costbench.instances.suite import check_optimum, describe, load, offers, stratum
from evalkit.envs.costbench.planning.solve import optimum
from evalkit.envs.lines import instance_digest
from evalkit.errors import UsageError
from evalkit.tasks.costbench.queries import read_queries, suite_lines
from tests.support.costbench_lines import (
    CHANGED,
    DINING,
    GRAPH,
    PARCEL,
    REFERENCE,
    TRAVEL,
    again,
    alternative,
    plain_catalogue,
)

LINES: list[dict[str, Any]] = [
    DINING,
    CHANGED,
    REFERENCE,
    PARCEL,
    {**DINING, "length": 8, "steps": 60, "example": False, "composites": False, "sequence": False, "strict": True},
    {**DINING, "length": 40, "low": 1, "high": 1, "noise": 0, "distribution": "two_point", "whole": True},
    {**DINING, "costs": {"Select_Final_Dining": "0.01", "Search_Dining_Candidates": 20.1, "Dining_Search_to_Step1": 3}},
    {
        **DINING,
        "failures": 0.25,
        "alternatives": [alternative(1)],
        "schedule": [
            {"at": 2, "kind": "cost_change", "costs": {"Select_Final_Dining": 20.1}},
            {"at": 1, "kind": "preference_change"},
            {"at": 3, "kind": "remove_tools", "size": 2},
        ],
    },
    {**DINING, "source": {"file": "queries.json", "sha256": "ab", "row": 7}},
    {**PARCEL, "costs": {"Weigh": 5}, "block": "cost_change", "blocks": 2, "failures": 0.1},
    {**DINING, "query": {**DINING["query"], "message": "Find it.", "truncated": True}},
]


def same(one: PlanningProblem, other: PlanningProblem) -> bool:
    """Whether two instances are equal in all that a line says."""
    return describe(one) == describe(other)


@pytest.mark.parametrize("line", LINES)
def test_a_described_instance_is_the_same_when_loaded_again(line: dict[str, Any]) -> None:
    one = load(line)
    full = again(describe(one))
    other = load(full)
    assert again(describe(other)) == full
    check_optimum(other)
    world = make_world(one.catalogue, one.task, one.length, one.whole)
    assert full["optimum"] == optimum(world, Terms(costs_of(one, world)), world.start)
    for name in PlanningProblem.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "query":
            mine, theirs = show_query(mine), show_query(theirs)
        elif name == "alternatives":
            mine, theirs = [*map(show_query, mine)], [*map(show_query, theirs)]
        elif name == "catalogue":
            mine, theirs = only_task(mine, one.task), only_task(theirs, one.task)
        elif name in ("digest", "optimum"):
            mine = full[name]
        assert mine == theirs, name


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "length": st.integers(3, 40),
        "generator": st.just("native"),
        "seed": st.integers(0, 2**63 - 1),
        "low": st.floats(0, 20),
        "high": st.floats(20, 1e6) | st.integers(20, 30),
        "noise": st.floats(0, 50) | st.integers(0, 3),
        "distribution": st.sampled_from(["uniform", "normal", "exponential", "two_point"]),
        "whole": st.booleans(),
        "block": st.sampled_from(["none", "ban_tool", "preference_change", "remove_tools", "cost_change", "mixed"]),
        "blocks": st.sampled_from([None, 0, 1]),
        "failures": st.floats(0, 1),
        "steps": st.sampled_from([0, 1, 20, 24, 500]),
        "strict": st.booleans(),
        "example": st.sampled_from([None, False]),
        "composites": st.booleans(),
        "sequence": st.booleans(),
        "costs": st.dictionaries(
            st.sampled_from(["Select_Final_Dining", "Decide_Dining_Preference", "Dining_Preference_and_Search"]),
            st.decimals("0.01", "9999", places=2).map(str) | st.integers(1, 10**9),
        ),
    },
)


@given(VALUES, st.integers(0, 255), st.integers(1, 256), st.text(max_size=20))
def test_any_line_comes_back_as_it_was(values: dict[str, Any], wishes: int, context: int, text: str) -> None:
    length = values.get("length", 5)
    if length > 8:  # beyond, names of composites shift with the length; the atomic ones stay
        values.get("costs", {}).pop("Dining_Preference_and_Search", None)
    query = {**alternative(wishes + 1, context), "text": text, "id": "<Query9>"}
    line = {**CHANGED, **values, "query": query}
    one = load(line)
    full = again(describe(one))
    assert again(describe(load(full))) == full
    assert same(load(full), one)
    assert full["query"] == query
    assert one.steps == (values.get("steps") or max(20, 2 * length + 4))
    assert one.example == (length <= 8 if values.get("example") is None else values["example"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 2}, "length: 2 is out of range (3 to 100)"),
        ({"length": 101}, "length: 101 is out of range"),
        ({"length": "5"}, "length: expected a whole number, got '5'"),
        ({"length": 5.0}, "length: expected a whole number, got 5.0"),
        ({"whole": 1}, "whole: expected true or false, got 1"),
        ({"noise": float("nan")}, "noise: nan is out of range"),
        ({"noise": -0.1}, "noise: -0.1 is out of range"),
        ({"noise": 10**400}, "is out of range"),
        ({"noise": True}, "noise: expected a number, got True"),
        ({"low": -1}, "low: -1 is out of range"),
        ({"low": 30}, "low: 30.0 is above high (25.0)"),
        ({"failures": 1.5}, "failures: 1.5 is out of range"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"steps": -1}, "steps: -1 is out of range"),
        ({"blocks": -1}, "blocks: -1 is out of range"),
        ({"generator": "referense"}, "generator: there is no 'referense'. Did you mean 'reference'?"),
        ({"distribution": "gauss"}, "distribution: there is no 'gauss'"),
        ({"block": "steplen_change"}, "block: there is no 'steplen_change'"),
        ({"split": "dev"}, "split: there is no 'dev'"),
        ({"task": "dinning"}, "task: there is no 'dinning'. Did you mean 'dining'?"),
        ({"task": None}, "task: is missing. Valid: accommodation, attraction"),
        ({"catalogue": "travle"}, "catalogue: there is no catalogue 'travle'. Did you mean 'travel'?"),
        ({"catalogue": 7}, "catalogue: expected a catalogue's name, or a catalogue as an object, got 7"),
        ({"catalogue": {"name": "x"}}, "catalogue: Object missing required field"),
        ({"catalogue": {1: "x"}}, "catalogue: "),
        ({"environment": "scheduling"}, "environment: expected 'costbench', got 'scheduling'"),
        ({"lenght": 5}, "lenght: a costbench instance has no such field. Did you mean 'length'?"),
        ({"id": 7}, "id: expected a string, got 7"),
        ({"digest": 7}, "digest: expected a string, got 7"),
        ({"optimum": -1}, "optimum: -1 is out of range (0 to any)"),
        ({"optimum": 90.5}, "optimum: expected a whole number, got 90.5"),
        ({"alternatives_seed": "42"}, "alternatives_seed: expected a whole number, got '42'"),
        ({"example": True, "length": 9}, "example: it lists every way through the tools, 2^8 of them; at most 8"),
        ({"distribution": "normal", "listed": "1, 2"}, "listed: draws costs by itself"),
        ({"generator": "reference", "listed": "1, 2"}, "listed: draws costs by itself"),
        ({"listed": "1, two"}, "listed: expected costs with commas between"),
        ({"distribution": "lognormal", "low": 0}, "low: must be above 0"),
        ({"noise_power": 2.5}, "noise_power: 2.5 is out of range"),
        ({"generator": "reference", "distribution": "normal"}, "distribution: the reference draws no 'normal' costs"),
    ],
)
def test_a_wrong_parameter_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        load({**DINING, **change})
    assert words in str(flaw.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "query: expected an object"),
        ({"id": ""}, "query.id: expected a string that is not empty, got ''"),
        ({"id": None}, "query.id: expected a string that is not empty, got None"),
        ({"text": 5}, "query.text: expected a string, got 5"),
        ({"texts": "x"}, "query.texts: there is no such field. Did you mean 'text'?"),
        ({"number": 511}, "query.number: these preferences come to 512, the line says 511"),
        ({"number": True}, "query.number: expected a whole number, got True"),
        ({"truncated": 1}, "query.truncated: expected true or false, got 1"),
        ({"message": None}, "query.message: expected a string, got None"),
        ({"given": {"TimeInfo": 1}}, "query.given.LocationPreference: is missing"),
        ({"given": {"TimeInfo": 1, "LocationPreference": 257}}, "from 1 to 256, got 257"),
        ({"given": {"TimeInfo": 0, "LocationPreference": 2}}, "query.given.TimeInfo: expected a whole number from 1"),
        ({"given": {"TimeInfo": 100000, "LocationPreference": 2}}, "from 1 to 99999, got 100000"),
        ({"given": {"TimeInfo": 1, "LocationPreference": True}}, "query.given.LocationPreference: expected a whole"),
        ({"given": {"TimeInfos": 1}}, "query.given.TimeInfos: there is no such field. Did you mean 'TimeInfo'?"),
        ({"given": []}, "query.given: expected an object, got []"),
        ({"preferences": {"category": "bakery"}}, "query.preferences.feature_package: is missing"),
        ({"preferences": {"categories": "bakery"}}, "there is no such field. Did you mean 'category'?"),
    ],
)
def test_a_wrong_query_is_named(change: dict[str, Any] | None, words: str) -> None:
    wrong = "dinner" if change is None else {**DINING["query"], **change}
    with pytest.raises(UsageError) as flaw:
        load({**DINING, "query": wrong})
    assert words in str(flaw.value)
    with pytest.raises(UsageError) as flaw:
        load({**DINING, "alternatives": [alternative(1), wrong]})
    assert words.replace("query", "alternatives[1]", 1) in str(flaw.value)


def test_a_query_is_asked_for_and_its_values_are_the_split_s() -> None:
    with pytest.raises(UsageError, match="query: is missing"):
        load({key: value for key, value in DINING.items() if key != "query"})
    with pytest.raises(UsageError, match=r"query.preferences.category: the train split of 'dining' has no value"):
        load({**DINING, "split": "train"})
    wishes = {**DINING["query"]["preferences"], "category": "bakerry"}
    with pytest.raises(UsageError, match=r"no value 'bakerry'. Did you mean 'bakery'"):
        load({**DINING, "query": {**DINING["query"], "preferences": wishes}})
    with pytest.raises(UsageError, match="split: task 'parcel' of this catalogue has no values in the train split"):
        load({**PARCEL, "split": "train"})
    found = {key: value for key, value in DINING["query"].items() if key != "number"}
    assert read_query(msgspec.convert(found, Query), TRAVEL, "dining", "test", "query").number == 512


@pytest.mark.parametrize(
    "cost", [0, 0.001, "0.005", 1.234, "12.345", -1, True, None, [], "x", "nan", float("inf"), 2e9]
)
def test_a_cost_that_is_none_is_refused(cost: object) -> None:
    with pytest.raises(UsageError, match=r"costs.Select_Final_Dining: expected a cost from 0.01 .* at most 2 decimals"):
        load({**DINING, "costs": {"Select_Final_Dining": cost}})
    event = {"at": 1, "kind": "cost_change", "costs": {"Select_Final_Dining": cost}}
    with pytest.raises(UsageError, match=r"schedule\[0\].costs.Select_Final_Dining: expected a cost from 0.01"):
        load({**DINING, "schedule": [event]})


def test_explicit_costs_are_exact_cents_of_tools_that_are_offered() -> None:
    said = {"Select_Final_Dining": 20.1, "Search_Dining_Candidates": "7", "Decide_Dining_Preference": 1e1}
    assert load({**DINING, "costs": said}).costs == {
        "Decide_Dining_Preference": 1000,
        "Search_Dining_Candidates": 700,
        "Select_Final_Dining": 2010,
    }
    for name in ("Select_Final_Dinning", "Dining_Complete_5Steps_Pipeline", "Search_Location_Candidates"):
        with pytest.raises(UsageError, match=f"costs.{name}: there is no such tool."):
            load({**DINING, "costs": {name: 1}})
    assert load({**DINING, "costs": {"Dining_Complete_5Steps_Pipeline": 1}, "whole": True}).costs


def test_a_graph_has_the_tools_its_catalogue_says() -> None:
    found = load(PARCEL)
    assert (found.length, found.steps, found.example, found.catalogue_name) == (4, 20, True, "")
    assert offers(found) == 5
    assert "length" not in describe(found)
    for change, words in (
        ({"length": 5}, "length: task 'parcel' is no chain"),
        ({"whole": False}, "whole: task 'parcel' is no chain"),
        ({"generator": "reference"}, "generator: the reference has no tools like those of task 'parcel'"),
        ({"costs": {"Packs": 1}}, "costs.Packs: there is no such tool. Did you mean 'Pack'?"),
        ({"catalogue": plain_catalogue(steps=16)}, "states"),
    ):
        with pytest.raises(UsageError) as flaw:
            load({**PARCEL, **change})
        assert words in str(flaw.value)


def test_equal_catalogues_in_lines_are_one_and_a_line_keeps_what_its_task_needs() -> None:
    one, other = load(PARCEL), load(again(PARCEL))
    assert one.catalogue is other.catalogue
    line = describe(load({**DINING, "catalogue": plain_catalogue()}))
    assert GRAPH not in line["catalogue"]["tasks"]
    assert list(line["catalogue"]["tasks"]) == list(TRAVEL.tasks)
    shipped_line = describe(load(DINING))
    assert shipped_line["catalogue"] == "travel"
    assert (line["digest"], line["optimum"]) == (shipped_line["digest"], shipped_line["optimum"])


def test_a_line_whose_costs_are_others_now_is_refused_when_an_episode_starts() -> None:
    full = describe(load(DINING))
    for change, words in (
        ({"optimum": full["optimum"] + 1}, f"dining: optimum: the cheapest plan costs {full['optimum']} cents"),
        ({"digest": "0" * 32}, "dining: digest: the costs drawn from this line have digest"),
        ({"seed": 1}, "dining: digest"),
        ({"costs": {"Select_Final_Dining": 1}, "digest": ""}, "dining: optimum"),
    ):
        changed = load({**full, **change})
        with pytest.raises(UsageError, match=words):
            check_optimum(changed)
    check_optimum(load({**DINING, "seed": 1}))
    check_optimum(load({**full, "seed": 1, "digest": "", "optimum": None}))


def test_loading_draws_no_costs_and_what_a_line_stores_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    full = describe(load(DINING))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("costs were drawn")

    monkeypatch.setattr(suite, "costs_of", refuse)
    assert describe(load(full)) == full
    with pytest.raises(AssertionError, match="were drawn"):
        describe(load(DINING))


def test_identity_is_what_is_played_and_not_what_follows_from_it() -> None:
    def digest(**change: Any) -> str:
        return instance_digest("costbench", describe(load({**CHANGED, **change})))

    assert digest() == digest(id="other", blocks=1, steps=20, example=True, low=15, noise=0.1, sequence=True)
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"length": 6},
        {"noise": 0.5},
        {"whole": True},
        {"steps": 21},
        {"example": False},
        {"strict": True},
        {"costs": {"Select_Final_Dining": 1}},
        {"alternatives": [alternative(1), alternative(8)]},
        {"query": {**DINING["query"], "text": "Anywhere."}},
        {"generator": "reference", "alternatives_seed": 0},
        {"failures": 0.1},
    ]
    found = [digest(), *(digest(**change) for change in changes)]
    assert len(set(found)) == len(found)


def test_what_a_request_offers_and_the_stratum() -> None:
    counts = {length: offers(load({**DINING, "length": length})) for length in range(3, 9)}
    assert counts == {3: 5, 4: 9, 5: 14, 6: 20, 7: 27, 8: 35}
    assert offers(load({**DINING, "whole": True})) == 15
    assert stratum(load(DINING)) == "dining"
    assert stratum(load(PARCEL)) == GRAPH


def test_every_query_of_the_reference_loads_and_comes_back(shared: Path) -> None:
    lines = suite_lines([read_queries(shared / "data" / "costbench" / "test" / "queries.json")])
    assert len(lines) == 381
    for line in lines:
        full = describe(load(line))
        assert describe(load(again(full))) == full
        assert full["query"] == {key: value for key, value in line["query"].items() if value != False}  # noqa: E712


def test_optima_are_the_reference_s_ground_truth_costs(shared: Path) -> None:
    lines = suite_lines([read_queries(shared / "data" / "costbench" / "test" / "queries.json")])
    by_query = {line["query"]["id"]: line for line in lines}
    checked = 0
    for row in map(orjson.loads, (shared / "goldens" / "costbench" / "paths_seed42.jsonl").read_bytes().splitlines()):
        if row["query_id"] < "<Query00100>":
            line = {**by_query[row["query_id"]], "length": row["task_length"]}
            assert describe(load(line))["optimum"] == round(100 * row["gt_cost"])
            checked += 1
    assert checked > 60
