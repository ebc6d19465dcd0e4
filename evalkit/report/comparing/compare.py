"""`evalkit compare`: two agents, or two runs, on the instances they share: what differs, by how much, and how surely.

Each difference is between values of the same instances (`pairs.py`); both sides stand on their cells' longest ended
prefixes, and where one is partial interval and test hold at every look. Every p-value is corrected for the tests that
are made together (Holm), and the scores' say what the comparison comes to (`verdicts.py`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from evalkit.frozen.manifest import Manifest
from evalkit.report.comparing.times import Played, time_notes
from evalkit.report.comparing.verdicts import (
    PRIMARY,
    SURE,
    Figures,
    Overall,
    TestedRow,
    Verdict,
    at_every_look,
    binding_notes,
    corrected,
    least_corrected,
    measures,
    measures_query,
    overall,
    settings_table,
    verdict,
)
from evalkit.report.extras import Measure
from evalkit.report.run_data import RunData, place
from evalkit.report.scores import BETTING, kind_notes, packs_of, where
from evalkit.report.tables import Column, Table, columns_of, method_of
from evalkit.results.cells import Cell
from evalkit.stats.pairs import Pairs, change, pair
from evalkit.text import many

SCHEMA = "evalkit.compare"
VERSION = 1

ADDED = """
-- asked of each run; A, B: means over instances that both sides have, by digest, of the means over replicates; of the
-- episodes that are not used only those count that looks at a partial side take
-- B - A: the mean, over these instances, of the differences; interval, p and more: `change` of
-- evalkit/stats/pairs.py (`at_every_look` of verdicts.py where a side is partial), `corrected` and
-- `verdict` of verdicts.py"""


ASKED = (
    "a run that ends agents when their questions are answered has no valid test of one look: all p and intervals here "
    "hold at every look; the answers themselves are in `evalkit report`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run, as far as it is compared."""

    label: str
    manifest: Manifest
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know of it."""
    asked: bool = False
    """Whether the run may have ended agents because their questions were answered."""
    night: bool = False
    """Whether it is a night: what its budget or deadline left out was decided by no score, and the next night has it
    first. So what has ended is a sample of one look."""
    earlier: tuple["Side", ...] = ()
    """Nights that are compared together with it, oldest first: each adds replicates."""
    played: Played = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, compared."""

    first: Side
    second: Side
    agents: tuple[tuple[str, str], ...]
    """Who was compared with whom."""
    tables: tuple[Table, ...]
    """`compare`, `compare_details`, and `compare_settings` where settings differ."""
    overall: tuple[Overall, ...] = ()
    """Of each two agents, over all suites."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values, for `--json`: schema, version, first, second, agents, overall (by two agents:
        suites, verdicts by count, difference, interval, kind, p), and tables as of `Report.to_json`. Within a version
        fields, tables and columns are only added."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "first": self.first.label,
            "second": self.second.label,
            "agents": [list(names) for names in self.agents],
            "overall": [summary.to_json() for summary in self.overall],
            "tables": {table.name: table.to_json() for table in self.tables},
        }


def compare(first: Side, second: Side, agents: Sequence[tuple[str, str]]) -> Comparison:
    """Each pair of agents (of the first side, of the second) on every suite that both play."""
    cell_pairs = [
        (cell, other)
        for cell in first.cells
        for other in second.cells
        if (cell.agent, other.agent) in agents and cell.suite.name == other.suite.name
    ]
    compared = [(cell, other, measure) for cell, other in cell_pairs for measure in measures(cell, other)]
    query = measures_query((cell.suite.environment, measure) for cell, _, measure in compared)
    known = [_figures_of(side, query) for side in (first, second)] if compared else []
    paired = [
        (cell, other, measure, (ours[-1][1][measure.key], theirs[-1][1][measure.key]), pairs)
        for (cell, other, measure) in compared
        for ours, theirs in [known]
        if (pairs := pair(_values(cell, ours, measure.key), _values(other, theirs, measure.key))).names
    ]
    scores = sum(measure.key == PRIMARY for _, _, measure, *_ in paired)
    rows = [
        _tested(*found, (first, second), len(paired), SURE / scores if found[2].key == PRIMARY else SURE)
        for found in paired
    ]
    settings = settings_table(first.manifest, second.manifest, cell_pairs)
    ps, signs = (corrected(rows, attrgetter(test)) for test in ("test", "signs"))
    verdicts = [
        verdict(row, p, of_signs, least_corrected(rows, row)) if row.measure.key == PRIMARY else None
        for row, p, of_signs in zip(rows, ps, signs, strict=True)
    ]
    together = overall(rows, verdicts)
    notes = (
        *(summary.words for summary in together if summary.suites > 1),
        *binding_notes(rows),
        *settings.notes,
        *dict.fromkeys((*first.notes, *second.notes)),
        *_replicate_notes(rows),
        *time_notes(first.played, second.played, agents),
        *_partial_notes(cell_pairs, rows),
        *_nights_notes(first, second),
        *([ASKED] if first.asked or second.asked else []),
    )
    return Comparison(
        first=first,
        second=second,
        agents=tuple(agents),
        tables=(
            replace(
                _main_table((first, second), cell_pairs, rows, [*zip(ps, verdicts, strict=True)], notes),
                query=query + ADDED,
            ),
            replace(_details_table(cell_pairs, rows), query=query + ADDED),
            *([settings] if settings.rows else []),
        ),
        overall=tuple(together),
    )


_Known = Sequence[tuple[Side, Mapping[str, Figures]]]
"""A side's runs, the last of its nights last: by measure and episode id, what each was asked."""


def _figures_of(side: Side, query: str) -> _Known:
    known = []
    for one in (*side.earlier, side):
        figures: dict[str, dict[str, float]] = defaultdict(dict)
        for row in RunData(one.manifest, one.cells).rows(query):
            for key, value in row.items():
                if value is not None:
                    figures[key][row["episode"]] = value
        known.append((one, figures))
    return known


def _values(like: Cell, known: _Known, key: str) -> dict[str, list[float]]:
    """By instance, named by its content: instances that changed between two runs do not pair. One that the provider has
    refused a replicate of is left out. `like`: the cell in the last night."""
    values: dict[str, list[float]] = {}
    for side, figures in known:
        for cell in side.cells:
            if (cell.agent, cell.suite.name) != (like.agent, like.suite.name):
                continue
            digests = {name: target.digest for name, target in cell.targets.items()}
            refused = cell.refused_instances
            for episode in cell.prefix:
                value = figures[key].get(episode.id)
                if value is not None and episode.instance not in refused:
                    values.setdefault(digests[episode.instance], []).append(value)
    return values


def _tested(
    first: Cell,
    second: Cell,
    measure: Measure,
    figures: tuple[Figures, Figures],
    pairs: Pairs,
    sides: tuple[Side, Side],
    tests: int,
    alpha: float,
) -> TestedRow:
    found = change(
        pairs,
        place=(first.suite.name, first.agent, second.agent, measure.key),
        strata=_strata(first, pairs),
        width=measure.width,
        unmet=measure.unmet,
        tests=tests,
        alpha=alpha,
    )
    asked = any(side.asked for side in sides)
    whole = all(side.night or cell.complete for side, cell in zip(sides, (first, second), strict=True))
    looked = at_every_look(found, (first, second), figures, measure.width, alpha)
    partial = asked or not whole
    return TestedRow(
        first=first,
        second=second,
        measure=measure,
        asked=asked,
        partial=partial,
        pairs=pairs,
        change=looked if partial else found,
        looked=looked,
    )


def _strata(cell: Cell, pairs: Pairs) -> dict[str, str]:
    strata = {target.digest: target.stratum for target in cell.targets.values()}
    return {name: strata[name] for name in pairs.names}


def _place(row: TestedRow) -> dict[str, Any]:
    return {**place(row.first), "agents": row.agents, "measure": row.measure.title}


def _columns(cell_pairs: Sequence[tuple[Cell, Cell]]) -> tuple[Column, ...]:
    return (
        *where([cell for cell, _ in cell_pairs]),
        Column(key="agents", title="Agents", group=True),
        Column(key="measure", title="Measure"),
    )


def _main_table(
    sides: tuple[Side, Side],
    cell_pairs: Sequence[tuple[Cell, Cell]],
    tested: Sequence[TestedRow],
    judged: Sequence[tuple[float | None, Verdict | None]],
    notes: Sequence[str],
) -> Table:
    tests = sum(p is not None for p, _ in judged)
    significant = sum(p is not None and p <= SURE for p, _ in judged)
    interval = Column(key="interval", title="95 % interval", kind="interval", unit="points")
    claim = "better" if any(row.measure.better for row in tested) else "higher"
    rows = [
        {**_place(row), **_figures(row), "p_holm": p, "verdict": verdict}
        for row, (p, verdict) in zip(tested, judged, strict=True)
    ]
    return Table(
        name="compare",
        title=f"A: {sides[0].label}   B: {sides[1].label}",
        columns=(
            *_columns(cell_pairs),
            Column(key="better", title="Better"),
            *columns_of("score", "%", first="A", second="B"),
            Column(key="difference", title="B - A", kind="score", unit="points"),
            interval,
            method_of(interval),
            *columns_of("count", "instances", wins="B more", ties="Tied", losses="B less"),
            *columns_of("p", p="p", p_holm="p Holm"),
            *columns_of("count", "instances", pairs="Pairs"),
            Column(key="verdict", title="Verdict"),
        ),
        rows=tuple(rows),
        packs=packs_of(cell for pair in cell_pairs for cell in pair),
        notes=(
            f"{significant:,} of {tests:,} tests show a difference at {100 * SURE:g} %, after Holm's correction, over "
            "the scores and separately over the other measures",
            "over the instances that both sides have, with replicates averaged; the intervals of all scores hold "
            "together at 95 %, each of another measure alone",
            *["p: two-sided permutation test of whether A and B are alike"] * any(not row.partial for row in tested),
            f"{claim}: p Holm is small and the interval of the mean leaves out 0; wins more often: p Holm and that of "
            "signs are small, and the mean may be the other way",
            *notes,
            *kind_notes(rows, [cell for pair in cell_pairs for cell in pair]),
        ),
    )


def _figures(row: TestedRow) -> dict[str, Any]:
    change, interval = row.change, row.change.difference.interval
    return {
        "first": 100 * change.first,
        "second": 100 * change.second,
        "better": row.measure.better or None,
        "difference": 100 * change.difference.mean,
        "interval": (100 * interval.low, 100 * interval.high) if interval else None,
        "kind": change.difference.method if interval else None,
        "wins": change.wins,
        "ties": len(row.pairs.names) - change.wins - change.losses,
        "losses": change.losses,
        "p": change.test.p,
        "pairs": len(row.pairs.names),
    }


def _details_table(cell_pairs: Sequence[tuple[Cell, Cell]], tested: Sequence[TestedRow]) -> Table:
    return Table(
        name="compare_details",
        title="How sure",
        columns=(
            *_columns(cell_pairs),
            *columns_of(method="Interval by", test="p by"),
            *columns_of("p", least_p="Least p", signs_p="p signs", looked_p="p at every look"),
            *columns_of("interval", "points", looked="At every look", seen="Of those met"),
            *columns_of("count", "instances", missing_first="Not in B", missing_second="Not in A"),
        ),
        rows=tuple({**_place(row), **_details(row)} for row in tested),
        packs=packs_of(cell for pair in cell_pairs for cell in pair),
        notes=(
            "least p: the smallest possible p for this number of pairs that differ, not corrected",
            "p signs: of who has more on more instances, exact, not corrected; of yes and no it is McNemar's",
            "at every look: valid however often the run was looked at and extended; of first replicates",
            "of those met: if no instance is unlike those that were met, which the other interval does not assume",
        ),
    )


def _details(row: TestedRow) -> dict[str, Any]:
    change, looked = row.change, row.looked.difference.interval
    return {
        "method": change.difference.why
        or change.difference.method + (", strata" if change.difference.stratified else ""),
        "test": change.test_by,
        "least_p": change.least_p,
        "signs_p": change.signs.p,
        "looked_p": row.looked.test.p,
        "looked": (100 * looked.low, 100 * looked.high) if looked else None,
        "seen": (100 * change.seen.low, 100 * change.seen.high) if change.seen and not row.partial else None,
        "missing_first": row.pairs.only_first,
        "missing_second": row.pairs.only_second,
    }


def _replicate_notes(rows: Sequence[TestedRow]) -> list[str]:
    uneven = dict.fromkeys(row.suite for row in rows if not row.pairs.even and not row.partial)
    return [
        f"{name}: one side has more replicates: p deals them to the sides anew; the interval is as wide as with as "
        "many on both sides"
        for name in uneven
    ]


def _nights_notes(first: Side, second: Side) -> list[str]:
    nights = [f"{name}: {len(side.earlier) + 1} nights" for name, side in (("A", first), ("B", second)) if side.earlier]
    notes = [f"{', '.join(nights)}: the replicates of all of them together"] if nights else []
    if first.night or second.night:
        notes.append("nights: what has ended is compared; what a budget or a deadline left out depends on no score")
    return notes


def _partial_notes(cell_pairs: Sequence[tuple[Cell, Cell]], rows: Sequence[TestedRow]) -> list[str]:
    partial = dict.fromkeys(
        f"partial: {cell.agent} on {cell.suite.name}: {len(cell.prefix):,} of {many(cell.planned, 'episode')}"
        for pair in cell_pairs
        for cell in pair
        if not cell.complete
    )
    if not partial or not any(row.partial for row in rows):
        return list(partial)
    return [
        *partial,
        f"where a side is partial p and interval are by {BETTING}: they hold at every look, over first replicates that "
        "both have begun, whatever those that have not ended will bring; where both are complete they are of one look",
    ]


def same_agents(first: Side, second: Side) -> list[tuple[str, str]]:
    """The agents of the same name; failing these, the only ones of each; failing these, none."""
    first_agents, second_agents = list(first.manifest.agents), list(second.manifest.agents)
    same = [(name, name) for name in first_agents if name in second_agents]
    return same or ([(first_agents[0], second_agents[0])] if len(first_agents) == len(second_agents) == 1 else [])


def together(nights: Sequence[Side], label: str) -> Side:
    """Some nights as one side, oldest first, at least one."""
    notes = tuple(note for night in nights for note in night.notes)
    return replace(nights[-1], label=label, notes=notes, earlier=tuple(nights[:-1]))


def narrowed(side: Side, agent: str) -> Side:
    """The side with one agent's cells alone, named after both."""
    agent_cells = tuple(cell for cell in side.cells if cell.agent == agent)
    return replace(side, label=f"{side.label}:{agent}", cells=agent_cells)
