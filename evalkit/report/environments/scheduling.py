"""What reports have of scheduling: assignments over periods, and an episode drawn: how stable its assignments are, each
as a matrix, and what they brought to light of preferences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.arguments import Refusal, read_arguments
from evalkit.envs.calls import OK
from evalkit.envs.literals import read_mapping
from evalkit.envs.scheduling.assignment import read_assignment
from evalkit.envs.scheduling.instance import SchedulingInstance, expected_of, market_of
from evalkit.envs.scheduling.market import SchedulingMarket, blocking_pairs, stable_matching
from evalkit.envs.scheduling.scheduling import ACTION, RULES
from evalkit.envs.scheduling.score import value_of
from evalkit.report.charts import drawing
from evalkit.report.charts.drawing import PERIOD, WIDTH, figure, steps_query
from evalkit.report.environments import markets
from evalkit.report.environments.markets import runs_figures
from evalkit.report.extras.record import Charts, Curve, Extras, PeriodStanding
from evalkit.report.figures.curves import standing_of
from evalkit.report.markets.econ import econ_tables
from evalkit.report.periods import Action, by_period, last_so_far
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import MOST_MARKS, Figure, Spec, data, mark, number, scaled, span, tips, word
from evalkit.results.moves import Move

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
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
    known: int
    """Comparisons of two tasks by a worker, or of two workers by a task, that were told so far or follow from those."""


def assigned(target: SchedulingInstance, moves: Sequence[Move]) -> tuple[Assigned, ...]:
    """The accepted assignments, in order."""
    market, _ = market_of(target)
    expected = expected_of(target)
    workers = {name: i for i, name in enumerate(market.workers)}
    tasks = {name: i for i, name in enumerate(market.tasks)}
    learned = _Learned(market.n)
    assignments: list[Assigned] = []
    best: int | None = None
    for move in moves:
        action, matching = move.facts.get("action"), _submitted(market, move)
        if action is None or matching is None:
            continue
        told = tuple((workers[w], tasks[t]) for w, t in action["shown"])
        learned.add(matching, told)
        assignments.append(
            Assigned(
                period=move.period,
                matching=matching,
                blocking=action["blocking"],
                told=told,
                score=value_of(action["blocking"], expected),
                record=best is None or action["blocking"] < best,
                repeat=action["repeat"],
                known=learned.count,
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


class _Learned:
    """Comparisons known of everybody: told ones and what follows from them, since preferences are transitive.

    That (w, t) blocks says that w would rather have t than its own task, and t rather w than its own worker.
    """

    def __init__(self, n: int) -> None:
        self._below = [[0] * n for _ in range(2 * n)]
        self._above = [[0] * n for _ in range(2 * n)]
        self._n, self.count = n, 0

    def add(self, matching: Sequence[int], told: Iterable[tuple[int, int]]) -> None:
        """What the pairs told of an assignment say."""
        for worker, task in told:
            self._prefer(worker, task, matching[worker])
            self._prefer(self._n + task, worker, matching.index(task))

    def _prefer(self, who: int, better: int, worse: int) -> None:
        below, above = self._below[who], self._above[who]
        if below[better] >> worse & 1:
            return
        lower, higher = below[worse] | 1 << worse, above[better] | 1 << better
        for index in _bits(higher):
            self.count += (lower & ~below[index]).bit_count()
            below[index] |= lower
        for index in _bits(lower):
            above[index] |= higher


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


MOST_NAMED = 20
"""Workers up to which each row is named."""

HELD, BLOCKS, TOLD = "assigned", "blocks", "blocks, told to the agent"


def matrix_figure(target: SchedulingInstance, episode: str, assignments: Sequence[Assigned]) -> Figure:
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
    return figure(
        name="matrix",
        title="Assignments and the pairs that block them",
        spec=_spec(market, rows, first),
        columns=[PERIOD, *columns_of(worker="Worker", task="Task"), Column(key="is", title="Is")],
        rows=[row for row in rows if row["period"] == first],
        query=steps_query(
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


def _by_interest(assignments: Sequence[Assigned]) -> list[Assigned]:
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


def _cells(market: SchedulingMarket, assignment: Assigned) -> Iterable[tuple[int, int, str]]:
    told = set(assignment.told)
    yield from ((w, t, HELD) for w, t in enumerate(assignment.matching))
    yield from ((w, t, TOLD if (w, t) in told else BLOCKS) for w, t in blocking_pairs(market, assignment.matching))


MOST_DRAWN = 120
"""Workers up to which matrices are drawn at all."""


def scheduling_figures(target: SchedulingInstance, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """Stability over periods, the assignments as matrices, and the comparisons that came to light."""
    assignments = assigned(target, moves)
    if not assignments:
        return ()
    last = moves[-1].period
    quality = _quality(target, episode, assignments, last)
    if target.n > MOST_DRAWN:
        return (quality, _known(target, episode, assignments, last))
    return (quality, matrix_figure(target, episode, assignments), _known(target, episode, assignments, last))


def scheduling_lines(target: SchedulingInstance, moves: Sequence[Move]) -> dict[int, str]:
    """A line a period: how stable its assignment is."""
    lines = {}
    for assignment in assigned(target, moves):
        pairs = (
            "stable"
            if not assignment.blocking
            else f"{assignment.blocking:,} blocking pair{'s' if assignment.blocking > 1 else ''}"
        )
        marks = ", fewest so far" if assignment.record else ", submitted before" if assignment.repeat else ""
        lines[assignment.period] = f"{pairs}, score {100 * assignment.score:.1f}{marks}"
    return lines


_EXPECTED = "score: 1 - blocking / E, E of a random assignment: evalkit.envs.scheduling.instance.expected_of"


def _quality(target: SchedulingInstance, episode: str, assignments: Sequence[Assigned], last: int) -> Figure:
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
    at = {
        "x": drawing.numbered("period", last),
        "y": number("score", "Score (0 = random, 100 = stable)", scale=scaled(ends, clamp=True)),
        "color": drawing.OWN,
    }
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
    return drawing.figure(
        name="quality",
        title="Stability of each assignment",
        spec=spec,
        columns=[
            drawing.PERIOD,
            Column(key="blocking", title="Blocking pairs", kind="count"),
            Column(key="score", title="Score", kind="score"),
            *columns_of(record="Fewest so far", repeat="Repeated"),
        ],
        rows=rows,
        query=drawing.steps_query(
            episode,
            ["(facts->>'$.action.blocking')::int as blocking", "(facts->>'$.action.repeat')::boolean as repeat"],
            _EXPECTED,
        ),
        notes=notes,
    )


def _known(target: SchedulingInstance, episode: str, assignments: Sequence[Assigned], last: int) -> Figure:
    possible = target.n * target.n * (target.n - 1) or 1
    rows = [
        {
            "period": assignment.period,
            "told": len(assignment.told),
            "known": assignment.known,
            "share": 100 * assignment.known / possible,
        }
        for assignment in assignments
    ]
    where = {
        "x": drawing.numbered("period", last),
        "y": number("share", "% of all comparisons", scale={"zero": True}),
        "color": drawing.OWN,
        "tooltip": tips(period="Period|d", told="Pairs told|d", known="Comparisons known|,d", share="Of all, %|.2f"),
    }
    spec = drawing.plot(mark("line", where, point={"size": 14}, strokeWidth=1.3), rows=rows)
    notes = [
        "What the agent was told of preferences: each blocking pair says what a worker, and what a task, would rather.",
        f"with what follows from it by transitivity, at the end {assignments[-1].known:,} of {possible:,} comparisons",
    ]
    return drawing.figure(
        name="preferences",
        title="Preferences discovered",
        spec=spec,
        columns=[
            drawing.PERIOD,
            *columns_of("count", told="Pairs told", known="Comparisons known"),
            Column(key="share", title="Of all, %", kind="fine"),
        ],
        rows=rows,
        query=drawing.steps_query(
            episode,
            ["reply->'$.calls' as calls", "facts->'$.action.shown' as told"],
            "known: the transitive closure of w: t > its own task, t: w > its own worker, over all pairs told so far",
        ),
        notes=notes,
    )


NAME = "scheduling"


def assignment_values(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Scheduling: the value of each period's assignment; 0 is as good as random, NaN without one."""
    expected = expected_of(instance)
    return by_period(actions, periods, lambda action: value_of(action["blocking"], expected))


EXTRAS = Extras(
    place=21,
    tables=econ_tables,
    table_figures=markets.TABLE_FIGURES,
    cell_figures=runs_figures,
    standing=PeriodStanding(values=assignment_values, hold=last_so_far),
    curves=(
        Curve(
            name="figure_periods_scheduling",
            environment=NAME,
            title="Scheduling: quality of matching over periods",
            axis="Score of the last assignment (100 = stable)",
            about="periods.standing of scheduling",
            ends=(0, 100),
            most=(-100, 105),
            series=standing_of(NAME),
        ),
    ),
    errors=markets.errors(NAME),
    charts=Charts(figures=scheduling_figures, lines=scheduling_lines),
)
