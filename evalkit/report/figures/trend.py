"""Scores by night: a line for each agent with intervals, alarms ringed, changes of what a provider served marked."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from evalkit.report.figure import MOST_MARKS, Figure
from evalkit.report.figures.marks import Rows, by_agent, data, reach, spec_of, tooltip
from evalkit.report.figures.theme import WIDTH
from evalkit.report.nights.history import CellNight, NightRecord
from evalkit.report.nights.trends import changes, trend_table
from evalkit.report.scores import INTERVAL
from evalkit.report.tables import Column, Table, method_of

if TYPE_CHECKING:
    from evalkit.report.figures.marks import Drawing

HEIGHT = 150
ALARM = "#C1121F"
"""Of an alarm's ring, on white and on black."""


def trend_figure(history: Sequence[NightRecord]) -> Figure | None:
    """Every cell's scores by night; None where nothing was scored. `history`: oldest first."""
    first = _first_drawn(history)
    rows = [
        _row(record, cell, cell.agent in changed)
        for index, record in enumerate(history)
        if index >= first
        for changed in [changes(history, index)]
        for cell in record.cells
        if cell.score is not None
    ]
    if not rows:
        return None
    title = "Scores by night"
    words = ["Mean over instances with its 95 % interval; ringed: alarm; triangle: another model was served"]
    left = f"drawn: the last {len(history) - first:,} of {len(history):,} nights; all are in the history"
    return Figure(
        name="figure_trend",
        title=title,
        spec=spec_of(_chart(rows), title, words),
        table=_table(rows, trend_table(history)),
        query=history[-1].query,
        notes=(left,) if first else (),
    )


def _first_drawn(history: Sequence[NightRecord]) -> int:
    """The place of the oldest night that a figure has room for: each cell takes three marks."""
    room, first = MOST_MARKS, len(history)
    while first > 0 and room >= 3 * len(history[first - 1].cells):
        first -= 1
        room -= 3 * len(history[first].cells)
    return first


def _row(record: NightRecord, cell: CellNight, changed: bool) -> dict[str, Any]:
    raised = cell.alarm is not None and cell.alarm.raised
    return {
        "night": record.night,
        "suite": cell.suite,
        "agent": cell.agent,
        "value": cell.score,
        "low": cell.low,
        "high": cell.high,
        "kind": cell.kind or None,
        "instances": len(cell.values),
        "alarm": "alarm" if raised else "",
        "changed": "served anew" if changed else "",
        "served": ", ".join(cell.served),
    }


def _chart(rows: Rows) -> "Drawing":
    import altair as alt

    agents = list(dict.fromkeys(row["agent"] for row in rows))
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    look = by_agent(agents, agents)
    ends = reach(rows, ("value", "low", "high"), 0, 100)
    x = alt.X(
        "night:T",
        title=None,
        scale=alt.Scale(type="utc", padding=12),
        axis=alt.Axis(format="%d %b", labelAngle=0, grid=False, tickCount={"interval": "day", "step": _every(rows)}),
    )
    y = alt.Y("value:Q", title=None, scale=alt.Scale(domain=ends, nice=False), axis=alt.Axis(tickCount=5))
    tips = tooltip(
        night="Night",
        agent="Agent",
        suite="Suite",
        value="Score|.2f",
        low="95 % low|.2f",
        high="95 % high|.2f",
        instances="Instances|,",
        served="Served",
        alarm="Alarm",
    )
    base = alt.Chart().encode(x=x, tooltip=tips)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1.5, opacity=0.4).encode(
            y=alt.Y("low:Q", title=None), y2="high:Q", color=look["color"]
        ),
        base.mark_line(strokeWidth=1.8).encode(y=y, color=look["color"]),
        base.mark_point(filled=True, size=40, opacity=1).encode(y=y, color=look["color"], shape=look["shape"]),
        base.mark_point(filled=False, size=220, strokeWidth=2.2, color=ALARM, opacity=1)
        .encode(y=y)
        .transform_filter("datum.alarm != ''"),
        base.mark_point(filled=True, shape="triangle-up", size=60, opacity=0.9)
        .encode(y=alt.Y(datum=ends[0]), color=look["color"])
        .transform_filter("datum.changed != ''"),
    ).properties(width=2 * WIDTH, height=HEIGHT)
    facet: Any = alt.Row("suite:N", sort=suites, header=alt.Header(title=None, labelOrient="top", labelAnchor="start"))
    panels: alt.FacetChart = layers.facet(data=data(rows), row=facet, spacing=14)
    return panels


def _every(rows: Rows) -> int:
    """Days from one date on the axis to the next, so that they have room."""
    nights = [date.fromisoformat(row["night"]) for row in rows]
    return max(1, ((max(nights) - min(nights)).days + 13) // 14)


def _table(rows: Rows, nights: Table) -> Table:
    return Table(
        name="trend_points",
        title="Scores by night",
        columns=(
            Column(key="night", title="Night", group=True),
            Column(key="suite", title="Suite"),
            Column(key="agent", title="Agent"),
            Column(key="value", title="Score", kind="score", unit="100 = optimum"),
            INTERVAL,
            method_of(INTERVAL),
            Column(key="instances", title="Instances", kind="count"),
            Column(key="alarm", title="Alarm"),
            Column(key="served", title="Served"),
        ),
        rows=tuple(
            {**row, "interval": None if row["low"] is None else (row["low"], row["high"])} for row in reversed(rows)
        ),
        packs=nights.packs,
        query=nights.query,
    )
