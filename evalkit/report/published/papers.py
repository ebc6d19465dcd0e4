"""The papers' own figures, as data: `published/*.toml` holds each table's rows and its place.

Figures are facts; nothing else of the papers is here. What a published table looks like stands with its figures; our
own tables of the same content look like it. JSON and CSV hold the same values under the same keys as ever.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from evalkit.report.tables import Column, Table


class PublishedColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a paper prints a column."""

    title: str = ""
    """Empty: as ours."""
    digits: int | None = None
    """Decimals; None: as ours."""
    as_share: bool = False
    """Whether a percentage is printed as a share of 1."""
    inside: tuple[str, ...] = ()
    """Keys of what stands in parentheses after each value."""


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a paper."""

    name: str
    number: str
    """As the paper counts it; `text` where the figures stand in its text."""
    place: str
    title: str
    ours: tuple[str, ...]
    """The report's tables that hold the same figures."""
    keys: Mapping[str, Any] = {}
    """What all its rows are of: parameters of the instances, a difficulty."""
    notes: tuple[str, ...] = ()
    columns: Mapping[str, PublishedColumn] = {}
    """By key: how it is printed."""
    bold: int = 0
    """How many of the greatest values of each column are bold."""
    bold_where: Mapping[str, Any] = {}
    """What rows are like in which values are bold."""
    runs: int | None = None
    """How many runs each count of solved ones is of."""
    rows: tuple[Mapping[str, Any], ...]
    """`model` (empty: the figure is of none; missing in all rows: there are no models), further keys, and values by the
    keys of our table's columns."""


class Paper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is kept of one paper."""

    paper: str
    source: str
    settings: str
    """How its figures were made, in a sentence."""
    tables: tuple[PublishedTable, ...]


@cache
def published_papers() -> tuple[Paper, ...]:
    """Both papers."""
    files = sorted(Path(__file__).resolve().parent.glob("*.toml"))
    return tuple(msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Paper) for path in files)


def beside_tables(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Those of a report's tables that the papers have too, and below them the published rows with the same columns."""
    by_name = {table.name: table for table in tables}
    shown: dict[str, Table] = {}
    for paper in published_papers():
        for published in paper.tables:
            ours = [by_name[name] for name in published.ours if name in by_name]
            theirs = _published_rows(paper, published, ours[0]) if ours else None
            if theirs is not None and theirs.rows:
                shown |= {table.name: table for table in ours}
                shown[published.name] = theirs
    return tuple(shown.values())


def _published_rows(paper: Paper, published: PublishedTable, ours: Table) -> Table:
    keys = dict.fromkeys((*published.keys, *(key for row in published.rows for key in row if key != "model")))
    of_models = any("model" in row for row in published.rows)
    rows = [{**published.keys, **row, "agent": row.get("model") or "any"} for row in published.rows]
    for row in rows if published.runs else ():
        row |= {key.replace("_solved", "_runs"): published.runs for key in row if key.endswith("_solved")}
    told = [key for key in keys if key in published.keys or any(isinstance(row.get(key), str) for row in rows)]
    figures = [column for column in ours.columns if column.numeric and any(column.key in row for row in rows)]
    # A row that says nothing of what our table has (a heuristic for another environment) is left out.
    rows = [row for row in rows if any(row.get(column.key) is not None for column in figures)]
    table = Table(
        name=f"beside_{published.name}",
        title=f"{paper.paper}, {published.number} ({published.place}): {published.title}",
        columns=(
            *([Column(key="agent", title="Model")] if of_models else []),
            *(Column(key=key, title=key.capitalize()) for key in told),
            *figures,
        ),
        rows=tuple(rows),
        packs=(),
        notes=(f"rows from the paper: {paper.source}; {paper.settings}", *published.notes),
    )
    return as_printed(table, published.name)


Group = Callable[[Mapping[str, Any]], object]
"""A row -> what must be the same in rows that compete for being bold; None: it does not compete."""


def as_printed(table: Table, name: str, group: Group = lambda row: row.get("agent") and 0) -> Table:
    """The table in the layout of the published table of that name, where they have columns of the same keys.

    group   which rows of it compete; all, where nothing else is said
    """
    published = next(table for paper in published_papers() for table in paper.tables if table.name == name)
    columns = {column.key: column for column in table.columns}
    printed = tuple(_printed(column, published, columns) for column in table.columns)
    return replace(table, columns=printed, bold=_best(table, published, group))


def _printed(column: Column, published: PublishedTable, columns: Mapping[str, Column]) -> Column:
    look = published.columns.get(column.key)
    if look is None:
        # An interval has the decimals of what it is of.
        whole = published.columns.get(column.key.removesuffix("_interval"))
        return replace(column, digits=whole.digits) if whole and column.kind == "interval" else column
    within = tuple(columns[key] for key in look.inside if key in columns)
    return replace(
        column,
        title=look.title or column.title,
        digits=column.digits if look.digits is None else look.digits,
        as_share=look.as_share,
        inside=within if len(within) == len(look.inside) else (),
    )


def _best(table: Table, published: PublishedTable, group: Group) -> frozenset[tuple[int, str]]:
    """The places of the best values, in every group of more rows than are set in bold."""
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(table.rows):
        among = group(row)
        if among is not None and all(row.get(key) == value for key, value in published.bold_where.items()):
            groups.setdefault(repr(among), []).append(index)
    bold: set[tuple[int, str]] = set()
    for key in published.columns if published.bold else ():
        for indices in groups.values():
            values = {index: table.rows[index][key] for index in indices if table.rows[index].get(key) is not None}
            bold |= {(index, key) for index in best_of(values, published.bold)}
    return frozenset(bold)


def best_of(values: Mapping[int, float], most: int) -> Iterable[int]:
    """The places of the greatest `most` values, with those that equal the least of them; none if all would be."""
    if len(values) <= most:
        return ()
    least = sorted(values.values(), reverse=True)[most - 1]
    chosen = [index for index, value in values.items() if value >= least]
    return chosen if len(chosen) < len(values) else ()
