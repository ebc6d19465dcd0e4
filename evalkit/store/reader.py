"""What a run's log holds: the index that a resume needs, the rows to replay, tables for reports.

All of it works while another process writes the run: where compaction has moved a file between listing and opening, the
log is listed again. Page checksums are verified in every read. No loop over rows in Python but for rows asked for.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.store.arrays import coded, ints, take_rows
from evalkit.store.effect import Effect, Ints, rows_in_effect
from evalkit.store.layout import lay_out
from evalkit.store.record import ESTIMATED, UNMETERED, LedgerRecord
from evalkit.store.schema import LEDGER, STEPS, ledger_records, ledger_table, steps_table
from evalkit.store.segment import REMEDY, Kind, Segment, read_segment
from evalkit.store.unmetered import UnmeteredRows

_LOOKS = 6
_PAUSE_S = 0.05
"""How often, and after which pause, a listing that lacks a file is taken for a file on its way."""

Choose = Callable[[pa.Table], pa.Table]
"""Applied to each segment's table as it is read."""

_KEYS = ("episode", "take", "step")
_LONG = {"reply": pa.large_string(), "raw": pa.large_binary(), "facts": pa.large_string()}
_CODED = (
    "episode",
    "environment",
    "suite",
    "instance",
    "agent",
    "ending",
    "worker",
    "attempts",
    "served_model",
    "finish",
)
"""Columns that reading keeps as dictionaries."""
_FEW = 8
"""Episodes up to which it pays to look up first which segments hold them."""
_SUMS = ("cost", "tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEpisode:
    """What the log holds of one episode."""

    steps: int
    """Rows in effect: the steps 0 to `steps` - 1."""
    take: int
    """The highest."""
    ending: str
    """Of the last row in effect; empty while the episode goes on."""
    cost: int
    """Of all its rows, superseded ones included, in pico-dollars."""
    requests: int
    """All its rows."""
    tokens: tuple[int, ...]
    """The same, as `tokens_in`, `tokens_out`, `tokens_cached_read`, `tokens_cached_write`, `tokens_reasoning`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIndex:
    """A log in numbers."""

    episodes: Mapping[str, HeldEpisode]
    rows: int
    """All rows, superseded ones included; so are the sums below, for that money was spent."""
    totals: Mapping[str, int]
    """`cost` in pico-dollars and the five `tokens_` columns."""
    cost_by_agent: Mapping[str, int]
    cost_by_worker: Mapping[str, int]
    """By the session that wrote the rows."""
    unmetered: Mapping[str, UnmeteredRows]
    """By agent, of all rows: replies whose provider did not say what they used. Agents without any are absent."""
    ledger: tuple[LedgerRecord, ...]
    next_steps: int
    """Numbers of the next segments."""
    next_ledger: int


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


_REPLAY = tuple(ReplayRow.__dataclass_fields__)


def read_index(run: Path) -> RunIndex:
    """The index of a run's log; an empty or absent log gives an empty one.

    Raises CorruptLogError for missing, damaged or swapped segments and for episodes that lack a step.
    """
    columns = (*_KEYS, "ending", "agent", "worker", "attempts", *_SUMS)
    table, next_steps = _read(run, "steps", columns)
    ledger, next_ledger = _read(run, "ledger", LEDGER.names)
    names, codes, effect = _effect(table)
    cost = ints(table, "cost")
    endings, ending = coded(table, "ending")
    last = effect.order[effect.start[1:] - 1]
    return RunIndex(
        episodes=_Episodes(
            names,
            effect,
            [endings[code] for code in ending[last]],
            requests=np.bincount(codes, minlength=len(names)),
            sums={name: _sum(codes, ints(table, name), len(names)) for name in _SUMS},
        ),
        rows=table.num_rows,
        totals={name: int(ints(table, name).sum()) for name in _SUMS},
        cost_by_agent=_sum_by(table, "agent", cost),
        cost_by_worker=_sum_by(table, "worker", cost),
        unmetered=_unmetered(table),
        ledger=tuple(ledger_records(ledger)),
        next_steps=next_steps,
        next_ledger=next_ledger,
    )


_UNMETERED = ("agent", "attempts", "cost", "tokens_in", "tokens_out")


def read_unmetered(run: Path) -> dict[str, UnmeteredRows]:
    """By agent, replies without usage, of all rows. Raises CorruptLogError."""
    return _unmetered(_read(run, "steps", _UNMETERED)[0])


def _unmetered(table: pa.Table) -> dict[str, UnmeteredRows]:
    words, attempts = coded(table, "attempts")
    last = [word.rpartition(",")[2] for word in words]
    kind = np.array([(word in (UNMETERED, ESTIMATED)) + (word == ESTIMATED) for word in last], np.int64)
    if not kind.any():
        return {}
    rows = kind[attempts]
    names, agents = coded(table, "agent")
    cost, read, written = (ints(table, name) for name in ("cost", "tokens_in", "tokens_out"))
    found = {}
    for number, name in enumerate(names):
        mine, estimated = (rows >= 1) & (agents == number), (rows == 2) & (agents == number)
        if mine.any():
            found[name] = UnmeteredRows(
                replies=int(mine.sum()),
                cost=int(cost[mine].sum()),
                estimated=int(estimated.sum()),
                tokens_in=int(read[estimated].sum()),
                tokens_out=int(written[estimated].sum()),
            )
    return found


def read_ledger(run: Path) -> list[LedgerRecord]:
    """The money rows, in order. Raises CorruptLogError."""
    return ledger_records(_read(run, "ledger", LEDGER.names)[0])


def replay_rows(run: Path, episodes: Collection[str]) -> Mapping[str, Sequence[ReplayRow]]:
    """The rows in effect of these episodes, in step order; an episode without rows is absent.

    One pass over the log; what is found stays in Arrow until an episode is asked for. Raises CorruptLogError.
    """
    wanted = frozenset(episodes)
    if not wanted:
        return {}
    few = wanted if len(wanted) <= _FEW else None
    table, _ = _read(run, "steps", ("episode", *_REPLAY), _rows_of(wanted), few)
    names, _, effect = _effect(table)
    return _Rows(names, effect, table)


def _rows_of(wanted: Collection[str]) -> Choose:
    """Chooses the rows of these episodes."""

    def chosen(table: pa.Table) -> pa.Table:
        names, codes = coded(table, "episode")
        keep = np.array([name in wanted for name in names], np.bool_)
        return table if keep.all() else take_rows(table, np.flatnonzero(keep[codes]))

    return chosen


def scan(run: Path, columns: Iterable[str], episode: str | None = None) -> pa.Table:
    """These columns of the rows in effect, ordered by episode and step: the same table however the run went.

    `episode`: of this one alone, at the price of looking up which segments hold it. Long texts come as `large_string`,
    since a run may hold more than 2 GB of them. Raises CorruptLogError.
    """
    wanted = list(dict.fromkeys(columns))
    only = None if episode is None else frozenset({episode})
    table, _ = _read(
        run, "steps", tuple(dict.fromkeys((*_KEYS, *wanted))), None if only is None else _rows_of(only), only
    )
    names, codes, effect = _effect(table)
    rank = np.argsort(np.argsort(np.array(names, object))) if names else np.zeros(0, np.int64)
    order = effect.order[np.argsort(rank[codes[effect.order]], kind="stable")]
    kinds = {name: _LONG.get(name, STEPS.field(name).type) for name in wanted}
    # Long texts are made long before they are put in order, since an ordered column is one piece.
    made = {
        name: table.column(name).cast(kind) if name in _LONG else table.column(name) for name, kind in kinds.items()
    }
    ordered = take_rows(pa.table(made), order)
    return pa.table({name: ordered.column(name).cast(kind) for name, kind in kinds.items()})


def scan_all(run: Path, columns: Iterable[str]) -> pa.Table:
    """These columns of all rows, superseded ones included, in the order in which they were written: what was paid for.

    Raises CorruptLogError.
    """
    return _read(run, "steps", tuple(columns))[0]


def read_through(run: Path) -> None:
    """Read every page of the log once: what is damaged is refused before money is spent on top of it.

    For the run's only writer: nothing moves meanwhile. Raises CorruptLogError naming the segment.
    """
    kinds: tuple[Kind, ...] = ("steps", "ledger")
    for kind in kinds:
        for segment in lay_out(run, kind).segments:
            read_segment(segment)


def _read(
    run: Path,
    kind: Kind,
    columns: Sequence[str],
    chosen: Choose | None = None,
    only: Collection[str] | None = None,
) -> tuple[pa.Table, int]:
    """All rows of the log, in order, and the number of the next segment.

    `only`: of the segments that hold these episodes.
    """
    moved = ""
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        layout = lay_out(run, kind)
        if layout.flaws:
            continue
        try:
            held = [segment for segment in layout.segments if only is None or _holds(segment, only)]
            tables = [_one(segment, columns, chosen) for segment in held]
        except FileNotFoundError as gone:
            moved = Path(str(gone)).name
            continue
        empty = steps_table([]) if kind == "steps" else ledger_table([])
        return pa.concat_tables(tables) if tables else empty.select(list(columns)), layout.next
    where, what = layout.flaws[0] if layout.flaws else (kind, f"keeps changing while it is read: {moved} is gone")
    raise CorruptLogError(f"{run}: {where} {what}. {REMEDY}")


def _holds(segment: Segment, episodes: Collection[str]) -> bool:
    names, _ = coded(read_segment(segment, ("episode",), ["episode"]), "episode")
    return not set(episodes).isdisjoint(names)


def _one(segment: Segment, columns: Sequence[str], chosen: Choose | None) -> pa.Table:
    coded = [name for name in columns if name in _CODED] if segment.kind == "steps" else []
    table = read_segment(segment, columns, coded).select(list(columns))
    return table if chosen is None else chosen(table)


def _effect(table: pa.Table) -> tuple[list[str], Ints, Effect]:
    """(names of the episodes, each row's episode, rows in effect). Raises CorruptLogError if a step is missing."""
    names, codes = coded(table, "episode")
    effect = rows_in_effect(codes, ints(table, "take"), ints(table, "step"), len(names))
    for episode, step, flaw in effect.gaps:
        has = "lacks its" if flaw == "missing" else "has twice"
        raise CorruptLogError(f"episode {names[episode]} {has} step {step}. {REMEDY}")
    return names, codes, effect


def _sum_by(table: pa.Table, name: str, amounts: Ints) -> dict[str, int]:
    names, codes = coded(table, name)
    return dict(zip(names, _sum(codes, amounts, len(names)).tolist(), strict=True))


def _sum(codes: Ints, amounts: Ints, groups: int) -> Ints:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, amounts)
    return sums


class _Episodes(Mapping[str, HeldEpisode]):
    """Made into records one at a time: a run may have a million."""

    def __init__(
        self, names: list[str], effect: Effect, endings: list[str], *, requests: Ints, sums: Mapping[str, Ints]
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._steps, self._take, self._endings = np.diff(effect.start), effect.take, endings
        self._requests, self._sums = requests, sums

    def __getitem__(self, episode: str) -> HeldEpisode:
        number = self._numbers[episode]
        return HeldEpisode(
            steps=int(self._steps[number]),
            take=int(self._take[number]),
            ending=self._endings[number],
            cost=int(self._sums["cost"][number]),
            requests=int(self._requests[number]),
            tokens=tuple(int(self._sums[name][number]) for name in _SUMS[1:]),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


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


def step_segments(run: Path) -> tuple[Segment, ...]:
    """The files whose rows are all steps of a log, each once, in order. While the run is written, one may be gone when
    it is opened: list them again then. Raises CorruptLogError."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        layout = lay_out(run, "steps")
        if not layout.flaws:
            return layout.segments
    where, what = layout.flaws[0]
    raise CorruptLogError(f"{run}: {where} {what}. {REMEDY}")


def superseded(run: Path) -> pa.Table:
    """`episode`, `take` and `step` of the rows that a later take has replaced. Raises CorruptLogError."""
    table, _ = _read(run, "steps", _KEYS)
    _, _, effect = _effect(table)
    gone = np.ones(table.num_rows, np.bool_)
    gone[effect.order] = False
    rows = take_rows(table, np.flatnonzero(gone))
    return pa.table({name: rows.column(name).cast(STEPS.field(name).type) for name in _KEYS})
