"""`docs/papers.md` against what there is: every sweep, table, figure and option that it names."""

import re
from pathlib import Path

from evalkit.cli.main import parser
from evalkit.report.published.papers import published_papers

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def test_every_sweep_of_the_papers_is_on_the_page_and_no_other() -> None:
    named = {name for row in ROWS for name in re.findall(r"`((?:costbench|econ)-[a-z0-9-]+)`", row[1])}
    there = {path.stem for path in (ROOT / "runs" / "papers").glob("*.toml")}
    assert named == there


def test_every_table_that_is_named_is_made_somewhere() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "evalkit").rglob("*.py"))
    for row in ROWS:
        for name in re.findall(r"`((?:planning|econ|suite|coverage|adaptation)[a-z_]*)`", row[2]):
            assert f'"{name}"' in code, name


def test_every_published_table_has_a_row() -> None:
    text = " ".join(cell for row in ROWS for cell in row)
    for paper in published_papers():
        for table in paper.tables:
            assert table.number == "text" or table.number in text
            assert any(name in text for name in table.ours)


def test_every_option_that_is_named_is_one_of_report() -> None:
    known = parser()[1]["report"].format_help()
    for option in set(re.findall(r"--[a-z]+", PAGE)):
        assert option in known, option
