"""The papers' own figures, as data: `published/*.toml` holds each table's rows, its place and the settings after it.

Figures are facts; nothing else of the papers is here. `beside.py` sets them next to a run's.

What a published table looks like stands with its figures in `published/*.toml`. JSON and CSV hold the same values under
the same keys as ever.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from evalkit.report.tables import Column, Table

_FOLDER = Path(__file__).resolve().parent


class PublishedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a paper."""

    name: str
    """As the paper's tables write it."""
    like: tuple[str, ...]
    """Patterns (`gpt-4o-2024-*`) of what providers call it, in lower case and without a maker before a slash; of a
    baseline, the policy that is the same."""
    version: str = ""
    """Which of its versions the paper asked; empty: it does not say."""


class PublishedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a paper's figures were made, in the names that `beside.settings_of` gives a run's."""

    values: Mapping[str, Any]
    """A list: the values that there were, over instances."""
    environment: str = ""
    """Of these alone; empty: of all."""
    difficulty: str = ""


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
    environments: tuple[str, ...]
    """Of whose episodes its figures are."""
    keys: Mapping[str, Any] = {}
    """Of every row: parameters of its instances, or `environment`, `difficulty`, `prompts`."""
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
    """`model` (empty: the figure is of none), further keys, and values by the keys of our table's columns."""


class Paper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is kept of one paper."""

    paper: str
    source: str
    settings_from: str
    """Where in it the settings stand."""
    models: tuple[PublishedModel, ...]
    settings: tuple[PublishedSettings, ...]
    tables: tuple[PublishedTable, ...]

    def known_as(self, model: str, policy: str) -> PublishedModel | None:
        """The paper's model that an agent plays with; None if the paper has none of that name."""
        name = (model or policy).lower().rpartition("/")[2]
        return next((model for model in self.models if any(fnmatchcase(name, like) for like in model.like)), None)

    def settings_for(self, environment: str, difficulty: str) -> dict[str, Any]:
        """The settings of its figures of an environment at a difficulty."""
        values: dict[str, Any] = {}
        for settings in self.settings:
            if settings.environment in ("", environment) and settings.difficulty in ("", difficulty):
                values |= settings.values
        return values


@cache
def published_papers() -> tuple[Paper, ...]:
    """Both papers."""
    return tuple(
        msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Paper)
        for path in sorted(_FOLDER.glob("*.toml"))
    )


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
