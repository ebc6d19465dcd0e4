"""How much a block changes the path: the same agent's on the same instance without and with it, and the truth's.

Source: Table of GT change and section 5.2 of the paper; specification, sections 5.6 and 7.6.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import orjson

from evalkit.envs.costbench.distance import edit_distance, normalised
from evalkit.report import queries
from evalkit.report.costbench.planning_queries import REACHED, digest_notes, is_blocked, is_reference, share_interval
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, by_instance, kind_notes, packs_of, where
from evalkit.report.tables import Column, Table, method_of
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.stats.bootstrap import mean_of_instances

BLOCK_FIELDS = frozenset({"block", "blocks", "schedule", "failures", "alternatives", "alternatives_seed"})
"""In what the lines of a blocked and of its unblocked instance may differ."""

ABOUT_THE_LINE = frozenset({"id", "environment", "digest", "optimum"})
"""What says nothing of how an instance is played."""

PUBLISHED = "the paper's truth change (N = 5, one block): cost change 0.378, ban 0.538, preference 0.295, removal 0.214"

_Run = tuple[str, int]
"""(key of the instance without its block fields, replicate)."""


def adaptation_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Suites with blocks by agent, each beside the suite without them; none if no suite has such a partner."""
    pairs = [(cell, calm) for cell in cells if is_blocked(cell) and (calm := _partner(cell, cells)) is not None]
    if not pairs:
        return ()
    blocked = [cell for cell, _ in pairs]
    query = _query(blocked)
    calm_of = {id(cell): calm for cell, calm in pairs}
    reached = source.values("1", REACHED).keys()
    rows = [{**row, **_paths(cell, calm_of[id(cell)], reached)} for cell, row in source.by_cell(query, blocked)]
    table = Table(
        name="adaptation",
        title="Change of path under blocks",
        columns=(
            *where(blocked),
            AGENT,
            Column(key="without", title="Without blocks"),
            Column(key="truth_change", title="Truth", kind="fine", unit="0 to 1"),
            Column(key="truth_instances", title="Instances", kind="count"),
            Column(key="ned", title="Agent's", kind="fine", unit="0 to 1"),
            interval := Column(key="ned_interval", title="95 %", kind="interval", unit="0 to 1", digits=3),
            method_of(interval),
            Column(key="edit_distance", title="Edit distance", kind="fine", unit="calls"),
            Column(key="same", title="Same path", kind="percent", unit="% of pairs", over_agents=True),
            Column(key="pairs", title="Pairs", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(blocked),
        notes=(
            "truth: normalised edit distance of the optimal path before any block from the segmented one",
            "agent: the same of its paths without blocks and with them, where it met all blocks and reached the goal "
            "both times",
            *kind_notes(rows, blocked, ("ned_interval",)),
            *([PUBLISHED] if any(is_reference(cell) for cell in blocked) else []),
            *digest_notes(blocked),
        ),
        query=query,
    )
    return (table,)


def _query(cells: Sequence[Cell]) -> str:
    return queries.by_cell(
        cells,
        (
            queries.mean("truth_change", queries.metric("truth_change")),
            queries.derived("truth_instances", "count(truth_change)"),
        ),
        keep=queries.among(cells),
        methods={
            "without": "the suite without blocks that holds most of the same instances",
            "ned, ned_interval, ned_kind, edit_distance, same, pairs": (
                "evalkit.envs.costbench.distance over `path` of the runs on the same instance without and with "
                "blocks: select agent, suite, instance, replicate, path from episodes where used"
            ),
        },
    )


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
    return {instance.id: _key(instance.line) for instance in cell.suite.instances}


def _key(line: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in line.items() if name not in BLOCK_FIELDS | ABOUT_THE_LINE}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()


def _paths(cell: Cell, calm: Cell, reached: Set[str]) -> dict[str, Any]:
    """`reached`: the episodes that met all blocks and reached the goal."""
    keys, runs = _keys(cell), _runs(calm)
    after = []
    for episode in cell.prefix:
        calm_episode = runs.get((keys[episode.instance], episode.replicate))
        if calm_episode is not None and {calm_episode.id, episode.id} <= reached:
            after.append((episode, calm_episode.path))
    distances = by_instance((episode, float(edit_distance(path, episode.path))) for episode, path in after)
    shares = by_instance((episode, normalised(path, episode.path)) for episode, path in after)
    same = by_instance((episode, float(path == episode.path)) for episode, path in after)
    interval, kind = share_interval(cell, "change", shares, 1.0)
    return {
        "without": calm.suite.name.removeprefix(calm.suite.base).removeprefix("?") or calm.suite.name,
        "ned": mean_of_instances(shares) if shares else None,
        "ned_interval": interval,
        "ned_kind": kind,
        "edit_distance": mean_of_instances(distances) if distances else None,
        "same": 100 * mean_of_instances(same) if same else None,
        "pairs": len(after),
    }


def _runs(cell: Cell) -> dict[_Run, EpisodeResult]:
    keys = _keys(cell)
    return {(keys[episode.instance], episode.replicate): episode for episode in cell.prefix}
