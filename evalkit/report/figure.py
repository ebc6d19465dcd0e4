"""What a figure is: a Vega-Lite spec, the table of the numbers it shows, and the query that gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.report.tables import Table

MOST_MARKS = 5_000
"""Marks that one figure may hold; beyond, a builder shows fewer episodes and says so in `notes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure, as values: the same run gives the same bytes."""

    name: str
    """Its file's name and its place in a page: lower-case letters, digits, `_` and `-`."""
    title: str
    spec: Mapping[str, Any]
    """Vega-Lite with its data inline. It has no `config` of its own: `theme.config` is laid over it when it is drawn,
    light or dark. Names that others chose stand in its data and titles alone, never in an expression or the name of a
    field."""
    table: Table
    """The numbers that are drawn, unrounded."""
    query: str
    """SQL over the views of `evalkit sql` that gives the numbers, as `Table.query`."""
    notes: tuple[str, ...] = ()
    """What a reader must know to read it, a sentence each."""
