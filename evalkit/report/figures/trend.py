"""Scores by night: a line for each agent with intervals, alarms ringed, changes of what a provider served marked."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from evalkit.report.figure import MOST_MARKS, Figure
from evalkit.report.figures.marks import by_agent, dotted
from evalkit.report.nights.history import CellNight, NightRecord
from evalkit.report.nights.trends import changes
from evalkit.report.scores import scored
from evalkit.report.tables import Column, Table
from evalkit.report.vega import WIDTH, Rows, Spec, mark, number, panels, reach, scaled, spec_of, tips

HEIGHT = 150
ALARM = "#C1121F"
"""Of an alarm's ring, on white and on black."""


def trend_figure(history: Sequence[NightRecord]) -> Figure | None:
    """Every cell's scores by night; None if nothing was scored. `history`: oldest first."""
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
        table=_table(rows, history[-1]),
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


def _chart(rows: Rows) -> Spec:
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    look = by_agent(agents, agents)
    ends, colour = reach(rows, ("value", "low", "high"), 0, 100), {"color": look["color"]}
    days = {"interval": "day", "step": _every(rows)}
    base = {
        "x": {
            "field": "night",
            "type": "temporal",
            "title": None,
            "scale": {"type": "utc", "padding": 12},
            "axis": {"format": "%d %b", "labelAngle": 0, "grid": False, "tickCount": days},
        },
        "tooltip": tips(
            night="Night",
            agent="Agent",
            suite="Suite",
            value="Score|.2f",
            low="95 % low|.2f",
            high="95 % high|.2f",
            instances="Instances|,",
            served="Served",
            alarm="Alarm",
        ),
    }
    scored = {**base, "y": number("value", scale=scaled(ends), axis={"tickCount": 5})}
    ring: Spec = {"filled": False, "size": 220, "strokeWidth": 2.2, "color": ALARM, "opacity": 1}
    triangle: Spec = {"filled": True, "shape": "triangle-up", "size": 60, "opacity": 0.9}
    layers = [
        mark("rule", {**base, "y": number("low"), "y2": {"field": "high"}, **colour}, strokeWidth=1.5, opacity=0.4),
        mark("line", {**scored, **colour}, strokeWidth=1.8),
        mark("point", {**scored, **dotted(look)}, filled=True, size=40, opacity=1),
        mark("point", scored, where="datum.alarm != ''", **ring),
        mark("point", {**base, "y": {"datum": ends[0]}, **colour}, where="datum.changed != ''", **triangle),
    ]
    drawing = {"layer": layers, "width": 2 * WIDTH, "height": HEIGHT}
    return panels(rows, drawing, "suite", suites, spacing=14)


def _every(rows: Rows) -> int:
    """Days from one date on the axis to the next, so that they have room."""
    nights = [date.fromisoformat(row["night"]) for row in rows]
    return max(1, ((max(nights) - min(nights)).days + 13) // 14)


def _table(rows: Rows, last: NightRecord) -> Table:
    return Table(
        name="trend_points",
        title="Scores by night",
        columns=(
            Column(key="night", title="Night", group=True),
            Column(key="suite", title="Suite"),
            Column(key="agent", title="Agent"),
            *scored((cell.litmus is True for cell in last.cells), "value"),
            Column(key="instances", title="Instances", kind="count"),
            Column(key="alarm", title="Alarm"),
            Column(key="served", title="Served"),
        ),
        rows=tuple(
            {**row, "interval": None if row["low"] is None else (row["low"], row["high"])} for row in reversed(rows)
        ),
        packs=tuple(dict.fromkeys(cell.pack for cell in last.cells)),
        query=last.query,
    )
