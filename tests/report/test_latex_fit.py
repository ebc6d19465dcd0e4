"""Tables fit the page: by estimate always, and as LaTeX sets them where there is a LaTeX."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.report.render.latex import PREAMBLE, escaped, latex
from evalkit.report.render.latex_fit import SIZES, TEXT_HEIGHT, TEXT_WIDTH, Fit, fit, natural, text_width
from evalkit.report.report import Report
from evalkit.report.tables import Column, Table, method_of

SUITES = ("scheduling/medium", "costbench/basic", "a-suite/of_a/long?name=that&goes=on_and_on_with_parameters")
AGENTS = ("knuth", "provider/some-model-with-a-long-name-2026-11-22-preview", "m" * 60)
INTERVAL = Column(key="score_interval", title="95 % interval", kind="interval")
COLUMNS = (
    Column(key="suite", title="Suite", group=True),
    Column(key="axis:block", title="block", group=True),
    Column(key="agent", title="Agent"),
    Column(key="score", title="Score", kind="score"),
    INTERVAL,
    method_of(INTERVAL),
    *(Column(key=f"n{i}", title=f"Number {i} of them", kind="count") for i in range(9)),
    Column(key="kinds", title="By kind", kind="counts"),
)


def wide(suites: int, notes: int = 2) -> Table:
    """A table with all that makes one too wide, and as many rows as are asked for."""
    rows = [
        {
            "suite": f"{SUITES[i % 3]}{i}",
            "axis:block": "cost_change" if i % 2 else None,
            "agent": agent,
            "score": 99.95,
            "score_interval": (-12.5, 100.0),
            "score_kind": "bounded",
            "kinds": {f"some_outcome_{k}": 1000 * k for k in range(12)},
            **{f"n{k}": 10**k for k in range(9)},
        }
        for i in range(suites)
        for agent in AGENTS
    ]
    return Table(
        name="wide",
        title="A table that is wide",
        columns=COLUMNS,
        rows=tuple(rows),
        packs=("standard",),
        notes=tuple(f"note {i}: {SUITES[2]} says {'word ' * 30}" for i in range(notes)),
        bold=frozenset({(0, "score")}),
    )


TEXTS = Table(
    name="texts",
    title="Texts alone",
    columns=tuple(Column(key=f"t{i}", title=f"Text {i}") for i in range(5)),
    rows=tuple({f"t{i}": f"a text of {i} that is long and longer, " * 3 for i in range(5)} for _ in range(30)),
    packs=("a", "b"),
)


def tables(the_report: Report) -> Iterator[Table]:
    yield from the_report.tables
    yield from (wide(1), wide(2), wide(25), wide(3, notes=90), TEXTS)


def widths(table: Table, found: Fit) -> Iterator[float]:
    for blocks in found.floats:
        for block in blocks:
            letters = SIZES[found.size][0]
            each = [width or letters * natural(table, column) for column, width in block.columns.items()]
            yield sum(each) + 2 * found.gap * (len(each) - 1)
            assert all(width <= TEXT_WIDTH for width in each)


def test_no_table_is_estimated_wider_than_the_text(the_report: Report) -> None:
    for table in tables(the_report):
        assert max(widths(table, fit(table))) <= TEXT_WIDTH + 1e-6, table.name


def test_every_value_stands_once_and_no_interval_leaves_its_figure(the_report: Report) -> None:
    for table in tables(the_report):
        placed = [
            (place, column.key)
            for blocks in fit(table).floats
            for block in blocks
            for section in block.sections
            for place in section.places
            for column in block.columns
        ]
        numbers = [one for one in placed if next(c for c in table.columns if c.key == one[1]).numeric]
        assert len(set(numbers)) == len(numbers), table.name
        keys = {column.key for column in table.columns if column.numeric}
        assert set(numbers) == {(place, key) for place in range(len(table.rows)) for key in keys}
    for blocks in fit(wide(2)).floats:
        for block in blocks:
            found = [column.key for column in block.columns]
            assert ("score" in found) == ("score_interval" in found) == ("score_kind" in found)


def test_a_table_that_fits_is_set_as_it_stands() -> None:
    table = Table(
        name="small",
        title="Small",
        columns=COLUMNS[:4],
        rows=({"suite": "s", "axis:block": None, "agent": "a", "score": 1.0},),
        packs=(),
    )
    found = fit(table)
    ((block,),) = found.floats
    assert (found.size, [column.key for column in block.columns]) == (
        "small",
        ["suite", "axis:block", "agent", "score"],
    )
    assert block.sections[0].heading == ""


def test_long_tables_go_on_in_further_floats_that_say_so() -> None:
    text = latex(wide(25))
    marks = re.findall(r"\\caption\{A table that is wide \((\d+) of (\d+)\)\}", text)
    assert [int(number) for number, _ in marks] == list(range(1, len(marks) + 1))
    assert {int(all_of_them) for _, all_of_them in marks} == {len(marks)}
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels) == len(marks) > 1


@given(st.text())
def test_any_text_has_a_width(text: str) -> None:
    assert text_width(text) >= 0
    assert text_width(text + "m") > text_width(text)


@pytest.fixture(scope="module")
def pdflatex() -> str:
    found = shutil.which("pdflatex")
    if found is None:
        pytest.skip("no pdflatex here: the estimated widths are tested, what LaTeX makes of them is not")
    return found


def compiled(pdflatex: str, folder: Path, body: str) -> str:
    """The log of a document of `article` with this body."""
    document = f"\\documentclass{{article}}\n{PREAMBLE}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (folder / "t.tex").write_text(document, encoding="ascii")
    done = subprocess.run(
        [pdflatex, "-interaction=nonstopmode", "-no-shell-escape", "t.tex"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    log = (folder / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-2000:]
    return log


def test_latex_sets_every_table_within_the_page(pdflatex: str, tmp_path: Path, the_report: Report) -> None:
    log = compiled(pdflatex, tmp_path, "\n".join(latex(table) for table in tables(the_report)))
    assert re.findall(r"Overfull .*|.*too large.*|^!.*", log) == []


def test_estimated_widths_are_latexs(pdflatex: str, tmp_path: Path) -> None:
    texts = [
        "".join(map(chr, range(33, 80))),
        "".join(map(chr, range(80, 127))),
        "scheduling/medium 12,345 [-1.5, 99.0]",
    ]
    lines = [
        rf"{{\{size}\setbox0\hbox{{{escaped(text)}}}\typeout{{WIDE \the\wd0}}}}" for size in SIZES for text in texts
    ]
    log = compiled(pdflatex, tmp_path, "\n".join(["x", *lines]))
    measured = [float(one) for one in re.findall(r"WIDE ([\d.]+)pt", log)]
    expected = [text_width(text) * SIZES[size][0] for size in SIZES for text in texts]
    assert measured == pytest.approx(expected, rel=0.02)
    assert f"{TEXT_WIDTH}pt" in compiled(pdflatex, tmp_path, r"x\typeout{\the\textwidth\space\the\textheight}")
    assert TEXT_HEIGHT == 550
