"""Published tables as the papers print them: titles, decimals, parentheses and bold."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.report.published.papers import PublishedTable, as_printed, best_of, published_papers
from evalkit.report.render.latex import latex
from evalkit.report.tables import Column, Kind, Table, as_csv, markdown, written
from evalkit.view.grid import grid

KINDS: dict[str, Kind] = {"gap": "fine", "gap_clean": "fine", "edit_distance": "fine"}
PUBLISHED = {table.name: table for paper in published_papers() for table in paper.tables}


def kind_of(table: PublishedTable, key: str) -> Kind:
    counts = table.name == "costbench_6" or key.endswith(("_solved", "_runs"))
    return "count" if counts else KINDS.get(key, "percent")


def paper_rows(name: str) -> Table:
    """A table of the paper's rows alone, in the paper's layout."""
    published = PUBLISHED[name]
    keys = list(
        dict.fromkeys(key for row in published.rows for key, value in row.items() if isinstance(value, int | float))
    )
    runs = {key.replace("_solved", "_runs"): published.runs for key in keys if key.endswith("_solved")}
    rows = [{**runs, **published.keys, **row, "agent": row.get("model", "")} for row in published.rows]
    columns = [Column(key=key, title=key, kind=kind_of(published, key)) for key in (*keys, *runs)]
    table = Table(
        name=name,
        title=name,
        columns=(Column(key="agent", title="Agent"), *columns),
        rows=tuple(rows),
        packs=(),
    )
    return as_printed(table, name)


def read(table: Table, model: str, key: str, **where: Any) -> str:
    column = next(one for one in table.outer if one.key == key)
    wanted = {"agent": model, **where}
    (row,) = [row for row in table.rows if all(row.get(name) == value for name, value in wanted.items())]
    return written(column, row)


def test_costbench_4_reads_as_in_the_paper() -> None:
    table = paper_rows("costbench_4")
    titles = [column.title for column in table.outer]
    assert titles == ["Agent", "Cost Gap", "AED", "ANED (%)", "EMR (%)", "UIHR (%)", "ITUR (%)"]
    keys = [column.key for column in table.outer][1:]
    found = [read(table, "Qwen3-14B", key) for key in keys]
    assert found == ["0.670 (0.130)", "1.976", "51.26", "33.45", "88.71", "0.91"]
    assert read(table, "Greedy Policy", "intent") == "–"
    assert not table.bold


def test_costbench_6_has_the_papers_names() -> None:
    titles = [column.title for column in paper_rows("costbench_6").outer]
    assert titles[1:] == ["Repeated Calls", "Extra Calls", "Wrong Parameters", "Unaccessible Calls"]


def test_econ_2_counts_solved_instances_in_parentheses() -> None:
    table = paper_rows("econ_2")
    assert [column.key for column in table.outer] == ["agent", "procurement", "scheduling", "pricing"]
    assert read(table, "Claude 3.5 Sonnet", "procurement", difficulty="basic") == "72.8 (2/12)"
    assert read(table, "Claude 3.5 Sonnet", "procurement", difficulty="medium") == "54.5 (0)"
    assert read(table, "GPT-4o", "scheduling", difficulty="medium") == "-4.5 (0)"
    assert read(table, "GPT-5", "pricing", difficulty="hard") == "58.9"


def bold_of(table: Table, key: str) -> set[str]:
    return {table.rows[place]["agent"] for place, name in table.bold if name == key}


def test_the_best_two_of_hard_are_bold_in_the_papers_tables() -> None:
    scores, quality = paper_rows("econ_2"), paper_rows("econ_3")
    assert all(scores.rows[place]["difficulty"] == "hard" for place, _ in scores.bold)
    assert bold_of(scores, "procurement") == {"GPT-5", "o4-mini"}
    assert bold_of(scores, "scheduling") == {"GPT-5", "Heuristic of D.3"}
    assert bold_of(scores, "pricing") == {"GPT-4.1", "Gemini 2.5 Pro"}
    assert bold_of(quality, "best_so_far_rate") == {"GPT-5", "Gemini 2.5 Pro"}
    assert bold_of(quality, "adaptability") == {"Gemini 1.5 Pro", "GPT-4.1"}


def test_econ_5_prints_exploration_as_a_share() -> None:
    table = paper_rows("econ_5")
    assert [column.title for column in table.outer][1:] == ["Benchmark Score", "Exploration Rate"]
    assert read(table, "Gemini 1.5 Pro", "exploration_rate", difficulty="basic", prompts="known_horizon") == "0.23"


def test_every_way_to_read_a_table_says_the_same() -> None:
    table = paper_rows("econ_2")
    assert "| **75.0 (0)** |" in markdown(table).replace("\\", "")
    assert r"\textbf{75.0 (0)}" in latex(table)
    cells = {cell.text: cell.style for row in grid(table, "run").rows for cell in row.cells}
    assert "strong" in cells["75.0 (0)"]
    assert "strong" not in cells["54.6 (0)"]
    assert "procurement_solved,scheduling,scheduling_solved" in as_csv(table)
    assert {column["key"] for column in table.to_json()["columns"]} >= {"procurement_solved", "procurement_runs"}


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 5), max_size=8), st.integers(1, 3))
def test_bold_are_the_greatest_and_never_all(values: dict[int, int], most: int) -> None:
    found = set(best_of({place: float(value) for place, value in values.items()}, most))
    assert found == set() or len(found) < len(values)
    rest = [value for place, value in values.items() if place not in found]
    assert all(values[place] > max(rest) for place in found)
    assert not found or len(found) >= most


def test_the_layout_is_the_papers(shared: Path) -> None:
    """Figures as they stand in the papers' own texts, letter by letter."""
    text = (shared / "papers" / "costbench.txt").read_text(encoding="utf-8")
    table = paper_rows("costbench_4")
    (head,) = re.findall(r"^\| (Cost Gap \|.*) \| ?$", text, re.MULTILINE)
    assert [column.title for column in table.outer][1:] == [part.strip() for part in head.split("|") if part.strip()]
    for row in table.rows:
        (line,) = re.findall(rf"^\| {re.escape(row['agent'])} \| ([\d.]+ \(.*) \|$", text, re.MULTILINE)
        ours = [written(column, row).replace("–", "-") for column in table.outer][1:]
        assert ours == [part.strip() for part in line.split("|")]
    econ = (shared / "papers" / "econagentbench.txt").read_text(encoding="utf-8")
    section = econ[econ.index("Table 2:") : econ.index("Table 3:")]
    printed = re.findall(r"\d \((\d+/12|0)\)", section.replace(" (", "(").replace("(", " ("))
    rows = [row for row in paper_rows("econ_2").rows if row["agent"] != "Heuristic of D.3"]
    ours = [
        re.findall(r"\((.*)\)", written(column, row))[0]
        for row in rows
        for column in paper_rows("econ_2").outer
        if column.key in ("procurement", "scheduling")
    ]
    assert ours == printed


def test_papers_layouts_name_columns_that_their_rows_have() -> None:
    for published in PUBLISHED.values():
        figures = {key for row in published.rows for key in row}
        for key, look in published.columns.items():
            assert key in figures | {"exact_any"}
            assert set(look.inside) <= figures | {key.replace("_solved", "_runs") for key in figures}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_no_layout_loses_a_value(name: str) -> None:
    table = paper_rows(name)
    within = {one.key for column in table.columns for one in column.inside}
    assert {column.key for column in table.outer} | within == {column.key for column in table.columns}
