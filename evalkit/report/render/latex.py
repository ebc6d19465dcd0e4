"""A table as LaTeX: `booktabs` rules, numbers flush right, intervals in brackets, notes and query with it.

It fits the text of a page of `article` with its 10 points, 345 by 550 points: `latex_fit.py` finds how.

Names and texts that others chose are escaped: nothing in them is a command, a comment, a ligature or the argument of
the line break before them. The text is ASCII, so that every engine sets it: a character beyond is written by its
command or, where it has none, as `[U+4E2D]`.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.report.render.latex_fit import Tabular, fit
from evalkit.report.render.narrow import pieces
from evalkit.report.tables import MISSING, Column, Table, without_shared_packs, written
from evalkit.text import visible

PREAMBLE = r"\usepackage{booktabs}"
"""What a document needs."""

MOST_WAITING = 8
"""Floats of one table that may wait for a page: LaTeX gives up beyond 52, and below in old versions."""

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",
    "`": r"\textasciigrave{}",
    # Behind a line break these would be its argument.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # In pairs these are set as one.
    "-": "-{}",
    "'": "'{}",
    ",": ",{}",
    "?": "?{}",
    "!": "!{}",
    "\n": " ",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\textellipsis{}",
    "±": r"\textpm{}",
    "×": r"\texttimes{}",
    "µ": r"\textmu{}",
    "·": r"\textperiodcentered{}",
    "→": r"\textrightarrow{}",
    "\u00a0": "~",
}
_LONE = frozenset("-',?!")
"""Ligatures' letters, which need care only beside another of them."""


def escaped(text: str) -> str:
    """Any text as LaTeX that sets it as it stands."""
    text = visible(text)
    parts = []
    for i, char in enumerate(text):
        if char in _LONE and text[i + 1 : i + 2] not in (*_LONE, "`"):
            parts.append(char)
        elif char in _WRITTEN:
            parts.append(_WRITTEN[char])
        else:
            parts.append(char if char.isascii() else f"{{[}}U+{ord(char):04X}{{]}}")
    return "".join(parts)


def latex(table: Table) -> str:
    """The table as one or several `table` environments. It needs `PREAMBLE`."""
    # As in the terminal: a prompt pack that all rows share is said below.
    table = without_shared_packs(table)
    fitted = fit(table)
    lines = _comments(table)
    for number, blocks in enumerate(fitted.floats, 1):
        last = number == len(fitted.floats)
        mark = "" if len(fitted.floats) == 1 else f" ({number} of {len(fitted.floats)})"
        label = _label(table.name) + ("" if number == 1 else f"-{number}")
        lines += [
            r"\begin{table}[htbp]",
            rf"\centering\{fitted.size}\setlength{{\tabcolsep}}{{{fitted.gap:g}pt}}",
            rf"\caption{{{escaped(table.title)}{mark}}}",
            rf"\label{{tab:{label}}}",
        ]
        for index, block in enumerate(blocks):
            lines += [r"\par\medskip"] if index else []
            lines += _tabular(table, block)
        notes = _below(table.lines_below, fitted.notes_apart) if last else []
        lines += [r"\end{table}", *notes] if fitted.notes_apart else [*notes, r"\end{table}"]
        if not number % MOST_WAITING or (last and number > 1):
            lines.append(r"\clearpage")
    return "\n".join([*lines, ""])


def _comments(table: Table) -> list[str]:
    lines = [line for part in table.query.split("\n") for line in visible(part).split("\n")] if table.query else []
    return [rf"% needs {PREAMBLE}", *(f"% {line}".encode("ascii", "backslashreplace").decode() for line in lines)]


def _label(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def _tabular(table: Table, block: Tabular) -> list[str]:
    layout = "".join("r" if column.numeric else "l" for column in block.columns)
    head = " & ".join(_held(column.title, width) for column, width in block.columns.items())
    lines = [rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    above: Mapping[str, Any] = {}
    for number, section in enumerate(block.sections):
        if number:
            lines.append(r"\addlinespace")
        if section.heading:
            heading = rf"\textit{{{_held(section.heading, block.heading)}}}"
            lines.append(rf"\multicolumn{{{len(block.columns)}}}{{@{{}}l@{{}}}}{{{heading}}} \\")
        for index in section.places:
            if above and not section.heading and _group(block, above) != _group(block, table.rows[index]):
                lines.append(r"\addlinespace")
            lines.append(_row(table, block, index, above))
            above = table.rows[index]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _held(text: str, width: float) -> str:
    """A text in a cell; `width`: where it wraps, in points, 0 if it does not."""
    return rf"\parbox[t]{{{width:.1f}pt}}{{\raggedright {breakable(text)}\strut}}" if width else escaped(text)


def _group(block: Tabular, row: Mapping[str, Any]) -> list[Any]:
    return [row.get(column.key) for column in block.columns if column.group][:1]


def _row(table: Table, block: Tabular, index: int, above: Mapping[str, Any]) -> str:
    row = table.rows[index]
    cells, same = [], bool(above)
    for column, width in block.columns.items():
        same = same and column.group and above.get(column.key) == row.get(column.key)
        text = "" if same else _cell(column, row, width)
        cells.append(rf"\textbf{{{text}}}" if text and (index, column.key) in table.bold else text)
    return rf"{' & '.join(cells)} \\"


def _cell(column: Column, row: Mapping[str, Any], width: float) -> str:
    text = written(column, row)
    if text == MISSING:
        return r"\textendash{}"
    if column.kind == "interval":
        low, _, high = text.partition(f" {MISSING} ")
        return f"{{[}}{_number(low)}, {_number(high)}{{]}}"
    if column.numeric:
        return _number(text)
    return _held(text, width)


def _number(text: str) -> str:
    """A number with a minus that is one."""
    return rf"$-${escaped(text[1:])}" if text.startswith("-") else escaped(text)


LONGEST_PIECE = 12
"""Letters after which a text may be broken where it has no place for it."""


def breakable(text: str) -> str:
    """Any text as LaTeX that may be broken after what separates the parts of a name."""
    parts = [piece[i : i + LONGEST_PIECE] for piece in pieces(text) for i in range(0, len(piece), LONGEST_PIECE)]
    return "".join(
        escaped(part) + ("" if part.endswith((" ", "\n")) or i + 1 == len(parts) else r"\allowbreak{}")
        for i, part in enumerate(parts)
    )


def _below(notes: tuple[str, ...], notes_apart: bool) -> list[str]:
    """The notes; `notes_apart`: outside of the float, where a page may end within them."""
    if not notes:
        return []
    lines = [rf"{breakable(note)}\par" for note in notes]
    if notes_apart:
        return [r"{\footnotesize\raggedright", *lines, "}"]
    return [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright", *lines, r"\end{minipage}"]
