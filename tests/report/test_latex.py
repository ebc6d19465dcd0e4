"""LaTeX is read back by a strict reader of the little that we write: all else in it fails."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.report.render.latex import MOST_ROWS, PREAMBLE, escaped, latex
from evalkit.report.report import Report
from evalkit.report.tables import Column, Table
from evalkit.text import visible

SYMBOLS = {
    "textbackslash": "\\",
    "textasciicircum": "^",
    "textasciitilde": "~",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textasciigrave": "`",
    "textendash": "–",
    "textemdash": "—",
    "textellipsis": "…",
    "textpm": "±",
    "texttimes": "×",
    "symbol": '"',
    "textmu": "µ",
    "textperiodcentered": "·",
    "textrightarrow": "→",
}
TOKEN = re.compile(
    r"\\([a-z]+)\{\}|\\([{}$&#%_])|\{([\[\]*])\}|(\{\})|(~)|\$(-)\$|([^\\{}$&#%_^~<>|\"`\[\]*])", re.DOTALL
)
LIGATURES = re.compile(r"--|''|,,|[?!]`")


def read(text: str) -> str:
    """What a piece of our LaTeX sets. Fails at whatever is not written as we write it."""
    found, at = [], 0
    text = text.replace(r"\allowbreak{}", "")
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token is not None, f"unreadable at {text[at : at + 20]!r}"
        command, special, braced, nothing, space, minus, plain = token.groups()
        if command is not None:
            found.append(SYMBOLS[command])
        elif nothing is None:
            found.append("\u00a0" if space else special or braced or minus or plain)
        at = token.end()
    return "".join(found)


BEGIN = r"\begin{table}[htbp]" + "\n" + r"\centering\small"
END = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
BOX = re.compile(r"\\parbox\[t\]\{40ex\}\{\\raggedright (.*)\\strut\}")


def read_table(text: str) -> tuple[str, list[str], list[list[str]], list[str]]:
    """(caption, head, rows, notes) of one float, each of them read."""
    assert text.isascii()
    lines = [line for line in text.split("\n") if line and not line.startswith("% ")]
    assert "\n".join(lines[:2]) == BEGIN
    caption, label = re.fullmatch(r"\\caption\{(.*)\}", lines[2]), re.fullmatch(r"\\label\{tab:[\w-]+\}", lines[3])
    layout = re.fullmatch(r"\\sbox0\{\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", lines[4])
    assert caption is not None
    assert label is not None
    assert layout is not None
    end = lines.index(r"\end{tabular}}%")
    assert (lines[5], lines[7], lines[end - 1], lines[end + 1]) == (r"\toprule", r"\midrule", r"\bottomrule", END)
    rows = [cells(line) for line in (lines[6], *lines[8 : end - 1]) if line != r"\addlinespace"]
    assert {len(row) for row in rows} == {len(layout[1])}
    notes = []
    if lines[end + 2] != r"\end{table}":
        begin = r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
        assert lines[end + 2 : end + 4] == [r"\par\smallskip", begin]
        assert lines[-2:] == [r"\end{minipage}", r"\end{table}"]
        notes = [read(line.removesuffix(r"\par")) for line in lines[end + 4 : -2]]
    return read(caption[1]), rows[0], rows[1:], notes


def cells(line: str) -> list[str]:
    assert line.endswith(r" \\")
    parts = re.split(r"(?<!\\) ?& ?", line.removesuffix(r" \\"))
    return [read(part if (box := BOX.fullmatch(part)) is None else box[1]) for part in parts]


@given(st.text())
def test_any_text_is_set_as_it_stands(text: str) -> None:
    written = escaped(text)
    assert written.isascii()
    assert not LIGATURES.search(written)
    wanted = visible(text).replace("\n", " ")
    known = {*SYMBOLS.values(), "\u00a0"}
    assert read(written) == "".join(
        char if char.isascii() or char in known else f"[U+{ord(char):04X}]" for char in wanted
    )


@pytest.mark.parametrize(
    "text",
    [r"\input{/etc/passwd}", r"\end{tabular}", "a & b % c", "[2cm] * ]", "$x_1^2$ ~ #", "--'',,?`!`", "中 \x1b[0m"],
)
def test_hostile_names_stay_text_in_every_place(text: str) -> None:
    table = Table(
        name=text,
        title=text,
        columns=(
            Column(key="a", title=text, group=True),
            Column(key="n", title="N", kind="number"),
            Column(key="i", title="95 %", kind="interval"),
            Column(key="c", title="By kind", kind="counts"),
        ),
        rows=({"a": text, "n": -1.5, "i": (-2.0, 3.25), "c": {text: 3}}, {"a": "b", "n": None, "i": None, "c": {}}),
        packs=(text,),
        notes=(text,),
        query=f"select 1 -- {text}\n\\end{{table}}",
    )
    said = visible(text).replace("中", "[U+4E2D]")
    caption, head, rows, notes = read_table(latex(table))
    assert (caption, head[0]) == (said, said)
    assert rows == [[said, "-1.50", "[-2.0, 3.2]", f"{said} 3"], ["b", "–", "–", "–"]]
    assert notes == [f"prompts: {said}", said]


def test_a_repeated_group_is_left_blank_and_set_apart() -> None:
    columns = (Column(key="g", title="G", group=True), Column(key="prompts", title="Prompts"))
    rows = [{"g": name, "prompts": "standard"} for name in ("x", "x", "y")]
    table = Table(name="t", title="T", columns=columns, rows=tuple(rows), packs=("standard",))
    text = latex(table)
    _, head, found, notes = read_table(text)
    assert (head, found, notes) == (["G"], [["x"], [""], ["y"]], ["prompts: standard"])
    assert text.count(r"\addlinespace") == 1


def long_table(rows: int, columns: int) -> Table:
    shown = [Column(key=f"c{i}", title=f"Number {i} of them", kind="count") for i in range(columns)]
    agent, said = Column(key="agent", title="Agent", group=True), Column(key="said", title="Said")
    made = [
        {
            "agent": f"a_{i // 2}",
            "said": "some/long-name " * 4,
            **{one.key: 10**place for place, one in enumerate(shown)},
        }
        for i in range(rows)
    ]
    return Table(
        name="long", title="Long", columns=(agent, *shown, said), rows=tuple(made), packs=("p",), notes=("n-o_t/e",)
    )


def test_a_long_table_goes_on_on_the_next_page() -> None:
    text = latex(long_table(MOST_ROWS + 1, 1))
    assert text.count(r"\begin{longtable}{@{}lrl@{}}") == text.count(r"\label{tab:long}") == 1
    assert text.count("Agent & Number 0 of them & Said") == 2
    assert [read(line.split(" & ")[0]) for line in text.split("\n") if r"& 1 &" in line][:3] == ["a_0", "", "a_1"]
    assert r"\begin{longtable}" not in latex(long_table(MOST_ROWS, 1))


def test_a_long_table_that_is_wide_goes_on_in_further_floats_that_say_so() -> None:
    text = latex(long_table(2 * MOST_ROWS + 1, 9))
    floats = [part + r"\end{table}" for part in text.split(r"\end{table}")[:-1]]
    captions, _, rows, notes = zip(*map(read_table, floats), strict=True)
    assert captions == ("Long (1 of 3)", "Long (2 of 3)", "Long (3 of 3)")
    assert [len(part) for part in rows] == [MOST_ROWS, MOST_ROWS, 1]
    assert [part[0][0] for part in rows] == ["a_0", "a_20", "a_40"]
    assert notes == ([], [], ["prompts: p", "n-o_t/e"])
    assert re.findall(r"\\label\{tab:(.*?)\}", text) == ["long", "long-2", "long-3"]


def test_latex_sets_every_table_within_the_page(tmp_path: Path, the_report: Report) -> None:
    pdflatex = shutil.which("pdflatex")
    if pdflatex is None:
        pytest.skip("no pdflatex here: what is written is tested, what LaTeX makes of it is not")
    tables = (*the_report.tables, long_table(3, 9), long_table(100, 1), long_table(100, 9))
    body = "\n".join(map(latex, tables))
    document = f"\\documentclass{{article}}\n{PREAMBLE}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "t.tex").write_text(document, encoding="ascii")
    call = [pdflatex, "-interaction=nonstopmode", "-no-shell-escape", "t.tex"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, check=False)
    log = (tmp_path / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert re.findall(r"Overfull .*|.*too large.*|^!.*", log) == []
