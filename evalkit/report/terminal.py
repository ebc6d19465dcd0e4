"""Tables and trajectories in a terminal. Nothing that comes from a model or a spec is read as rich markup."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from evalkit.report.tables import MISSING, PROMPTS, Column, Table, shown
from evalkit.report.visible import visible

if TYPE_CHECKING:
    from evalkit.report.report import Report
    from evalkit.report.trajectory import Kind, Part, Trajectory

NO_BREAK = "\u00a0"

NARROW = 80
"""Columns that a terminal is taken to have at least, so that numbers are not cut."""


def console() -> Console:
    """A console on standard output; without a terminal it is wide, so that no line is broken in a file."""
    plain = Console(highlight=False)
    if plain.is_terminal:
        return Console(highlight=False, width=max(NARROW, plain.width))
    return Console(highlight=False, width=160, file=sys.stdout)


def print_report(report: "Report", *, brief: bool = False, to: Console | None = None) -> None:
    """Print a report's tables; `brief`: the scores alone."""
    to = to or console()
    if not brief:
        state = "complete" if report.planned == report.ended else f"{report.planned - report.ended:,} owed"
        state += f", {report.voided:,} void" if report.voided else ""
        name = visible(report.manifest.name)
        to.print(Text(f"{name}: {report.ended:,} of {report.planned:,} episodes ended, {state}"))
    for table in report.tables[:1] if brief else report.tables:
        print_table(table, to)


def print_table(table: Table, to: Console) -> None:
    """Print one table: title, rows, notes below. A prompt pack that all rows share is a note, not a column."""
    if len(table.packs) == 1:
        table = replace(table, columns=tuple(column for column in table.columns if column.key != PROMPTS))
    to.print()
    to.print(Text(visible(table.title), style="bold"))
    for place, part in enumerate(_parts(table, to.width)):
        if place:
            to.print()
        to.print(_grid(part))
    for line in table.lines_below:
        to.print(Padding(Text(visible(line), style="dim"), (0, 0, 0, 1), expand=False))


LEAST_NAME, LEAST_TEXT, GAP = 12, 24, 2
"""Columns that a name gets if there is room, that another text gets, and that stand between two."""


def _parts(table: Table, width: int) -> list[Table]:
    """The table, or where it is wider than the terminal its columns in groups that fit, each behind the names."""
    numbers = [place for place, column in enumerate(table.columns) if column.numeric]
    lead = numbers[0] if numbers else len(table.columns)
    names, rest = table.columns[:lead], table.columns[lead:]
    # Names take two thirds of the terminal at most, so that some numbers stand in each group.
    name = min(LEAST_NAME, 2 * width // (3 * len(names) or 1) - GAP)
    room = width - 1 - sum(_needs(table, column, name) + GAP for column in names)
    groups: list[list[Column]] = [[]]
    for column in rest:
        taken = sum(_needs(table, one, LEAST_TEXT) + GAP for one in (*groups[-1], column))
        if groups[-1] and taken > room:
            groups.append([])
        groups[-1].append(column)
    return [replace(table, columns=(*names, *group)) for group in groups]


def _needs(table: Table, column: Column, most: int) -> int:
    """How wide a column has to be: numbers are never cut, of texts `most` will do."""
    widest = _widest(table, column)
    return widest if column.numeric else min(widest, most)


def _grid(table: Table) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, header_style="")
    for column in table.columns:
        grid.add_column(
            Text(visible(column.title), style="bold"),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            # Where the terminal is too narrow, names break before a number is cut.
            min_width=_widest(table, column) if column.numeric else None,
            overflow="fold",
        )
    above: Mapping[str, Any] = {}
    for row in table.rows:
        if above and _group(table, above) != _group(table, row):
            grid.add_section()
        grid.add_row(*_texts(table, row, above))
        above = row
    return grid


def _widest(table: Table, column: Column) -> int:
    return max(len(column.title), *(len(shown(column, row.get(column.key))) for row in table.rows), 0)


def _group(table: Table, row: Mapping[str, Any]) -> list[Any]:
    """The value of the first column that groups rows: a line is drawn where it changes."""
    return [row.get(column.key) for column in table.columns if column.group][:1]


def _texts(table: Table, row: Mapping[str, Any], above: Mapping[str, Any]) -> list[Text]:
    texts, same = [], bool(above)
    for column in table.columns:
        value = row.get(column.key)
        same = same and column.group and above.get(column.key) == value
        text = "" if same else shown(column, value)
        if column.kind == "counts":
            text = text.replace(" ", NO_BREAK).replace("," + NO_BREAK, ", ")
        texts.append(Text(text, style="dim" if text == MISSING else "bold" if column.kind == "score" else ""))
    return texts


STYLES: "Mapping[Kind, str]" = {
    "period": "bold",
    "turn": "dim",
    "read": "cyan",
    "said": "green",
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


def _print_part(part: "Part", to: Console) -> None:
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
