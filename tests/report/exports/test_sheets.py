"""Sheets: the report's tables, every episode and every score."""

import csv
import json
from pathlib import Path

from evalkit.report.exports.episodes import choose, write_sheets
from evalkit.report.report import report


def sheet(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_there_is_a_sheet_a_table_and_one_of_episodes_and_scores(run: Path, tmp_path: Path) -> None:
    write_sheets(choose(run), tmp_path / "out")
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert names == {"episodes", "scores", *(f"table_{table.name}" for table in report(run).tables)}
    episodes = sheet(tmp_path / "out", "episodes")
    assert len(episodes) == 11
    (void,) = [row for row in episodes if row["void"] == "true"]
    assert (void["agent"], void["instance"], void["void_reason"], void["finished"]) == ("odd", "i2", "x", "false")
    finished = [row for row in episodes if row["finished"] == "true"]
    scores = [row for row in sheet(tmp_path / "out", "scores") if row["metric"] == "score"]
    assert {row["episode"]: float(row["value"]) for row in scores} == {
        row["episode"]: float(row["score"]) for row in finished
    }
    assert all(isinstance(json.loads(row["metrics"]), dict) for row in episodes)


def test_a_choice_is_kept_to(run: Path, tmp_path: Path) -> None:
    write_sheets(choose(run, {"good"}, {"t/x"}), tmp_path / "out")
    for name in ("episodes", "scores"):
        assert {(row["agent"], row["suite"]) for row in sheet(tmp_path / "out", name)} == {("good", "t/x?k=2")}
    assert {row["agent"] for row in sheet(tmp_path / "out", "table_scores")} == {"good"}
