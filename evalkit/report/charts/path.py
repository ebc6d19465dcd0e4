"""Two paths side by side: which calls of the agent are those of the optimal path, which are extra, missed or failed;
and the same drawn, one row a call, from top to bottom.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from evalkit.envs.calls import OK
from evalkit.report.charts.drawing import figure, label
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import Figure, Rows, Spec, data, mark, tips, word

Relation = Literal["agrees", "instead", "extra", "missed", "failed", "refused"]
"""`failed`: charged, and stopped by something that happened or by a ban; `refused`: neither charged nor carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCall:
    """One call that was looked at. Costs in cents."""

    step: int
    tool: str
    """As the agent wrote it."""
    outcome: str
    charged: bool
    """Whether it is part of the agent's path."""
    cost: int
    spent: int
    """By the agent so far, this call included."""
    left: int | None
    """The cheapest rest from where the agent stands now, as things are now; None: the goal is out of reach."""
    lost: int | None
    """By how much the call makes the cheapest total dearer; 0: it begins an optimal plan, or cost nothing."""
    world: int | None
    """By how much what happened in its turn does; below 0 if that makes things cheaper."""
    events: tuple[str, ...]
    """Kinds of what happened in its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row of the alignment: a call of the agent's, one of the optimal path's, or both."""

    relation: Relation
    call: DrawnCall | None
    tool: str
    """Of the optimal path; empty: none."""
    cost: int
    """Cents of that; 0: none."""


def aligned(calls: Sequence[DrawnCall], optimal: Sequence[str], costs: Sequence[int]) -> tuple[Pair, ...]:
    """The two paths aligned with the fewest insertions, deletions and replacements; refused calls stand in between."""
    refused = [call for call in calls if not call.charged]
    pairs: list[Pair] = []
    for pair in _charged_pairs([call for call in calls if call.charged], optimal, costs):
        while pair.call is not None and refused and refused[0].step < pair.call.step:
            pairs.append(_alone("refused", refused.pop(0)))
        pairs.append(pair)
    return (*pairs, *(_alone("refused", call) for call in refused))


def _charged_pairs(charged: Sequence[DrawnCall], optimal: Sequence[str], costs: Sequence[int]) -> Iterator[Pair]:
    from rapidfuzz.distance import Levenshtein

    for code in Levenshtein.opcodes([call.tool for call in charged], list(optimal)):
        own, theirs = range(code.src_start, code.src_end), range(code.dest_start, code.dest_end)
        if code.tag == "delete":
            yield from (_alone("extra" if charged[i].outcome == OK else "failed", charged[i]) for i in own)
        elif code.tag == "insert":
            yield from (Pair(relation="missed", call=None, tool=optimal[j], cost=costs[j]) for j in theirs)
        else:
            relation: Relation = "agrees" if code.tag == "equal" else "instead"
            for i, j in zip(own, theirs, strict=True):
                yield Pair(relation=relation, call=charged[i], tool=optimal[j], cost=costs[j])


def _alone(relation: Relation, call: DrawnCall) -> Pair:
    return Pair(relation=relation, call=call, tool="", cost=0)


MOST_ROWS = 80
"""Rows that are drawn; all are in the numbers."""

ROW = 19
"""Pixels of a row."""

AGENT_AT, AGENT_COST_AT, MIDDLE, OPTIMUM_AT, OPTIMUM_COST_AT = 0, 164, 176, 188, 352
"""Where the columns stand, in pixels."""
PATH_WIDTH = OPTIMUM_COST_AT
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

RELATION_SHAPES: Mapping[Relation, str] = {
    "agrees": "circle",
    "instead": "diamond",
    "extra": "triangle-left",
    "missed": "triangle-right",
    "failed": "cross",
    "refused": "square",
}


def path_figure(pairs: Sequence[Pair], task: str, query: str, notes: Sequence[str]) -> Figure:
    """The alignment as a figure. `task`: its name as tools carry it, which is left out where space is short."""
    rows = _path_rows(pairs)
    drawn = _drawn(rows[:MOST_ROWS], task)
    more = (f"drawn: the first {MOST_ROWS} of {len(rows):,} rows",) if len(rows) > MOST_ROWS else ()
    return figure(
        name="path",
        title="The calls beside an optimal path",
        spec=_path_spec(drawn),
        columns=[
            Column(key="row", title="Row", kind="count"),
            Column(key="is", title="Is"),
            *columns_of(tool="Agent's call", outcome="Outcome"),
            *columns_of("number", cost="Cost", spent="Spent"),
            Column(key="optimal", title="Optimal path"),
            *columns_of("number", optimal_cost="Cost", optimal_spent="Spent"),
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


def _path_rows(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
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


def _path_spec(drawn: Rows) -> Spec:
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
    shapes = [RELATION_SHAPES[relation] for relation in get_args(Relation)]
    dots = {
        "y": y,
        "x": {"value": MIDDLE},
        "color": word("is", scale={"domain": relations}, legend={"title": None, "columns": 3, "offset": 26}),
        "shape": word("is", scale={"domain": relations, "range": shapes}),
        "tooltip": shown,
    }
    return {
        "width": PATH_WIDTH,
        "height": {"step": ROW},
        "data": data(drawn),
        "layer": [
            _head("agent", AGENT_AT, "left"),
            _head("cost", AGENT_COST_AT, "right"),
            _head("optimal path", OPTIMUM_AT, "left"),
            _head("cost", OPTIMUM_COST_AT, "right"),
            stroke(0, MIDDLE - 56),
            stroke(MIDDLE + 56, PATH_WIDTH),
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
