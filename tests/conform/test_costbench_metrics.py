import json
from pathlib import Path
from typing import Any

import pytest

from tests.conform.compare.costbench_aggregates import BESIDE_KEY, aggregates, group_of
from tests.conform.compare.costbench_metrics import AGAIN, BESIDE, metrics, played
from tests.conform.compare.documented import DOCUMENTED

GOLDENS = ("goldens", "costbench")


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[dict[str, Any]]:
    lines = shared.joinpath(*GOLDENS, "metrics_synthetic.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def document(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shared.joinpath(*GOLDENS, "metrics_aggregate.json").read_text())
    return found


@pytest.mark.exhaustive
def test_all_golden_episodes_are_played_and_judged_alike(rows: list[dict[str, Any]], shared: Path) -> None:
    verdicts = [(row["name"], metrics(row, shared / "data")) for row in rows]
    assert [(name, verdict) for name, verdict in verdicts if verdict.status not in ("equal", "documented")] == []
    documented = [(name, verdict.detail) for name, verdict in verdicts if verdict.status == "documented"]
    assert documented == [("answer_plus_call_same_turn", BESIDE)] * 2 + [("unknown_tool_first", AGAIN)] * 3
    assert {BESIDE, AGAIN} <= set(DOCUMENTED)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (("eval", "edit_distance"), 7, "eval.edit_distance"),
        (("eval", "conversation_length"), 8, "eval.conversation_length"),
        (("trajectory", 1, "kind"), "bad_id", "turn 1"),
        (("trajectory", 1, "cost_text"), "87.53", "turn 1: cost"),
        (("scenarios", 0, "total_cost"), 107.07, "scenarios[0].total_cost"),
        (("greedy", "cost"), 107.14, "greedy.cost"),
        (("is_goal_state",), False, "is_goal_state"),
        (("gt_id",), "<LocationPreference00007>", "gt_id"),
    ],
)
def test_a_changed_row_is_found_out(
    rows: list[dict[str, Any]], shared: Path, path: tuple[str | int, ...], value: object, where: str
) -> None:
    row = json.loads(json.dumps(rows[0]))
    inner = row
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    verdict = metrics(row, shared / "data")
    assert verdict.status == "differing"
    assert verdict.detail.startswith(where)


def test_groups_come_to_the_same_figures(rows: list[dict[str, Any]], document: dict[str, Any], shared: Path) -> None:
    found = {name: aggregates({name: document[name], BESIDE_KEY: rows}, shared / "data").status for name in document}
    static = found.pop("static_level2")
    assert static == "documented"
    assert set(found.values()) == {"equal"}
    assert aggregates({**document, BESIDE_KEY: rows}, shared / "data").detail == BESIDE


def test_a_run_less_is_found_out(rows: list[dict[str, Any]], document: dict[str, Any], shared: Path) -> None:
    name = "blocked_ban_tool"
    fewer = [row for row in rows if group_of(row) == name][1:]
    assert aggregates({name: document[name], BESIDE_KEY: fewer}, shared / "data").status == "differing"


def test_without_queries_or_rows_nothing_is_compared(rows: list[dict[str, Any]], document: dict[str, Any]) -> None:
    assert metrics(rows[0], None).status == "out of scope"
    assert aggregates({**document, BESIDE_KEY: rows}, None).status == "out of scope"
    assert aggregates(document, None).status == "out of scope"


def test_a_call_beside_an_answer_is_ours_to_leave_out(rows: list[dict[str, Any]], shared: Path) -> None:
    row = next(row for row in rows if row["name"] == "answer_plus_call_same_turn")
    episode = played(row, shared / "data")
    assert episode.beside
    assert episode.facts[-1]["calls"] == [{"tool": "Select_Final_Location", "outcome": "not_executed"}]
    assert episode.evaluation["agent_tool_path"] == tuple(row["eval"]["agent_tool_path"])
