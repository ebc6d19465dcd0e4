"""Tables where there is little room: what groups rows becomes headings, names break where readers expect it.

The columns that lead a table (its suite, what the sweep varied) say the same in many rows, or nothing. Above their
rows, as headings, they take no width from the numbers. `terminal.py` and `latex.py` set what is made here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from evalkit.report.tables import MISSING, Column, Table, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows under one heading."""

    heading: str
    """Empty: the table has none."""
    places: tuple[int, ...]
    """Of its rows in the table."""


def headed(table: Table) -> tuple[tuple[Column, ...], tuple[Section, ...]]:
    """The columns that are left to people when those that lead become headings, and the sections under these.

    A table that nothing leads, or whose every row would have a heading of its own, keeps all in one section.
    """
    columns = table.outer
    lead = columns[: next((i for i, column in enumerate(columns) if not _leads(column)), 0)]
    names = [tuple(row.get(column.key) for column in lead) for row in table.rows]
    sections = [tuple(group) for _, group in groupby(range(len(names)), key=lambda index: repr(names[index]))]
    if not lead or not names or len(lead) == len(columns) or len(sections) == len(names) > 1:
        return columns, (Section(heading="", places=tuple(range(len(table.rows)))),)
    return columns[len(lead) :], tuple(
        Section(heading=_heading(lead, table.rows[indices[0]]), places=indices) for indices in sections
    )


def bundles(columns: Sequence[Column]) -> list[tuple[Column, ...]]:
    """The columns that must not be parted: a figure with its interval and how that was found."""
    bundled: list[tuple[Column, ...]] = []
    for column in columns:
        if bundled and (column.kind == "interval" or column.key == "kind" or column.key.endswith("_kind")):
            bundled[-1] = (*bundled[-1], column)
        else:
            bundled.append((column,))
    return bundled


def groups(
    columns: Sequence[Column], needed: Mapping[Column, float], room: float, gap: float
) -> list[dict[Column, float]]:
    """The columns with what they need in groups no wider than `room`, each as full as it can be, no bundle parted.

    gap     between two columns
    """
    grouped: list[dict[Column, float]] = [{}]
    for bundle, wanted in _wanted(columns, needed, room, gap):
        if grouped[-1] and sum(grouped[-1].values()) + gap * len(grouped[-1]) + wanted > room:
            grouped.append({})
        grouped[-1] |= {column: needed[column] for column in bundle}
    return grouped


def _wanted(
    columns: Sequence[Column], needed: Mapping[Column, float], room: float, gap: float
) -> Iterator[tuple[tuple[Column, ...], float]]:
    """The bundles with what they need together; one that is wider than all the room comes column by column."""
    for bundle in bundles(columns):
        wanted = sum(needed[column] for column in bundle) + gap * (len(bundle) - 1)
        if wanted <= room:
            yield bundle, wanted
        else:
            yield from (((column,), needed[column]) for column in bundle)


def even_groups(
    columns: Sequence[Column], needed: Mapping[Column, float], room: float, gap: float
) -> list[dict[Column, float]]:
    """As few groups as `groups` makes, but as even as can be: no column is left alone without need."""
    few = groups(columns, needed, room, gap)
    least = max((wanted for _, wanted in _wanted(columns, needed, room, gap)), default=0)
    for part in range(1, 20):
        if room * part / 20 >= least:
            even = groups(columns, needed, room * part / 20, gap)
            if len(even) == len(few):
                return even
    return few


def _leads(column: Column) -> bool:
    return column.group or column.key.startswith("axis:")


_SPEAKING = frozenset({"suite", "suites", "agent", "environment", "difficulty"})
"""Keys of columns whose values need no title: a parameter's `none` does."""


def _heading(lead: Sequence[Column], row: Mapping[str, Any]) -> str:
    parts = []
    for column in lead:
        text = shown(column, row.get(column.key))
        if text != MISSING:
            plain = column.key in _SPEAKING and isinstance(row[column.key], str)
            parts.append(text if plain else f"{column.title}={text}")
    return " ".join(parts) or MISSING


_WORDS = re.compile(r"(?<=\s)(?=\S)")
_JOINTS = re.compile(r"(?<=\s)(?=\S)|(?<=[^\W_][/_=?&|-])(?=[^\W_])")


def pieces(text: str) -> list[str]:
    """The text in parts after which a line may end: at spaces and at what joins the parts of a name."""
    return [piece for piece in _JOINTS.split(text) if piece]


def broken(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` letters: words, and their pieces, are broken only where they are longer."""
    broken_lines: list[str] = []
    for line in text.split("\n"):
        lines = [""]
        for piece in _whole_where_they_fit(line, width):
            if len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            rest = piece
            while len(rest.rstrip()) > width:
                lines += [rest[:width]]
                rest = rest[width:]
                lines.append("")
            lines[-1] += rest
        broken_lines += [piece.rstrip() for piece in lines if piece.strip()] or [""]
    return broken_lines


def _whole_where_they_fit(line: str, width: int) -> Iterator[str]:
    """The words of a line, those that are longer than `width` in pieces."""
    for word in _WORDS.split(line):
        yield from [word] if len(word.rstrip()) <= width else pieces(word)
