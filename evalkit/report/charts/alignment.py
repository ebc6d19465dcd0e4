"""The agent's calls beside the optimal path, drawn: one row a call, from top to bottom."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from evalkit.report.charts.drawing import figure, label
from evalkit.report.charts.path import Pair, Relation
from evalkit.report.figure import Figure
from evalkit.report.tables import Column
from evalkit.report.vega import Rows, Spec, data, mark, tips, word

MOST_ROWS = 80
"""Rows that are drawn; all are in the numbers."""

ROW = 19
"""Pixels of a row."""

AGENT_AT, AGENT_COST_AT, MIDDLE, OPTIMUM_AT, OPTIMUM_COST_AT = 0, 164, 176, 188, 352
"""Where the columns stand, in pixels."""
WIDTH = OPTIMUM_COST_AT
NAME_WIDTH = 130
FONT_SIZE = 10.5

HAPPENS = "datum.event !== ''"
"""Vega expression: rows of what happened in a turn."""

WORDS: Mapping[Relation, str] = {
    "agrees": "agrees",
    "instead": "another call instead",
    "extra": "extra",
    "missed": "not called",
    "failed": "failed, charged",
    "refused": "refused",
}
"""The relations as the legend names them."""

SHAPES: Mapping[Relation, str] = {
    "agrees": "circle",
    "instead": "diamond",
    "extra": "triangle-left",
    "missed": "triangle-right",
    "failed": "cross",
    "refused": "square",
}


def path_figure(pairs: Sequence[Pair], task: str, query: str, notes: Sequence[str]) -> Figure:
    """The alignment as a figure. `task`: its name as tools carry it, which is left out where space is short."""
    rows = _rows(pairs)
    drawn = _drawn(rows[:MOST_ROWS], task)
    more = (f"drawn: the first {MOST_ROWS} of {len(rows):,} rows",) if len(rows) > MOST_ROWS else ()
    return figure(
        name="path",
        title="The calls beside an optimal path",
        spec=_spec(drawn),
        columns=[
            Column(key="row", title="Row", kind="count"),
            Column(key="is", title="Is"),
            Column(key="tool", title="Agent's call"),
            Column(key="outcome", title="Outcome"),
            Column(key="cost", title="Cost", kind="number"),
            Column(key="spent", title="Spent", kind="number"),
            Column(key="optimal", title="Optimal path"),
            Column(key="optimal_cost", title="Cost", kind="number"),
            Column(key="optimal_spent", title="Spent", kind="number"),
            Column(key="event", title="Event"),
        ],
        rows=rows,
        query=query,
        notes=[*notes, *more],
    )


def _drawn(rows: Sequence[Mapping[str, Any]], task: str) -> list[dict[str, Any]]:
    """The rows as they are drawn; what happened in a turn is a row of its own after the call."""
    drawn: list[dict[str, Any]] = []
    for row in rows:
        short = {
            "at": len(drawn),
            "short": short_name(row["tool"], task),
            "optimal_short": short_name(row["optimal"], task),
            "tool": label(row["tool"]),
            "cost_text": _money(row["cost"]),
            "optimal_cost_text": _money(row["optimal_cost"]),
        }
        drawn.append({**row, **short, "event": ""})
        if row["event"]:
            texts = dict.fromkeys(("short", "optimal_short", "cost_text", "optimal_cost_text"), "")
            drawn.append({**texts, "at": len(drawn), "event": row["event"].replace("_", " "), "row": row["row"]})
    return drawn


def short_name(tool: str, task: str) -> str:
    """A tool's name in words, without the task's."""
    return label(" ".join(word for word in tool.split("_") if word != task) or tool)


def _rows(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    rows, optimal_spent = [], 0
    for number, pair in enumerate(pairs, 1):
        call = pair.call
        optimal_spent += pair.cost
        rows.append(
            {
                "row": number,
                "is": WORDS[pair.relation],
                "tool": call.tool if call else "",
                "outcome": call.outcome if call else "",
                "cost": call.cost / 100 if call and call.charged else None,
                "spent": call.spent / 100 if call else None,
                "optimal": pair.tool,
                "optimal_cost": pair.cost / 100 if pair.tool else None,
                "optimal_spent": optimal_spent / 100 if pair.tool else None,
                "event": ", ".join(call.events) if call else "",
            }
        )
    return rows


def _money(units: float | None) -> str:
    return "" if units is None else f"{units:.2f}"


def _spec(drawn: Rows) -> Spec:
    y = {"field": "at", "type": "ordinal", "axis": None}
    shown = tips(
        tool="Agent's call",
        outcome="Outcome",
        cost="Cost|,.2f",
        spent="Spent|,.2f",
        optimal="Optimal path",
        optimal_cost="Its cost|,.2f",
        optimal_spent="Spent by it|,.2f",
        **{"is": "Is"},
    )

    def text(field: str, x: int, align: str, **style: Any) -> Spec:
        where = {"y": y, "x": {"value": x}, "text": word(field), "tooltip": shown}
        return mark("text", where, align=align, baseline="middle", limit=NAME_WIDTH, fontSize=FONT_SIZE, **style)

    def stroke(left: int, right: int) -> Spec:
        ends = {"y": y, "x": {"value": left}, "x2": {"value": right}}
        return mark("rule", ends, where=HAPPENS, strokeDash=[2, 3], style="quiet")

    event = {"y": y, "x": {"value": MIDDLE}, "text": word("event")}
    event["tooltip"] = tips(event="Happens", row="In the turn of row|d")
    relations = [WORDS[relation] for relation in get_args(Relation)]
    shapes = [SHAPES[relation] for relation in get_args(Relation)]
    dots = {
        "y": y,
        "x": {"value": MIDDLE},
        "color": word("is", scale={"domain": relations}, legend={"title": None, "columns": 3, "offset": 26}),
        "shape": word("is", scale={"domain": relations, "range": shapes}),
        "tooltip": shown,
    }
    return {
        "width": WIDTH,
        "height": {"step": ROW},
        "data": data(drawn),
        "layer": [
            _head("agent", AGENT_AT, "left"),
            _head("cost", AGENT_COST_AT, "right"),
            _head("optimal path", OPTIMUM_AT, "left"),
            _head("cost", OPTIMUM_COST_AT, "right"),
            stroke(0, MIDDLE - 56),
            stroke(MIDDLE + 56, WIDTH),
            mark("text", event, where=HAPPENS, align="center", baseline="middle", fontStyle="italic"),
            text("short", AGENT_AT, "left"),
            text("cost_text", AGENT_COST_AT, "right", style="quiet-text"),
            text("optimal_short", OPTIMUM_AT, "left"),
            text("optimal_cost_text", OPTIMUM_COST_AT, "right", style="quiet-text"),
            mark("point", dots, where="datum.event === ''", filled=True, size=60, opacity=1),
        ],
    }


def _head(words: str, x: int, align: str) -> Spec:
    where = {"x": {"value": x}, "y": {"value": 0}, "text": word("words")}
    return mark("text", where, rows=[{"words": words}], align=align, baseline="bottom", dy=-4, style="quiet-text")
