import io
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evalkit.report.render.terminal import broken, print_report, print_table
from evalkit.report.report import Report
from evalkit.report.tables import Column, Table, method_of

INTERVAL = Column(key="interval", title="95 %", kind="interval")


def printed(width: int, report: Report) -> list[str]:
    out = io.StringIO()
    print_report(report, to=Console(file=out, width=width, highlight=False))
    return out.getvalue().splitlines()


def scores(width: int, report: Report) -> list[str]:
    """The table of scores alone."""
    out = io.StringIO()
    print_table(report.table("scores"), Console(file=out, width=width, highlight=False))
    return out.getvalue().splitlines()


def test_the_score_table_fits_a_terminal_of_a_hundred_columns(the_report: Report) -> None:
    lines = scores(100, the_report)
    assert max(map(len, lines)) <= 100
    assert not any("…" in line for line in lines)
    head = next(line for line in lines if "Agent" in line)
    assert " ".join(head.split()) == "Suite k Agent Score 95 % interval By Down to Solved Instances Episodes Prompts"
    body = [line.split() for line in lines if line.strip().startswith("game/basic") or " poor " in line]
    assert body[0][:3] == ["game/basic", "–", "good"]
    assert body[1][0] == "poor"  # a suite's name stands once


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_is_cut_in_a_narrow_terminal(the_report: Report, width: int) -> None:
    text = "\n".join(printed(width, the_report))
    assert "…" not in text
    assert "100.0" in text
    assert "60,000" in text or "60.0 k" in text


def test_numbers_stand_flush_right(the_report: Report) -> None:
    lines = scores(100, the_report)
    head = next(line for line in lines if "Agent" in line)
    edge = head.index("Score") + len("Score")
    cells = [line[edge - 5 : edge] for line in lines if " good " in line or " poor " in line]
    assert cells == ["100.0", " 90.0", "100.0", " 90.0"]


def test_a_report_has_all_its_tables(the_report: Report) -> None:
    whole = printed(100, the_report)
    titles = [table.title for table in the_report.tables]
    assert [line for line in whole if line in titles] == titles
    assert whole[0] == "nightly: 34 of 36 episodes ended, 2 remaining"


def test_a_column_that_is_empty_in_all_rows_is_left_out() -> None:
    rows: list[dict[str, Any]] = [
        {"agent": "a", "low": 1, "high": None},
        {"agent": "b", "low": None, "high": None},
    ]
    columns = (
        Column(key="agent", title="Agent"),
        Column(key="low", title="Low", kind="count"),
        Column(key="high", title="High", kind="count", inside=(Column(key="of", title="Of", kind="count"),)),
        Column(key="of", title="Of", kind="count"),
    )
    table = Table(name="t", title="T", columns=columns, rows=tuple({**row, "of": 3} for row in rows), packs=())
    out = io.StringIO()
    print_table(table, Console(file=out, width=80, highlight=False))
    assert out.getvalue().splitlines()[2].split() == ["Agent", "Low"]
    rows[1]["high"] = 0
    out = io.StringIO()
    full = Table(name="t", title="T", columns=columns, rows=tuple({**row, "of": 3} for row in rows), packs=())
    print_table(full, Console(file=out, width=80, highlight=False))
    assert out.getvalue().splitlines()[2].split() == ["Agent", "Low", "High"]


def test_without_intervals_no_method_is_said() -> None:
    columns = (Column(key="agent", title="Agent"), INTERVAL, method_of(INTERVAL))
    for interval, head in ((None, ["Agent"]), ((1.0, 2.0), ["Agent", "95", "%", "By"])):
        row = {"agent": "a", "interval": interval, "kind": "exact"}
        table = Table(name="t", title="T", columns=columns, rows=(row,), packs=())
        out = io.StringIO()
        print_table(table, Console(file=out, width=80, highlight=False))
        assert out.getvalue().splitlines()[2].split() == head


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_wider_than_the_terminal_goes_on_below_with_its_names(width: int) -> None:
    numbers = tuple(Column(key=f"n{i}", title=f"Number {i}", kind="count") for i in range(14))
    names = (Column(key="suite", title="Suite", group=True), Column(key="agent", title="Agent"))
    row = {"suite": "scheduling/medium", **{column.key: 10_000 + i for i, column in enumerate(numbers)}}
    table = Table(
        name="t",
        title="Wide",
        columns=(*names, *numbers),
        rows=({**row, "agent": "first"}, {**row, "agent": "second"}),
        packs=("standard",),
    )
    out = io.StringIO()
    print_table(table, Console(file=out, width=width, highlight=False))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    whole = " ".join(lines)
    for i in range(14):
        assert f"Number {i} " in f"{whole} "
        assert whole.count(f"10,{i:03d}") == 2
    bodies = [line.split() for line in lines if "10,0" in line]
    assert [("first" in line, "second" in line) for line in bodies] == [(True, False), (False, True)] * (
        len(bodies) // 2
    )


@pytest.mark.parametrize("hostile", ["[bold red]x[/]", "[link=file:///]x", "\x1b[31mx", "[/]"])
def test_names_are_neither_markup_nor_escapes(hostile: str) -> None:
    table = Table(
        name="t",
        title=hostile,
        columns=(Column(key="agent", title=hostile),),
        rows=({"agent": hostile},),
        packs=(hostile,),
        notes=(hostile,),
    )
    out = io.StringIO()
    print_table(table, Console(file=out, width=100, highlight=False))
    assert out.getvalue().count(hostile.replace("\x1b", "\\x1b")) == 5
    assert "\x1b" not in out.getvalue()


NARROW = Table(
    name="scores",
    title="Scores",
    columns=(
        Column(key="suite", title="Suite", group=True),
        Column(key="axis:block", title="block", group=True),
        Column(key="axis:blocks", title="blocks", group=True),
        Column(key="agent", title="Agent"),
        Column(key="score", title="Score", kind="score"),
        INTERVAL,
        method_of(INTERVAL),
        *(Column(key=f"n{i}", title=f"Number {i}", kind="count") for i in range(5)),
    ),
    rows=tuple(
        {
            "suite": suite,
            "axis:block": block,
            "axis:blocks": block and 1,
            "agent": agent,
            "score": 98.5,
            "interval": (-12.5, 100.0),
            "kind": "bounded",
            **{f"n{i}": 10**i for i in range(5)},
        }
        for suite, block in (("scheduling/medium", None), ("costbench/basic", "cost_change"))
        for agent in ("replanner", "some-provider/model-3.5-large")
    ),
    packs=("standard",),
)


def shown_at(width: int, table: Table) -> list[str]:
    out = io.StringIO()
    print_table(table, Console(file=out, width=width, highlight=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100])
def test_names_are_not_broken_and_what_groups_rows_takes_no_column(width: int) -> None:
    lines = shown_at(width, NARROW)
    assert max(map(len, lines)) <= width
    headings = [line.strip() for line in lines if line.strip().startswith(("scheduling", "costbench"))]
    parts = len([line for line in lines if "Agent" in line])
    assert headings == ["scheduling/medium", "costbench/basic block=cost_change blocks=1"] * parts
    assert len([line for line in lines if "some-provider/model-3.5-large" in line]) == 2 * parts
    assert len([line for line in lines if line.strip().startswith("replanner")]) == 2 * parts
    assert not any("–            –" in line for line in lines)  # no column of parameters that most rows lack
    for i in range(5):
        assert len([line for line in lines if f"Number {i}" in line]) == 1


def test_a_wide_terminal_has_all_columns_beside_each_other() -> None:
    lines = shown_at(160, NARROW)
    (head,) = [line for line in lines if "Agent" in line]
    assert head.split()[:4] == ["Suite", "block", "blocks", "Agent"]


@pytest.mark.parametrize("width", [60, 70, 80, 90])
def test_a_figure_stays_beside_its_interval(width: int) -> None:
    for head in (line for line in shown_at(width, NARROW) if "Agent" in line):
        assert ("Score" in head) == ("95 %" in head) == ("By" in head)


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=60), st.integers(1, 30))
def test_a_text_is_broken_within_the_width_and_whole(text: str, width: int) -> None:
    lines = broken(text, width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    for line, after in itertools.pairwise(lines):
        # Inside a piece only where that alone is longer than the line.
        assert line[-1:] in "/_=?&|-" or len(line) == width or not text.replace(line, "", 1).startswith(after)


def test_a_word_that_fits_a_line_is_not_broken() -> None:
    assert broken("accommodation-0026, location-0030", 30) == ["accommodation-0026,", "location-0030"]
    assert broken("a costbench/basic?block=cost_change", 12) == ["a costbench/", "basic?block=", "cost_change"]


def test_a_table_without_rows_is_printed() -> None:
    assert any("Agent" in line for line in shown_at(60, replace(NARROW, rows=())))
