"""Tables and trajectories in a terminal. Nothing that comes from a model or a spec is read as rich markup.

Where there is little room, what groups rows becomes headings, and names break where readers expect it. The columns that
lead a table (its suite, what the sweep varied) say the same in many rows, or nothing.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from evalkit.redact import KEYS
from evalkit.report.tables import MISSING, Column, Table, shown, without_empty, without_shared_packs, written
from evalkit.text import many, visible

if TYPE_CHECKING:
    from evalkit.report.report import Report
    from evalkit.results.trajectory import Kind, Trajectory, TrajectoryPart

NO_BREAK = "\u00a0"

NARROW = 80
"""Columns that a terminal is taken to have at least, so that numbers are not cut."""


class Output(Console):
    """A console that reads no markup and shows every character of what it prints.

    It leaves a closed pipe to its caller, where rich would end the process with an error.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        # The stream that evalkit guards, which would show the console's own colours as escapes.
        stream = sys.stderr if stderr else sys.stdout
        file = getattr(stream, "rich_proxied_file", stream)
        super().__init__(file=file, stderr=stderr, width=width, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As rich does; what is no control of a display is visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(KEYS.text(segment.text, good=True)), segment.style)

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise BrokenPipeError


def console() -> Console:
    """A console on standard output; without a terminal it is wide, so that no line is broken in a file."""
    plain = Output()
    return Output(width=max(NARROW, plain.width) if plain.is_terminal else 160)


def print_report(report: "Report", *, to: Console | None = None) -> None:
    """Print a report's tables."""
    to = to or console()
    state = "complete" if report.planned == report.ended else f"{report.planned - report.ended:,} remaining"
    state += f", {report.refused:,} of them refused by the provider" if report.refused else ""
    state += f", {report.voided:,} void" if report.voided else ""
    name = visible(report.manifest.name)
    to.print(Text(f"{name}: {report.ended:,} of {many(report.planned, 'episode')} ended, {state}"))
    for table in report.tables:
        print_table(table, to)


def print_table(table: Table, to: Console) -> None:
    """Print one table: title, rows, notes below. A prompt pack that all rows share is a note, not a column."""
    to.print()
    print_bare(table, to)
    print_notes(table, to)


def print_bare(table: Table, to: Console) -> None:
    """Print a table's title, if it has one, and its rows; columns that are empty in all rows are left out.

    Where the terminal is too narrow, what groups rows stands above them; where it still is, the table goes on below.
    """
    table = without_empty(without_shared_packs(table))
    if table.title:
        to.print(Text(visible(table.title), style="bold"))
    columns, rows = table.outer, range(len(table.rows))
    if 1 + sum(_widest(table, column) + GAP for column in columns) <= to.width:
        to.print(_grid(table, dict.fromkeys(columns, 0), rows))
    elif 1 + sum(_needs(table, column) + GAP for column in columns) <= to.width:
        # Texts get what they need and what is left; others are as wide as they are.
        needed = {column: _needs(table, column) for column in columns}
        wider = _widened(table, needed, to.width - sum(least + GAP for least in needed.values()))
        part = {column: share if column.kind == "text" else 0 for column, share in wider.items()}
        to.print(_grid(table, part, rows))
    else:
        _print_narrow(table, to)


def print_notes(table: Table, to: Console) -> None:
    """Print what a reader of a table must know."""
    for line in without_shared_packs(table).lines_below:
        to.print(Padding(Text(visible(line), style="dim"), (0, 0, 0, 1), expand=False))


def _print_narrow(table: Table, to: Console) -> None:
    columns, sections = headed(table)
    for number, part in enumerate(_parts(table, columns, to.width)):
        if number:
            to.print()
        bare = not sections[0].heading
        to.print(_grid(table, part, sections[0].places if bare else ()))
        for section in () if bare else sections:
            lines = broken(visible(section.heading), max(1, to.width - 2))
            to.print(Text("\n".join(f" {line}" for line in lines), style="italic"))
            to.print(_grid(table, part, section.places, head=False))


LEAST_NAME, LEAST_TEXT, GAP = 12, 24, 2
"""Columns that a name and another text get at least if they have so many, and that stand between two."""


def _parts(table: Table, columns: Sequence[Column], width: int) -> list[dict[Column, int]]:
    """The columns in groups that fit, each after the names and with the width of each column."""
    lead = next((index for index, column in enumerate(columns) if column.numeric), len(columns))
    names, rest = columns[:lead], columns[lead:]
    # Names take two thirds of the terminal at most, and leave room for any figure with its interval.
    widest = max((sum(_needs(table, column) + GAP for column in bundle) for bundle in bundles(rest)), default=0)
    most = max(LEAST_NAME * len(names), min(2 * width // 3, width - 1 - widest)) // (len(names) or 1) - GAP
    shares = {column: min(_widest(table, column), max(1, most)) for column in names}
    room = width - 1 - sum(share + GAP for share in shares.values())
    needed = {column: min(_needs(table, column), max(1, room - GAP)) for column in rest}
    parts = groups(rest, needed, room - GAP, GAP)
    left = [room - sum(least + GAP for least in part.values()) for part in parts]
    # What no part needs goes to names, then in each part to its texts.
    wider = _widened(table, shares, min(left))
    taken = sum(wider.values()) - sum(shares.values())
    return [{**wider, **_widened(table, part, spare - taken)} for part, spare in zip(parts, left, strict=True)]


def _widened(table: Table, widths: Mapping[Column, int], spare: int) -> dict[Column, int]:
    """The widths with `spare` columns of the terminal more for those that need them, as evenly as can be."""
    wider = dict(widths)
    short = sorted(wider, key=lambda column: _widest(table, column) - wider[column])
    for number, column in enumerate(short):
        more = min(max(0, spare) // (len(short) - number), _widest(table, column) - wider[column])
        wider[column] += more
        spare -= more
    return wider


def _needs(table: Table, column: Column) -> int:
    """How wide a column has to be: numbers and names are never cut, of long texts `LEAST_TEXT` will do."""
    widest = _widest(table, column)
    if not any(column.numeric for column in table.outer):
        return widest if column.group else min(widest, LEAST_NAME)
    if column.numeric or column in takewhile(lambda other: not other.numeric, table.outer):
        return widest
    longest = max((len(part) for row in table.rows for part in written(column, row).split(", ")), default=0)
    return min(widest, max(LEAST_TEXT, longest + 1 if column.kind == "counts" else 0))


def _grid(table: Table, part: Mapping[Column, int], indices: Sequence[int], *, head: bool = True) -> Grid:
    """Some rows with some columns; `part`: with their widths, 0 where they are as wide as they need."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, show_header=head, collapse_padding=True, header_style="")
    for number, (column, width) in enumerate(part.items()):
        title = visible(column.title)
        grid.add_column(
            Text("\n".join(broken(title, width)) if width else title, style="bold"),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            min_width=_widest(table, column) if column.numeric and not width else None,
            # Of the first column rich takes one away when padding collapses.
            width=width + (not number) if width else None,
            overflow="fold",
        )
    above: Mapping[str, Any] = {}
    for index in indices:
        row = table.rows[index]
        if above and _group(part, above) != _group(part, row):
            grid.add_section()
        grid.add_row(*_texts(table, part, index, above))
        above = row
    return grid


def _widest(table: Table, column: Column) -> int:
    title = max(map(len, broken(visible(column.title), LEAST_TEXT)))
    return max(title, *(len(written(column, row)) for row in table.rows), 1)


def _group(part: Iterable[Column], row: Mapping[str, Any]) -> list[Any]:
    """The value of the first column that groups rows: a line is drawn where it changes."""
    return [row.get(column.key) for column in part if column.group][:1]


def _texts(table: Table, part: Mapping[Column, int], index: int, above: Mapping[str, Any]) -> list[Text]:
    texts, same, row = [], bool(above), table.rows[index]
    for column, width in part.items():
        same = same and column.group and above.get(column.key) == row.get(column.key)
        text = "" if same else written(column, row)
        if column.kind == "counts":
            text = text.replace(" ", NO_BREAK).replace("," + NO_BREAK, ", ")
        elif width and not column.numeric:
            text = "\n".join(broken(text, width))
        strong = (column.kind == "score" and not table.bold) or (index, column.key) in table.bold
        texts.append(Text(text, style="dim" if text == MISSING else "bold" if strong else ""))
    return texts


STYLES: "Mapping[Kind, str]" = {
    "period": "bold",
    "turn": "dim",
    "read": "cyan",
    "said": "green",
    "thought": "magenta",
    "ask": "blue",
    "call": "bold green",
    "facts": "dim",
    "warning": "bold red",
    "end": "bold",
}


def print_trajectory(trajectory: "Trajectory", *, to: Console | None = None) -> None:
    """Print one episode: its header, then what it read, said and called."""
    to = to or console()
    width = max(map(len, trajectory.header), default=0)
    for name, value in trajectory.header.items():
        to.print(Text(f"{name:<{width}}  ", style="dim") + Text(value))
    for part in trajectory.parts:
        _print_part(part, to)


def _print_part(part: "TrajectoryPart", to: Console) -> None:
    style = STYLES[part.kind]
    if part.kind in ("period", "end"):
        to.print()
        to.print(Rule(Text(part.title, style=style), style="dim", align="left"))
    else:
        if part.kind == "turn":
            to.print()
        to.print(Text(part.title, style=style))
    if part.text:
        to.print(Padding(Text(part.text, style="dim" if part.kind == "facts" else ""), (0, 0, 0, 2), expand=False))


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
    lead = columns[
        : next((i for i, column in enumerate(columns) if not (column.group or column.key.startswith("axis:"))), 0)
    ]
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


def groups(columns: Sequence[Column], needed: Mapping[Column, int], room: int, gap: int) -> list[dict[Column, int]]:
    """The columns with what they need in groups no wider than `room`, each as full as it can be, no bundle parted.

    gap     between two columns
    """
    grouped: list[dict[Column, int]] = [{}]
    for bundle in bundles(columns):
        wanted = sum(needed[column] + gap for column in bundle) - gap
        if grouped[-1] and sum(grouped[-1].values()) + gap * len(grouped[-1]) + wanted > room:
            grouped.append({})
        grouped[-1] |= {column: needed[column] for column in bundle}
    return grouped


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
