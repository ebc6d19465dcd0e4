"""Figures, and plain Vega-Lite, in which every one is written: channels, marks, panels, scales, tooltips.

A spec is a plain value: it is compared, bounded and stored as any other, and importing this costs nothing. The theme
(`figures/draw.py`) is laid over it when it is drawn.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.report.tables import Table
from evalkit.text import visible

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

WIDTH = 320
"""Of a plot without its labels, in pixels: figures stay readable at 400."""

_ROOM = 0.04
"""Of an axis, beyond what is drawn."""

Rows = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]


def spec_of(drawing: Spec, title: str, subtitle: Sequence[str] = ()) -> Spec:
    """A drawing under its title."""
    words = {"text": title, **({"subtitle": list(subtitle)} if subtitle else {})}
    return {"$schema": SCHEMA, "description": ". ".join([title, *subtitle[:1]]), "title": words, **drawing}


def clean(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with their texts made visible, as they stand in a spec."""
    return [{name: visible(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows]


def data(rows: Iterable[Mapping[str, Any]]) -> Spec:
    """Rows as a spec's data; values are texts, numbers and None."""
    return {"values": clean(rows)}


def number(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel of numbers; `more`: its scale, axis and so on."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def word(field: str, **more: Any) -> Spec:
    """A channel of names."""
    return {"field": field, "type": "nominal", "title": None, **more}


def whole(field: str, title: str, **more: Any) -> Spec:
    """A horizontal channel of whole numbers, as periods."""
    return number(field, title, axis={"format": "d", "tickMinStep": 1, "grid": False, **more.pop("axis", {})}, **more)


def scaled(ends: Sequence[float], *, clamp: bool = False) -> Spec:
    """A scale from end to end; with `clamp`, what lies beyond is drawn at its edge."""
    return {"domain": list(ends), "nice": False, **({"clamp": True} if clamp else {})}


def mark(
    kind: str,
    encoding: Mapping[str, Any],
    *,
    rows: Iterable[Mapping[str, Any]] | None = None,
    where: str = "",
    **style: Any,
) -> Spec:
    """One layer: a kind of mark, where its channels stand, and how it looks.

    rows   its data, where they are not those of the whole
    where  a Vega expression: the rows that are drawn
    """
    return {
        **({} if rows is None else {"data": data(rows)}),
        **({"transform": [{"filter": where}]} if where else {}),
        "mark": {"type": kind, **style},
        "encoding": dict(encoding),
    }


def tips(**titles: str) -> list[Spec]:
    """A tooltip: fields by their titles, in order; `name="Title|.2f"` shows a number in that format."""
    tooltips = []
    for name, words in titles.items():
        title, _, form = words.partition("|")
        kind = {"type": "quantitative", "format": form} if form else {"type": "nominal"}
        tooltips.append({"field": name, "title": title, **kind})
    return tooltips


def panels(
    rows: Iterable[Mapping[str, Any]],
    drawing: Spec,
    field: str,
    order: Sequence[str],
    *,
    columns: int = 1,
    spacing: int = 10,
    head: Mapping[str, Any] | None = None,
    apart: str = "",
) -> Spec:
    """A drawing for each value of a field.

    order   the values
    head    of each panel's heading, what differs from the usual
    apart   a channel whose scale is each panel's own
    """
    header = {"title": None, "labelAnchor": "start", **(head or {})}
    return {
        "data": data(rows),
        "facet": {"field": field, "type": "nominal", "sort": list(order), "header": header},
        "spec": drawing,
        "columns": columns,
        "spacing": spacing,
        **({"resolve": {"scale": {apart: "independent"}}} if apart else {}),
    }


def span(numbers: Iterable[float], *always: float, far: float = math.inf, top: bool = False) -> list[float]:
    """The ends of an axis: `always` is within, and what was found, with a little room where it goes beyond.

    far  how far an end may go beyond `always`, in widths of it: one wild number must not flatten all others
    top  whether there is room above in any case, for words
    """
    low, high = min(always), max(always)
    reach = far * ((high - low) or abs(high) or 1.0)
    inside = [*always, *(min(max(one, low - reach), high + reach) for one in numbers)]
    spare = _ROOM * ((max(inside) - min(inside)) or 1.0)
    return [
        min(inside) - (spare if min(inside) < low else 0.0),
        max(inside) + (spare if top or max(inside) > high else 0.0),
    ]


def reach(rows: Rows, names: Sequence[str], least: float, most: float) -> list[float]:
    """The ends of an axis from `least` to `most`, and beyond where these fields of the rows are."""
    return span((row[name] for row in rows for name in names if row.get(name) is not None), least, most)


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
