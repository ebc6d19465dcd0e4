"""The charts of an episode, which its environment's extras draw; what these share; and episodes as lines.

A chart shows the agent beside the optimum, over periods. Lines stand each in a plot of its own and all on one scale.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from evalkit.report.extras import EpisodeLine, LinePlots, extras_of
from evalkit.report.queries import text
from evalkit.report.tables import Column, Table
from evalkit.report.vega import Figure, Rows, Spec, data, mark, number, scaled, span, spec_of, tips, whole, word
from evalkit.results.moves import Move
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


def period_figure(
    episode: str, facts: Sequence[str], methods: Sequence[str], columns: Sequence[Column], **rest: Any
) -> Figure:
    """A figure with numbers by period, of what was logged of accepted actions.

    facts, methods   as of `steps_query`
    columns          after the period's; `rest`: as of `figure`
    """
    return figure(columns=[PERIOD, *columns], query=steps_query(episode, facts, *methods), **rest)


def over_periods(last: int, field: str, title: str, **more: Any) -> Spec:
    """Where a mark of the agent's stands: its period, up to the last one, and a value of it; `more`: of that axis."""
    return {"x": numbered("period", last), "y": number(field, title, **more), "color": OWN}


def steps_query(episode: str, selected: Iterable[str], *methods: str) -> str:
    """SQL that gives what was logged of accepted actions, by step; `methods`: how the rest follows, a comment each."""
    lines = [
        f"select step, period, {', '.join(selected)}",
        f"from steps where episode = {text(episode)} and {ACTED}",
        "order by step",
        *(f"-- {method}" for method in methods),
    ]
    return "\n".join(lines)


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


def episode_figures(environment: str, target: Any, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """The figures of an episode from its instance and its moves."""
    charts = extras_of(environment).charts
    return charts.figures(target, episode, moves) if charts else ()


def period_lines(environment: str, target: Any, moves: Sequence[Move]) -> dict[int, str]:
    """By period: what came of it, in a line; periods of which there is nothing to say are left out."""
    charts = extras_of(environment).charts
    return charts.lines(target, moves) if charts else {}


SMALL, HIGH = 230, 110
"""Of one plot without its labels, in pixels."""

FEW = 40
"""Points up to which each is a dot."""

MOST_POINTS = 300
"""Points of a line; of a longer one every second, or fewer."""


def lines_of(environment: str) -> LinePlots | None:
    """How an environment's episodes are drawn as lines; None: they are not."""
    extras = extras_of(environment)
    if extras.charts is not None and extras.charts.beside is not None:
        return extras.charts.beside
    if extras.standing is None:
        return None
    standing = extras.standing

    def line(instance: Any, facts: Sequence[Mapping[str, Any]], periods: int) -> EpisodeLine:
        actions = [(fact["period"], fact["action"]) for fact in facts if fact.get("action")]
        held = standing.hold(standing.values(instance, actions, periods))
        return EpisodeLine(
            played=[(period, 100 * value) for period, value in enumerate(held.tolist())],
            optimum=[(0, 100.0), (max(1, instance.periods - 1), 100.0)],
        )

    return LinePlots(across="Period", up="% of the optimum", line=line)


def line_specs(lines: LinePlots, drawn: Sequence[EpisodeLine], titles: Sequence[str]) -> list[Spec]:
    """A plot for each line, all on one scale; `titles`: what each is of."""
    furthest = max((x for line in drawn for x, _ in (*line.played, *line.optimum)), default=1)
    optima = [y for line in drawn for _, y in line.optimum]
    values = [y for line in drawn for _, y in line.played]
    ends = span(values, 0.0, max(optima, default=100.0), far=1.0, top=True)
    return [_line_spec(lines, line, title, furthest, ends) for line, title in zip(drawn, titles, strict=True)]


def _line_spec(lines: LinePlots, line: EpisodeLine, title: str, furthest: float, ends: Sequence[float]) -> Spec:
    where = {
        "x": whole("x", lines.across, scale=scaled([0, max(1, furthest)]), axis={"tickCount": 5}),
        "y": number("y", lines.up, scale=scaled(ends, clamp=True), axis={"tickCount": 4}),
        "color": {**compared(), "legend": None},
    }
    shown = {**where, "tooltip": tips(x=f"{lines.across}|d", y=f"{lines.up}|,.2f", who="Of")}
    every = max(1, -(-len(line.played) // MOST_POINTS))
    best = [{"x": x, "y": round(y, 3), "who": BEST} for x, y in line.optimum]
    own = [{"x": x, "y": round(y, 3), "who": PLAYED} for x, y in line.played[::every]]
    drawing = {
        "data": data(()),
        "width": SMALL,
        "height": HIGH,
        "layer": [
            mark("line", where, rows=best, strokeWidth=4, opacity=0.45),
            mark("line", shown, rows=own, strokeWidth=1.6, point={"size": 14 if len(own) <= FEW else 2}),
        ],
    }
    spec = spec_of(drawing, title)
    del spec["title"]  # it stands above the plot
    return spec
