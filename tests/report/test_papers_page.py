"""`docs/papers.md` against what there is: every sweep, table and figure that it names, and every published table."""

import re
from pathlib import Path

from evalkit.report.published.papers import published_papers

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [
    cells
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 4
][1:]
STATES = ("equal", "close", "by models", "by people", "none", "test equal", "raw queries equal", "Greedy Policy equal")


def test_every_sweep_of_the_papers_is_on_the_page_and_no_other() -> None:
    named = {name for row in ROWS for name in re.findall(r"papers/((?:costbench|econ)-[a-z0-9-]+)`", row[1])}
    there = {path.stem for path in (ROOT / "runs" / "papers").glob("*.toml")}
    assert named == there


def test_every_row_has_a_state_and_every_item_that_is_measured_a_command() -> None:
    for item, command, _, state in ROWS:
        if item != "in the paper":
            assert state.startswith(STATES), item
            assert command or state == "none", item


def test_every_published_table_has_a_row() -> None:
    text = " ".join(cell for row in ROWS for cell in row)
    for paper in published_papers():
        for table in paper.tables:
            assert table.number == "text" or table.number in text
            assert any(name in text for name in table.ours)
