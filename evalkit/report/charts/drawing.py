"""What charts of an episode share: the agent beside the optimum, periods, and queries of one episode."""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from evalkit.report.figure import Figure
from evalkit.report.tables import Column, Table
from evalkit.report.vega import Rows, Spec, data, mark, scaled, spec_of, whole, word
from evalkit.text import bounded

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


def figure(
    *, name: str, title: str, spec: Spec, columns: Sequence[Column], rows: Rows, query: str, notes: Sequence[str]
) -> Figure:
    """A figure with the table of its numbers. Its first note says what it shows, and stands below the title too."""
    table = Table(name=f"{name}_numbers", title=title, columns=tuple(columns), rows=tuple(rows), packs=(), query=query)
    drawing = spec_of(spec, title, wrap(notes[0], LINE))
    drawing["description"] = f"{title}. {notes[0]}"
    return Figure(name=name, title=title, spec=drawing, table=table, query=query, notes=tuple(notes))


def steps_query(episode: str, selected: Iterable[str], *methods: str) -> str:
    """SQL that gives what was logged of accepted actions, by step; `methods`: how the rest follows, a comment each."""
    lines = [
        f"select step, period, {', '.join(selected)}",
        f"from steps where episode = {quoted(episode)} and {ACTED}",
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


def plot(*layers: Spec, rows: Rows = ()) -> Spec:
    """One plot of the usual size, its layers drawn in this order.

    `rows`: the data of layers that bring none; the agent's where a row does not say whose.
    """
    own = data({"who": PLAYED, **row} for row in rows)
    return {"data": own, "layer": list(layers), "width": WIDTH, "height": HEIGHT}


def numbered(name: str, last: int) -> Spec:
    """The horizontal axis of what is numbered from 0 to `last`: periods, calls."""
    return whole(name, name.capitalize(), scale=scaled([0, max(last, 1)]))


def compared(**legend: Any) -> Spec:
    """The colour of what the agent did and of the optimum; field `who`."""
    return word("who", scale={"domain": [PLAYED, BEST]}, legend={"title": None, **legend})


OWN: Spec = {**compared(), "legend": None}
"""The colour of what the agent did, where nothing of the optimum is drawn in colour."""


def rule(value: float, words: str) -> list[Spec]:
    """A horizontal line at a value of the vertical axis, named at its right end, or not at all."""
    rows, at = [{"at": value, "words": words}], {"field": "at", "type": "quantitative"}
    line = mark("rule", {"y": at}, rows=rows, strokeDash=[4, 3], style="quiet")
    named = {"x": {"value": WIDTH}, "y": at, "text": word("words")}
    text = mark("text", named, rows=rows, align="right", baseline="bottom", dy=-2, style="quiet-text")
    return [line, text] if words else [line]


def beyond(numbers: Iterable[float], ends: Sequence[float]) -> int:
    """How many numbers lie outside an axis."""
    return sum(not ends[0] <= number <= ends[1] for number in numbers)


def edge_note(count: int, what: str) -> tuple[str, ...]:
    """What to say of numbers that are drawn at the edge of the plot; nothing where there are none."""
    return (
        (f"{count:,} {what} beyond the plot are drawn at its edge; the numbers have them as they are",) if count else ()
    )
