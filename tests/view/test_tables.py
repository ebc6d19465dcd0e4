"""A part of a large table, ordered and filtered by the server."""

from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.errors import RunError, UsageError
from evalkit.report.tables import Column, Table
from evalkit.view.grid import Paging
from evalkit.view.overview import TableQuery, read_query, run_tables, table_page
from evalkit.view.reading import Reading

PREFIX = "/run/x"
COLUMNS = (
    Column(key="suite", title="Suite", group=True),
    Column(key="agent", title="Agent"),
    Column(key="score", title="Score", kind="score"),
    Column(key="interval", title="95 %", kind="interval"),
)


def a_table(rows: int) -> Table:
    return Table(
        name="many",
        title="Many",
        columns=COLUMNS,
        rows=tuple(
            {
                "suite": f"suite-{row % 3}",
                "agent": f"agent-{row}",
                "score": None if row == 7 else float(row * 37 % 101),
                "interval": None if row % 2 else (float(row % 50), 99.0),
            }
            for row in range(rows)
        ),
        packs=("p",),
        bold=frozenset({(12, "interval")}),
    )


@pytest.fixture
def many(reading: Reading) -> Reading:
    return replace(reading, report=replace(reading.report, tables=(*reading.report.tables, a_table(450))))


@pytest.fixture(autouse=True)
def _hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalkit.view.overview.PER_PAGE", 100)


def texts(reading: Reading, wanted: TableQuery, column: int = 1) -> list[str]:
    return [row.cells[column].text for row in table_page(reading, "many", wanted, PREFIX).grid.rows]


def test_a_small_table_is_whole_and_the_browser_sorts_it(reading: Reading) -> None:
    page = table_page(reading, "scores", TableQuery(), PREFIX)
    assert page.whole
    assert page.paging.found == len(page.grid.rows) == len(reading.report.table("scores").rows)
    assert {head.href for head in page.grid.heads} == {""}
    assert [link.title for link in page.others if link.active] == ["Scores"]
    assert {link.href for link in page.others} == {
        f"{PREFIX}/table/{name}" for name in run_tables(reading) if not name.endswith("-numbers")
    }


def test_a_large_table_comes_in_pages(many: Reading) -> None:
    first = table_page(many, "many", TableQuery(), PREFIX)
    assert not first.whole
    assert first.paging == Paging(found=450, first=1, last=100, before="", after=f"{PREFIX}/table/many?page=2")
    last = table_page(many, "many", TableQuery(page=99), PREFIX)
    assert (last.paging.first, last.paging.last, last.paging.after) == (401, 450, "")
    seen = [text for page in range(1, 6) for text in texts(many, TableQuery(page=page))]
    assert seen == [f"agent-{row}" for row in range(450)]


def test_rows_are_ordered_over_all_pages_and_what_has_no_value_stands_last(many: Reading) -> None:
    table = a_table(450)
    for order, sign in (("score", 1), ("-score", -1)):
        shown = [text for page in range(1, 6) for text in texts(many, TableQuery(order=order, page=page), 2)]
        scores = sorted((row["score"] for row in table.rows if row["score"] is not None), key=lambda one: sign * one)
        assert shown == [f"{score:.1f}" for score in scores] + ["–"]
    page = table_page(many, "many", TableQuery(order="-score", contains="suite-1"), PREFIX)
    assert page.paging.found == 150
    assert page.paging.after == f"{PREFIX}/table/many?order=-score&contains=suite-1&page=2"
    (head,) = [head for head in page.grid.heads if head.title == "Score"]
    assert (head.sort, head.href) == ("descending", f"{PREFIX}/table/many?order=score&contains=suite-1")


def test_names_are_ordered_by_the_numbers_in_them(many: Reading) -> None:
    assert texts(many, TableQuery(order="agent"))[:12] == [f"agent-{row}" for row in range(12)]


def test_a_value_in_bold_stays_with_its_row(many: Reading) -> None:
    page = table_page(many, "many", TableQuery(order="-agent", page=5), PREFIX)
    assert [row.cells[1].text for row in page.grid.rows if "strong" in row.cells[3].style] == ["agent-12"]


def test_words_are_found_in_any_case_and_order(many: Reading) -> None:
    assert texts(many, TableQuery(contains="AGENT-12 suite-0")) == [
        "agent-12",
        "agent-120",
        "agent-123",
        "agent-126",
        "agent-129",
    ]
    none = table_page(many, "many", TableQuery(contains="nothing"), PREFIX)
    assert (none.paging.found, none.paging.first, none.paging.last, none.grid.rows) == (0, 0, 0, [])


def test_what_is_asked_for_in_vain_is_said(many: Reading) -> None:
    with pytest.raises(UsageError, match=r"order: 'scroe' is not a column of this table\. Did you mean 'score'"):
        table_page(many, "many", TableQuery(order="-scroe"), PREFIX)
    with pytest.raises(RunError, match="no table 'mayn'"):
        table_page(many, "mayn", TableQuery(), PREFIX)
    with pytest.raises(UsageError, match="page: '0' is not a page number"):
        read_query({"page": "0"})


def test_numbers_of_figures_are_tables_too(reading: Reading, run: Path) -> None:
    del run
    names = run_tables(reading)
    for figure in reading.figures:
        page = table_page(reading, f"{figure.name}-numbers", TableQuery(), PREFIX)
        assert page.paging.found == len(figure.table.rows)
        assert names[f"{figure.name}-numbers"].query == figure.query
