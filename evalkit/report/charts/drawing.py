"""What charts of an episode share: plain Vega-Lite for the theme of `report/figures`, and queries of one episode."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from evalkit.report.figure import Figure
from evalkit.report.tables import Column, Table
from evalkit.text import bounded

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

WIDTH = 290
"""Of a plot without its labels, in pixels: with them it fits a page of 400."""
HEIGHT = 180

PLAYED, BEST = "agent", "optimum"
"""What is compared, in every chart; the theme gives each its colour by this order."""

ACTED = "(facts->'$.action') is not null"
"""SQL: the steps whose action was accepted."""

PERIOD = Column(key="period", title="Period", kind="count")
"""The column of periods, in every table of numbers by period."""

LINE = 58
"""Characters of a line below the title."""

MOST_LABEL = 80
"""Characters of a name in a chart's data."""

Rows = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]


def figure(
    *, name: str, title: str, spec: Spec, columns: Sequence[Column], rows: Rows, query: str, notes: Sequence[str]
) -> Figure:
    """A figure with the table of its numbers. Its first note says what it shows, and stands below the title too."""
    table = Table(name=f"{name}_numbers", title=title, columns=tuple(columns), rows=tuple(rows), packs=(), query=query)
    words = {"text": title, "subtitle": wrap(notes[0], LINE)}
    full_spec = {"$schema": SCHEMA, "description": f"{title}. {notes[0]}", "title": words, **spec}
    return Figure(name=name, title=title, spec=full_spec, table=table, query=query, notes=tuple(notes))


def steps_query(episode: str, selected: Iterable[str], condition: str, *methods: str) -> str:
    """SQL that gives an episode's logged numbers by step; `methods`: how others come of them, a comment line each."""
    lines = [
        f"select step, period, {', '.join(selected)}",
        f"from steps where episode = {quoted(episode)} and {condition}",
        "order by step",
        *(f"-- {method}" for method in methods),
    ]
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def label(text: str) -> str:
    """A name that others chose, for a chart's data: visible and of bounded length."""
    return bounded(text, MOST_LABEL)


def values(rows: Iterable[Mapping[str, Any]]) -> Spec:
    """Rows as a spec's data."""
    return {"values": [dict(row) for row in rows]}


def quantity(field: str, title: str, **more: Any) -> Spec:
    """An axis of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def clamped(ends: Sequence[float]) -> Spec:
    """A scale from end to end; what lies beyond is drawn at its edge."""
    return {"domain": list(ends), "clamp": True, "nice": False}


def plot(**more: Any) -> Spec:
    """One plot of the usual size."""
    return {"width": WIDTH, "height": HEIGHT, **more}


def periods_axis(last: int) -> Spec:
    """The horizontal axis of periods 0 to `last`."""
    return numbers_axis("period", last)


def numbers_axis(name: str, last: int) -> Spec:
    """The horizontal axis of what is numbered from 0 to `last`."""
    scale = {"domain": [0, max(last, 1)], "nice": False}
    return quantity(name, name, scale=scale, axis={"format": "d", "tickMinStep": 1, "grid": False})


def compared(*, legend: bool = True) -> Spec:
    """The colour of what the agent did and of the optimum; field `who`."""
    legend_spec = {"title": None, "orient": "top"} if legend else None
    return {"field": "who", "type": "nominal", "scale": {"domain": [PLAYED, BEST]}, "legend": legend_spec}


def tips(**titles: str) -> list[Spec]:
    """A tooltip: fields by their titles; `name="Title|.2f"` shows a number in that format."""
    tooltips = []
    for name, words in titles.items():
        title, _, form = words.partition("|")
        kind = {"type": "quantitative", "format": form} if form else {"type": "nominal"}
        tooltips.append({"field": name, "title": title, **kind})
    return tooltips


def rule(value: float, words: str, *, dash: bool = True) -> list[Spec]:
    """A horizontal line at a value of the vertical axis, named at its right end, or not at all."""
    mark = {"type": "rule", "strokeDash": [4, 3] if dash else [1, 0], "style": "quiet"}
    line = {"data": values([{"at": value}]), "mark": mark, "encoding": {"y": {"field": "at", "type": "quantitative"}}}
    if not words:
        return [line]
    text = {"type": "text", "align": "right", "baseline": "bottom", "dy": -2, "style": "quiet-text"}
    return [
        line,
        {
            "data": values([{"at": value, "words": words}]),
            "mark": text,
            "encoding": {
                "x": {"value": WIDTH},
                "y": {"field": "at", "type": "quantitative"},
                "text": {"field": "words", "type": "nominal"},
            },
        },
    ]


def span(numbers: Iterable[float], *always: float, most: float, room: float = 0.05) -> list[float]:
    """The ends of an axis: `always` is within, what was found as far as `most` reaches beyond it either way.

    `most` counts in widths of what is always within; one wild number must not flatten all others.
    """
    low, high = min(always), max(always)
    reach = most * ((high - low) or abs(high) or 1.0)
    inside = [*always, *(min(max(number, low - reach), high + reach) for number in numbers)]
    spare = room * ((max(inside) - min(inside)) or 1.0)
    return [min(inside) - (spare if min(inside) < low else 0.0), max(inside) + spare]


def beyond(numbers: Iterable[float], ends: Sequence[float]) -> int:
    """How many numbers lie outside an axis."""
    return sum(not ends[0] <= number <= ends[1] for number in numbers)


def edge_note(count: int, what: str) -> tuple[str, ...]:
    """What to say of numbers that are drawn at the edge of the plot; nothing where there are none."""
    return (
        (f"{count:,} {what} beyond the plot are drawn at its edge; the numbers have them as they are",) if count else ()
    )
