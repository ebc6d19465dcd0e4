import json
import re
from pathlib import Path

import pytest

from evalkit.envs.costbench.domain import ids
from evalkit.envs.costbench.domain.catalogue import SPLITS
from evalkit.envs.costbench.domain.catalogue_files import only_task, parse_catalogue, shipped
from evalkit.envs.costbench.domain.queries import conflicts, native_query, reference_queries
from evalkit.envs.costbench.domain.world import context_type
from evalkit.errors import UsageError

TASKS = [(name, task) for name in ("delivery", "travel") for task in shipped(name).tasks]


@pytest.mark.parametrize(("split", "total"), [("test", 1000), ("train", 6000)])
def test_the_reference_s_raw_queries_are_made_record_for_record(shared: Path, split: str, total: int) -> None:
    rows = json.loads((shared / f"data/costbench/{split}/queries_raw.json").read_text())
    mine = list(reference_queries(shipped("travel"), split, total))
    assert len(rows) == total
    assert mine == rows
    assert [list(row) for row in mine] == [list(row) for row in rows]
    assert json.dumps(mine) == json.dumps(rows)


def test_another_domain_s_raw_queries_follow_the_same_rules_for_its_chains() -> None:
    rows = list(reference_queries(shipped("delivery"), "test", 41))
    assert [row["task"] for row in rows] == ["service"] * 11 + [
        task for task in ("feature", "bugfix", "migration") for _ in range(10)
    ]
    assert rows[0] == {
        "query_id": "<Query00001>",
        "Sprint": "<Sprint03119>",
        "task": "service",
        "is_service": 1,
        "goal_type": "AgreedServicePlan",
        "preferences": {"concern": "heavy_traffic", "pace": "released_daily", "target": "web_frontend"},
        "groundtruth": "<ServiceBrief00001>",
    }
    assert rows[-1]["service_preference"] == "<ServiceBrief00010>"


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(("name", "task"), TASKS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_thousand_native_queries_make_sense_and_name_no_value(name: str, task: str, split: str) -> None:
    catalogue = shipped(name)
    values = ids.split_values(catalogue, task, split)
    named = re.compile(
        "|".join(rf"\b{re.escape(one).replace('_', '[ _-]')}\b" for key in values for one in values[key]), re.IGNORECASE
    )
    seen: set[tuple[str, str]] = set()
    for place in range(1000 if split == "test" else 200):
        query = native_query(catalogue, task, split, 7, place)
        assert not conflicts(catalogue, task, query.preferences)
        assert named.search(query.text) is None, query.text
        assert "{" not in query.text
        for key, value in query.preferences.items():
            assert sum(phrase in query.text for phrase in catalogue.tasks[task].phrases[key][value]) == 1
        context = query.given.get(context_type(catalogue)) if catalogue.context != task else None
        assert query.number == ids.preference_number(catalogue, task, split, query.preferences, context)
        if context is not None:
            wishes = ids.preferences_at(catalogue, catalogue.context, split, context - 1)
            assert not conflicts(catalogue, catalogue.context, wishes)
        assert 1 <= query.given[catalogue.constants[0]] <= ids.TIMES
        assert query.id == f"<{task}-7-{place:04d}>"
        seen.update(query.preferences.items())
    assert len(seen) == sum(map(len, values.values()))


def test_a_place_s_query_is_the_same_whatever_else_is_made_and_others_differ() -> None:
    catalogue = shipped("travel")
    one, again = (native_query(catalogue, "dining", "test", 7, 3) for _ in range(2))
    assert (one.preferences, one.given, one.text) == (again.preferences, again.given, again.text)
    others = [native_query(catalogue, "dining", "test", *where) for where in ((7, 4), (8, 3))]
    assert all((other.number, other.text) != (one.number, one.text) for other in others)
    assert native_query(catalogue, "dining", "train", 7, 3).number > 10**5


def test_a_query_has_the_ids_that_its_task_is_given_and_no_others() -> None:
    catalogue = shipped("travel")
    assert list(native_query(catalogue, "dining", "test", 1, 0).given) == ["TimeInfo", "LocationPreference"]
    assert list(native_query(catalogue, "location", "test", 1, 0).given) == ["TimeInfo"]
    assert list(native_query(shipped("delivery"), "release", "test", 1, 0).given) == ["Sprint", "ServiceBrief"]


def test_a_conflict_needs_all_its_dimensions() -> None:
    catalogue = shipped("travel")
    wishes = {"category": "campsite", "feature_package": "self_catering_and_laundry", "style": "scenery_priority"}
    assert conflicts(catalogue, "accommodation", {**wishes, "tier": "luxury_five_star"})
    assert not conflicts(catalogue, "accommodation", {**wishes, "tier": "budget_basic"})


def test_a_task_without_values_or_without_sense_has_no_queries() -> None:
    catalogue = shipped("travel")
    alone = parse_catalogue(only_task(catalogue, "dining"), "line")
    with pytest.raises(UsageError, match="task shopping has no values in the split 'train'"):
        native_query(alone, "shopping", "train", 0, 0)
    plain = only_task(catalogue, "dining")
    plain["tasks"]["dining"]["conflicts"] = [{"tier": list(plain["tasks"]["dining"]["test"]["tier"])}]
    with pytest.raises(UsageError, match="no combination of wishes without a conflict"):
        native_query(parse_catalogue(plain, "line"), "dining", "test", 0, 0)
