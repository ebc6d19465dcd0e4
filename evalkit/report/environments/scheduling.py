"""What reports have of scheduling: assignments over periods, and an episode drawn: how stable its assignments are, each
as a matrix.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.arguments import Refusal, read_arguments, read_mapping
from evalkit.envs.calls import OK
from evalkit.envs.scheduling.assignment import read_assignment
from evalkit.envs.scheduling.instance import SchedulingInstance, expected_of, market_of
from evalkit.envs.scheduling.market import SchedulingMarket, blocking_pairs, stable_matching
from evalkit.envs.scheduling.scheduling import ACTION, RULES
from evalkit.envs.scheduling.score import value_of
from evalkit.report.charts import drawing
from evalkit.report.charts.drawing import WIDTH
from evalkit.report.environments.markets import market_extras
from evalkit.report.extras import Charts, PeriodStanding
from evalkit.report.periods import Action, by_period, last_so_far
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import MOST_MARKS, Figure, Spec, data, mark, scaled, span, tips, word
from evalkit.results.moves import Move
from evalkit.text import many

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedAssignment:
    """One accepted assignment."""

    period: int
    matching: tuple[int, ...]
    """The task of each worker."""
    blocking: int
    """Pairs that block it."""
    told: tuple[tuple[int, int], ...]
    """Those (worker, task) that the agent was told."""
    score: float
    """1 is stable, 0 as good as a random one."""
    record: bool
    """Whether fewer pairs block it than all before."""
    repeat: bool
    """Whether the same was submitted before."""


def assigned(target: SchedulingInstance, moves: Sequence[Move]) -> tuple[AcceptedAssignment, ...]:
    """The accepted assignments, in order."""
    market, _ = market_of(target)
    expected = expected_of(target)
    workers = {name: i for i, name in enumerate(market.workers)}
    tasks = {name: i for i, name in enumerate(market.tasks)}
    assignments: list[AcceptedAssignment] = []
    best: int | None = None
    for move in moves:
        action, matching = move.facts.get("action"), _submitted(market, move)
        if action is None or matching is None:
            continue
        told = tuple((workers[w], tasks[t]) for w, t in action["shown"])
        assignments.append(
            AcceptedAssignment(
                period=move.period,
                matching=matching,
                blocking=action["blocking"],
                told=told,
                score=value_of(action["blocking"], expected),
                record=best is None or action["blocking"] < best,
                repeat=action["repeat"],
            )
        )
        best = action["blocking"] if best is None else min(best, action["blocking"])
    return tuple(assignments)


def _submitted(market: SchedulingMarket, move: Move) -> tuple[int, ...] | None:
    """The assignment that a move's reply submitted and that was accepted; None: there is none."""
    calls = move.reply.calls if move.reply else ()
    for call, fact in zip(calls, move.facts.get("calls", ()), strict=False):
        if call.name != ACTION or fact["outcome"] != OK:
            continue
        arguments = read_arguments(call.arguments)
        mapping = arguments if isinstance(arguments, Refusal) else read_mapping(arguments[RULES.argument])
        if isinstance(mapping, Refusal):
            return None
        matching = read_assignment(market, mapping.value)
        return None if isinstance(matching, Refusal) else matching
    return None


MOST_NAMED = 20
"""Workers up to which each row is named."""

HELD, BLOCKS, TOLD = "assigned", "blocks", "blocks, told to the agent"


def matrix_figure(target: SchedulingInstance, episode: str, assignments: Sequence[AcceptedAssignment]) -> Figure:
    """The matrices as a figure in which a period can be chosen; the best assignment is shown first."""
    market, _ = market_of(target)
    rows: list[dict[str, Any]] = []
    kept: set[int] = set()
    for assignment in _by_interest(assignments):
        cells = [
            {"period": assignment.period, "worker": market.workers[w], "task": market.tasks[t], "is": how}
            for w, t, how in _cells(market, assignment)
        ]
        if kept and len(rows) + len(cells) > MOST_MARKS:
            break
        rows += cells
        kept.add(assignment.period)
    rows.sort(key=lambda row: (row["period"], row["is"]))
    first = _by_interest(assignments)[0].period
    left = len(assignments) - len(kept)
    notes = [
        "An assignment as a matrix, of the period that is chosen; first shown: the best one.",
        "tasks stand in the order of the stable assignment that is best for workers: on the diagonal, it is that one",
        *((f"{left:,} of {len(assignments):,} assignments can not be chosen here, to bound the page",) if left else ()),
    ]
    return drawing.figure(
        name="matrix",
        title="Assignments and the pairs that block them",
        spec=_spec(market, rows, first),
        columns=[drawing.PERIOD, *columns_of(worker="Worker", task="Task"), Column(key="is", title="Is")],
        rows=[row for row in rows if row["period"] == first],
        query=drawing.steps_query(
            episode,
            ["reply->'$.calls' as calls", "facts->'$.action.shown' as told"],
            "blocking pairs of an assignment: evalkit.envs.scheduling.market.blocking_pairs",
        ),
        notes=notes,
    )


def _spec(market: SchedulingMarket, rows: Sequence[Mapping[str, Any]], first: int) -> Spec:
    """A matrix of the period that is chosen, at first that one."""
    named = market.n <= MOST_NAMED
    stable = [market.tasks[t] for t in stable_matching(market)]

    def side(field: str, title: str, names: Sequence[str], **axis: Any) -> Spec:
        look = {"labels": named, "ticks": named, "domain": False, "labelFontSize": 9, **axis}
        return {"field": field, "type": "ordinal", "title": title, "scale": {"domain": list(names)}, "axis": look}

    kinds = [HELD, BLOCKS, TOLD]
    cells = {
        "y": side("worker", "Workers", market.workers),
        "x": side("task", "Tasks, each in the row of its stable partner", stable, labelAngle=-90),
        "color": word("is", scale={"domain": kinds}, legend={"title": None}),
        "shape": word("is", scale={"domain": kinds, "range": ["square", "circle", "diamond"]}),
        "tooltip": tips(worker="Worker", task="Task", **{"is": "Is"}),
    }
    periods = sorted({row["period"] for row in rows})
    choice = {"input": "select", "options": periods, "name": "period "}
    size = max(8, min(90, (0.75 * WIDTH / market.n) ** 2))
    return {
        "data": data(rows),
        "width": WIDTH,
        "height": WIDTH,
        "params": [{"name": "chosen", "value": first, "bind": choice}],
        **mark("point", cells, where="datum.period == chosen", filled=True, size=size, opacity=1),
    }


def _by_interest(assignments: Sequence[AcceptedAssignment]) -> list[AcceptedAssignment]:
    """The best first, then the last, the first, records from the end, and the others."""
    best = min(assignments, key=lambda assignment: (assignment.blocking, assignment.period))
    order = [
        best,
        assignments[-1],
        assignments[0],
        *(assignment for assignment in reversed(assignments) if assignment.record),
        *reversed(assignments),
    ]
    return list({assignment.period: assignment for assignment in order}.values())


def _cells(market: SchedulingMarket, assignment: AcceptedAssignment) -> Iterable[tuple[int, int, str]]:
    told = set(assignment.told)
    yield from ((w, t, HELD) for w, t in enumerate(assignment.matching))
    yield from ((w, t, TOLD if (w, t) in told else BLOCKS) for w, t in blocking_pairs(market, assignment.matching))


MOST_DRAWN = 120
"""Workers up to which matrices are drawn at all."""


def scheduling_figures(target: SchedulingInstance, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """Stability over periods, and the assignments as matrices."""
    assignments = assigned(target, moves)
    if not assignments:
        return ()
    quality = _quality(target, episode, assignments, moves[-1].period)
    return (quality,) if target.n > MOST_DRAWN else (quality, matrix_figure(target, episode, assignments))


def scheduling_lines(target: SchedulingInstance, moves: Sequence[Move]) -> dict[int, str]:
    """A line a period: how stable its assignment is."""
    lines = {}
    for assignment in assigned(target, moves):
        pairs = "stable" if not assignment.blocking else many(assignment.blocking, "blocking pair")
        marks = ", fewest so far" if assignment.record else ", submitted before" if assignment.repeat else ""
        lines[assignment.period] = f"{pairs}, score {100 * assignment.score:.1f}{marks}"
    return lines


def _quality(target: SchedulingInstance, episode: str, assignments: Sequence[AcceptedAssignment], last: int) -> Figure:
    numerator, denominator = expected_of(target)
    rows = [
        {
            "period": assignment.period,
            "blocking": assignment.blocking,
            "score": 100 * assignment.score,
            "repeat": "yes" if assignment.repeat else "no",
            "record": "yes" if assignment.record else "no",
        }
        for assignment in assignments
    ]
    ends = span([100 * assignment.score for assignment in assignments], 0.0, 100.0, far=1.0, top=True)
    at = drawing.over_periods(last, "score", "Score (0 = random, 100 = stable)", scale=scaled(ends, clamp=True))
    shown = tips(
        period="Period|d", blocking="Blocking pairs|d", score="Score|.2f", record="Fewest so far", repeat="Repeated"
    )
    dots = {**at, "tooltip": shown}
    spec = drawing.plot(
        *drawing.rule(0.0, ""),
        *drawing.rule(100.0, "stable"),
        mark("line", at, strokeWidth=1.3),
        mark("point", dots, where="datum.record == 'yes'", filled=True, size=40, opacity=1),
        mark("point", dots, size=14, opacity=0.8),
        rows=rows,
    )
    notes = [
        "How near each assignment is to a stable one, by the pairs that would rather have each other.",
        f"0: as many blocking pairs as a random assignment has, {numerator / denominator:,.1f}; filled: fewest so far",
        f"the last assignment makes the score: {100 * assignments[-1].score:.2f} "
        f"with {assignments[-1].blocking:,} blocking pairs",
        *drawing.edge_note(drawing.beyond([100 * assignment.score for assignment in assignments], ends), "scores"),
    ]
    return drawing.period_figure(
        episode,
        ["(facts->>'$.action.blocking')::int as blocking", "(facts->>'$.action.repeat')::boolean as repeat"],
        ["score: 1 - blocking / E, E of a random assignment: evalkit.envs.scheduling.instance.expected_of"],
        [
            Column(key="blocking", title="Blocking pairs", kind="count"),
            Column(key="score", title="Score", kind="score"),
            *columns_of(record="Fewest so far", repeat="Repeated"),
        ],
        name="quality",
        title="Stability of each assignment",
        spec=spec,
        rows=rows,
        notes=notes,
    )


NAME = "scheduling"


def assignment_values(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Scheduling: the value of each period's assignment; 0 is as good as random, NaN without one."""
    expected = expected_of(instance)
    return by_period(actions, periods, lambda action: value_of(action["blocking"], expected))


EXTRAS = market_extras(
    NAME,
    21,
    PeriodStanding(values=assignment_values, hold=last_so_far),
    Charts(figures=scheduling_figures, lines=scheduling_lines),
    ("Scheduling: quality of matching over periods", "Score of the last assignment (100 = stable)", (-100, 105)),
)
