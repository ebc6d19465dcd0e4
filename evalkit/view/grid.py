"""A table as a page shows it: cells with their texts, what they are sorted by, and intervals as small ranges."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from evalkit.report.tables import MISSING, Column, Table, as_csv, shown, without_empty, without_shared_packs, written
from evalkit.report.vega import Figure

RANGE_WIDTH = 120.0
"""Of a drawn interval, in pixels; its ends keep clear of the border."""
MARGIN = 4.0
NUMBERS = "-numbers"
"""What the name of a figure's table ends with."""
SHORT = 36
"""Characters of a text that is not broken into lines."""

Href = Callable[[Mapping[str, Any], str], str]
"""Where a cell leads, from its row and its column's key; empty: nowhere."""


Marks = Callable[[Mapping[str, Any], str], str]
"""What a cell is marked as, from its row and its column's key: `good`, `bad`, `warn`, `going`; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval, drawn: places in pixels from 0 to `width`."""

    low: float
    high: float
    point: float | None
    """The estimate; None: the table has no column for it."""
    zero: float | None
    """Where 0 lies, if it lies within."""
    label: str
    width: float = RANGE_WIDTH
    """Of the drawing, in pixels."""
    equal: tuple[float, float] | None = None
    """Between which places a difference counts as equal."""
    down: float | None = None
    """To where what so few instances cannot exclude may bring it; None: no further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One value."""

    text: str
    sort: str | None
    """What it is sorted by; None: its text."""
    style: str
    range: Span | None = None
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One row."""

    cells: Sequence[GridCell]
    begins: bool
    """Whether a group of rows begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridHead:
    """One column's head."""

    title: str
    unit: str
    numeric: bool
    href: str = ""
    """Where the rows are ordered by this column; empty: the browser sorts the rows that it has."""
    sort: str = ""
    """`ascending` or `descending` where the rows are ordered by this column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """An order of rows that the server makes, since a page holds only a part of them."""

    order: str
    """A column's key, after `-` if descending; empty: the order of the table."""
    address: Callable[[str], str]
    """From an order to the address of the page in that order."""

    def head(self, column: Column) -> GridHead:
        """The column's head: it leads to the rows in its order, and in the other direction if that is shown."""
        ascending, descending = column.key, f"-{column.key}"
        first, second = (descending, ascending) if column.numeric else (ascending, descending)
        return GridHead(
            title=column.title,
            unit=column.told,
            numeric=column.numeric,
            href=self.address(second if self.order == first else first),
            sort={ascending: "ascending", descending: "descending"}.get(self.order, ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Which part of all rows a page shows."""

    found: int
    first: int
    """Number of the page's first row, from 1; 0: there is none."""
    last: int
    before: str
    """Address of the page before; empty: there is none."""
    after: str


def paged(rows: Sequence[Any], page: int, most: int, address: Callable[[int], str]) -> tuple[Sequence[Any], Paging]:
    """The rows of a page of `most`, and where they stand. `address`: from a page's number to where it is."""
    page = min(page, max(1, -(-len(rows) // most)))
    start = (page - 1) * most
    kept = rows[start : start + most]
    end = start + len(kept)
    return kept, Paging(
        found=len(rows),
        first=start + 1 if kept else 0,
        last=end,
        before=address(page - 1) if page > 1 else "",
        after=address(page + 1) if end < len(rows) else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table, ready for its template."""

    name: str
    title: str
    heads: Sequence[GridHead]
    rows: Sequence[GridRow]
    notes: Sequence[str]
    query: str
    command: str
    """The `evalkit sql` command that asks it."""
    csv: str
    """Where the rows lie as CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure, ready for its template."""

    name: str
    title: str
    spec: Mapping[str, Any]
    notes: Sequence[str]
    query: str
    command: str
    grid: Grid | None
    """Its numbers; None: they are on a page of their own."""
    numbers: str = ""
    """Where that page is."""


def grid(
    table: Table,
    run: str,
    *,
    csv: str = "",
    href: Href | None = None,
    ordered: RowOrder | None = None,
    apart: str = "",
    marks: Marks | None = None,
    every: bool = False,
) -> Grid:
    """A table for a page.

    `run`: how `evalkit sql` calls its run; `csv`: where its rows lie, else they go along; `ordered`: how the server
    has ordered the rows, else the browser sorts them; `apart`: the column whose values have scales of their own;
    `every`: columns without a value in any row stay.
    """
    told = without_shared_packs(table)
    # Of an ordered table the page has a part, in which a column may be empty by chance.
    columns = (told if every or ordered is not None else without_empty(told)).outer
    spans = {column.key: _spans(table, column, apart) for column in columns if column.kind == "interval"}
    rows: list[GridRow] = []
    above: Mapping[str, Any] = {}
    grouped = ordered is None or not ordered.order
    for index, row in enumerate(table.rows):
        cells, same = [], bool(above) and grouped
        for column in columns:
            same = same and column.group and above.get(column.key) == row.get(column.key)
            span = spans[column.key][index] if column.key in spans else None
            bold = (index, column.key) in table.bold
            cell = _cell(column, row, span, same=same, bold=bold, href=href)
            mark = marks(row, column.key) if marks is not None else ""
            cells.append(replace(cell, style=f"{cell.style} {mark}") if mark else cell)
        groups = [column.key for column in columns if column.group][:1]
        begins = grouped and bool(above) and any(above.get(key) != row.get(key) for key in groups)
        rows.append(GridRow(cells=cells, begins=begins))
        above = row
    return Grid(
        name=table.name,
        title=table.title,
        heads=[_head(column, ordered) for column in columns],
        rows=rows,
        notes=[line for line in table.lines_below if not line.endswith(MISSING)],
        query=table.query,
        command=sql_command(run, table.query),
        csv=csv or f"data:text/csv;charset=utf-8,{quote(as_csv(table), safe='')}",
    )


def plot(figure: Figure, run: str, *, numbers: str = "") -> Plot:
    """A figure for a page. `run`: as of `grid`; `numbers`: the page of its numbers, else they go along."""
    return Plot(
        name=figure.name,
        title=figure.title,
        spec=figure.spec,
        notes=figure.notes,
        query=figure.query,
        command=sql_command(run, figure.query),
        grid=None if numbers else grid(replace(figure.table, name=f"{figure.name}{NUMBERS}"), run),
        numbers=numbers,
    )


def sql_command(run: str, query: str) -> str:
    """The command that asks a query of a run; empty if there is no query."""
    return f"evalkit sql {shlex.quote(run)} {shlex.quote(query)}" if query else ""


def _head(column: Column, ordered: RowOrder | None) -> GridHead:
    if ordered is not None:
        return ordered.head(column)
    return GridHead(title=column.title, unit=column.told, numeric=column.numeric)


def _cell(
    column: Column, row: Mapping[str, Any], span: Span | None, *, same: bool, bold: bool, href: Href | None
) -> GridCell:
    value = row.get(column.key)
    text = written(column, row)
    kind = {"text": "long" if len(text) > SHORT else "text", "counts": "counts"}.get(column.kind, "number")
    styles = [kind]
    if value is None:
        styles.append("missing")
    elif bold or column.kind == "score":
        styles.append("strong")
    if same:
        styles.append("same")
    return GridCell(
        text=text,
        sort=_sort(column, value),
        style=" ".join(styles),
        range=span,
        href=href(row, column.key) if href is not None and value is not None else "",
    )


def _sort(column: Column, value: Any) -> str | None:
    if column.kind == "text":
        return None
    number = sort_value(column, value)
    return "" if number is None else repr(number)


def sort_value(column: Column, value: Any) -> int | float | None:
    """The number that a value is sorted by; None: there is none, or it is sorted as a text."""
    if column.kind == "text" or value is None:
        return None
    if column.kind == "interval":
        return float(value[0])
    number: int | float = sum(value.values()) if column.kind == "counts" else value
    return number


def _spans(table: Table, column: Column, apart: str = "") -> list[Span | None]:
    """The intervals of a column, on one scale; on one around 0 for each value of the column `apart`."""
    intervals = [row.get(column.key) for row in table.rows]
    ends = [float(end) for interval in intervals if interval is not None for end in interval]
    if not ends:
        return [None] * len(intervals)
    furthest = max(map(abs, ends)) or 1.0
    whole = (min(0.0, *ends), max(100.0, *ends)) if column.equal is None else (-furthest, furthest)
    scales = {row.get(apart): whole for row in table.rows}
    for value in scales if apart else ():
        furthest = max(
            (abs(end) for row in table.rows if row.get(apart) == value for end in row.get(column.key) or ()),
            default=0.0,
        )
        scales[value] = (-(furthest or 1.0), furthest or 1.0)
    estimate = _estimate(table, column)
    return [
        None
        if interval is None
        else span(
            interval,
            None if estimate is None else row.get(estimate.key),
            scales[row.get(apart)],
            RANGE_WIDTH,
            shown(column, interval),
            column.equal,
            row.get("unmet") if column.key == "interval" else None,
        )
        for row, interval in zip(table.rows, intervals, strict=True)
    ]


def span(
    interval: Sequence[float],
    point: float | None,
    scale: tuple[float, float],
    width: float,
    label: str,
    equal: float | None = None,
    unmet: float | None = None,
) -> Span:
    """An interval, drawn on a scale: `scale` are the values at both ends of `width` pixels; `equal`: as of `Column`;
    `unmet`: to where what so few instances cannot exclude may bring it."""
    least, most = scale

    def x_of(value: float) -> float:
        return round(MARGIN + (value - least) / (most - least) * (width - 2 * MARGIN), 2)

    return Span(
        low=x_of(interval[0]),
        high=x_of(interval[1]),
        point=None if point is None else x_of(point),
        zero=x_of(0.0) if least < 0 else None,
        label=label,
        width=width,
        equal=None if equal is None else (x_of(max(-equal, least)), x_of(min(equal, most))),
        down=None if unmet is None else x_of(max(unmet, least)),
    )


def _estimate(table: Table, interval: Column) -> Column | None:
    """The column that an interval is of: the one before it, if it is on the same scale."""
    before = table.columns[table.columns.index(interval) - 1]
    return before if before.kind in {"score", "percent"} else None
