"""Logs made by hand: journals whose commits are compacted, or not, up to where a test wants it."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from evalkit.store.files.journal import Appender, new_writer, open_journal
from evalkit.store.files.layout import journal_object, journals
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import KINDS, LOG, Kind, SessionMoney, read_claim, session_money
from evalkit.store.writing import compact as compaction


def begin(run: Path, writer: str = "") -> Appender:
    """A journal of one's own in a run; those before it are sealed."""
    for kind in KINDS:
        (run / kind).mkdir(parents=True, exist_ok=True)
    return open_journal(run, writer or new_writer(list(journals(run))))


def append(journal: Appender, *commits: Sequence[StepRecord], money: Sequence[LedgerRecord] = ()) -> None:
    """A commit each; the money with the first. Rows are those of this writer."""
    for number, rows in enumerate(commits):
        entries = money if not number else ()
        for row in rows:
            row.worker = journal.writer
        journal.commit(steps_table(rows) if rows else None, entries, with_rows(said(journal), rows, entries))


def said(journal: Appender) -> SessionMoney:
    """What the newest object says that the session has come to."""
    if not journal.number:
        return SessionMoney(session=journal.writer)
    return session_money(read_claim(journal_object(journal.run, journal.writer, journal.number - 1)))


def with_rows(money: SessionMoney, rows: Sequence[StepRecord], entries: Sequence[LedgerRecord]) -> SessionMoney:
    """The same with a commit's rows, all of them the session's own."""
    sums = {kind: sum(row.amount for row in entries if row.kind == kind) for kind in ("charge", "lease")}
    return SessionMoney(
        session=money.session,
        spent=money.spent + sum(row.cost for row in rows) + sums["charge"],
        leased=money.leased + sums["lease"],
    )


def compact(journal: Appender, first: int, last: int, kinds: Collection[Kind] = KINDS) -> None:
    """Write what objects of a journal hold as compacted files."""
    objects = [journal_object(journal.run, journal.writer, number) for number in range(first, last + 1)]
    compaction.compact(journal.run, [compaction.tail_of(one) for one in objects], kinds)


def discard(journal: Appender, first: int, last: int) -> None:
    """Delete objects that are compacted."""
    compaction.discard(journal_object(journal.run, journal.writer, number) for number in range(first, last + 1))


def numbers(run: Path) -> list[tuple[int, ...]]:
    """Of each journal, the numbers of its objects."""
    return [tuple(one.first for one in objects) for objects in journals(run).values()]


def contents(run: Path) -> Mapping[str, bytes]:
    """By name, every file of a run's log."""
    files = sorted(path for kind in (LOG, *KINDS) for path in (run / kind).rglob("*.parquet"))
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}
