"""The SQL that makes a table's numbers over the views of `evalkit sql`, put together from figures.

A row of most tables is a cell: one agent on one suite. Its means are over instances, each the mean over its replicates,
so a query has two levels: `from episodes` to one row an instance, and from those to one row a cell. Means are sums in a
stated order (`favg`, which also adds up what rounding loses). What SQL cannot say stands above it in comment lines,
`-- interval: ...`, each with the keys of the columns that it is about.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evalkit.results.cells import Cell

CHOSEN = (
    "95 % of the mean over instances, chosen by evalkit.stats.intervals.estimate (Wilson; of bounded "
    "values its `bounded`, of others its `hall`), within strata"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """One column of a query in two levels."""

    key: str
    inner: str
    """Over the episodes of an instance."""
    outer: str
    """Over instances, where what `inner` gave is called `key`."""


def mean(key: str, value: str, *, scale: int = 1, keep: str = "") -> QueryColumn:
    """The mean over instances of the mean over replicates, times `scale`; `keep`: of episodes of which this is true."""
    times = f"{scale} * " if scale != 1 else ""
    return QueryColumn(
        key=key,
        inner=f"favg({value} order by replicate){_only(keep)}",
        outer=f"{times}favg({quoted(key)} order by instance)",
    )


def count(key: str, keep: str = "") -> QueryColumn:
    """How many episodes, or how many of which `keep` is true."""
    return QueryColumn(key=key, inner=f"count(*){_only(keep)}", outer=f"coalesce(sum({quoted(key)}), 0)")


def total(key: str, value: str, keep: str = "") -> QueryColumn:
    """A sum over episodes of whole numbers; 0 without any."""
    return QueryColumn(key=key, inner=f"sum(({value})::bigint){_only(keep)}", outer=f"coalesce(sum({quoted(key)}), 0)")


def derived(key: str, outer: str) -> QueryColumn:
    """A figure of others' inner values: `outer` names them by their keys."""
    return QueryColumn(key=key, inner="", outer=outer)


def inside(key: str, inner: str) -> QueryColumn:
    """What only other figures read: it is not a column of the query."""
    return QueryColumn(key=key, inner=inner, outer="")


def _only(keep: str) -> str:
    return f" filter (where {keep})" if keep else ""


def metric(name: str) -> str:
    """A metric of an episode; null if it has none."""
    return f"metrics[{text(name)}]"


def text(value: str) -> str:
    """A text as SQL says it."""
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name as SQL says it: as it is where that is plain."""
    plain = name.isidentifier() and name.isascii() and name not in _RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


_RESERVED = frozenset({"from", "to", "all", "any", "end", "order", "group", "where", "select", "with", "case"})


def axis(name: str) -> str:
    """A parameter that the sweep varied, under its column's key."""
    json_path = '$."' + name.replace('"', '""') + '"'
    return f"axes->>{text(json_path)} as {quoted(f'axis:{name}')}"


def axes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """All that the sweep varied among these cells."""
    return tuple(axis(name) for name in dict.fromkeys(name for cell in cells for name in cell.suite.axes))


def place(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The columns that say which cell: as of `scores.place`."""
    return ("base as suite", *axes(cells), "agent")


def suites(cells: Iterable[Cell]) -> str:
    """A condition: one of these cells' suites."""
    return f"suite in ({', '.join(text(name) for name in dict.fromkeys(cell.suite.name for cell in cells))})"


def comments(lines: Mapping[str, str]) -> str:
    """Comment lines by the keys they are about."""
    return "".join(f"-- {key}: {words}\n" for key, words in lines.items())


def among(cells: Iterable[Cell]) -> str:
    """A condition: one of these cells."""
    return f"(suite, agent) in ({', '.join(f'({text(cell.suite.name)}, {text(cell.agent)})' for cell in cells)})"


def by_cell(
    cells: Sequence[Cell],
    figures: Sequence[QueryColumn],
    *,
    also: Sequence[str] = (),
    keep: str | None = None,
    methods: Mapping[str, str] | None = None,
) -> str:
    """A row for each of these cells, in the spec's order: where it is, `figures`, and what `also` names.

    `keep`: the condition that tells these cells from others; None: all of some suites. `methods`: comment lines.
    """
    condition = suites(cells) if keep is None else keep
    return comments(methods or {}) + two_levels((*place(cells), *also), figures, keep=condition)


def two_levels(
    keys: Sequence[str],
    figures: Sequence[QueryColumn],
    *,
    keep: str = "",
    order: str = "min(place)",
    source: str = "episodes",
    among: str = "cells",
    apart: Sequence[str] = (),
) -> str:
    """A query in two levels: `keys` (columns of the view `cells`, perhaps renamed), then `figures`.

    keep     a condition on cells
    source   what is read in place of the view `episodes`; `apart`: its columns, of `among` too, that distinguish rows
             beside the cell
    among    what is read in place of the view `cells`
    """
    by = ", ".join(("suite", "agent", *apart))
    inner = ",\n        ".join(f"{column.inner} as {quoted(column.key)}" for column in figures if column.inner)
    lines = (
        f"select {', '.join(keys)},",
        "    " + ",\n    ".join(f"{column.outer} as {quoted(column.key)}" for column in figures if column.outer),
        f"from {among} left join (",
        f"    select {by}, instance,",
        f"        {inner}",
        f"    from {source} where used group by all",
        f") using ({by})" + (f" where {keep}" if keep else ""),
        f"group by all order by {order}",
    )
    return "\n".join(lines)
