"""The checkers of blocking against all golden episodes, and the figures of paper and specification."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.costbench.events import oracle_eligible
from evalkit.envs.costbench.instances.blocks import draws
from evalkit.envs.costbench.instances.costs import query_seed
from evalkit.envs.costbench.instances.parameters import KINDS
from tests.conform.compare.costbench_blocking import blocking, change_of, gt_change, instance_of, reference_queries
from tests.support.costbench_lines import bare_instance, bare_query

TASKS = ("location", "transportation", "accommodation", "attraction", "dining", "shopping")
NAMES = {"remove_tools": "steplen_change"}


@lru_cache(maxsize=4)
def golden(folder: Path, kind: str) -> list[dict[str, Any]]:
    path = folder / "goldens" / "costbench" / f"blocking_{NAMES.get(kind, kind)}.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_golden_course(shared: Path, kind: str) -> None:
    rows = golden(shared, kind)
    assert len(rows) >= 300
    assert {blocking(row, shared / "data").detail for row in rows} == {""}


def test_a_planted_difference_is_found(shared: Path) -> None:
    row = golden(shared, "preference_change")[0]
    assert blocking(row, None).status == "equal"
    assert "block_step" in blocking({**row, "block_step": [9]}, None).detail
    wrong = [{**row["plan"][0], "alternative_query_id": "<Query00001>"}]
    assert "plan[0].alternative_query_id" in blocking({**row, "plan": wrong}, shared / "data").detail


TABLE: Mapping[tuple[str, int], tuple[int, int, int]] = {
    ("ban_tool", 5): (60, 60, 60),
    ("ban_tool", 7): (60, 60, 60),
    ("ban_tool", 8): (12, 12, 12),
    ("preference_change", 5): (60, 60, 60),
    ("preference_change", 7): (60, 60, 60),
    ("preference_change", 8): (12, 12, 12),
    ("cost_change", 5): (60, 34, 13),
    ("cost_change", 7): (60, 48, 31),
    ("cost_change", 8): (12, 12, 8),
    ("remove_tools", 5): (60, 37, 18),
    ("remove_tools", 7): (60, 48, 23),
    ("remove_tools", 8): (12, 11, 6),
}
"""Of 60 queries (at N = 8: 12), those that are eligible for who follows the ground truth, under 1, 2 and 3 blocks."""


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(("kind", "length"), TABLE)
def test_the_eligible_set_is_the_specifications(shared: Path, kind: str, length: int) -> None:
    queries = reference_queries(shared / "data")
    assert queries is not None
    each, counts = (2 if length == 8 else 10), []
    for blocks in (1, 2, 3):
        eligible = 0
        for task in TASKS:
            of_task = [one["query_id"] for one in queries if one["task"] == task]
            for i in range(each):
                name = of_task[i * len(of_task) // each]
                one = bare_query(int(name[6:-1]))
                eligible += oracle_eligible(
                    bare_instance(task=task, length=length, query=one, generator="reference", block=kind, blocks=blocks)
                )
        counts.append(eligible)
    assert tuple(counts) == TABLE[kind, length]


def test_a_row_is_one_of_those_counted(shared: Path) -> None:
    one = instance_of(golden(shared, "cost_change")[0])
    assert one.query.id == "<Query00001>"
    assert (one.length, one.blocks, one.block) == (5, 1, "cost_change")


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("kind", KINDS)
def test_how_far_one_block_moves_the_ground_truth(shared: Path, kind: str) -> None:
    # The figures that the paper prints in its text: 0.378, 0.538, 0.295, 0.214 at N = 5.
    queries = reference_queries(shared / "data")
    assert queries is not None
    rows = json.loads((shared / "goldens" / "costbench" / "gt_change_aned.json").read_bytes())["rows"]
    assert change_of(queries, kind, 5) == rows[f"N5:{NAMES.get(kind, kind)}"]


def test_alternatives_come_from_the_file_in_its_order(shared: Path) -> None:
    queries = reference_queries(shared / "data")
    assert queries is not None
    for row in golden(shared, "preference_change")[::25]:
        pool = [one for one in queries if one["task"] == row["task"] and one["query_id"] != row["query_id"]]
        base = query_seed(42, row["query_id"])
        drawn = [
            pool[draws("reference", base, "preference_change", i).below(len(pool))] for i in range(row["block_num"])
        ]
        assert [one["query_id"] for one in drawn] == [entry["alternative_query_id"] for entry in row["plan"]]


def test_without_the_queries_the_table_is_out_of_scope() -> None:
    verdict = gt_change({"rows": {}}, None)
    assert (verdict.status, verdict.detail) == ("out of scope", "needs the reference's queries: --data")
