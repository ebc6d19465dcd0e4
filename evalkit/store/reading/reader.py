"""The content of a run's log: rows for replay, tables for reports; `index.py` has it in numbers.

All functions work while another process writes the run: if compaction has moved a file between listing and opening, the
log is listed again. Page checksums are verified in every read. There is no Python loop over rows except for requested
rows.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.store.files.columns import column_of
from evalkit.store.files.record import ASK, CUT, STEP, LedgerRecord
from evalkit.store.files.schema import LEDGER, STEPS, ledger_records, no_rows
from evalkit.store.files.segment import REMEDY, SCHEMAS, Kind, Segment, read_segment
from evalkit.store.reading.arrays import coded, floats, ints, of_kind, rows_of_kind, take_rows, texts, without_void
from evalkit.store.reading.effect import Effect, Ints, rows_in_effect
from evalkit.store.reading.looking import patiently, settled

CODED = (
    *("episode", "environment", "suite", "instance", "agent"),
    *("ending", "worker", "attempts", "served_model", "finish", "row_kind"),
)
"""Columns of steps that reading keeps as dictionaries."""
_KEYS = ("episode", "take", "step")
_KINDS = (*_KEYS, "row_kind")
OF_ASKS = (
    *("cost", "saved", "tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning"),
    *("latency_s", "queue_s"),
)
"""Columns that `scan` gives of a step together with its asks."""
_LONG = {"reply": pa.large_string(), "raw": pa.large_binary(), "facts": pa.large_string()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """A row in effect, as far as replay needs it."""

    step: int
    take: int
    period: int
    turn: int
    reply: bytes | None
    facts: bytes
    observation_digest: bytes
    request_digest: bytes
    step_digest: bytes
    ending: str
    base_take: int


_REPLAY = tuple(ReplayRow.__dataclass_fields__)


def read_ledger(run: Path) -> list[LedgerRecord]:
    """The money rows, in order. Raises CorruptLogError."""
    return ledger_records(_read(run, "ledger", LEDGER.names))


def money_rows(run: Path, writer: str) -> list[LedgerRecord]:
    """Those of one journal, in order. Raises CorruptLogError."""
    return ledger_records(_read(run, "ledger", LEDGER.names, lambda segment: segment.writer == writer))


def replay_rows(run: Path, episodes: Collection[str]) -> Mapping[str, Sequence[ReplayRow]]:
    """The rows in effect of these episodes, in step order; an episode without rows is absent.

    One pass over the files that hold them; what is found stays in Arrow until an episode is asked for. Raises
    CorruptLogError.
    """
    wanted = frozenset(episodes)
    if not wanted:
        return {}
    table = _read_of(run, ("episode", *_REPLAY, "row_kind"), wanted)
    names, _, effect = _effect(table)
    return _Rows(names, effect, table)


def facts_of(run: Path, episodes: Collection[str]) -> dict[str, list[bytes]]:
    """The facts of these episodes' steps in effect, in step order; an episode without rows is absent.

    One pass over the files that hold them. Raises CorruptLogError.
    """
    table = _read_of(run, (*_KINDS, "facts"), frozenset(episodes))
    names, _, effect = _effect(table)
    facts = texts(table, "facts")
    bounds = pairwise(effect.start.tolist())
    rows = (effect.order[begin:end].tolist() for begin, end in bounds)
    return {name: [facts[row] for row in numbers] for name, numbers in zip(names, rows, strict=True) if numbers}


def scan(run: Path, columns: Iterable[str], episode: str | None = None) -> pa.Table:
    """These columns of the steps in effect, ordered by episode and step: the same table however the run went. Money,
    tokens and seconds are those of a step with its asks.

    `episode`: of this one alone, at the price of looking up which segments hold it. Long texts come as `large_string`,
    since a run may hold more than 2 GB of them. Raises CorruptLogError.
    """
    wanted = list(dict.fromkeys(columns))
    read = tuple(dict.fromkeys((*_KINDS, "base_take", *wanted)))
    table = _read(run, "steps", read) if episode is None else _read_of(run, read, {episode})
    names, codes, effect = _effect(table)
    rank = np.zeros(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = effect.order[np.argsort(rank[codes[effect.order]], kind="stable")]
    kinds = {name: _LONG.get(name, STEPS.field(name).type) for name in wanted}
    # Long texts are made long before they are put in order, since an ordered column is one piece.
    made = {
        name: table.column(name).cast(kind) if name in _LONG else table.column(name) for name, kind in kinds.items()
    }
    ordered = take_rows(pa.table(made), order)
    columns = {name: ordered.column(name).cast(kind) for name, kind in kinds.items()}
    asked = _asks_in(table)
    if asked.num_rows:
        first = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
        asks = _by_step(names, effect, codes[first], ints(table, "base_take")[first], asked)
        columns |= {name: asks.added(columns[name], name) for name in wanted if name in OF_ASKS}
    return pa.table(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asks:
    """The asks of the rows in effect, which are in order by episode and step."""

    table: pa.Table
    row: Ints
    """The row of each ask's step; -1 of one that led to none."""

    def added(self, column: pa.ChunkedArray, name: str) -> pa.Array:
        """A column of steps with what their asks have in it."""
        steps, asks = pa.table({name: column}), self.table
        kind, counted = STEPS.field(name).type, np.flatnonzero(self.row >= 0)
        read = floats if pa.types.is_floating(kind) else ints
        sums = read(steps, name)
        np.add.at(sums, self.row[counted], read(asks, name)[counted])
        return column_of(sums.tolist(), kind)


def _by_step(names: Sequence[str], effect: Effect, episodes: Ints, lines: Ints, asks: pa.Table) -> _Asks:
    """Asks by the step they were made for; `episodes`, `lines`: of rows in effect in their order, the episodes, each
    once, and the line that its first step is on."""
    count = np.append(np.diff(effect.start), 0)  # the last is for an episode without a step
    begin, line = np.zeros(len(names) + 1, np.int64), np.full(len(names) + 1, -1, np.int64)
    line[episodes] = lines
    begin[episodes] = np.cumsum(count[episodes]) - count[episodes]
    numbers = {name: number for number, name in enumerate(names)}
    known, codes = coded(asks, "episode")
    episode = np.array([numbers.get(name, -1) for name in known], np.int64)[codes]
    step = ints(asks, "step")
    fits = (episode >= 0) & (line[episode] == ints(asks, "base_take")) & (step < count[episode])
    return _Asks(table=asks, row=np.where(fits, begin[episode] + step, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRow:
    """A request of an agent's code, as far as replay needs it."""

    step: int
    base_take: int
    ask_key: str
    ask_n: int
    turn: int
    reply: bytes | None
    request_digest: bytes
    attempts: str


_ASK = tuple(AskRow.__dataclass_fields__)


def ask_rows(run: Path, episodes: Collection[str]) -> dict[str, list[AskRow]]:
    """The asks of these episodes, in the order in which they were written; an episode without any is absent.

    One pass over the files that hold them. Raises CorruptLogError.
    """
    rows: dict[str, list[AskRow]] = {}
    for row in _asks(run, episodes, _ASK):
        rows.setdefault(row.pop("episode"), []).append(AskRow(**row))
    return rows


_MADE = ("step", "base_take", "ask_key", "ask_n", "turn", "reply", "facts", "attempts", *OF_ASKS)


def asks_made(run: Path, lines: Mapping[str, int | None]) -> dict[str, list[dict[str, Any]]]:
    """What of episodes' asks readers see, by step and in the order in which they were written; of one that was asked
    again, the last. Raises CorruptLogError.

    lines  by episode, the line that its steps are on; None: the last one that asked
    """
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in lines}
    for row in _asks(run, lines, _MADE):
        made[row.pop("episode")].append(row)
    for name, rows in made.items():
        line = max((row["base_take"] for row in rows), default=0) if lines[name] is None else lines[name]
        kept = {(row["step"], row["ask_key"], row["ask_n"]): row for row in rows if row["base_take"] == line}
        made[name] = sorted(kept.values(), key=lambda row: (row["step"], row["turn"]))
    return made


def _asks(run: Path, episodes: Collection[str], wanted: Sequence[str]) -> list[dict[str, Any]]:
    table = _asks_in(_read_of(run, tuple(dict.fromkeys((*_KINDS, *wanted))), frozenset(episodes)))
    kinds = {"reply": pa.large_binary(), "facts": pa.large_binary()}
    columns = {name: table.column(name).cast(kinds.get(name, STEPS.field(name).type)) for name in ("episode", *wanted)}
    rows: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return rows


def scan_all(run: Path, columns: Iterable[str]) -> pa.Table:
    """These columns of all rows, superseded ones included, in the order in which they were written: what was paid for.

    Raises CorruptLogError.
    """
    return _of_kinds(run, columns, STEP, ASK)


def scan_asks(run: Path, columns: Iterable[str]) -> pa.Table:
    """These columns of all requests of agents that are code, as `scan_all` gives those of all rows."""
    return _of_kinds(run, columns, ASK)


def cuts(run: Path) -> pa.Table:
    """`episode`, `take` and `step` of what repairs have cut. Raises CorruptLogError."""
    return _of_kinds(run, _KEYS, CUT)


def _of_kinds(run: Path, columns: Iterable[str], *kinds: str) -> pa.Table:
    """These columns of all rows of these kinds, file after file."""
    wanted = tuple(dict.fromkeys(columns))
    read = tuple(dict.fromkeys((*wanted, "row_kind")))
    return _read(run, "steps", read, chosen=lambda table: rows_of_kind(table, *kinds)).select(wanted)


def _asks_in(table: pa.Table) -> pa.Table:
    """The asks of a table, without those that a repair has cut."""
    return without_void(rows_of_kind(table, ASK), rows_of_kind(table, CUT))


def _read_of(run: Path, columns: Sequence[str], only: Collection[str]) -> pa.Table:
    """The rows of these episodes in files of steps, in order."""

    def chosen(table: pa.Table) -> pa.Table:
        names, codes = coded(table, "episode")
        keep = np.array([name in only for name in names], np.bool_)
        return table if keep.all() else take_rows(table, np.flatnonzero(keep[codes]))

    return _read(run, "steps", columns, lambda segment: may_hold(segment, only), chosen)


def _read(
    run: Path,
    kind: Kind,
    columns: Sequence[str],
    wanted: Callable[[Segment], bool] | None = None,
    chosen: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """The rows of the log in order: of all files or of those that are `wanted`, and what is `chosen` of each."""
    return patiently(run, lambda: tables_of(kind, filter(wanted, settled(run, kind).segments), columns, chosen))


def tables_of(
    kind: Kind,
    segments: Iterable[Segment],
    columns: Sequence[str],
    chosen: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """The rows of these files of one kind, in order. Raises as `read_segment` does."""
    dictionary = [name for name in columns if name in CODED] if kind == "steps" else ()
    tables = (read_segment(segment, columns, dictionary) for segment in segments)
    made = list(tables if chosen is None else map(chosen, tables))
    return pa.concat_tables(made) if made else no_rows(SCHEMAS[kind]).select(list(columns))


def may_hold(segment: Segment, episodes: Collection[str]) -> bool:
    """Whether it is worth reading for rows of these episodes: of compacted files their dictionaries know, which are a
    hundredth of them; commits are small. Raises as `read_segment` does."""
    if segment.is_object:
        return True
    names, _ = coded(read_segment(segment, ("episode",), ["episode"]), "episode")
    return not set(episodes).isdisjoint(names)


def _effect(table: pa.Table) -> tuple[list[str], Ints, Effect]:
    """(names of the episodes, each row's episode, rows in effect). Raises CorruptLogError if a step is missing."""
    names, codes = coded(table, "episode")
    rows = np.flatnonzero(of_kind(table, STEP, CUT))
    cut = of_kind(table, CUT)[rows]
    effect = rows_in_effect(codes[rows], ints(table, "take")[rows], ints(table, "step")[rows], len(names), cut)
    refuse_gaps(names, effect)
    return names, codes, replace(effect, order=rows[effect.order])


def refuse_gaps(names: Sequence[str], effect: Effect) -> None:
    """Raises CorruptLogError if one of these episodes lacks a step."""
    for episode, step, flaw in effect.gaps:
        has = "lacks its" if flaw == "missing" else "has twice"
        raise CorruptLogError(f"episode {names[episode]} {has} step {step}. {REMEDY}")


class _Rows(Mapping[str, Sequence[ReplayRow]]):
    """The rows of the chosen episodes, in Arrow until asked for."""

    def __init__(self, names: list[str], effect: Effect, table: pa.Table) -> None:
        # The dictionary still names episodes whose rows were not chosen.
        self._numbers = {name: number for number, name in enumerate(names) if effect.take[number] >= 0}
        self._effect = effect
        kinds = {"reply": pa.large_binary(), "facts": pa.large_binary(), "ending": pa.string()}
        columns = {name: table.column(name).cast(kinds.get(name, STEPS.field(name).type)) for name in _REPLAY}
        self._table = pa.table(columns).combine_chunks()

    def __getitem__(self, episode: str) -> Sequence[ReplayRow]:
        number = self._numbers[episode]
        rows = self._effect.order[self._effect.start[number] : self._effect.start[number + 1]]
        return [ReplayRow(**row) for row in take_rows(self._table, rows).to_pylist()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def step_segments(run: Path) -> Sequence[Segment]:
    """The files whose rows are all steps of a log, each once, in order. While the run is written, one may be gone when
    it is opened: list them again then. Raises CorruptLogError."""
    return patiently(run, lambda: settled(run, "steps").segments)


def superseded(run: Path) -> pa.Table:
    """`episode`, `take` and `step` of the steps that a later take has replaced. Raises CorruptLogError."""
    table = _read(run, "steps", _KINDS)
    _, _, effect = _effect(table)
    gone = of_kind(table, STEP)
    gone[effect.order] = False
    rows = take_rows(table, np.flatnonzero(gone))
    return pa.table({name: rows.column(name).cast(STEPS.field(name).type) for name in _KEYS})
