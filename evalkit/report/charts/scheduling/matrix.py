"""The assignments of a scheduling episode as matrices, one shown at a time, with the pairs that block it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.envs.scheduling.instance import SchedulingInstance, market_of
from evalkit.envs.scheduling.market import SchedulingMarket, blocking_pairs, stable_matching
from evalkit.report.charts.drawing import PERIOD, WIDTH, figure, steps_query
from evalkit.report.charts.scheduling.assignments import Assigned
from evalkit.report.figure import MOST_MARKS, Figure
from evalkit.report.tables import Column
from evalkit.report.vega import Spec, data, mark, tips, word

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
        columns=[
            PERIOD,
            Column(key="worker", title="Worker"),
            Column(key="task", title="Task"),
            Column(key="is", title="Is"),
        ],
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
