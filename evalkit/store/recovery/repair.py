"""Makes a damaged log valid again, and says what is lost.

Damaged files go to `quarantine/`. In the place of each is written what can still be read of it: row groups with valid
checksums, under a footer that says the same. Files that are missing are written without rows. An episode that lacks a
step is cut there by a row that makes void what follows (`record.CUT`), and is played on from that step. What sessions
had spent on rows that are lost stays charged: each footer says what its session had spent so far.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.money import PicoUsd, show_usd
from evalkit.store import disk
from evalkit.store.files.damage import damage
from evalkit.store.files.journal import Appender, make_end_last, new_writer, object_of
from evalkit.store.files.layout import Layout, compacted, journal_object, journals, lay_out
from evalkit.store.files.record import CUT, LedgerRecord, StepRecord
from evalkit.store.files.schema import LEDGER, conform, ledger_records, ledger_table, no_rows, steps_table
from evalkit.store.files.segment import (
    COMMIT,
    KINDS,
    SCHEMAS,
    SEAL,
    Kind,
    Segment,
    SessionMoney,
    claim,
    encode_compacted,
    money_of,
    open_file,
    read_segment,
    readable,
    session_money,
)
from evalkit.store.lock import hold_run
from evalkit.store.reading.accounts import Account, accounts, charge_crashes
from evalkit.store.reading.rows import LogNumbers
from evalkit.store.recovery.check import Flaw, KnownRows, Lost, check_log
from evalkit.store.writing.opening import tidy
from evalkit.text import many

QUARANTINE = "quarantine"
"""Folder of a run that keeps the files which a repair has replaced."""
LOST = "spent before a repair, on rows that are lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair changes; all empty if the log is whole."""

    flaws: tuple[Flaw, ...] = ()
    cut: Mapping[str, Lost] = field(default_factory=dict)
    """By episode, where it is cut off and will be continued."""
    quarantined: tuple[str, ...] = ()
    """Damaged files, kept in `quarantine/`."""
    lost: tuple[str, ...] = ()
    """Files of which rows are lost that no other file has: an episode whose last rows were there is cut off without
    being listed."""
    charged: int = 0
    """Pico-dollars of sessions that no row shows any more, and open leases of those that have crashed."""
    uncounted: tuple[str, ...] = ()
    """Sessions whose newest file is lost and that did not end by themselves: nobody knows what they had spent."""

    def lines(self) -> list[str]:
        """The same in sentences."""
        if not self.flaws:
            return ["The log is whole: nothing to repair."]
        kept = f" Damaged files are kept in {QUARANTINE}/." if self.quarantined else ""
        sentences = [f"{many(len(self.flaws), 'flaw')} in the log.{kept}"]
        for episode, lost in self.cut.items():
            sentences.append(f"Episode {episode} is cut off at step {lost.step}, and goes on there: {lost.problem}.")
        for name in self.lost:
            sentences.append(f"{name}: rows of it are lost, and nobody knows whose they were.")
        if self.charged:
            sentences.append(f"{show_usd(self.charged)} stay charged: sessions had spent them, or may have.")
        for name in self.uncounted:
            sentences.append(
                f"Session {name} did not end by itself, and its latest leases may be lost: it may have spent more than "
                "is charged. Compare the provider's total: `evalkit tools reconcile`."
            )
        return sentences


Check = Callable[[Path], tuple[Sequence[Flaw], Sequence[Flaw]]]
"""(what is changed or missing in a log, steps of which every row is there and that replay does not reproduce)."""


def files_alone(run: Path) -> tuple[Sequence[Flaw], Sequence[Flaw]]:
    """Check a log without replay. Raises as `check_log` does."""
    return check_log(run), ()


def repair(run: Path, announce: Callable[[Repair], None], check: Check = files_alone) -> Repair:
    """Make the log valid again, and cut each episode at the first step that `check` found changed; `announce` is told
    what is lost before anything is changed.

    Raises RunError if another process writes the run, StorageError where the disk refuses.
    """
    with hold_run(run):
        flaws, changed = check(run)
        work = _inspect(run, flaws, changed) if flaws or changed else _Work(plan=Repair())
        announce(work.plan)
        if work.plan.flaws:
            _carry_out(run, work)
        return work.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    plan: Repair
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By name, what is written."""
    aside: tuple[Path, ...] = ()
    """What goes to quarantine."""
    cuts: tuple[StepRecord, ...] = ()
    charges: tuple[LedgerRecord, ...] = ()
    writer: str = ""
    """Of the repair's own journal."""


@dataclass(slots=True, kw_only=True)
class _Remains:
    """What can still be read of a file."""

    rows: Mapping[Kind, pa.Table]
    """A table of each kind that the file holds."""
    says: Mapping[str, str]
    """Its footer; empty: it cannot be read."""
    whole: bool = False


def _inspect(run: Path, flaws: Sequence[Flaw], changed: Sequence[Flaw]) -> _Work:
    layouts: dict[Kind, Layout] = {kind: lay_out(run, kind) for kind in KINDS}
    damaged = {name for name, _ in damage(list(layouts.values()))}
    writer = new_writer(list(journals(run)))
    files, aside, lost, unsure = dict[str, bytes](), list[Path](), list[str](), set[str]()
    rows, numbers, ledger = KnownRows(), LogNumbers(), list[LedgerRecord]()
    sessions, said = dict[str, str](), dict[str, SessionMoney]()
    newest = layouts["steps"].newest
    for kind in KINDS:
        for segment in (*layouts[kind].segments, *layouts[kind].covered):
            rest = _rest_of(segment, damaged=segment.name in damaged)
            covered = segment in layouts[kind].covered
            if not rest.whole:
                last = segment.is_object and segment.first == newest[segment.writer]
                if segment.name not in files:
                    files[segment.name] = _again(segment, rest, last, writer)
                aside.append(segment.path)
                lost += [] if covered else [segment.name]
                unsure |= {segment.writer} if last and not rest.says else set()
            if covered:
                continue
            if rest.says:
                money = session_money(rest.says)
                sessions[segment.writer] = money.session
                known = said.get(money.session, money)
                said[money.session] = replace(
                    money,
                    spent=max(known.spent, money.spent),
                    leased=max(known.leased, money.leased),
                    closed=known.closed or money.closed,
                )
            if kind == "ledger":
                ledger += ledger_records(conform(rest.rows[kind], LEDGER))
            else:
                rows.add(segment.name, rest.rows[kind])
                numbers.add(rest.rows[kind])
    ends = [_ends([layout]) for layout in layouts.values()]
    for segment in _missing(run, layouts):
        empty = _Remains(rows={kind: no_rows(SCHEMAS[kind]) for kind in KINDS}, says={})
        files[segment.name] = _again(segment, empty, True, writer)
        covered = segment.is_object and all(end.get(segment.writer) == segment.last for end in ends)
        lost += [] if covered else [segment.name]
        unsure |= {segment.writer} if segment.is_object else set()
    cut = rows.lost(changed)
    charges, books = _money(ledger, numbers.cost_by_worker, said)
    unknown = filter(None, (sessions.get(writer, writer) for writer in sorted(unsure)))  # a repair's journal has none
    aside += [path for layout in layouts.values() for path in layout.stray]
    aside += [path for where in ("log", *KINDS) if (path := run / where).exists() and not path.is_dir()]
    return _Work(
        plan=Repair(
            flaws=(*flaws, *changed),
            cut=cut,
            quarantined=tuple(dict.fromkeys(path.relative_to(run).as_posix() for path in aside)),
            lost=tuple(dict.fromkeys(lost)),
            charged=sum(row.amount for row in charges if row.kind not in ("close", "lease")),
            uncounted=tuple(name for name in unknown if name not in books or not books[name].ended),
        ),
        files=files,
        aside=tuple(dict.fromkeys(aside)),
        cuts=tuple(_cut_row(numbers, episode, one, writer) for episode, one in cut.items()),
        charges=tuple(charges),
        writer=writer,
    )


def _rest_of(segment: Segment, *, damaged: bool) -> _Remains:
    """What can be read of a file: of a damaged one the row groups whose pages have valid checksums, unless all have, so
    that nobody knows what is wrong."""
    kinds: Sequence[Kind] = KINDS if segment.is_object else (segment.kind,)
    empty = {kind: no_rows(SCHEMAS[kind]) for kind in kinds}
    try:
        if not damaged:
            rows = read_segment(segment)
            with open_file(segment) as file:
                return _Remains(rows={segment.kind: rows}, says=claim(file.metadata), whole=True)
        with open_file(segment) as file:
            says = claim(file.metadata)
            groups = [_group(segment, file, number) for number in range(file.metadata.num_row_groups)]
            sound = [group for group in groups if group is not None]
            of_file: Kind = "steps" if segment.is_object else segment.kind
            found = dict(empty)
            if len(sound) < len(groups):
                found[of_file] = pa.concat_tables([empty[of_file], *sound])
            if segment.is_object:
                found["ledger"] = ledger_table(money_of(says, segment.name))
            return _Remains(rows=found, says=says)
    except CorruptLogError:
        return _Remains(rows=empty, says={})


def _group(segment: Segment, file: pq.ParquetFile, number: int) -> pa.Table | None:
    """A row group; None if it is damaged."""
    kind: Kind = "steps" if segment.is_object else segment.kind
    try:
        with readable(segment):
            table = file.read_row_group(number, columns=SCHEMAS[kind].names, use_threads=False)
            table.validate(full=True)
        return conform(table, SCHEMAS[kind])
    except CorruptLogError:
        return None


def _again(segment: Segment, rest: _Remains, newest: bool, by: str) -> bytes:
    """A file with what is left of one."""
    money = session_money(rest.says)
    if not segment.is_object:
        return encode_compacted(segment, rest.rows[segment.kind], money)
    kind = rest.says.get("kind") or (SEAL if newest else COMMIT)
    entries = ledger_records(conform(rest.rows["ledger"], LEDGER))
    return object_of(segment, kind, rest.rows["steps"], entries, money, by=by)


def _missing(run: Path, layouts: Mapping[Kind, Layout]) -> Iterator[Segment]:
    """What is written for files that are missing: compacted files without rows, and the end of a journal whose
    newest objects are."""
    for kind, layout in layouts.items():
        for writer, first, last in layout.gaps:
            yield compacted(run, kind, writer, first, last)
    for writer, last in _ends(layouts.values()).items():
        if layouts["steps"].newest.get(writer, -1) < last:
            for kind, layout in layouts.items():
                upto = _ends([layout]).get(writer, -1)
                if upto + 1 < last:
                    yield compacted(run, kind, writer, upto + 1, last - 1)
            yield journal_object(run, writer, last)


def _ends(layouts: Iterable[Layout]) -> dict[str, int]:
    """By writer, the last number that is there."""
    ends: dict[str, int] = {}
    for segment in (segment for layout in layouts for segment in layout.segments):
        ends[segment.writer] = max(ends.get(segment.writer, -1), segment.last)
    return ends


def _money(
    ledger: Sequence[LedgerRecord], settled: Mapping[str, int], said: Mapping[str, SessionMoney]
) -> tuple[list[LedgerRecord], dict[str, Account]]:
    """(rows for what sessions had spent and leased that nothing else shows any more, and for the open leases of those
    that have crashed; the books with them)."""
    books, rows, now = accounts(ledger, settled), list[LedgerRecord](), time.time()
    for session, money in said.items():
        if not session:  # of a repair's own journal
            continue
        account = books.get(session) or Account(session=session, settled=settled.get(session, 0))
        lost = {"charge": money.spent - account.settled - account.charged}
        if not account.closed:
            # Where it had closed its books, others may have leased what it set free.
            lost |= {"close": money.spent} if money.closed else {"lease": money.leased - account.leased}
        for kind, amount in lost.items():
            if amount > 0 or (kind == "close" and session in books):
                rows.append(LedgerRecord(kind=kind, session=session, amount=PicoUsd(amount), reason=LOST, at=now))
                account.book(rows[-1])
                books[session] = account
    return [*rows, *charge_crashes(books)], books


def _cut_row(numbers: LogNumbers, episode: str, lost: Lost, writer: str) -> StepRecord:
    """The row that makes void an episode's rows from a step on."""
    return StepRecord(
        episode=episode,
        **numbers.place(episode),
        take=lost.take + 1,
        step=lost.step,
        period=0,
        turn=0,
        facts=b"{}",
        observation_digest=bytes(16),
        request_digest=bytes(16),
        step_digest=bytes(16),
        attempts="",
        started_at=0.0,
        worker=writer,
        row_kind=CUT,
        base_take=lost.base_take,
    )


def _carry_out(run: Path, work: _Work) -> None:
    """Copies first; then charges and cuts, so that a crash leaves the budget too careful; then the new files."""
    disk.make_directories(run / QUARANTINE)
    for path in work.aside:
        with disk.storage_errors(path):
            _keep(path, run / QUARANTINE, moved=path.relative_to(run).as_posix() not in work.files)
    with disk.storage_errors(run / QUARANTINE):
        disk.sync_directory(run / QUARANTINE)
    tidy(run)
    for each in journals(run):
        make_end_last(run, each)
    journal = Appender(run=run, writer=work.writer)
    if work.cuts or work.charges:
        journal.commit(steps_table(work.cuts) if work.cuts else None, work.charges)
    for name, data in work.files.items():
        disk.make_directories((run / name).parent)
        disk.write_durably(run / name, data)
    if journal.number:
        journal.close()


def _keep(path: Path, folder: Path, *, moved: bool) -> None:
    """Keep a file under a free name in `folder`, as well or instead; a folder is moved there."""
    plain = f"{path.parent.name}-{path.name}"
    names = (plain if not number else f"{plain}.{number}" for number in range(10_000))
    free = next(folder / name for name in names if not os.path.lexists(folder / name))
    if moved or (path.is_dir() and not path.is_symlink()):
        path.rename(free)
    else:
        os.link(path, free, follow_symlinks=path.exists())  # a link to nothing is kept as it is
