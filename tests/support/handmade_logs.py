"""Logs made by hand: journals whose commits are compacted, or not, up to where a test wants it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from evalkit.store import disk
from evalkit.store.files.journal import Appender, new_writer, open_journal
from evalkit.store.files.layout import compacted, journal_object, journals, lay_out
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import LEDGER, STEPS, conform, steps_table
from evalkit.store.files.segment import KINDS, Kind, digest_of, encode_compacted, read_claim, read_segment
from evalkit.store.reading.index import read_index
from evalkit.store.reading.totals import Tally
from evalkit.store.recovery.recount import ends_anew, parts_of

Commit = tuple[Sequence[StepRecord], Sequence[LedgerRecord]]


def begin(run: Path, writer: str = "") -> Appender:
    """A journal of one's own in a run; those before it are sealed."""
    for kind in KINDS:
        (run / kind).mkdir(parents=True, exist_ok=True)
    before = read_index(run).episodes
    journal = open_journal(run, writer or new_writer([one.writer for one in journals(run)]))
    _TALLIES[run, journal.writer] = Tally(before)
    return journal


_TALLIES: dict[tuple[Path, str], Tally] = {}
"""By journal, what its rows come to."""


def append(journal: Appender, *commits: Sequence[StepRecord], money: Sequence[LedgerRecord] = ()) -> None:
    """A commit each; the money with the first. Rows are those of this writer."""
    for number, rows in enumerate(commits):
        tally, entries = _TALLIES[journal.run, journal.writer], money if not number else ()
        for row in rows:
            row.worker = journal.writer
            tally.step(row)
        for entry in entries:
            tally.money(entry)
        journal.carried.totals = tally.text()
        journal.commit(steps_table(rows) if rows else None, entries)


def compact(journal: Appender, first: int, last: int, ends: pa.Table | None = None, *, writer: str = "") -> None:
    """Write what objects of a journal hold as compacted files, which the next object names."""
    writer = writer or journal.writer
    objects = [journal_object(journal.run, writer, number) for number in range(first, last + 1)]
    facts = {"object": digest_of(objects[-1].path.read_bytes())}
    if not first:
        facts["heads"] = read_claim(objects[0]).get("heads", "{}")
    for kind in KINDS:
        before = journal.carried.compacted.get(writer, {}).get(kind, ())
        file = compacted(journal.run, kind, writer, first, last)
        data = encode_compacted(
            _held(journal.run, writer, kind, first, last, ends),
            kind,
            first,
            last,
            writer=writer,
            facts={**facts, "before": orjson.dumps(before).decode()},
        )
        disk.write_durably(file.path, memoryview(data))
        journal.carried.compacted.setdefault(writer, {})[kind] = file.name, digest_of(memoryview(data))


def _held(run: Path, writer: str, kind: Kind, first: int, last: int, ends: pa.Table | None) -> pa.Table:
    if kind == "ends":
        wanted = compacted(run, kind, writer, first, last)
        made = ends_anew(parts_of(run), [one for one in lay_out(run, kind).segments if not one.is_object] + [wanted])
        return dict(made)[wanted] if ends is None else ends
    schema = {"steps": STEPS, "ledger": LEDGER}[kind]
    objects = [journal_object(run, writer, number, kind) for number in range(first, last + 1)]
    return pa.concat_tables([conform(read_segment(one), schema) for one in objects])


def discard(journal: Appender, first: int, last: int, *, writer: str = "") -> None:
    """Delete objects that are compacted."""
    for number in range(first, last + 1):
        journal_object(journal.run, writer or journal.writer, number).path.unlink()


def contents(run: Path) -> Mapping[str, bytes]:
    """By name, every file of a run's log."""
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in sorted(run.rglob("*.parquet"))}
