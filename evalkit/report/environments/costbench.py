"""What reports have of CostBench: planning at the lowest cost, the errors that come of it, and an episode drawn: its
calls beside an optimal path, and what they did to the cheapest total left.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from evalkit.envs.costbench.events import course_of, terms_after, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.planning.solve import optimal_paths, optimum
from evalkit.envs.costbench.score import CHARGED, IGNORED, Place, Walk, follow, is_static, normalised, walked
from evalkit.report.charts.drawing import BEST, PLAYED, compared, figure, label, numbered, plot, rule
from evalkit.report.charts.path import DrawnCall, Pair, aligned, path_figure
from evalkit.report.costbench.paths import adaptation_figures, coverage_figures
from evalkit.report.costbench.planning import planning_tables
from evalkit.report.costbench.planning_queries import COUNTED, REACHED
from evalkit.report.extras import (
    HIGHER,
    LOWER,
    Charts,
    EpisodeLine,
    ErrorKind,
    Extras,
    Find,
    LinePlots,
    Measure,
    QuotedPlace,
)
from evalkit.report.queries import text
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import Figure, Rows, Spec, mark, number, tips, word
from evalkit.results.moves import Move
from evalkit.text import many

COLOUR = compared(offset=30)
"""With room between legend and plot for the names of what happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """An episode's calls beside an optimal path."""

    calls: tuple[DrawnCall, ...]
    """Those that were looked at, in order."""
    optimal_costs: tuple[int, ...]
    """Cents of each call of the optimal path: of several the one that is nearest; where things happen, the segmented
    truth."""
    pairs: tuple[Pair, ...]
    """Both, side by side."""
    start: int | None
    """Cents of the cheapest plan at the start."""
    goal: bool
    """Whether the goal was held at the end."""
    chances: int
    """Optimal paths at the start."""


def path_of(target: PlanningProblem, moves: Sequence[Move]) -> Path:
    """The calls of an episode, followed through its world."""
    position, walk = Place(target), Walk()
    start, calls = _left(position), []
    for move in moves:
        kinds = [event["kind"] for event in move.facts.get("events", ())]
        looked = [call for call in move.facts.get("calls", ()) if call["outcome"] not in IGNORED]
        for call in looked:
            calls.append(_called(position, walk, move, call, kinds))
    optimal, costs = _truth(target, walk.path)
    goal = bool(moves) and bool(moves[-1].facts.get("goal"))
    return Path(
        calls=tuple(calls),
        optimal_costs=costs,
        pairs=aligned(calls, optimal, costs),
        start=start,
        goal=goal,
        chances=len(optimal_paths(world_of(target), terms_after(target, 0), world_of(target).start)),
    )


def _left(position: Place) -> int | None:
    """Cents of the cheapest plan from where the agent stands; None: the goal is out of reach."""
    return optimum(position.world, position.terms, position.state)


def _called(position: Place, walk: Walk, move: Move, call: Mapping[str, Any], kinds: Sequence[str]) -> DrawnCall:
    """One call, which moves `position` and `walk` on, and the events of its turn after it."""
    before, cost = _left(position), call.get("cost", 0) if call["outcome"] in CHARGED else 0
    lost = _lost(position, call, cost, before) if call["outcome"] in CHARGED else 0
    follow(walk, position, call)
    for kind in kinds:
        position.change(kind)
    after = _left(position)
    total = None if before is None or after is None or lost is None else cost + after - before
    return DrawnCall(
        step=move.row["step"],
        tool=call["tool"],
        outcome=call["outcome"],
        charged=call["outcome"] in CHARGED,
        cost=cost,
        spent=sum(walk.costs),
        left=after,
        lost=lost,
        world=None if total is None or lost is None else total - lost,
        events=tuple(kinds),
    )


def _lost(position: Place, call: Mapping[str, Any], cost: int, before: int | None) -> int | None:
    """Cents by which a charged call makes the cheapest total dearer, the world staying as it is.

    A call that was stopped by something that happened is judged as if it had not been: the agent could not know.
    """
    index = position.place(call["tool"])
    if index is None or index in position.terms.off or position.world.tools[index].need & ~position.state:
        return cost
    after = optimum(position.world, position.terms, position.state | position.world.tools[index].gives)
    return None if before is None or after is None else cost + after - before


def _truth(target: PlanningProblem, path: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """(tools, cents) of the optimal path that the score compares with."""
    if not is_static(target):
        course = course_of(target)
        return course.path, course.costs
    world, terms = world_of(target), terms_after(target, 0)
    names = [tool.name for tool in world.tools]
    orders = optimal_paths(world, terms, world.start)
    nearest = min(orders, key=lambda candidate: normalised(path, [names[index] for index in candidate]), default=())
    return tuple(names[index] for index in nearest), tuple(terms.costs[index] for index in nearest)


def costbench_figures(target: PlanningProblem, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """The calls beside the optimal path, and what they made of its cost."""
    path = path_of(target, moves)
    query = _query(episode)
    return (path_figure(path.pairs, world_of(target).title, query, _path_notes(target, path)), _costs(path, query))


def costbench_line(target: PlanningProblem, facts: Sequence[Mapping[str, Any]], _periods: int) -> EpisodeLine:
    """What was spent, call by call, beside the optimal path's costs."""
    position, walk, spent = Place(target), Walk(), [(0.0, 0.0)]
    for fact in facts:
        for call in fact.get("calls", ()):
            if call["outcome"] not in IGNORED:
                follow(walk, position, call)
                spent.append((len(spent), sum(walk.costs) / 100))
        for event in fact.get("events", ()):
            position.change(event["kind"])
    _, costs = _truth(target, walk.path)
    best = [(call, cents / 100) for call, cents in enumerate(accumulate(costs, initial=0))]
    return EpisodeLine(played=spent, optimum=best)


def costbench_lines(target: PlanningProblem, moves: Sequence[Move]) -> dict[int, str]:
    """A line for the one chat: whether the goal was reached, and at what cost."""
    path = path_of(target, moves)
    if not path.calls:
        return {}
    calls = many(len(path.calls), "call")
    spent = f"{path.calls[-1].spent / 100:,.2f} spent, optimal path {sum(path.optimal_costs) / 100:,.2f}"
    return {0: f"{'goal reached' if path.goal else 'goal not reached'}, {calls}, {spent}"}


def _query(episode: str) -> str:
    return "\n".join(
        [
            "select step, call, tool, outcome, (facts->>'$.cost')::bigint as cents",
            f"from calls where episode = {text(episode)}",
            "order by step, call",
            "-- optimal path: the nearest of evalkit.envs.costbench.planning.solve.optimal_paths at the start;",
            "-- where things happen, the segmented truth, evalkit.envs.costbench.events.course_of",
            "-- cheapest rest: evalkit.envs.costbench.planning.solve.optimum from where each call leaves the agent",
        ]
    )


def _path_notes(target: PlanningProblem, path: Path) -> list[str]:
    several = path.chances > 1 and is_static(target)
    lost = sum(call.lost or 0 for call in path.calls)
    notes = ["The agent's calls, from top to bottom, beside those of an optimal path; costs in cost units, added up."]
    if several:
        notes.append(f"there are {path.chances:,} optimal paths; this is the nearest")
    if path.calls and not lost and path.goal and any(pair.relation != "agrees" for pair in path.pairs):
        notes.append("every call was optimal where it was made: the path differs and costs no more")
    if not is_static(target):
        notes.append("the optimal path is that of an agent that meets the same events and calls nothing for nothing")
    return notes


def _costs(path: Path, query: str) -> Figure:
    rows = [
        {
            "call": number,
            "tool": call.tool,
            "outcome": call.outcome,
            "cost": call.cost / 100,
            "spent": call.spent / 100,
            "left": _units(call.left),
            "total": None if call.left is None else (call.spent + call.left) / 100,
            "lost": _units(call.lost),
            "world": _units(call.world),
            "event": ", ".join(call.events).replace("_", " "),
        }
        for number, call in enumerate(path.calls, 1)
    ]
    best = list(accumulate(path.optimal_costs, initial=0))
    drawn: list[dict[str, Any]] = [{"call": 0, "who": PLAYED, "spent": 0.0, "total": _units(path.start)}]
    drawn += [{**row, "tool": label(str(row["tool"])), "who": PLAYED} for row in rows]
    lost = [call.lost for call in path.calls if call.lost is not None]
    whole = len(lost) == len(path.calls)
    words = f"{sum(lost) / 100:,.2f}" if whole else "not defined, the goal was out of reach"
    notes = [
        "What was spent, call by call, and the cheapest total that was still possible after each call, in cost units.",
        "the upper line rises where the agent loses (dot) or where the world changes (dashed line)",
        f"optimal path: {best[-1] / 100:,.2f}; lost by the agent's choices: {words}",
    ]
    if any(call.left is None for call in path.calls):
        notes.append("the upper line ends where the goal is out of reach")
    return figure(
        name="costs",
        title="Costs, and the cheapest total still possible",
        spec=_costs_spec(drawn, best, len(path.calls)),
        columns=[
            Column(key="call", title="Call", kind="count"),
            *columns_of(tool="Tool", outcome="Outcome"),
            *columns_of(
                "number",
                cost="Cost",
                spent="Spent",
                left="Cheapest rest",
                total="Cheapest total",
                lost="Lost by the call",
                world="By the world",
            ),
            Column(key="event", title="Event"),
        ],
        rows=rows,
        query=query,
        notes=notes,
    )


def _units(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def _costs_spec(drawn: Rows, best: Sequence[int], calls: int) -> Spec:
    x = numbered("call", max(calls, len(best) - 1))
    truth = [{"call": call, "who": BEST, "spent": cents / 100} for call, cents in enumerate(best)]
    shown = tips(
        call="Call|d",
        tool="Tool",
        outcome="Outcome",
        cost="Cost|,.2f",
        spent="Spent|,.2f",
        total="Cheapest total|,.2f",
        lost="Lost by the call|,.2f",
        event="Event",
    )

    def of(field: str) -> Spec:
        return {"x": x, "y": number(field, "Cost units"), "color": COLOUR, "tooltip": shown}

    possible = [row for row in drawn if row["total"] is not None]
    losing = [row for row in possible if row.get("lost")]
    return plot(
        *rule(best[-1] / 100, f"optimal path {best[-1] / 100:,.2f}"),
        *_events([row for row in drawn if row.get("event")], x),
        mark("line", of("spent"), rows=truth, strokeWidth=1.4, point={"size": 14}),
        mark("line", of("spent"), rows=drawn, strokeWidth=1.4, point={"size": 14}),
        *([mark("line", of("total"), rows=possible, strokeWidth=1.4, strokeDash=[6, 2])] if possible else ()),
        *([mark("point", of("total"), rows=losing, filled=True, size=60, opacity=1)] if losing else ()),
    )


def _events(rows: Rows, x: Spec) -> list[Spec]:
    """A line at each call in whose turn something happened, named above the plot in two rows by turns."""
    if not rows:
        return []
    line = {"x": x, "tooltip": tips(event="Event", call="At call|d")}
    layers = [mark("rule", line, rows=rows, strokeDash=[2, 3], style="quiet")]
    for level, labelled in enumerate((rows[::2], rows[1::2])):
        above = {"x": x, "y": {"value": -3 - 13 * level}, "text": word("event")}
        layers.append(mark("text", above, rows=labelled, baseline="bottom", fontStyle="italic"))
    return layers


NAME = "costbench"


def _grows(name: str) -> Find:
    """The first call after which a walk through CostBench counts more of something."""

    def find(instance: Any, played: Sequence[Move]) -> QuotedPlace | None:
        facts = [move.facts for move in played]
        # What a walk counts never falls, so a search by halves finds the index: not a walk for every step.
        index = bisect_left(
            range(len(facts)), 1, key=lambda i: int(getattr(walked(instance, facts[: i + 1]), name) > 0)
        )
        return (index, 0) if index < len(facts) else None

    return find


def _last(_: Any, played: Sequence[Move]) -> QuotedPlace | None:
    replied = [i for i, move in enumerate(played) if move.reply is not None]
    return (replied[-1], None) if replied else None


ERRORS = (
    ErrorKind(name="repeated call", environment=NAME, unit="calls", sql="metrics['repeated']", find=_grows("repeated")),
    ErrorKind(
        name="call behind the goal", environment=NAME, unit="calls", sql="metrics['extra']", find=_grows("extra")
    ),
    ErrorKind(
        name="wrong answer",
        environment=NAME,
        unit="episodes",
        sql="metrics['answered'] > 0 and metrics['goal'] > 0 and metrics['intent'] = 0",
        find=_last,
    ),
    ErrorKind(
        name="answer without the goal",
        environment=NAME,
        unit="episodes",
        sql="ending = 'answered' and coalesce(metrics['goal'], 0) = 0",
        find=_last,
    ),
    ErrorKind(
        name="given up without an answer", environment=NAME, unit="episodes", sql="ending = 'no_call'", find=_last
    ),
    ErrorKind(name="out of turns", environment=NAME, unit="episodes", sql="ending = 'step_limit'", find=_last),
)


def _where(condition: str, value: str) -> str:
    return f"case when {condition} then {value} end"


MEASURES = (
    Measure(key="exact", title="Same path", sql=_where(COUNTED, "metrics['exact']"), better=HIGHER),
    Measure(key="ned", title="Edit distance %", sql=_where(COUNTED, "metrics['ned']"), better=LOWER),
    Measure(
        key="gap_share",
        title="Cost gap %",
        sql=_where(REACHED, "metrics['gap'] / metrics['optimal_cost']"),
        width=float("inf"),
        better=LOWER,
    ),
    Measure(key="intent", title="Right answer", sql=_where(COUNTED, "metrics['intent']"), better=HIGHER),
)
"""The paper's, over the runs it counts; distance and gap are better when they are lower."""

EXTRAS = Extras(
    place=10,
    tables=planning_tables,
    table_figures=(("coverage", coverage_figures), ("adaptation", adaptation_figures)),
    errors=ERRORS,
    measures=MEASURES,
    charts=Charts(
        figures=costbench_figures,
        lines=costbench_lines,
        beside=LinePlots(across="Call", up="Cost units spent", line=costbench_line),
    ),
)
