"""Merges several runs' logs: rows, money, events and void episodes are written to a new run, and the originals stay.

Every episode is taken completely from one of the runs, including superseded takes. If several runs have it, they must
have the same steps, or one must have the first steps of the other; the longest is taken. What the others paid for their
own steps is charged in the new ledger, because it was spent.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import compute

from evalkit.errors import RunError, UsageError
from evalkit.money import PicoUsd
from evalkit.store import disk
from evalkit.store.events import FILE as EVENTS
from evalkit.store.files.journal import Appender, Carried, Named, new_writer
from evalkit.store.files.layout import compacted, lay_out
from evalkit.store.files.record import ASK, UNSCORED, LedgerRecord
from evalkit.store.files.schema import STEPS, conform, ledger_table
from evalkit.store.files.segment import KINDS, LOG, Kind, digest_of, encode_compacted, read_segment
from evalkit.store.folder import new_folder
from evalkit.store.lock import refuse_writer
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import write_manifest
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan, scan_all
from evalkit.store.reading.sums import COLUMNS, totals_of
from evalkit.store.reading.totals import text_of
from evalkit.store.recovery.recount import ends_anew, parts_of
from evalkit.store.void import add_voids, read_decisions

SEGMENT_ROWS = 100_000
SEGMENT_BYTES = 64_000_000
"""Rows, and bytes of memory, from which a segment is written."""
NAMED = 5
"""Episodes that an error tells."""

Names = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of a merge."""

    episodes: int
    rows: int
    shared: int
    """Episodes that more than one of the runs holds."""
    differing: int
    """Of these, how many differ, so that the first run's was preferred."""
    charged: PicoUsd
    """For steps that were paid for and are not in the new log."""


def merge_runs(runs: Sequence[Path], manifest: Manifest, out: Path, *, prefer_first: bool) -> Merged:
    """Write the new run, completely or not at all; the originals are only read.

    `manifest`: of all of them together. `prefer_first`: of episodes that differ take the first run's and do not
    refuse. Raises RunError if a run is being written or episodes differ; UsageError, CorruptLogError, StorageError.
    """
    _refuse(runs, out)
    before = [_files(run) for run in runs]
    indexes = [read_index(run) for run in runs]
    owner, differing = _owners(runs, [index.episodes for index in indexes], prefer_first)
    renamed, ledger = _sessions([index.ledger for index in indexes])
    charges = _charges(runs, owner, renamed)
    ledger += charges
    with new_folder(out) as folder:
        journal = _MergedJournal(folder)
        rows = _write_steps(runs, owner, renamed, journal)
        journal.end(ledger)
        _copy_texts(runs, folder)
        write_manifest(folder, manifest)
        for run, files in zip(runs, before, strict=True):
            if _files(run) != files:
                raise RunError(f"{run} was written while it was read. Merge it when that has ended.")
    return Merged(
        episodes=len({name for index in indexes for name in index.episodes}),
        rows=rows,
        shared=len(owner),
        differing=differing,
        charged=PicoUsd(sum(row.amount for row in charges)),
    )


def _refuse(runs: Sequence[Path], out: Path) -> None:
    paths = [run.resolve() for run in runs]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UsageError(f"{runs[number]} is named twice.")
        if path == out.resolve() or path in out.resolve().parents:
            raise UsageError(f"{out} is inside {runs[number]}, which must not change. Choose another place.")
        refuse_writer(runs[number], "Merge")


def _files(run: Path) -> Names:
    return tuple(tuple(segment.name for segment in lay_out(run, kind).segments) for kind in KINDS)


def _owners(
    runs: Sequence[Path], episodes: Sequence[Mapping[str, Any]], prefer_first: bool
) -> tuple[dict[str, int], int]:
    """(of each episode that several runs hold, the run that it is taken from; how many differ)."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, known in enumerate(episodes):
        for name in known:
            holders[name].append(number)
    shared = {name: numbers for name, numbers in holders.items() if numbers[1:]}
    if not shared:
        return {}, 0
    steps, asks = [_steps(run, shared) for run in runs], [_asks(run, shared) for run in runs]
    owner, differing = {}, []
    for name, numbers in shared.items():
        longest = max(numbers, key=lambda number: (len(steps[number][name]), asks[number][name], -number))
        whole = steps[longest][name]
        if all(steps[number][name] == whole[: len(steps[number][name])] for number in numbers):
            owner[name] = longest
        else:
            owner[name] = numbers[0]
            differing.append(name)
    if differing and not prefer_first:
        examples = "".join(
            f"\n  {name} in {', '.join(str(runs[number]) for number in shared[name])}" for name in differing[:NAMED]
        )
        more = f"\n  and {len(differing) - NAMED:,} more" if len(differing) > NAMED else ""
        raise RunError(
            f"{len(differing):,} episodes were played in more than one of the runs, and differ:{examples}{more}\n"
            "Nothing was written. `--prefer first` takes those of the first run that has them."
        )
    return owner, len(differing)


def _steps(run: Path, wanted: Collection[str]) -> dict[str, list[tuple[bytes, str]]]:
    """Digest and ending of the steps in effect of these episodes, refused requests left out: where one run was refused,
    another may have gone on."""
    table = scan(run, ("episode", "step_digest", "ending"))
    table = table.filter(compute.is_in(table.column("episode"), value_set=pa.array(list(wanted), pa.string())))
    steps: dict[str, list[tuple[bytes, str]]] = defaultdict(list)
    for batch in table.to_batches(max_chunksize=SEGMENT_ROWS):
        columns = (batch.column(name).to_pylist() for name in ("episode", "step_digest", "ending"))
        for name, digest, ending in zip(*columns, strict=True):
            if ending not in UNSCORED:
                steps[name].append((digest, ending))
    return steps


def _asks(run: Path, wanted: Collection[str]) -> Counter[str]:
    """How many requests of an agent's code these episodes have: of two that have come equally far, one may have asked
    more on its way to the next step."""
    table = scan_all(run, ("episode", "row_kind"))
    table = table.filter(compute.equal(table.column("row_kind"), ASK))
    counted = table.column("episode").cast(pa.string()).value_counts().to_pylist()
    return Counter({row["values"]: row["counts"] for row in counted if row["values"] in wanted})


def _sessions(ledgers: Sequence[Sequence[LedgerRecord]]) -> tuple[list[dict[str, str]], list[LedgerRecord]]:
    """(for each run, new names of its sessions where another run has the same for others; all money rows).

    Rows that are equal to the moment are of one session that two copies of a run share, and are there once.
    """
    known: dict[str, set[LedgerRecord]] = {}
    joined, counted = list[LedgerRecord](), Counter[LedgerRecord]()
    renamed: list[dict[str, str]] = []
    for number, ledger in enumerate(ledgers):
        by_session: dict[str, list[LedgerRecord]] = defaultdict(list)
        for row in ledger:
            by_session[row.session].append(row)
        names = {
            session: f"{session}~{number}"
            for session, rows in by_session.items()
            if session in known and rows[0] not in known[session]
        }
        renamed.append(names)
        here = Counter[LedgerRecord]()
        for row in (replace(row, session=names.get(row.session, row.session)) for row in ledger):
            here[row] += 1
            known.setdefault(row.session, set()).add(row)
            if here[row] > counted[row]:
                counted[row] += 1
                joined.append(row)
    return renamed, joined


def _charges(
    runs: Sequence[Path], owner: Mapping[str, int], renamed: Sequence[Mapping[str, str]]
) -> list[LedgerRecord]:
    """Charges for steps that were paid for and are left out, on the books of the sessions that paid: what these leased
    and what they spent still agree."""
    if not owner:
        return []
    names = pa.array(list(owner), pa.string())
    columns = (*_REQUEST, "agent", "worker", "cost")
    tables = []
    for run in runs:
        table = scan_all(run, columns)
        tables.append(table.filter(compute.is_in(table.column("episode").cast(pa.string()), value_set=names)))
    seen: set[tuple[Any, ...]] = set()
    for number, table in enumerate(tables):
        seen |= {key for key, _ in _paid(table) if owner[key[0]] == number}
    left = Counter[tuple[str, str, str]]()
    for number, table in enumerate(tables):
        for key, row in _paid(table):
            if key not in seen:
                seen.add(key)
                session = renamed[number].get(row["worker"], row["worker"])
                left[session, row["agent"], row["episode"]] += row["cost"]
    now = time.time()
    return [
        LedgerRecord(
            kind="charge",
            session=session,
            amount=PicoUsd(amount),
            agent=agent,
            episode=episode,
            reason=LEFT_OUT,
            at=now,
        )
        for (session, agent, episode), amount in left.items()
        if amount
    ]


LEFT_OUT = "paid for in a run that was merged; another run's steps of the episode were taken"


_REQUEST = ("episode", "take", "step", "started_at", "response_id", "ask_key", "ask_n")


def _paid(table: pa.Table) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """(what tells one request from all others, its row) of each row."""
    for batch in table.to_batches(max_chunksize=SEGMENT_ROWS):
        for row in batch.to_pylist():
            yield tuple(row[name] for name in _REQUEST), row


def _write_steps(
    runs: Sequence[Path], owner: Mapping[str, int], renamed: Sequence[Mapping[str, str]], journal: "_MergedJournal"
) -> int:
    """How many rows were written."""
    waiting: list[pa.Table] = []
    rows = 0
    for number, run in enumerate(runs):
        others = pa.array([name for name, origin in owner.items() if origin != number], pa.string())
        for segment in lay_out(run, "steps").segments:
            table = conform(read_segment(segment), STEPS)
            if len(others):
                table = table.filter(compute.invert(compute.is_in(table.column("episode"), value_set=others)))
            if not table.num_rows:
                continue
            waiting.append(_with_workers(table, renamed[number]))
            rows += table.num_rows
            if sum(part.num_rows for part in waiting) >= SEGMENT_ROWS or sum(map(_size, waiting)) >= SEGMENT_BYTES:
                journal.put("steps", pa.concat_tables(waiting))
                waiting.clear()
    if waiting:
        journal.put("steps", pa.concat_tables(waiting))
    return rows


class _MergedJournal:
    """The new run's only writer: its objects, one a file, are compacted from the beginning, and it has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._writer = folder, new_writer()
        self._named: dict[str, Named] = {}
        self._next: Counter[Kind] = Counter()
        for kind in KINDS:
            (folder / kind).mkdir()

    def put(self, kind: Kind, table: pa.Table) -> None:
        """The next compacted file of a kind."""
        number = self._next[kind]
        self._next[kind] += 1
        facts = {"before": orjson.dumps(self._named.get(kind, ())).decode(), "object": ""}
        if kind == "steps" and not number:
            facts["heads"] = "{}"
        segment = compacted(self._folder, kind, self._writer, number, number)
        data = memoryview(encode_compacted(table, kind, number, number, writer=self._writer, facts=facts))
        disk.write_durably(segment.path, data)
        self._named[kind] = segment.name, digest_of(data)

    def end(self, ledger: Sequence[LedgerRecord]) -> None:
        """Write what belongs to the steps, and the object that ends the journal."""
        if ledger and not self._next["steps"]:
            self.put("steps", STEPS.empty_table())
        count = self._next["steps"]
        for number in range(count):
            self.put("ledger", ledger_table([] if number else ledger))
        wanted = [compacted(self._folder, "ends", self._writer, number, number) for number in range(count)]
        for _, table in ends_anew(parts_of(self._folder), wanted):
            self.put("ends", table)
        disk.make_directories(self._folder / LOG / self._writer)
        Appender(
            run=self._folder,
            writer=self._writer,
            heads={},
            carried=Carried(
                totals=text_of(totals_of(scan_all(self._folder, COLUMNS), ledger)),
                compacted={self._writer: self._named} if self._named else {},
            ),
            number=count,
        ).close()


def _size(table: pa.Table) -> int:
    return int(table.nbytes)


def _with_workers(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The rows under their session's new name."""
    if not names:
        return table
    index, column = STEPS.get_field_index("worker"), table.column("worker")
    for old, new in names.items():
        column = compute.if_else(compute.equal(column, old), new, column)
    return table.set_column(index, STEPS.field("worker"), column)


def _copy_texts(runs: Sequence[Path], folder: Path) -> None:
    """Events, run after run; decisions on void episodes, oldest first."""
    decisions = {decision: None for run in runs for decision in read_decisions(run)}
    if decisions:
        add_voids(folder, sorted(decisions, key=lambda decision: decision.at))
    for run in runs:
        events = disk.read_lines(run / EVENTS)
        if events:
            disk.append_lines(folder / EVENTS, events)
