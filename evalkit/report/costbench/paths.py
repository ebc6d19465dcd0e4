"""How much blocks change an agent's path, and how much of what can be planned it writes out: tables and figures.

The change is of the same agent's path on the same instance without and with blocks, beside the truth's. What is planned
is counted in a run's first text, by the built-in counter (`envs/costbench/coverage.py`) and, where there is one, by a
judge; the paper has a judge alone.

Source: Table of GT change, sections 5.1 and 5.2 and figure 4 of the paper; specification, sections 5.6, 7.5 and 7.6.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import orjson

from evalkit.envs.costbench.score import edit_distance, normalised
from evalkit.report import queries
from evalkit.report.costbench.planning_queries import (
    COUNTED,
    REACHED,
    Figures,
    digest_notes,
    is_blocked,
    is_reference,
    share_interval,
)
from evalkit.report.figures.build import MOST_ROWS, at_most
from evalkit.report.figures.marks import Panels, bounds, suite_of, told_apart
from evalkit.report.run_data import RunData
from evalkit.report.scores import by_instance, cell_table, kind_notes
from evalkit.report.tables import Column, Table, columns_of, estimated
from evalkit.report.vega import Figure, Rows, spec_of
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.stats.intervals import mean_of_instances

BLOCK_FIELDS = frozenset({"block", "blocks", "schedule", "failures", "alternatives", "alternatives_seed"})
"""In what the lines of a blocked and of its unblocked instance may differ."""

ABOUT_THE_LINE = frozenset({"id", "environment", "digest", "optimum"})
"""What says nothing of how an instance is played."""

PUBLISHED = "the paper's truth change (N = 5, one block): cost change 0.378, ban 0.538, preference 0.295, removal 0.214"


def adaptation_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Suites with blocks by agent, each beside the suite without them; none if no suite has such a partner."""
    pairs = [(cell, calm) for cell in cells if is_blocked(cell) and (calm := _partner(cell, cells)) is not None]
    if not pairs:
        return ()
    blocked = [cell for cell, _ in pairs]
    calm_of = {id(cell): calm for cell, calm in pairs}
    reached = source.values("1", REACHED).keys()
    figures = (
        queries.mean("truth_change", queries.metric("truth_change")),
        queries.derived("truth_instances", "count(truth_change)"),
    )
    methods = {
        "without": "the suite without blocks that holds most of the same instances",
        "ned, ned_interval, ned_kind, edit_distance, same, pairs": (
            "evalkit.envs.costbench.score over `path` of the runs on the same instance without and with "
            "blocks: select agent, suite, instance, replicate, path from episodes where used"
        ),
    }
    table = cell_table(
        source,
        blocked,
        name="adaptation",
        title="Change of path under blocks",
        query=queries.by_cell(blocked, figures, keep=queries.among(blocked), methods=methods),
        more=lambda cell, _: _paths(cell, calm_of[id(cell)], reached),
        columns=(
            Column(key="without", title="Without blocks"),
            Column(key="truth_change", title="Truth", kind="fine", unit="0 to 1"),
            Column(key="truth_instances", title="Instances", kind="count"),
            *_distance_columns("Agent's"),
        ),
        notes=lambda rows: (
            "truth: normalised edit distance of the optimal path before any block from the segmented one",
            "agent: the same of its paths without blocks and with them, where it met all blocks and reached the goal "
            "both times",
            *kind_notes(rows, blocked, ("ned_interval",)),
            *([PUBLISHED] if any(is_reference(cell) for cell in blocked) else []),
            *digest_notes(blocked),
        ),
    )
    return (table,)


def _partner(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The same agent's cell whose suite holds most of the instances without their blocks."""
    wanted = set(_keys(cell).values())
    matches = [
        (len(wanted & set(_keys(other).values())), -i)
        for i, other in enumerate(cells)
        if other.agent == cell.agent and other.pack == cell.pack and not is_blocked(other)
    ]
    most, place_of = max(matches, default=(0, 0))
    return cells[-place_of] if most else None


def _keys(cell: Cell) -> dict[str, str]:
    """By instance id: what its line says without the blocks."""
    left_out = BLOCK_FIELDS | ABOUT_THE_LINE
    lines = {one.id: {key: one.line[key] for key in one.line if key not in left_out} for one in cell.suite.instances}
    return {name: orjson.dumps(line, option=orjson.OPT_SORT_KEYS).decode() for name, line in lines.items()}


def _paths(cell: Cell, calm: Cell, reached: Set[str]) -> dict[str, Any]:
    """`reached`: the episodes that met all blocks and reached the goal."""
    keys, calm_keys = _keys(cell), _keys(calm)
    runs = {(calm_keys[episode.instance], episode.replicate): episode for episode in calm.prefix}
    after = []
    for episode in cell.prefix:
        calm_episode = runs.get((keys[episode.instance], episode.replicate))
        if calm_episode is not None and {calm_episode.id, episode.id} <= reached:
            after.append((episode, calm_episode.path))
    without = calm.suite.name.removeprefix(calm.suite.base).removeprefix("?") or calm.suite.name
    return {"without": without, **_distances(cell, after)}


def _distance_columns(title: str) -> tuple[Column, ...]:
    """Of what `_distances` gives."""
    return (
        *estimated(Column(key="ned", title=title, kind="fine", unit="0 to 1", digits=3)),
        Column(key="edit_distance", title="Edit distance", kind="fine", unit="calls"),
        Column(key="same", title="Same path", kind="percent", unit="% of pairs", over_agents=True),
        Column(key="pairs", title="Pairs", kind="count"),
    )


def _distances(cell: Cell, after: Sequence[tuple[EpisodeResult, Sequence[str]]]) -> dict[str, Any]:
    """How far the paths of a cell's episodes are from others on the same instances."""
    distances = by_instance((episode, float(edit_distance(path, episode.path))) for episode, path in after)
    shares = by_instance((episode, normalised(path, episode.path)) for episode, path in after)
    same = by_instance((episode, float(tuple(path) == tuple(episode.path))) for episode, path in after)
    interval, kind = share_interval(cell, shares, 1.0)
    return {
        "ned": mean_of_instances(shares) if shares else None,
        "ned_interval": interval,
        "ned_kind": kind,
        "edit_distance": mean_of_instances(distances) if distances else None,
        "same": 100 * mean_of_instances(same) if same else None,
        "pairs": len(after),
    }


GREEDY = "greedy"
"""The policy whose paths others are compared with."""


def greedy_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """How far agents' paths lie from the greedy ones, where the run has an agent that plays greedily.

    Source: the reference's figures of paths under blocks, where each model stands beside greedy.
    """
    policies = {agent.name: agent.policy for agent in source.manifest.agents.values()}
    greedy = {cell.suite.name: cell for cell in cells if policies.get(cell.agent) == GREEDY}
    shown = [cell for cell in cells if cell.suite.name in greedy and policies.get(cell.agent) != GREEDY]
    if not shown:
        return ()
    counted = source.values("1", COUNTED).keys()
    methods = {
        "ned, ned_interval, ned_kind, edit_distance, same, pairs": (
            "evalkit.envs.costbench.score over `path` of the agent's and of the greedy policy's run on the same "
            "instance: select agent, suite, instance, replicate, path from episodes where used"
        )
    }
    table = cell_table(
        source,
        shown,
        name="planning_greedy",
        title="Distance from the greedy policy",
        query=queries.by_cell(shown, (queries.count("episodes"),), keep=queries.among(shown), methods=methods),
        more=lambda cell, _: _beside_greedy(cell, greedy[cell.suite.name], counted),
        columns=(*_distance_columns("Normalised"),),
        notes=lambda rows: (
            "of an agent's path from the greedy policy's on the same instance; 0: it plays as greedy does",
            *kind_notes(rows, shown, ("ned_interval",)),
            *digest_notes(shown),
        ),
    )
    return (table,)


def _beside_greedy(cell: Cell, greedy: Cell, counted: Set[str]) -> dict[str, Any]:
    """`counted`: the episodes with a path that counts. The policy draws nothing: its first replicate is like all."""
    walks = {episode.instance: episode.path for episode in reversed(greedy.prefix)}
    of_both = [one for one in cell.prefix if one.id in counted and one.instance in walks]
    return _distances(cell, [(episode, walks[episode.instance]) for episode in of_both])


SENSES = {"coverage": "judged", "enumeration": "listed"}
"""How columns begin, by what a judge counted: kinds of work that models do, whose environment need not be loaded."""

THERE = "% of the paths there are"
WHOLE = "% of 2^(N-1)"

_LISTED = "as listed: in the paper's sense, whatever a plan lists as a path counts, whether it is valid or not"

TALKED = f"{COUNTED} and metrics['paths_whole'] is not null"
PLANNED = f"{TALKED} and metrics['plan_paths'] is not null"
"""Of which runs coverage is: those that said something, those that planned something."""
OWN = "metrics['plan_paths'] / metrics['paths_whole']"

COVERED = (
    queries.mean("coverage", OWN, scale=100, keep=PLANNED),
    queries.mean("coverage_possible", "metrics['plan_paths'] / metrics['paths_possible']", scale=100, keep=PLANNED),
    queries.mean("coverage_valid", "metrics['plan_valid'] / metrics['paths_possible']", scale=100, keep=PLANNED),
    queries.count("planned_runs", PLANNED),
    queries.count("silent_runs", f"{TALKED} and metrics['plan_paths'] is null"),
)


def coverage_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Suites without blocks by agent; none if there is no such suite. Judges counted complete paths
    (`coverage`) or all that is listed as one (`enumeration`)."""
    static = [cell for cell in cells if not is_blocked(cell)]
    if not static:
        return ()
    senses = [sense for kind, sense in SENSES.items() if kind in source.judged]
    methods = {"coverage_interval, coverage_kind": queries.CHOSEN} | {
        f"{name}_coverage, {name}_coverage_interval, {name}_coverage_kind, {name}_runs": (
            "a judge's counts, of the run that --judged names"
        )
        for name in senses
    }
    titles = {"judged": "Judged", "listed": "Judged, as listed"}
    counts = {"judged": "Judged runs", "listed": "Judged runs, as listed"}
    shares = [Column(key=f"{name}_coverage", title=titles[name], kind="percent", unit=WHOLE) for name in senses]
    whole = source.values(queries.metric("paths_whole"), TALKED)
    own = source.values(OWN, PLANNED)
    table = cell_table(
        source,
        static,
        name="coverage",
        title="Coverage of the visible plan",
        query=queries.by_cell(static, COVERED, methods=methods),
        more=lambda cell, _: _coverage(cell, own, whole, source.judged),
        columns=(
            *estimated(Column(key="coverage", title="Coverage", kind="percent", unit=WHOLE)),
            Column(key="coverage_possible", title="of possible", kind="percent", unit=THERE, over_agents=True),
            Column(key="coverage_valid", title="valid", kind="percent", unit=THERE, over_agents=True),
            *(column for share in shares for column in estimated(share)),
            *columns_of("count", planned_runs="Runs", silent_runs="Without text"),
            *columns_of("count", **{f"{name}_runs": counts[name] for name in senses}),
        ),
        notes=lambda rows: (
            "distinct complete paths in the first text of a run, by the built-in counter, over 2^(N-1) as in the paper "
            "and over what tools are offered for (one less, without the tool for the whole)",
            *([_LISTED] if "listed" in senses else []),
            "of runs with a text and a call; runs without any text have no visible plan and are counted apart",
            *kind_notes(rows, static, ("coverage_interval", *(f"{name}_coverage_interval" for name in senses))),
            *digest_notes(static),
        ),
    )
    return (table,)


def _coverage(cell: Cell, own: Figures, whole: Figures, judged: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What SQL cannot say: the interval of the built-in counter's share, and what judges counted.

    own     the built-in counter's shares
    whole   how many paths there are
    """
    shares = by_instance((episode, own.get(episode.id)) for episode in cell.prefix)
    interval, kind = share_interval(cell, shares)
    row: dict[str, Any] = {"coverage_interval": interval, "coverage_kind": kind}
    for sense, counts in judged.items():
        ids, name = counts.keys() & whole.keys(), f"{SENSES[sense]}_coverage"
        values = by_instance((one, counts[one.id] / whole[one.id]) for one in cell.prefix if one.id in ids)
        interval, kind = share_interval(cell, values)
        row |= {
            name: 100 * mean_of_instances(values) if values else None,
            f"{name}_interval": interval,
            f"{name}_kind": kind,
            f"{SENSES[sense]}_runs": sum(map(len, values.values())),
        }
    return row


CHANGE = "Change of path (0 = same, 1 = all of it)"
COVERAGE = {
    "coverage": "Built-in counter (% of 2^(N-1))",
    "judged_coverage": "Judge (% of 2^(N-1))",
    "listed_coverage": "Judge, as listed (% of 2^(N-1))",
}


def coverage_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `coverage` drawn; nothing where no text holds a path."""
    rows = [
        {
            **_dot(row, setting, title, key),
            "runs": row["planned_runs" if key == "coverage" else f"{key.partition('_')[0]}_runs"],
        }
        for key, title in COVERAGE.items()
        for row, setting in zip(table.rows, told_apart(table.rows), strict=True)
        if row.get(key) is not None
    ]
    words = ["Distinct complete paths in the first text of a run, with 95 % interval"]
    return _figure("figure_coverage", agents, table, rows if any(row["value"] for row in rows) else [], "Suite", words)


def adaptation_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `adaptation` drawn: by kind of block, how far the agents' paths and the optimal one change."""
    settings = {suite_of(row): row.get("axis:block") for row in table.rows}
    short = None not in settings.values() and len(set(settings.values())) == len(settings)
    rows = [
        {
            **_dot(row, str(row["axis:block"]) if short else setting, CHANGE, "ned"),
            "runs": row["pairs"],
            "reference": row["truth_change"],
        }
        for row, setting in zip(table.rows, told_apart(table.rows), strict=True)
        if row["ned"] is not None
    ]
    words = [
        "Normalised edit distance of paths with blocks from paths without",
        "Dot: the agent's, with its 95 % interval; bar: the optimal path's",
    ]
    return _figure("figure_adaptation", agents, table, rows, "Block", words, (0, 1))


def _dot(row: Mapping[str, Any], x: str, measure: str, key: str) -> dict[str, Any]:
    """A row of `Panels`."""
    placed = {"x": x, "agent": row["agent"], "panel": "", "measure": measure, "cell": ""}
    return {**placed, "value": row[key], **bounds(row[f"{key}_interval"])}


def _figure(
    name: str,
    agents: Sequence[str],
    table: Table,
    rows: Rows,
    title: str,
    words: Sequence[str],
    ends: tuple[float, float] = (0, 100),
) -> tuple[Figure, ...]:
    if not rows:
        return ()
    kept, left = at_most(rows, MOST_ROWS, "x")
    panels = Panels(agents, kept, title, ends)
    spec = spec_of(panels.dots(), table.title, [*words, *panels.words])
    drawn, notes = replace(table, name=name), (*left, *table.notes)
    return (Figure(name=name, title=table.title, spec=spec, table=drawn, query=table.query, notes=notes),)
