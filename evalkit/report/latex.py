"""A table as LaTeX: `booktabs` rules, numbers flush right, intervals in brackets, notes and query with it.

Names and texts that others chose are escaped: nothing in them is a command, a comment, a ligature or the argument of
the line break before them. The text is ASCII, so that every engine sets it: a character beyond is written by its
command or, where it has none, as `[U+4E2D]`.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.report.tables import MISSING, PROMPTS, Column, Table, shown
from evalkit.report.visible import visible

PREAMBLE = r"\usepackage{booktabs}"
"""What a document needs."""

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
    """The table as a `table` environment. It needs `PREAMBLE`."""
    # As in the terminal: a prompt pack that all rows share is said below.
    columns = [one for one in table.columns if one.key != PROMPTS or len(table.packs) > 1]
    notes = table.lines_below if len(columns) == len(table.columns) else (f"prompts: {table.packs[0]}", *table.notes)
    layout = "".join("r" if column.numeric else "l" for column in columns)
    head = " & ".join(_head(column) for column in columns)
    return "\n".join(
        [
            *_comments(table),
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escaped(table.title)}}}",
            rf"\label{{tab:{_label(table.name)}}}",
            rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *_rows(table, columns),
            r"\bottomrule",
            r"\end{tabular}",
            *_below(notes),
            r"\end{table}",
            "",
        ]
    )


def _comments(table: Table) -> list[str]:
    lines = [line for part in table.query.split("\n") for line in visible(part).split("\n")] if table.query else []
    return [rf"% needs {PREAMBLE}", *(f"% {line}".encode("ascii", "backslashreplace").decode() for line in lines)]


def _label(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def _head(column: Column) -> str:
    return escaped(column.title)


def _rows(table: Table, columns: list[Column]) -> list[str]:
    lines: list[str] = []
    above: Mapping[str, Any] = {}
    first = next((column.key for column in columns if column.group), "")
    for row in table.rows:
        if above and first and above.get(first) != row.get(first):
            lines.append(r"\addlinespace")
        cells, same = [], bool(above)
        for column in columns:
            same = same and column.group and above.get(column.key) == row.get(column.key)
            cells.append("" if same else _cell(column, row.get(column.key)))
        lines.append(rf"{' & '.join(cells)} \\")
        above = row
    return lines


def _cell(column: Column, value: Any) -> str:
    text = shown(column, value)
    if text == MISSING:
        return r"\textendash{}"
    if column.kind == "interval":
        low, _, high = text.partition(f" {MISSING} ")
        return f"{{[}}{_number(low)}, {_number(high)}{{]}}"
    return _number(text) if column.numeric else escaped(text)


def _number(text: str) -> str:
    """A number with a minus that is one."""
    return rf"$-${escaped(text[1:])}" if text.startswith("-") else escaped(text)


def _below(notes: tuple[str, ...]) -> list[str]:
    if not notes:
        return []
    lines = [rf"{escaped(note)}\par" for note in notes]
    return [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize", *lines, r"\end{minipage}"]
