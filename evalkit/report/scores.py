"""The table of scores, and what tables of cells share: columns, intervals, what was refused.

All are based on the same episodes: the longest prefix of ended ones of each cell (`cells.py`). Episodes that the
provider refused are in no mean and no interval, so tables say how many they are, what the mean would be with them, and
the provider's words.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalkit.envs.table import OPTIMUM_UNIT, is_litmus, scale_words, score_range, score_unit
from evalkit.frozen.instances import laid
from evalkit.frozen.manifest import Manifest
from evalkit.report import queries
from evalkit.report.run_data import RunData
from evalkit.report.tables import PROMPTS, Column, Table, columns_of, method_of
from evalkit.results.cells import Cell
from evalkit.results.endings import most_said
from evalkit.results.episodes import EpisodeResult
from evalkit.results.question import turn_of
from evalkit.results.voided import void_notes
from evalkit.stats.intervals import LEAST_INSTANCES, Interval, Method, estimate, unmet_share
from evalkit.stats.sequential import filled, in_turns, sequence
from evalkit.text import bounded, many

ACCEPTED = "ok"
"""The outcome of a tool call that did what it should; every other outcome is a refusal of some kind."""

METRICS: Mapping[str, str] = {"best_so_far_rate": "Best so far", "exploration_rate": "Exploration"}
"""Secondary metrics that any environment may give, shares both; with their titles."""

UNMET = (0.0, 1.0)
"""Between what an instance unlike all that were met is taken to score, where scores lack a bound."""

EXACT = "exact"
"""In place of an interval's method: what the optimum itself scores is not an estimate."""

INTERVAL = Column(key="interval", title="95 % interval", kind="interval", unit=OPTIMUM_UNIT)

DOWN_TO = Column(key="unmet", title="Down to", kind="score", unit=OPTIMUM_UNIT)

PARTIAL_CELLS_NAMED = 2

WHERE = (Column(key="suite", title="Suite", group=True),)
AGENT = Column(key="agent", title="Agent")


def packs_of(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The prompt packs behind some cells, each once."""
    return tuple(dict.fromkeys(cell.pack for cell in cells))


def scored(litmus: Iterable[bool], key: str = "score") -> tuple[Column, Column, Column]:
    """The columns of a score, its interval and the interval's method; `litmus`: as of `score_unit`."""
    unit = score_unit(litmus)
    return Column(key=key, title="Score", kind="score", unit=unit), replace(INTERVAL, unit=unit), method_of(INTERVAL)


def in_unit(columns: Sequence[Column], litmus: Iterable[bool]) -> tuple[Column, ...]:
    """Columns whose scores have the unit that these have."""
    unit = score_unit(litmus)
    return tuple(replace(column, unit=unit) if column.unit == OPTIMUM_UNIT else column for column in columns)


def litmus_of(cells: Iterable[Cell]) -> list[bool]:
    """Of each cell, whether its environment claims no optimum."""
    return [is_litmus(cell.suite.environment) for cell in cells]


def where(cells: Sequence[Cell]) -> tuple[Column, ...]:
    """The columns that say which suite: its name, and one for each parameter that the sweep varied."""
    axes = dict.fromkeys(axis for cell in cells for axis in cell.suite.axes)
    return (*WHERE, *(Column(key=f"axis:{axis}", title=axis, group=True) for axis in axes))


Rows = Sequence[Mapping[str, Any]]


def cell_table(
    source: RunData,
    cells: Sequence[Cell],
    *,
    name: str,
    title: str,
    query: str,
    columns: Iterable[Column],
    notes: Callable[[Rows], Iterable[str]],
    more: Callable[[Cell, Mapping[str, Any]], Mapping[str, Any]] = lambda *_: {},
    rows_of: Sequence[Cell] = (),
) -> Table:
    """A table with a row for each of some cells: which cell it is, and what a query and `more` say of it.

    columns   those after suite and agent
    notes     what a reader must know, of the rows
    more      what SQL cannot say, of a cell and its row
    rows_of   the cells by row, where they have several rows
    """
    rows = tuple({**row, **more(cell, row)} for cell, row in source.by_cell(query, rows_of or cells))
    return Table(
        name=name,
        title=title,
        columns=(*where(cells), AGENT, *columns),
        rows=rows,
        packs=packs_of(cells),
        notes=tuple(notes(rows)),
        query=query,
    )


def scores_table(source: RunData) -> Table:
    """Suite by agent: the mean score with its interval, and what it stands on."""
    cells = source.cells
    litmus = [cell for cell, so in zip(cells, litmus_of(cells), strict=True) if so]
    optimal, share = len(litmus) < len(cells) or not cells, "100 * sum(solved_episodes) / sum(episodes)"
    if litmus:
        share = f"case when not bool_or({queries.suites(litmus)}) then {share} end"
    shares = (queries.inside("solved_episodes", "count(*) filter (where solved)"), queries.derived("solved", share))
    beside_mean = refused_columns(cells)
    methods = {"interval, kind, unmet": f"{queries.CHOSEN}; of partial cells {ANYTIME}"}
    if beside_mean:
        methods["refused, if_refused"] = "evalkit.results.cells.Cell"
    counts = (queries.derived("instances", "count(instance)"), queries.count("episodes"))
    figures = (queries.mean("score", "score", scale=100), *(shares if optimal else ()), *counts)
    agents = source.manifest.agents.values()
    return cell_table(
        source,
        cells,
        name="scores",
        title="Scores",
        query=queries.by_cell(cells, figures, also=[PROMPTS], keep="", methods=methods),
        more=lambda cell, _: {
            **interval_figures(cell),
            "unmet": unmet_figure(cell),
            **(refused_figures(cell) if beside_mean else {}),
        },
        columns=(
            *scored(litmus_of(cells)),
            *in_unit([DOWN_TO], litmus_of(cells)),
            *[Column(key="solved", title="Solved", kind="percent", unit="% of episodes")] * optimal,
            *columns_of("count", instances="Instances", episodes="Episodes"),
            *beside_mean,
            Column(key=PROMPTS, title="Prompts"),
        ),
        notes=lambda rows: (
            f"score: {scale_words(cell.suite.environment for cell in cells)}; mean over instances",
            *kind_notes(rows, cells),
            *["down to: the mean if as many instances score 0 as is not excluded"]
            * any(row["unmet"] is not None for row in rows),
            *["solved: % of the episodes that reached the optimum"] * optimal,
            *_partial_notes(cells),
            *void_notes(cells),
            *refused_notes(cells),
            *(f"{agent.name}: {'; '.join(agent.marks)}" for agent in agents if agent.marks),
            *_version_notes(source.manifest),
        ),
    )


def _version_notes(manifest: Manifest) -> list[str]:
    """What packages brought to the run in more than one version."""
    by_entry: dict[str, list[str]] = {}
    for plugin in manifest.plugins:
        by_entry.setdefault(plugin.entry, []).append(f"{plugin.package} {plugin.version}")
    return [f"{entry}: played with {', then '.join(versions)}" for entry, versions in by_entry.items() if versions[1:]]


def anytime_interval(cell: Cell) -> tuple[float, float] | None:
    """(low, high) of a cell's mean score, valid at all looks; None if there is none.

    Of the first replicates that have begun, in admission order; what has not ended may be as low or as high as a score
    can be. None if scores lack a bound, or before a whole turn of strata.
    """
    least, most = score_range(cell.suite.environment)
    if not cell.prefix or not (math.isfinite(least) and math.isfinite(most)):
        return None
    turn, places = turns(cell, [target.stratum for target, _ in cell.begun])
    begun = [cell.begun[place][1] for place in places]
    scores = [None if one is None or one.score is None else (one.score - least) / (most - least) for one in begun]
    found = sequence(filled(scores, 0.0), filled(scores, 1.0), turn)
    return None if found is None else (least + found[0] * (most - least), least + found[1] * (most - least))


def turns(cell: Cell, strata: Sequence[str]) -> tuple[int, list[int]]:
    """(draws of a turn, the places of those that make whole turns): of draws of a cell's suite, by their strata."""
    sizes = laid(cell.suite.instances).strata
    turn = dict(zip(sizes, turn_of([*sizes.values()]), strict=True))
    return sum(turn.values()), in_turns(strata, turn)


ANYTIME = "evalkit.report.scores.anytime_interval, which holds whenever a run is stopped, where scores end at 0"
BETTING: Method = "betting"


WORDS: Mapping[str, str] = {
    "Wilson": "for shares",
    "alike": "all instances agree, so their mean alone",
    "bounded": "for scores with two bounds",
    "Hall": "Student's t, allowing for skewness",
    "betting": "for a partial run, valid at every look",
    EXACT: "the score of the optimum is not an estimate and has no interval",
}
"""What a method's name means."""

ALLOWING = frozenset({"alike", "bounded", "Hall"})
"""Methods that judge instances that were not met by those that were."""


def kind_notes(
    rows: Sequence[Mapping[str, Any]], cells: Sequence[Cell], keys: Iterable[str] = ("interval",)
) -> list[str]:
    """How the intervals of rows are made, what they leave out, and why there is none; `keys`: of the intervals."""
    stems = [key.removesuffix("interval") for key in keys]
    met = {row.get(f"{stem}kind") for row in rows for stem in stems}
    kinds_named = "; ".join(f"{kind}: {words}" for kind, words in WORDS.items() if kind in met)
    notes = [
        f"95 % interval: of the mean over instances, with replicates averaged first; methods: {kinds_named}"
    ] * bool(kinds_named)
    counts = sorted(
        {len({episode.instance for episode in cell.prefix}) for cell in cells if cell.prefix and not cell.exact}
    )
    enough = [n for n in counts if n >= LEAST_INSTANCES]
    if enough and met & ALLOWING:
        ends = dict.fromkeys((enough[0], enough[-1]))
        shares = ", ".join(f"{100 * unmet_share(n):.2g} % (with {many(n, 'instance')})" for n in ends)
        notes.append(
            f"assumed: all instances are like those that were met; not excluded: that up to {shares} are not and fail"
        )
    if any(0 < n < LEAST_INSTANCES for n in counts):
        notes.append(f"no interval with fewer than {LEAST_INSTANCES} instances: they say too little about others")
    return notes


def interval_figures(cell: Cell, stem: str = "") -> dict[str, Any]:
    """The interval of a cell's score in points and its kind, under `interval` and `kind` with `stem` before them."""
    interval, kind = interval_and_kind(cell)
    return {
        f"{stem}interval": (100 * interval.low, 100 * interval.high) if interval else None,
        f"{stem}kind": kind or None,
    }


def unmet_figure(cell: Cell) -> float | None:
    """How low a cell's mean may be, in points, if as many instances fail as so few that did not cannot exclude; None if
    nothing is known of it, or if that is no lower than its interval goes."""
    interval, _, unmet = _intervals(cell)
    if interval is None or unmet is None or interval.low - unmet.low < _SHOWN:
        return None
    return 100 * unmet.low


_SHOWN = 0.0005
"""Less is not seen in a table."""


def interval_and_kind(cell: Cell) -> tuple[Interval | None, str]:
    """The 95 % interval of a cell's mean score and what kind it is: the same in every table.

    A partial cell has an interval that is valid whenever a run is stopped, if there is one for its scores; else one
    that would be valid if the run had been planned to be so long. The optimum's own score is not an estimate: None.
    """
    return _intervals(cell)[:2]


def _intervals(cell: Cell) -> tuple[Interval | None, str, Interval | None]:
    between = score_range(cell.suite.environment)
    known = cell.intervals.get(between)
    if known is None:
        known = cell.intervals[between] = _made(cell, between)
    return known


def _made(cell: Cell, between: tuple[float, float]) -> tuple[Interval | None, str, Interval | None]:
    scores = by_instance((episode, episode.score) for episode in cell.prefix)
    if not scores or cell.exact:
        return None, EXACT * bool(scores), None
    least, most = between
    ends = None if math.isfinite(least) and math.isfinite(most) else UNMET
    estimated = estimate(scores, strata=strata_of(cell), least=least, most=most, unmet=ends)
    known_count = sum(episode is not None for _, episode in cell.begun)
    anytime = None if cell.complete or known_count < LEAST_INSTANCES else anytime_interval(cell)
    if anytime is None:
        return estimated.interval, estimated.method if estimated.interval else "", estimated.unmet
    low, high = anytime
    # It is of first replicates: the mean over all of them may lie elsewhere.
    return Interval(low=min(low, estimated.mean), high=max(high, estimated.mean)), BETTING, None


def strata_of(cell: Cell) -> dict[str, str]:
    """The stratum of each instance."""
    return {episode.instance: episode.stratum for episode in cell.prefix}


def by_instance(values: Iterable[tuple[EpisodeResult, float | None]]) -> dict[str, list[float]]:
    """Values by instance, undefined ones left out."""
    grouped: dict[str, list[float]] = {}
    for episode, value in values:
        if value is not None:
            grouped.setdefault(episode.instance, []).append(value)
    return grouped


def _partial_notes(cells: Sequence[Cell]) -> list[str]:
    partial = [cell for cell in cells if not cell.complete]
    if len(partial) > PARTIAL_CELLS_NAMED:
        return [_partial_summary(cells, partial)]
    return [
        f"partial: {cell.agent} on {cell.suite.name}: uses the first {len(cell.prefix):,} of {cell.planned:,} "
        f"episodes; remaining: {cell.remaining - len(cell.refused):,}; ended after one "
        f"that remains, and left out: {cell.outside:,}{_interval_note(cell)}"
        for cell in partial
    ]


def _partial_summary(cells: Sequence[Cell], partial: Sequence[Cell]) -> str:
    """One line about many partial cells; the table of completeness has their numbers."""
    remaining, outside = sum(cell.remaining for cell in partial), sum(cell.outside for cell in partial)
    kinds = {kind for cell in partial for interval, kind in [interval_and_kind(cell)] if interval is not None}
    planned = sorted(kinds - {BETTING})
    words = f"; intervals by {', '.join(planned)} are as if these lengths had been planned" if planned else ""
    return (
        f"partial: {len(partial):,} of {many(len(cells), 'row')}, {many(remaining, 'episode')} remaining; each row "
        f"uses its first episodes, up to the first that has not ended ({outside:,} that ended later are left out), and "
        f"its mean favours short ones{words}; see the table of completeness"
    )


def _interval_note(cell: Cell) -> str:
    interval, kind = interval_and_kind(cell)
    if interval is None:
        return ""
    if kind != BETTING:
        return f"; interval: {kind}, as if this length had been planned; the mean favours short episodes"
    unknown = sum(episode is None for _, episode in cell.begun)
    unknown_words = f", whatever the {unknown:,} that have begun will score" if unknown else ""
    return f"; interval: {kind}, valid whenever a run is stopped{unknown_words}; the mean favours short episodes"


REFUSED = "refused: "
"""What a note of such a cell begins with."""

NOTES = 4
"""Cells that are named; the others are counted."""
_WORDS = 300


def refused_columns(cells: Iterable[Cell]) -> tuple[Column, ...]:
    """Columns beside a mean; none if nothing was refused."""
    if not any(cell.refused for cell in cells):
        return ()
    return (
        Column(key="refused", title="Refused", kind="count", unit="episodes, not scored"),
        Column(key="if_refused", title="If refused 0, 100", kind="interval", unit="the score"),
    )


def refused_figures(cell: Cell) -> dict[str, Any]:
    """Their values: how many, and the mean in points if all of them scored 0 and if all scored 100."""
    ends = cell.if_refused
    return {
        "refused": len(cell.refused) or None,
        "if_refused": None if ends is None else (100 * ends[0], 100 * ends[1]),
    }


def refused_notes(cells: Iterable[Cell]) -> list[str]:
    """One line for each cell with such episodes."""
    having = [cell for cell in cells if cell.refused]
    notes = [f"{REFUSED}{cell.agent} on {cell.suite.name}: {_told(cell)}" for cell in having]
    more = len(notes) - NOTES
    return notes if more <= 0 else [*notes[:NOTES], f"{REFUSED}{more:,} more rows; see the table of completeness"]


def _told(cell: Cell) -> str:
    refused, (low, high) = cell.refused, cell.if_refused or (0.0, 0.0)
    words = bounded(most_said(episode.said for episode in refused), _WORDS)
    return (
        f"{many(len(refused), 'episode')} without a score, in no mean; if all had scored 0 or 100, the mean would be "
        f"{100 * low:.1f} or {100 * high:.1f}; the provider said: {words}"
    )
