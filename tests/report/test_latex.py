"""LaTeX is read back by a strict reader of the little that we write: all else in it fails."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.report.render.latex import escaped, latex
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


FLOAT = (
    r"\begin{table}[htbp]",
    re.compile(r"\\centering\\(small|footnotesize)\\setlength\{\\tabcolsep\}\{\dpt\}"),
    re.compile(r"\\caption\{(.*)\}"),
    re.compile(r"\\label\{tab:[A-Za-z0-9-]+\}"),
)
BOX = re.compile(r"\\parbox\[t\]\{[\d.]+pt\}\{\\raggedright (.*)\\strut\}")
OVER = re.compile(r"\\multicolumn\{\d+\}\{@\{\}l@\{\}\}\{\\textit\{(.*)\}\} \\\\")


def read_table(text: str) -> tuple[str, list[str], list[list[str]], list[str]]:
    """(caption, head, rows with headings, notes) of one float with one tabular, each of them read."""
    assert text.isascii()
    lines = [line for line in text.split("\n") if line and not line.startswith("% ")]
    found = [re.fullmatch(wanted, line) for wanted, line in zip(FLOAT[1:], lines[1:], strict=False)]
    assert lines[0] == FLOAT[0]
    assert all(found)
    caption = read(found[1][1])  # type: ignore[index]
    layout = re.fullmatch(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", lines[4])
    assert layout is not None
    end = lines.index(r"\end{tabular}")
    assert (lines[5], lines[7], lines[end - 1]) == (r"\toprule", r"\midrule", r"\bottomrule")
    rows = [cells(line) for line in (lines[6], *lines[8 : end - 1]) if line != r"\addlinespace"]
    assert {len(row) for row in rows} <= {len(layout[1]), 1}
    notes = []
    if lines[end + 1] != r"\end{table}":
        begin = r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
        assert lines[end + 1 : end + 3] == [r"\par\smallskip", begin]
        assert lines[-2:] == [r"\end{minipage}", r"\end{table}"]
        notes = [read(line.removesuffix(r"\par")) for line in lines[end + 3 : -2]]
    return caption, rows[0], rows[1:], notes


def cells(line: str) -> list[str]:
    assert line.endswith(r" \\")
    heading = OVER.fullmatch(line)
    if heading is not None:
        return [read(boxed(heading[1]))]
    return [read(boxed(part)) for part in re.split(r"(?<!\\) ?& ?", line.removesuffix(r" \\"))]


def boxed(part: str) -> str:
    """What stands in a box that wraps, or the part itself."""
    found = BOX.fullmatch(part)
    return part if found is None else found[1]


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
