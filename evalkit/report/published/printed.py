"""Tables as the papers print them: their titles and decimals, `72.8 (2/12)`, and the best two in bold.

What a published table looks like stands with its figures in `published/*.toml`. JSON and CSV hold the same values under
the same keys as ever.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from evalkit.report.published.papers import PublishedTable, published_papers
from evalkit.report.tables import Column, Table

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
    """The places of the greatest `most` values, with those that equal the least of them; none where all would be."""
    if len(values) <= most:
        return ()
    least = sorted(values.values(), reverse=True)[most - 1]
    chosen = [index for index, value in values.items() if value >= least]
    return chosen if len(chosen) < len(values) else ()
