"""A table as LaTeX: `booktabs` rules, numbers flush right, intervals in brackets, notes and query with it.

A table that is wider than the text is scaled down to it, by LaTeX, which knows how wide it is. One with many rows is a
`longtable`, or, where that would be too wide, several floats.

Names and texts that others chose are escaped: nothing in them is a command, a comment, a ligature or the argument of
the line break before them. The text is ASCII, so that every engine sets it: a character beyond is written by its
command or, where it has none, as `[U+4E2D]`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report.tables import MISSING, Column, Table, without_shared_packs, written
from evalkit.text import visible

PREAMBLE = r"\usepackage{booktabs,graphicx,longtable}"
"""What a document needs."""

MOST_ROWS = 40
"""Of a float: with a head and some notes they fill a page."""

MOST_WAITING = 8
"""Floats of one table that may wait for a page: LaTeX gives up beyond 52, and below in old versions."""

MOST_LETTERS = 75
"""In a row of a table that is not scaled: of 10 points, small, in the 345 points of an `article`'s text."""

LONGEST_TEXT = 40
"""Letters of a text that is not broken; longer ones wrap."""

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
    """The table as one or several `table` environments, or as a `longtable`. It needs `PREAMBLE`."""
    # As in the terminal: a prompt pack that all rows share is said below.
    table = without_shared_packs(table)
    rows = range(len(table.rows))
    notes = [rf"{breakable(note)}\par" for note in table.lines_below]
    lines = _comments(table)
    if len(rows) > MOST_ROWS and sum(_letters(table, column) + 2 for column in table.outer) <= MOST_LETTERS:
        return "\n".join([*lines, *_long(table), r"{\footnotesize\raggedright", *notes, "}", ""])
    parts = [rows[start : start + MOST_ROWS] for start in rows[::MOST_ROWS]] or [rows]
    for number, part in enumerate(parts, 1):
        mark = "" if len(parts) == 1 else f" ({number} of {len(parts)})"
        lines += [
            r"\begin{table}[htbp]",
            r"\centering\small",
            rf"\caption{{{escaped(table.title)}{mark}}}",
            rf"\label{{tab:{_label(table.name)}{'' if number == 1 else f'-{number}'}}}",
            rf"\sbox0{{\begin{{tabular}}{{{_layout(table)}}}",
            *_head(table),
            *_rows(table, part),
            r"\bottomrule",
            r"\end{tabular}}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        ]
        if notes and number == len(parts):
            lines += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright", *notes]
            lines.append(r"\end{minipage}")
        lines.append(r"\end{table}")
        if not number % MOST_WAITING:
            lines.append(r"\clearpage")
    return "\n".join([*lines, ""])


def _long(table: Table) -> list[str]:
    head = _head(table)
    return [
        rf"{{\small\begin{{longtable}}{{{_layout(table)}}}",
        rf"\caption{{{escaped(table.title)}}}\label{{tab:{_label(table.name)}}} \\",
        *(*head, r"\endfirsthead", *head, r"\endhead", r"\bottomrule", r"\endfoot"),
        *_rows(table, range(len(table.rows))),
        r"\end{longtable}}",
    ]


def _comments(table: Table) -> list[str]:
    lines = [line for part in table.query.split("\n") for line in visible(part).split("\n")] if table.query else []
    return [rf"% needs {PREAMBLE}", *(f"% {line}".encode("ascii", "backslashreplace").decode() for line in lines)]


def _label(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def _layout(table: Table) -> str:
    return f"@{{}}{''.join('r' if column.numeric else 'l' for column in table.outer)}@{{}}"


def _letters(table: Table, column: Column) -> int:
    """How wide a column is; a text that is longer than `LONGEST_TEXT` wraps."""
    widest = max((len(written(column, row)) for row in table.rows), default=0)
    return max(len(visible(column.title)), widest if column.numeric else min(widest, LONGEST_TEXT))


def _head(table: Table) -> list[str]:
    return [r"\toprule", rf"{' & '.join(escaped(column.title) for column in table.outer)} \\", r"\midrule"]


def _rows(table: Table, places: Sequence[int]) -> list[str]:
    """Some rows; what repeats the group above is left blank, and a new group is set apart."""
    lines: list[str] = []
    above: Mapping[str, Any] = {}
    for index in places:
        row = table.rows[index]
        if above and _group(table, above) != _group(table, row):
            lines.append(r"\addlinespace")
        cells, same = [], bool(above)
        for column in table.outer:
            same = same and column.group and above.get(column.key) == row.get(column.key)
            text = "" if same else _cell(column, row)
            cells.append(rf"\textbf{{{text}}}" if text and (index, column.key) in table.bold else text)
        lines.append(rf"{' & '.join(cells)} \\")
        above = row
    return lines


def _group(table: Table, row: Mapping[str, Any]) -> list[Any]:
    return [row.get(column.key) for column in table.outer if column.group][:1]


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    text = written(column, row)
    if text == MISSING:
        return r"\textendash{}"
    if column.kind == "interval":
        low, _, high = text.partition(f" {MISSING} ")
        return f"{{[}}{_number(low)}, {_number(high)}{{]}}"
    if column.numeric:
        return _number(text)
    if len(text) > LONGEST_TEXT:
        return rf"\parbox[t]{{{LONGEST_TEXT}ex}}{{\raggedright {breakable(text)}\strut}}"
    return escaped(text)


def _number(text: str) -> str:
    """A number with a minus that is one."""
    return rf"$-${escaped(text[1:])}" if text.startswith("-") else escaped(text)


_JOINTS = re.compile(r"(?<=[/_=?&|-])(?=\w)")


def breakable(text: str) -> str:
    """Any text as LaTeX that may be broken after what joins the parts of a name."""
    return r"\allowbreak{}".join(map(escaped, _JOINTS.split(text)))
