"""A scheduling episode drawn: how stable its assignments are, each as a matrix, and what they brought to light."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalkit.env.arguments import Refusal, read_arguments
from evalkit.env.calls import OK
from evalkit.env.literals import read_mapping
from evalkit.env.scheduling.assignment import read_assignment
from evalkit.env.scheduling.instance import Instance, expected_of, market_of
from evalkit.env.scheduling.market import Market, blocking_pairs, stable_matching
from evalkit.env.scheduling.scheduling import ACTION, RULES
from evalkit.env.scheduling.score import value_of
from evalkit.report.charts.drawing import (
    HEIGHT,
    PLAYED,
    WIDTH,
    Spec,
    beyond,
    compared,
    edge_note,
    figure,
    periods_axis,
    quantity,
    rule,
    span,
    steps_query,
    tips,
    values,
)
from evalkit.report.figures.figure import MOST_MARKS, Figure
from evalkit.report.moves import Move
from evalkit.report.tables import Column

MOST_NAMED = 20
"""Workers up to which a matrix names each row."""

MOST_DRAWN = 120
"""Workers up to which matrices are drawn at all."""

HELD, BLOCKS, TOLD = "assigned", "blocks", "blocks, told to the agent"


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


def assigned(target: Instance, moves: Sequence[Move]) -> tuple[Assigned, ...]:
    """The accepted assignments, in order."""
    market, _ = market_of(target)
    expected = expected_of(target)
    workers = {name: i for i, name in enumerate(market.workers)}
    tasks = {name: i for i, name in enumerate(market.tasks)}
    learned = _Learned(market.n)
    found: list[Assigned] = []
    best: int | None = None
    for move in moves:
        action, matching = move.facts.get("action"), _submitted(market, move)
        if action is None or matching is None:
            continue
        told = tuple((workers[w], tasks[t]) for w, t in action["shown"])
        learned.add(matching, told)
        found.append(
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
    return tuple(found)


def _submitted(market: Market, move: Move) -> tuple[int, ...] | None:
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
        for one in _bits(higher):
            self.count += (lower & ~below[one]).bit_count()
            below[one] |= lower
        for one in _bits(lower):
            above[one] |= higher


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def scheduling_figures(target: Instance, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """Stability over periods, the assignments as matrices, and the comparisons that came to light."""
    found = assigned(target, moves)
    if not found:
        return ()
    last = moves[-1].period
    quality = _quality(target, episode, found, last)
    if target.n > MOST_DRAWN:
        return (quality, _known(target, episode, found, last))
    return (quality, _matrices(target, episode, found), _known(target, episode, found, last))


def scheduling_lines(target: Instance, moves: Sequence[Move]) -> dict[int, str]:
    """A line a period: how stable its assignment is."""
    lines = {}
    for one in assigned(target, moves):
        pairs = "stable" if not one.blocking else f"{one.blocking:,} blocking pair{'s' if one.blocking > 1 else ''}"
        marks = ", fewest so far" if one.record else ", submitted before" if one.repeat else ""
        lines[one.period] = f"{pairs}, score {100 * one.score:.1f}{marks}"
    return lines


_EXPECTED = "score: 1 - blocking / E, E of a random assignment: evalkit.env.scheduling.instance.expected_of"
_ACTED = "facts->'$.action' is not null"


def _quality(target: Instance, episode: str, found: Sequence[Assigned], last: int) -> Figure:
    numerator, denominator = expected_of(target)
    rows = [
        {
            "period": one.period,
            "blocking": one.blocking,
            "score": 100 * one.score,
            "repeat": "yes" if one.repeat else "no",
            "record": "yes" if one.record else "no",
        }
        for one in found
    ]
    ends = span([100 * one.score for one in found], 0.0, 100.0, most=1.0)
    x = periods_axis(last)
    y = quantity("score", "score (100 = stable)", scale={"domain": ends, "clamp": True, "nice": False})
    shown = tips(
        period="Period|d", blocking="Blocking pairs|d", score="Score|.2f", record="Fewest so far", repeat="Repeated"
    )
    spec: Spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "layer": [
            *rule(0.0, "random assignment"),
            *rule(100.0, "stable"),
            {
                "data": values([{**row, "who": PLAYED} for row in rows]),
                "layer": [
                    {
                        "mark": {"type": "line", "strokeWidth": 1.3},
                        "encoding": {"x": x, "y": y, "color": compared(legend=False)},
                    },
                    {
                        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
                        "transform": [{"filter": "datum.record == 'yes'"}],
                        "encoding": {"x": x, "y": y, "color": compared(legend=False), "tooltip": shown},
                    },
                    {
                        "mark": {"type": "point", "size": 14, "opacity": 0.8},
                        "encoding": {"x": x, "y": y, "color": compared(legend=False), "tooltip": shown},
                    },
                ],
            },
        ],
    }
    notes = [
        "How near each assignment is to a stable one, by the pairs that would rather have each other.",
        f"0: as many blocking pairs as a random assignment has, {numerator / denominator:,.1f}; filled: fewest so far",
        f"the last assignment makes the score: {100 * found[-1].score:.2f} with {found[-1].blocking:,} blocking pairs",
        *edge_note(beyond([100 * one.score for one in found], ends), "scores"),
    ]
    return figure(
        name="quality",
        title="Stability of each assignment",
        spec=spec,
        columns=[
            Column(key="period", title="Period", kind="count"),
            Column(key="blocking", title="Blocking pairs", kind="count"),
            Column(key="score", title="Score", kind="score"),
            Column(key="record", title="Fewest so far"),
            Column(key="repeat", title="Repeated"),
        ],
        rows=rows,
        query=steps_query(
            episode,
            ["(facts->>'$.action.blocking')::int as blocking", "(facts->>'$.action.repeat')::boolean as repeat"],
            _ACTED,
            _EXPECTED,
        ),
        notes=notes,
    )


def _matrices(target: Instance, episode: str, found: Sequence[Assigned]) -> Figure:
    market, _ = market_of(target)
    stable = stable_matching(market)
    rows: list[dict[str, object]] = []
    kept: set[int] = set()
    for one in _by_interest(found):
        cells = [
            {"period": one.period, "worker": market.workers[w], "task": market.tasks[t], "is": how}
            for w, t, how in _cells(market, one)
        ]
        if kept and len(rows) + len(cells) > MOST_MARKS:
            break
        rows += cells
        kept.add(one.period)
    rows.sort(key=lambda row: (row["period"], row["is"]))
    options = sorted(kept)
    named = market.n <= MOST_NAMED
    axis = {"labels": named, "ticks": named, "domain": False, "labelFontSize": 9}
    where = [
        ("y", "worker", "workers", list(market.workers), {}),
        (
            "x",
            "task",
            "tasks, each in the row of its stable partner",
            [market.tasks[t] for t in stable],
            {"labelAngle": -90},
        ),
    ]
    spec: Spec = {
        "data": values(rows),
        "width": WIDTH,
        "height": WIDTH,
        "params": [
            {
                "name": "chosen",
                "value": _by_interest(found)[0].period,
                "bind": {"input": "select", "options": options, "name": "period "},
            }
        ],
        "transform": [{"filter": "datum.period == chosen"}],
        "mark": {
            "type": "point",
            "filled": True,
            "size": max(8, min(90, (0.75 * WIDTH / market.n) ** 2)),
            "opacity": 1,
        },
        "encoding": {
            **{
                channel: {
                    "field": field,
                    "type": "ordinal",
                    "title": title,
                    "scale": {"domain": domain},
                    "axis": {**axis, **more},
                }
                for channel, field, title, domain, more in where
            },
            "color": {
                "field": "is",
                "type": "nominal",
                "scale": {"domain": [HELD, BLOCKS, TOLD]},
                "legend": {"title": None},
            },
            "shape": {
                "field": "is",
                "type": "nominal",
                "scale": {"domain": [HELD, BLOCKS, TOLD], "range": ["square", "circle", "diamond"]},
            },
            "tooltip": tips(worker="Worker", task="Task", **{"is": "Is"}),
        },
    }
    left = len(found) - len(kept)
    notes = [
        "An assignment as a matrix, of the period that is chosen; first shown: the best one.",
        "tasks stand in the order of the stable assignment that is best for workers: on the diagonal, it is that one",
        *((f"{left:,} of {len(found):,} assignments can not be chosen here, to bound the page",) if left else ()),
    ]
    return figure(
        name="matrix",
        title="Assignments and the pairs that block them",
        spec=spec,
        columns=[
            Column(key="period", title="Period", kind="count"),
            Column(key="worker", title="Worker"),
            Column(key="task", title="Task"),
            Column(key="is", title="Is"),
        ],
        rows=[row for row in rows if row["period"] == _by_interest(found)[0].period],
        query=steps_query(
            episode,
            ["reply->'$.calls' as calls", "facts->'$.action.shown' as told"],
            _ACTED,
            "blocking pairs of an assignment: evalkit.env.scheduling.market.blocking_pairs",
        ),
        notes=notes,
    )


def _by_interest(found: Sequence[Assigned]) -> list[Assigned]:
    """The best first, then the last, the first, records from the end, and the others."""
    best = min(found, key=lambda one: (one.blocking, one.period))
    order = [best, found[-1], found[0], *(one for one in reversed(found) if one.record), *reversed(found)]
    return list({one.period: one for one in order}.values())


def _cells(market: Market, one: Assigned) -> Iterable[tuple[int, int, str]]:
    told = set(one.told)
    yield from ((w, t, HELD) for w, t in enumerate(one.matching))
    yield from ((w, t, TOLD if (w, t) in told else BLOCKS) for w, t in blocking_pairs(market, one.matching))


def _known(target: Instance, episode: str, found: Sequence[Assigned], last: int) -> Figure:
    whole = target.n * target.n * (target.n - 1) or 1
    rows = [
        {"period": one.period, "told": len(one.told), "known": one.known, "share": 100 * one.known / whole}
        for one in found
    ]
    spec: Spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "data": values([{**row, "who": PLAYED} for row in rows]),
        "mark": {"type": "line", "point": {"size": 14}, "strokeWidth": 1.3},
        "encoding": {
            "x": periods_axis(last),
            "y": quantity("share", "% of all comparisons", scale={"zero": True}),
            "color": compared(legend=False),
            "tooltip": tips(
                period="Period|d", told="Pairs told|d", known="Comparisons known|,d", share="Of all, %|.2f"
            ),
        },
    }
    notes = [
        "What the agent was told of preferences: each blocking pair says what a worker, and what a task, would rather.",
        f"with what follows from it by transitivity, at the end {found[-1].known:,} of {whole:,} comparisons",
    ]
    return figure(
        name="preferences",
        title="Preferences discovered",
        spec=spec,
        columns=[
            Column(key="period", title="Period", kind="count"),
            Column(key="told", title="Pairs told", kind="count"),
            Column(key="known", title="Comparisons known", kind="count"),
            Column(key="share", title="Of all, %", kind="fine"),
        ],
        rows=rows,
        query=steps_query(
            episode,
            ["reply->'$.calls' as calls", "facts->'$.action.shown' as told"],
            _ACTED,
            "known: the transitive closure of w: t > its own task, t: w > its own worker, over all pairs told so far",
        ),
        notes=notes,
    )
