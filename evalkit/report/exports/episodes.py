"""The episodes that an export holds, one at a time: scored, not void, replayed so that every text can be given.

They come in the order in which the log makes them whole; memory is that of the episodes that were in flight together,
and of one record an episode.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from evalkit.errors import CorruptLogError, EvalkitError
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestAgent, load_target
from evalkit.report.queries import text
from evalkit.report.report import Report, report
from evalkit.report.tables import as_csv
from evalkit.report.views import answer_csv, open_views
from evalkit.results.cells import Cell
from evalkit.results.derived import read_cells
from evalkit.results.episodes import Environments, EpisodeResult
from evalkit.results.moves import ROW, Ask, Move, ask_of, moves
from evalkit.store.disk import storage_errors
from evalkit.store.folder import new_folder
from evalkit.store.reading.arrays import coded, integers
from evalkit.store.reading.reader import OF_ASKS, asks_made, scan
from evalkit.store.reading.stream import stream_rows

COLUMNS = (
    *ROW,
    *("take", "base_take", "finish", "attempts", "served_model", "fingerprint", "started_at", "queue_s"),
    *("tokens_cached_read", "tokens_cached_write", "tokens_reasoning"),
)
"""What of the log is read of an episode."""
TOGETHER = 200
"""Episodes whose asks are read in one pass over the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportChoice:
    """What is exported of a run."""

    run: Path
    manifest: Manifest
    cells: tuple[Cell, ...]
    """Those that are chosen, in the spec's order."""

    @property
    def episodes(self) -> int:
        """How many are exported."""
        return sum(cell.ended for cell in self.cells)

    @property
    def remaining(self) -> int:
        """How many are not, since they have not ended."""
        return sum(cell.remaining for cell in self.cells)

    @property
    def voided(self) -> int:
        """How many are not, since they are void."""
        return sum(len(cell.voided) for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEpisode:
    """One episode, replayed."""

    result: EpisodeResult
    agent: ManifestAgent
    cell: Cell
    used: bool
    """Whether the report's estimates are based on it."""
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    """Its rows in effect with `COLUMNS`, in step order."""
    moves: tuple[Move, ...] = field(repr=False)
    asks: tuple[Ask, ...] = field(default=(), repr=False)
    """What its agent's code asked, by step."""

    @property
    def reproduced(self) -> bool:
        """Whether this evalkit reproduces the log, so that the texts are those that the agent read."""
        return all(move.reproduced for move in self.moves)


def choose(run: Path, agents: Collection[str] = (), suites: Collection[str] = ()) -> ExportChoice:
    """What is exported of a run; of these agents and suites (or base suites) alone, where any are named.

    Raises RunError if it is not a run, CorruptLogError.
    """
    manifest, cells = read_cells(run)
    chosen_cells = tuple(
        cell
        for cell in cells
        if (not agents or cell.agent in agents) and (not suites or {cell.suite.name, cell.suite.base} & set(suites))
    )
    return ExportChoice(run=run, manifest=manifest, cells=chosen_cells)


def stream(chosen: ExportChoice, cells: Sequence[Cell], environments: Environments) -> Iterator[ExportedEpisode]:
    """The episodes of some of the cells, each once. Raises CorruptLogError if one cannot be replayed."""
    episodes = {episode.id: (cell, episode) for cell in cells for episode in cell.episodes if episode.finished}
    used = {episode.id for cell in cells for episode in cell.prefix}
    names = list(episodes)
    start = np.cumsum([0, *(episodes[name][1].steps for name in names)])
    studio = _Studio(chosen.manifest, environments)
    logged = stream_rows(chosen.run, COLUMNS, names, _takes(chosen.run, names, start), start)
    by_code = {name for name, (cell, _) in episodes.items() if chosen.manifest.agents[cell.agent].code is not None}
    while some := list(islice(logged, TOGETHER if by_code else 1)):
        made = _asked(chosen.run, {names[index]: rows for index, rows in some if names[index] in by_code})
        for index, stored in some:
            cell, result = episodes[names[index]]
            asks = made.get(result.id, [])
            rows = _with_asks(stored, asks)
            yield ExportedEpisode(
                result=result,
                agent=chosen.manifest.agents[cell.agent],
                cell=cell,
                used=result.id in used,
                rows=tuple(rows),
                moves=studio.replay(cell, result, rows),
                asks=tuple(map(ask_of, asks)),
            )


def _asked(run: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """What agents that are code have asked in some episodes; `rows`: of these."""
    return asks_made(run, {name: own[0]["base_take"] for name, own in rows.items()}) if rows else {}


def _with_asks(rows: Sequence[Mapping[str, Any]], asks: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Steps with the money, tokens and seconds of the asks that led to them."""
    if not asks:
        return rows
    counted = [dict(row) for row in rows]
    for ask in asks:
        if ask["step"] < len(counted):
            step = counted[ask["step"]]
            step.update((name, step[name] + ask[name]) for name in OF_ASKS if name in step)
    return counted


def _takes(run: Path, names: Sequence[str], start: "np.ndarray[Any, np.dtype[np.int64]]") -> Any:
    """(rows,) the take of each row in effect of these episodes, by episode and step."""
    table = scan(run, ("episode", "take", "step"))
    takes = np.zeros(int(start[-1]), np.int64)
    if not table.num_rows or not names:
        return takes
    numbers = {name: number for number, name in enumerate(names)}
    episodes, codes = coded(table, "episode")
    episode_numbers = np.array([numbers.get(name, -1) for name in episodes], np.int64)[codes]
    step, take = (np.concatenate([integers(chunk) for chunk in table.column(name).chunks]) for name in ("step", "take"))
    # A run that is being written may have got further since its episodes were counted.
    keep = np.flatnonzero((episode_numbers >= 0) & (step < np.diff(start)[episode_numbers]))
    takes[start[episode_numbers[keep]] + step[keep]] = take[keep]
    return takes


class _Studio:
    """Replays episodes; reads each instance and prompt pack once."""

    def __init__(self, manifest: Manifest, environments: Environments) -> None:
        self._manifest, self._environments = manifest, environments
        self._lines: dict[tuple[str, str], Mapping[str, ManifestInstance]] = {}
        self._targets: dict[tuple[str, str], Any] = {}

    def replay(self, cell: Cell, result: EpisodeResult, rows: Sequence[Mapping[str, Any]]) -> tuple[Move, ...]:
        """The episode's moves."""
        kit = self._manifest.kit_of(self._manifest.agents[cell.agent], result.environment)
        env = self._environments[result.environment]
        try:
            return tuple(moves(env, self._target(cell, result), kit, rows))
        except EvalkitError as flaw:
            address = f"{result.agent}:{result.suite}:{result.instance}:{result.replicate}"
            raise CorruptLogError(
                f"episode {result.id} ({address}) cannot be replayed by this evalkit, so its texts cannot be given: "
                f"{flaw} `evalkit verify` says what else; leave it out by `--only`, or use the evalkit of "
                f"{self._manifest.file}."
            ) from flaw

    def _target(self, cell: Cell, result: EpisodeResult) -> Any:
        key = (cell.suite.name, result.instance)
        if key not in self._targets:
            place = cell.agent, cell.suite.name
            if place not in self._lines:
                self._lines[place] = cell.targets
            target = self._lines[place][result.instance]
            self._targets[key] = load_target(self._environments[result.environment], target)
        return self._targets[key]


# `--format csv`: the report's tables, and every episode and score, one file each.

# A cell of a sheet has several values as JSON.
_EPISODES = """
select * replace (
    to_json(tags) as tags, to_json(metrics) as metrics, to_json(path) as path, to_json(outcomes) as outcomes
) from episodes e
where exists (from chosen c where c.agent = e.agent and c.suite = e.suite) order by suite, agent, place, episode
"""
_SCORES = """
select * from scores s
where exists (from chosen c where c.agent = s.agent and c.suite = s.suite)
order by suite, agent, replicate, instance, metric
"""


def write_sheets(chosen: ExportChoice, out: Path) -> None:
    """Write a folder of sheets, whole or not at all; the tables have the chosen cells' rows, and all of other tables.

    `episodes.csv` has the void episodes and the remaining ones too, marked. Raises UsageError if the folder exists,
    StorageError, CorruptLogError.
    """
    made = sheets(chosen, report(chosen.run))
    with new_folder(out) as folder:
        for name, data in made.items():
            with storage_errors(folder):
                (folder / f"{name}.csv").write_bytes(data)


def sheets(chosen: ExportChoice, tables: Report) -> dict[str, bytes]:
    """The sheets by name; `tables`: the run's report. Raises CorruptLogError."""
    cells = ", ".join(f"({text(cell.agent)}, {text(cell.suite.name)})" for cell in chosen.cells)
    with_cells = f"with chosen(agent, suite) as (values {cells}) "
    views = open_views(chosen.run)
    made = {
        "episodes": answer_csv(views.sql(with_cells + _EPISODES)),
        "scores": answer_csv(views.sql(with_cells + _SCORES)),
    }
    agents = {cell.agent for cell in chosen.cells}
    for table in tables.tables:
        rows = tuple(row for row in table.rows if row.get("agent") is None or row["agent"] in agents)
        made[f"table_{table.name}"] = as_csv(replace(table, rows=rows)).encode()
    return made
