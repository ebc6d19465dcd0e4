"""A scheduling episode drawn: how stable its assignments are, each as a matrix, and what they brought to light."""

from collections.abc import Sequence

from evalkit.envs.scheduling.instance import SchedulingInstance, expected_of
from evalkit.report.charts import drawing
from evalkit.report.charts.scheduling.assignments import Assigned, assigned
from evalkit.report.charts.scheduling.matrix import matrix_figure
from evalkit.report.figure import Figure
from evalkit.report.tables import Column
from evalkit.report.vega import mark, number, scaled, span, tips
from evalkit.results.moves import Move

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
            Column(key="record", title="Fewest so far"),
            Column(key="repeat", title="Repeated"),
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
            Column(key="told", title="Pairs told", kind="count"),
            Column(key="known", title="Comparisons known", kind="count"),
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
