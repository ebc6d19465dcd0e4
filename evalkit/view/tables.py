"""One table of a run a page: the whole of a small one, which the browser sorts, or a part of a large one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from evalkit.errors import RunError, UsageError, nearest
from evalkit.report.quotes import quotes_table
from evalkit.report.tables import Column, Table, without_shared_packs, written
from evalkit.results.cells import Cell
from evalkit.view.grid import NUMBERS, Grid, Href, Ordered, grid, sort_value
from evalkit.view.reading import Reading
from evalkit.view.render import PageLink

PER_PAGE = 200
"""Rows of a page; a table of no more is there as a whole."""

EPISODES = "episodes"
"""The column whose numbers lead to the episodes they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """Which rows of a table, in which order, which page of them."""

    order: str = ""
    """A column's key, after `-` if descending; empty: the order of the table."""
    contains: str = ""
    """Words that a row has, all of them, in any case."""
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """What the page's template shows."""

    grid: Grid
    wanted: TableQuery
    whole: bool
    """Whether all rows are there, so that the browser sorts and filters them."""
    found: int
    first: int
    """Number of the page's first row, from 1; 0: there is none."""
    last: int
    before: str
    """Address of the page before; empty: there is none."""
    after: str
    others: Sequence[PageLink]
    """The tables of the run, this one marked."""


def read_query(query: Mapping[str, str]) -> TableQuery:
    """What an address asks for. Raises UsageError for a page that is not a number from 1."""
    page = query.get("page", "1")
    if not re.fullmatch(r"[1-9]\d{0,8}", page):
        raise UsageError(f"page: {page!r} is not a page number; pages count from 1.")
    return TableQuery(order=query.get("order", ""), contains=query.get("contains", "").strip(), page=int(page))


def run_tables(reading: Reading) -> dict[str, Table]:
    """The tables of a run by name: those of its report, the quoted errors, and the numbers of each figure."""
    tables = {table.name: table for table in reading.report.tables}
    if reading.quotes:
        tables["quotes"] = quotes_table(reading.quotes, reading.report.cells, str(reading.directory))
    for figure in reading.figures:
        name = f"{figure.name}{NUMBERS}"
        tables[name] = replace(figure.table, name=name, query=figure.query)
    return tables


def table_of(reading: Reading, name: str) -> Table:
    """A table of a run. Raises RunError if there is none of that name."""
    tables = run_tables(reading)
    if name not in tables:
        raise RunError(f"The run has no table {name!r}.{nearest(name, list(tables))}")
    return tables[name]


def table_page(reading: Reading, name: str, wanted: TableQuery, prefix: str) -> TablePage:
    """A page of one table. `prefix`: the address of the run's pages.

    Raises RunError if there is no such table, UsageError for an order by a column that it does not have.
    """
    table = table_of(reading, name)
    address = f"{prefix}/table/{quote(name, safe='')}"
    href = table_href(reading, table, prefix)
    run = str(reading.directory)
    others = [
        PageLink(title=other.title, href=f"{prefix}/table/{quote(key, safe='')}", active=key == name)
        for key, other in run_tables(reading).items()
        if key == name or not key.endswith(NUMBERS)
    ]
    if len(table.rows) <= PER_PAGE and wanted == TableQuery():
        return TablePage(
            grid=grid(table, run, csv=f"{address}.csv", href=href),
            wanted=wanted,
            whole=True,
            found=len(table.rows),
            first=min(1, len(table.rows)),
            last=len(table.rows),
            before="",
            after="",
            others=others,
        )
    places = _places(table, wanted)
    page = min(wanted.page, max(1, -(-len(places) // PER_PAGE)))
    start = (page - 1) * PER_PAGE
    kept = places[start : start + PER_PAGE]

    def with_query(**changed: Any) -> str:
        query = {"order": wanted.order, "contains": wanted.contains, **changed}
        return f"{address}?{urlencode({key: value for key, value in query.items() if value})}"

    ordered = Ordered(order=wanted.order, address=lambda order: with_query(order=order))
    return TablePage(
        grid=grid(_part(table, kept), run, csv=f"{address}.csv", href=href, ordered=ordered),
        wanted=wanted,
        whole=False,
        found=len(places),
        first=start + 1 if kept else 0,
        last=start + len(kept),
        before=with_query(page=page - 1) if page > 1 else "",
        after=with_query(page=page + 1) if start + len(kept) < len(places) else "",
        others=others,
    )


def _places(table: Table, wanted: TableQuery) -> list[int]:
    """The places of the rows that are wanted, in the wanted order."""
    words = wanted.contains.casefold().split()
    columns = without_shared_packs(table).outer
    places = [index for index, row in enumerate(table.rows) if not words or _has(columns, row, words)]
    key = wanted.order.removeprefix("-")
    if not key:
        return places
    by_key = {column.key: column for column in columns}
    if key not in by_key:
        raise UsageError(f"order: {key!r} is not a column of this table.{nearest(key, list(by_key))}")
    value_of = _value_of(by_key[key])
    with_value = [index for index in places if table.rows[index].get(key) is not None]
    with_value.sort(key=lambda index: value_of(table.rows[index]), reverse=wanted.order.startswith("-"))
    return with_value + [index for index in places if table.rows[index].get(key) is None]


def _has(columns: Sequence[Column], row: Mapping[str, Any], words: Sequence[str]) -> bool:
    text = "\n".join(written(column, row) for column in columns).casefold()
    return all(word in text for word in words)


def _value_of(column: Column) -> Callable[[Mapping[str, Any]], Any]:
    """What a column's rows are ordered by: numbers by size, names with their numbers by size."""

    def value(row: Mapping[str, Any]) -> Any:
        number = sort_value(column, row[column.key])
        if number is not None:
            return number
        parts = re.split(r"(\d{1,15})", str(row[column.key]).casefold())
        return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]

    return value


def _part(table: Table, places: Sequence[int]) -> Table:
    bold = {(here, key) for here, place in enumerate(places) for at, key in table.bold if at == place}
    return replace(table, rows=tuple(table.rows[place] for place in places), bold=frozenset(bold))


def table_href(reading: Reading, table: Table, prefix: str) -> Href | None:
    """Where a table's cells lead: counts of episodes to these, quotes to their places; None: nowhere."""
    if table.name == "quotes":
        places = {
            id(row): f"{prefix}/episode/{quote(quoted.example.id, safe='')}#p{quoted.period}t{quoted.turn}"
            for row, quoted in zip(table.rows, reading.quotes, strict=True)
        }
        return lambda row, key: places[id(row)] if key == "kind" else ""
    return _to_episodes(table, reading.report.cells, prefix)


def _to_episodes(table: Table, cells: Sequence[Cell], prefix: str) -> Href | None:
    """From a row that is a cell's to its episodes; None if rows are not those of cells."""
    if len(table.rows) != len(cells) or any(
        row.get("agent") != cell.agent for row, cell in zip(table.rows, cells, strict=True)
    ):
        return None
    links = {
        id(row): f"{prefix}/episodes?{urlencode({'agent': cell.agent, 'suite': cell.suite.name})}"
        for row, cell in zip(table.rows, cells, strict=True)
    }
    return lambda row, key: links[id(row)] if key == EPISODES else ""
