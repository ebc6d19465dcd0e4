"""`evalkit compare`: two agents, or two runs, on the instances they share: what differs, by how much, and how surely.

Each difference is between values of the same instances (`pairs.py`); both sides stand on their cells' longest ended
prefixes. Every p-value is corrected for all tests that are made together (Holm).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.report.cells import NEVER_BELOW_0, Cell
from evalkit.report.episodes import EpisodeResult
from evalkit.report.pairs import Change, Pairs, change, holm, pair
from evalkit.report.planning_cells import ENVIRONMENT as PLANNING
from evalkit.report.planning_cells import counted, reached
from evalkit.report.scores import METRICS, packs_of, where
from evalkit.report.settings import settings_table
from evalkit.report.sizes import size
from evalkit.report.tables import Column, Table
from evalkit.store.manifest import Manifest

SCHEMA = "evalkit.compare"
VERSION = 1

SURE = 0.05

QUERY = """\
select agent, suite, instance, 100 * avg(score) as score, 100 * avg(solved::int) as solved, count(*) as episodes
from episodes where used group by all order by suite, agent, instance
-- asked of each run; other measures are metrics of the view scores, averaged in the same way
-- B - A: the mean, over instances that both sides have, of the differences; interval, p and more: `change` of
-- evalkit/report/pairs.py and `size` of sizes.py, corrected by `holm`"""

Value = Callable[[EpisodeResult], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run, as far as it is compared."""

    label: str
    manifest: Manifest
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared."""

    key: str
    title: str
    value: Value
    """Of one episode, 1 for 100 %; None where it is not defined."""
    width: float = 1.0
    """The greatest difference there can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, compared."""

    first: Side
    second: Side
    agents: tuple[tuple[str, str], ...]
    """Who was compared with whom."""
    tables: tuple[Table, ...]
    """`compare`, `compare_details`, and `compare_settings` where settings differ."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values, for `--json`: schema, version, first, second, agents, and tables as of
        `Report.to_json`. Within a version fields, tables and columns are only added."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "first": self.first.label,
            "second": self.second.label,
            "agents": [list(names) for names in self.agents],
            "tables": {table.name: table.to_json() for table in self.tables},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """One cell of each side, with a measure both have values of."""

    first: Cell
    second: Cell
    measure: Measure
    pairs: Pairs


def compare(first: Side, second: Side, agents: Sequence[tuple[str, str]], *, wanted: float = 0.05) -> Comparison:
    """Each pair of agents (of the first side, of the second) on every suite that both play.

    `wanted`: the half width of which the tables say what it would take; 0.05 is 5 points.
    """
    places = [
        (one, other)
        for one in first.cells
        for other in second.cells
        if (one.agent, other.agent) in agents and one.suite.name == other.suite.name
    ]
    matches = [_match(one, other, measure) for one, other in places for measure in _measures(one, other)]
    found = [match for match in matches if match.pairs.names]
    changes = [_change(match, len(found)) for match in found]
    settings = settings_table(first.manifest, second.manifest, places)
    notes = (*settings.notes, *dict.fromkeys((*first.notes, *second.notes)), *_partial_notes(places))
    return Comparison(
        first=first,
        second=second,
        agents=tuple(agents),
        tables=(
            _main_table((first, second), places, found, changes, notes),
            _details_table(places, found, changes, wanted),
            *([settings] if settings.rows else []),
        ),
    )


def _measures(first: Cell, second: Cell) -> list[Measure]:
    """What both cells have values of."""
    environment = first.suite.environment
    bounded = 1.0 if environment in NEVER_BELOW_0 else float("inf")
    found = [
        Measure(key="score", title="Score", value=lambda one: one.score, width=bounded),
        Measure(key="solved", title="Solved", value=lambda one: float(one.solved)),
    ]
    if environment == PLANNING:
        return found + PLANNING_MEASURES
    given = [{name for episode in cell.prefix for name in episode.metrics} for cell in (first, second)]
    return found + [
        Measure(key=name, title=title, value=_metric(name))
        for name, title in METRICS.items()
        if all(name in names for names in given)
    ]


def _metric(name: str, keep: Callable[[EpisodeResult], bool] = lambda _: True) -> Value:
    return lambda one: one.metrics.get(name) if keep(one) else None


def _extra_cost(one: EpisodeResult) -> float | None:
    """Cost above the optimum, as a share of it, where the goal was reached."""
    return one.metrics["gap"] / one.metrics["optimal_cost"] if reached(one) and "gap" in one.metrics else None


PLANNING_MEASURES = [
    Measure(key="exact", title="Same path", value=_metric("exact", counted)),
    Measure(key="ned", title="Edit distance %", value=_metric("ned", counted)),
    Measure(key="gap_share", title="Cost gap %", value=_extra_cost, width=float("inf")),
    Measure(key="intent", title="Right answer", value=_metric("intent", counted)),
]
"""The paper's, over the runs it counts; distance and gap are better when they are lower."""


def _match(first: Cell, second: Cell, measure: Measure) -> _Match:
    return _Match(
        first=first, second=second, measure=measure, pairs=pair(_values(first, measure), _values(second, measure))
    )


def _values(cell: Cell, measure: Measure) -> dict[str, list[float]]:
    """By instance, named by its content: instances that changed between two runs do not pair."""
    digests = {one.id: one.digest for one in cell.suite.instances}
    found: dict[str, list[float]] = {}
    for episode in cell.prefix:
        value = measure.value(episode)
        if value is not None:
            found.setdefault(digests[episode.instance], []).append(value)
    return found


def _change(match: _Match, tests: int) -> Change:
    strata = {one.digest: one.stratum for one in match.first.suite.instances}
    return change(
        match.pairs,
        place=(match.first.suite.name, match.first.agent, match.second.agent, match.measure.key),
        strata={name: strata[name] for name in match.pairs.names},
        width=match.measure.width,
        tests=tests,
    )


def _place(match: _Match) -> dict[str, Any]:
    suite = match.first.suite
    axes = {f"axis:{axis}": value for axis, value in suite.axes.items()}
    names = dict.fromkeys((match.first.agent, match.second.agent))
    return {"suite": suite.base if axes else suite.name, **axes, "agents": " → ".join(names)}


def _columns(places: Sequence[tuple[Cell, Cell]]) -> tuple[Column, ...]:
    return (
        *where([one for one, _ in places]),
        Column(key="agents", title="Agents", group=True),
        Column(key="measure", title="Measure"),
    )


def _main_table(
    sides: tuple[Side, Side],
    places: Sequence[tuple[Cell, Cell]],
    found: Sequence[_Match],
    changes: Sequence[Change],
    notes: Sequence[str],
) -> Table:
    adjusted = holm([one.test.p for one in changes])
    tests = sum(p is not None for p in adjusted)
    sure = sum(p is not None and p <= SURE for p in adjusted)
    return Table(
        name="compare",
        title=f"A: {sides[0].label}   B: {sides[1].label}",
        columns=(
            *_columns(places),
            Column(key="first", title="A", kind="score", unit="%"),
            Column(key="second", title="B", kind="score", unit="%"),
            Column(key="difference", title="B - A", kind="score", unit="points"),
            Column(key="interval", title="95 % interval", kind="interval", unit="points"),
            Column(key="p", title="p", kind="p"),
            Column(key="p_holm", title="p Holm", kind="p"),
            Column(key="pairs", title="Pairs", kind="count", unit="instances"),
            Column(key="unpaired", title="Unpaired", kind="count", unit="instances"),
        ),
        rows=tuple(
            {**_place(match), "measure": match.measure.title, **_figures(match, one), "p_holm": p}
            for match, one, p in zip(found, changes, adjusted, strict=True)
        ),
        packs=packs_of(cell for both in places for cell in both),
        notes=(
            f"{sure:,} of {tests:,} tests differ at {100 * SURE:g} %, after Holm's correction over all of them",
            "over instances that both sides have, replicates averaged; p: two-sided permutation test by signs; "
            "interval of the difference, not corrected",
            *notes,
        ),
        query=QUERY,
    )


def _figures(match: _Match, one: Change) -> dict[str, Any]:
    interval = one.difference.interval
    return {
        "first": 100 * one.first,
        "second": 100 * one.second,
        "difference": 100 * one.difference.mean,
        "interval": (100 * interval.low, 100 * interval.high) if interval else None,
        "p": one.test.p,
        "pairs": len(match.pairs.names),
        "unpaired": match.pairs.only_first + match.pairs.only_second,
    }


def _details_table(
    places: Sequence[tuple[Cell, Cell]], found: Sequence[_Match], changes: Sequence[Change], wanted: float
) -> Table:
    return Table(
        name="compare_details",
        title="How sure",
        columns=(
            *_columns(places),
            Column(key="method", title="Interval by"),
            Column(key="test", title="p by"),
            Column(key="mcnemar_p", title="p McNemar", kind="p"),
            Column(key="only_first", title="A alone", kind="count", unit="instances with yes"),
            Column(key="only_second", title="B alone", kind="count", unit="instances with yes"),
            Column(key="missing_first", title="Not in B", kind="count", unit="instances"),
            Column(key="missing_second", title="Not in A", kind="count", unit="instances"),
            Column(key="more_pairs", title=f"More for ± {100 * wanted:g}", kind="count", unit="instances"),
        ),
        rows=tuple(
            {**_place(match), "measure": match.measure.title, **_details(match, one, wanted)}
            for match, one in zip(found, changes, strict=True)
        ),
        packs=packs_of(cell for both in places for cell in both),
        notes=(
            "p McNemar: exact, not corrected; where each side answers yes or no once an instance; alone: solved by "
            "one side only",
            f"more: further instances, played by both, for a half width of {100 * wanted:g} points",
        ),
        query=QUERY,
    )


def _details(match: _Match, one: Change, wanted: float) -> dict[str, Any]:
    strata = {each.digest: each.stratum for each in match.first.suite.instances}
    mine = {name: strata[name] for name in match.pairs.names}
    more = size({name: [value] for name, value in match.pairs.differences.items()}, wanted, mine)
    return {
        "method": one.difference.why or one.difference.method + (", strata" if one.difference.stratified else ""),
        "test": one.test.why or ("all signs" if one.exact else "drawn signs"),
        "mcnemar_p": one.mcnemar.p,
        "only_first": one.only_first_solved,
        "only_second": one.only_second_solved,
        "missing_first": match.pairs.only_first,
        "missing_second": match.pairs.only_second,
        "more_pairs": None if more is None else more.more_instances,
    }


def _partial_notes(places: Sequence[tuple[Cell, Cell]]) -> list[str]:
    partial = dict.fromkeys(
        f"partial: {cell.agent} on {cell.suite.name}: {len(cell.prefix):,} of {cell.planned:,} episodes"
        for both in places
        for cell in both
        if not cell.complete
    )
    return list(partial)


def same_agents(first: Side, second: Side) -> list[tuple[str, str]]:
    """The agents of the same name; failing these, the only ones of each; failing these, none."""
    mine, others = list(first.manifest.agents), list(second.manifest.agents)
    same = [(name, name) for name in mine if name in others]
    return same or ([(mine[0], others[0])] if len(mine) == len(others) == 1 else [])


def narrowed(side: Side, agent: str) -> Side:
    """The side with one agent's cells alone, named after both."""
    mine = tuple(cell for cell in side.cells if cell.agent == agent)
    return replace(side, label=f"{side.label}:{agent}", cells=mine)
