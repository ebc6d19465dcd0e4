"""Nights as tables and a figure: each cell's scores as a line of small bars or with intervals, the alarms that were
raised, and what nights took.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from evalkit.envs.table import OPTIMUM_UNIT, score_unit
from evalkit.report.figures.marks import by_agent, dotted
from evalkit.report.nights.history import TOOK, CellNight, NightRecord
from evalkit.report.scores import scored
from evalkit.report.tables import Column, Table, columns_of
from evalkit.report.vega import (
    MOST_MARKS,
    WIDTH,
    Figure,
    Rows,
    Spec,
    mark,
    number,
    panels,
    reach,
    scaled,
    spec_of,
    tips,
)
from evalkit.stats.sustained_drop import SURE, WITHIN

BY = {"windows": "last nights", "evidence": "all nights"}
"""What raised an alarm, in words."""
BARS = "▁▂▃▄▅▆▇█"
NOTHING = "·"
NO_MEASUREMENT = "no measurement"
"""Of a cell or a night without a score."""
MOST_NIGHTS = 30
"""Nights that a line of bars goes back."""
LEAST_SPAN = 20.0
"""Points that the bars' height stands for at least, so that chance does not look like change."""

_VISIBLE = (
    f"visible fall: the fall that could be seen, in points: the least that {WITHIN} nights show with a chance of "
    f"{SURE:.0%}, if they are like the nights before"
)
_WHERE = (Column(key="suite", title="Suite", group=True), Column(key="agent", title="Agent"))


def trend_table(history: Sequence[NightRecord]) -> Table:
    """One row a cell of the last night; `history`: oldest first, at least one."""
    last = history[-1]
    return Table(
        name="trend",
        title=f"Nights to {last.night}",
        columns=(
            *_WHERE,
            Column(key="trend", title="Trend"),
            *scored(cell.litmus is True for cell in last.cells),
            Column(key="alarm", title="Alarm"),
            Column(key="visible", title="Visible fall", kind="score"),
            Column(key="instances", title="Instances", kind="count"),
            Column(key="remaining", title="Remaining", kind="count", unit="episodes"),
            Column(key="cost", title="Cost", kind="usd"),
            Column(key="reply", title="Per reply", kind="seconds"),
        ),
        rows=tuple(_trend_row(history, cell) for cell in last.cells),
        packs=_packs(history),
        notes=(
            f"trend: one bar per night, at most {MOST_NIGHTS}; from the row's lowest score to its highest, at "
            f"least {LEAST_SPAN:.0f} points; {NOTHING} no score",
            *((_VISIBLE,) if any(cell.visible is not None for cell in last.cells) else ()),
            "the other columns: the last night",
        ),
        query=f"{last.query}\n-- remaining, cost, reply: as of the table nights",
    )


def _trend_row(history: Sequence[NightRecord], cell: CellNight) -> dict[str, Any]:
    return {
        "suite": cell.suite,
        "agent": cell.agent,
        "trend": bars([_scores(record).get((*cell.cell, cell.key)) for record in history[-MOST_NIGHTS:]]),
        "score": cell.score,
        "interval": (cell.low, cell.high) if cell.low is not None else None,
        "kind": cell.kind or None,
        "visible": _points(cell.visible),
        "instances": len(cell.values),
        "remaining": cell.remaining,
        "cost": cell.cost,
        "reply": cell.latency_s / cell.steps if cell.steps else None,
        "alarm": NO_MEASUREMENT
        if not cell.values
        else f"since {cell.alarm.since}"
        if cell.alarm is not None and cell.alarm.raised
        else "",
    }


def _scores(record: NightRecord) -> dict[tuple[str, str, str], float | None]:
    return {(*cell.cell, cell.key): cell.score for cell in record.cells}


def bars(values: Sequence[float | None]) -> str:
    """A character a value, from the lowest to the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING * len(values)
    low, high = min(known), max(known)
    spare = max(0.0, LEAST_SPAN - (high - low)) / 2
    low, high = low - spare, high + spare
    last = len(BARS) - 1
    return "".join(NOTHING if value is None else BARS[round((value - low) / (high - low) * last)] for value in values)


def alarms_table(history: Sequence[NightRecord]) -> Table:
    """One row a night and cell with an alarm, newest first."""
    unit = score_unit(cell.litmus is True for record in history for cell in record.raised)
    rows = [
        {
            "night": record.night,
            "suite": cell.suite,
            "agent": cell.agent,
            "before": _points(cell.alarm.before),
            "now": _points(cell.alarm.now),
            "nights": cell.alarm.nights,
            "p": cell.alarm.p,
            "by": BY[cell.alarm.by],
            "since": cell.alarm.since,
        }
        for record in reversed(history)
        for cell in record.raised
        if cell.alarm is not None
    ]
    return Table(
        name="alarms",
        title="Alarms",
        columns=(
            Column(key="night", title="Night", group=True),
            *_WHERE,
            *columns_of("score", unit, before="Before", now="Now"),
            Column(key="nights", title="Nights", kind="count", unit="of the window"),
            Column(key="p", title="p", kind="p"),
            *columns_of(by="Seen in", since="Since"),
        ),
        rows=tuple(rows),
        packs=_packs(history),
        notes=(
            "before, now: means over the compared instances, of the nights before the fall and of the last ones judged",
            f"seen in {BY['windows']}: p is of a one-sided permutation test of the last 1, 2 and 4, times windows tried"
            + (", and of litmus tests times the two directions" if unit != OPTIMUM_UNIT else ""),
            f"seen in {BY['evidence']}: in those since the last accepted change; p is the chance of a false alarm in "
            "30 nights at which it would just be an alarm",
        ),
        query=history[-1].query,
    )


def nights_table(history: Sequence[NightRecord]) -> Table:
    """One row a night, newest first."""
    rows = [
        {
            "night": record.night,
            "ended": record.planned - record.remaining,
            "remaining": record.remaining,
            "spent": record.spent,
            "tokens_in": sum(cell.tokens_in for cell in record.cells),
            "tokens_out": sum(cell.tokens_out for cell in record.cells),
            "alarms": len(record.raised),
            "served": ", ".join(changes(history, index)),
        }
        for index, record in reversed(list(enumerate(history)))
    ]
    return Table(
        name="nights",
        title="What nights took",
        columns=(
            Column(key="night", title="Night"),
            *columns_of("count", "episodes", ended="Ended", remaining="Remaining"),
            Column(key="spent", title="Spent", kind="usd"),
            *columns_of("tokens", tokens_in="Tokens in", tokens_out="Tokens out"),
            Column(key="alarms", title="Alarms", kind="count"),
            Column(key="served", title="Changed version"),
        ),
        rows=tuple(rows),
        packs=_packs(history),
        notes=(
            "spent: crash charges included",
            "changed version: agents whose provider served another model than before",
        ),
        query=f"{TOOK}\n"
        "-- of one night's run, added up over its cells; remaining: what the manifest plans less what ended; alarms:\n"
        "-- of history.jsonl; spent: all that `log` cost, with charges and crashes of `ledger`, less what was released",
    )


def changes(history: Sequence[NightRecord], index: int) -> list[str]:
    """The agents that were served by another model or fingerprint than in the last night that said so."""
    current = served(history[index])
    changed = []
    for agent, models in current.items():
        previous = next((old for record in reversed(history[:index]) if (old := served(record).get(agent))), None)
        if previous is not None and set(previous) != set(models):
            changed.append(agent)
    return changed


def served(record: NightRecord) -> Mapping[str, tuple[str, ...]]:
    """By agent: what answered, where somebody says."""
    return {cell.agent: cell.served for cell in record.cells if cell.served}


def _packs(history: Sequence[NightRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.pack for cell in history[-1].cells))


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


TREND_HEIGHT = 150
ALARM = "#C1121F"
"""Of an alarm's ring, on white and on black."""


def trend_figure(history: Sequence[NightRecord]) -> Figure | None:
    """Every cell's scores by night; None if nothing was scored. `history`: oldest first."""
    first = _first_drawn(history)
    was = _baselines(history)
    rows = [
        _dot(record, cell, cell.agent in changed) | was.get((record.night, *cell.cell), {})
        for index, record in enumerate(history)
        if index >= first
        for changed in [changes(history, index)]
        for cell in record.cells
        if cell.score is not None
    ]
    if not rows:
        return None
    title = "Scores by night"
    words = [
        "Mean over instances with its 95 % interval; ringed: alarm; dashed: the nights that it compares with, at their "
        "mean; triangle: another model was served"
    ]
    left = f"drawn: the last {len(history) - first:,} of {len(history):,} nights; all are in the history"
    return Figure(
        name="figure_trend",
        title=title,
        spec=spec_of(_trend_chart(rows), title, words),
        table=_points_table(rows, history[-1]),
        query=history[-1].query,
        notes=(left,) if first else (),
    )


def _baselines(history: Sequence[NightRecord]) -> Mapping[tuple[str, str, str], dict[str, Any]]:
    """By night and cell: what the latest alarm that concerns it compares with, from the first of these nights on."""
    return {
        (night, *cell.cell): {"was": _points(cell.alarm.before), "since": cell.alarm.since}
        for record in history
        for cell in record.raised
        if cell.alarm is not None
        for night in (*cell.alarm.was, record.night)
    }


def _first_drawn(history: Sequence[NightRecord]) -> int:
    """The place of the oldest night that a figure has room for: each cell takes three marks."""
    room, first = MOST_MARKS, len(history)
    while first > 0 and room >= 3 * len(history[first - 1].cells):
        first -= 1
        room -= 3 * len(history[first].cells)
    return first


def _dot(record: NightRecord, cell: CellNight, changed: bool) -> dict[str, Any]:
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
        "was": None,
        "since": "",
    }


def _trend_chart(rows: Rows) -> Spec:
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    look = by_agent(agents, agents)
    ends, colour = reach(rows, ("value", "low", "high"), 0, 100), {"color": look["color"]}
    nights = [date.fromisoformat(row["night"]) for row in rows]
    # From one date on the axis to the next, so that they have room.
    days = {"interval": "day", "step": max(1, ((max(nights) - min(nights)).days + 13) // 14)}
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
        mark(
            "line",
            {**base, "y": number("was"), "detail": {"field": "since"}, **colour},
            where="datum.was != null",
            strokeDash=[4, 3],
            strokeWidth=1.2,
        ),
        mark("point", {**scored, **dotted(look)}, filled=True, size=40, opacity=1),
        mark("point", scored, where="datum.alarm != ''", **ring),
        mark("point", {**base, "y": {"datum": ends[0]}, **colour}, where="datum.changed != ''", **triangle),
    ]
    drawing = {"layer": layers, "width": 2 * WIDTH, "height": TREND_HEIGHT}
    return panels(rows, drawing, "suite", suites, spacing=14)


def _points_table(rows: Rows, last: NightRecord) -> Table:
    return Table(
        name="trend_points",
        title="Scores by night",
        columns=(
            Column(key="night", title="Night", group=True),
            *columns_of(suite="Suite", agent="Agent"),
            *scored((cell.litmus is True for cell in last.cells), "value"),
            Column(key="instances", title="Instances", kind="count"),
            *columns_of(alarm="Alarm", served="Served"),
        ),
        rows=tuple(
            {**row, "interval": None if row["low"] is None else (row["low"], row["high"])} for row in reversed(rows)
        ),
        packs=tuple(dict.fromkeys(cell.pack for cell in last.cells)),
        query=last.query,
    )
