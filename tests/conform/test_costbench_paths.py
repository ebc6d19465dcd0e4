import json
from pathlib import Path

import pytest

from tests.conform.compare.costbench_paths import greedy_table, paths, tie_stats
from tests.conform.compare.goldens import EQUAL


@pytest.fixture(scope="module")
def goldens(shared: Path) -> Path:
    return shared / "goldens" / "costbench"


def test_rows_are_equal_and_a_changed_one_is_told(goldens: Path) -> None:
    with (goldens / "paths_seed42.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for _, line in zip(range(300), file, strict=False)]
    assert {paths(row, None) for row in rows} == {EQUAL}
    row = rows[0]
    assert "gt_cost" in paths({**row, "gt_cost": row["gt_cost"] + 1e-13}, None).detail
    assert "greedy_path" in paths({**row, "greedy_path": row["gt_path"]}, None).detail
    assert "greedy_em" in paths({**row, "greedy_em": 1 - row["greedy_em"]}, None).detail


@pytest.mark.parametrize(("name", "check"), [("greedy_table", greedy_table), ("tie_stats", tie_stats)])
def test_tables_need_the_queries(goldens: Path, name: str, check) -> None:  # type: ignore[no-untyped-def]
    row = json.loads((goldens / f"{name}.json").read_text(encoding="utf-8"))
    for data in (None, goldens):
        assert check(row, data).status == "out of scope"


@pytest.mark.exhaustive
def test_the_greedy_table_is_recomputed(goldens: Path, shared: Path) -> None:
    row = json.loads((goldens / "greedy_table.json").read_text(encoding="utf-8"))
    few = {**row, "all_rows": [line for line in row["all_rows"] if line["task_length"] == 5]}
    assert greedy_table(few, shared / "data") == EQUAL
    few["all_rows"][0]["AED"] += 1
    assert "AED" in greedy_table(few, shared / "data").detail


def test_the_table_of_ties_is_recomputed(goldens: Path, shared: Path) -> None:
    row = json.loads((goldens / "tie_stats.json").read_text(encoding="utf-8"))
    assert tie_stats({"5": row["5"]}, shared / "data") == EQUAL
    assert "decimal_ties" in tie_stats({"5": {**row["5"], "decimal_ties": 0}}, shared / "data").detail
    assert "length 9" in tie_stats({"9": row["5"]}, shared / "data").detail
