"""Compaction: the rows of many objects move once into one file of each kind, and the objects go after a grace period.

A compacted file is never changed, and no two of a kind share a row, so any reader's glob of `steps/` sees each row
once. The order on the disk is: compacted files, an object of the journal that names them with their digests, grace
period, deletion. After a crash at any point, some objects may be covered by compacted files; readers ignore them, and
the next writer names and deletes them. All kinds are always written, also where they have no rows: so the numbers of
each have no gap.

Chosen: compacted files are not merged later, because no sequence of deletions and renames replaces two files by one in
a single step for a reader that has listed them. `Compactor` bounds their number by its choice of batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa

from evalkit.store import disk
from evalkit.store.files.journal import Named
from evalkit.store.files.layout import compacted
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import LEDGER, STEPS, conform, ledger_records, ledger_table, steps_table
from evalkit.store.files.segment import KINDS, Kind, Segment, digest_of, encode_compacted, read_segment
from evalkit.store.reading.ends import Recall, Standing, fold, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """One object that waits for compaction."""

    segment: Segment
    digest: str
    """Of the object's bytes."""
    table: pa.Table | None
    """Its steps, kept from when they were written; None if it has none."""
    entries: Sequence[LedgerRecord]
    bytes: int
    """Of memory."""


@dataclass(slots=True, kw_only=True)
class CompactedFiles:
    """One writer's compacted files, one after another, and where its episodes stand after the last."""

    run: Path
    writer: str
    heads: Mapping[str, tuple[int, str]]
    """What its first object says; the compacted file that holds that object repeats it."""
    recall: Recall
    before: Callable[[str], Standing | None]
    """How an episode stood before this writer's first row of it; None for one that begins in its journal."""
    check: Callable[[], None] = lambda: None
    """Called before files are written. Raises FencedError where another process writes those of this journal."""
    named: dict[str, Named] = field(default_factory=dict)
    """By kind, the newest file."""
    standings: dict[str, Standing] = field(default_factory=dict)
    """Of episodes that continue."""

    def compact(self, tails: Sequence[Tail], kinds: Sequence[Kind] = KINDS) -> None:
        """Write the tails' rows, in order, as one file of each kind; `kinds`: of those that are not there yet.

        Raises StorageError, CorruptLogError (rows that were read back are damaged), FencedError.
        """
        self.check()  # one that has stood still for long would write rows that others have compacted meanwhile
        tables = [tail.table for tail in tails if tail.table is not None]
        steps = pa.concat_tables([conform(table, STEPS) for table in tables]) if tables else steps_table([])
        touched = fold(self.standings, steps, self.before)
        rows: dict[Kind, pa.Table] = {
            "steps": steps,
            "ledger": ledger_table([entry for tail in tails for entry in tail.entries]),
            "ends": settle(self.standings, touched, self.recall),
        }
        for kind in kinds:
            self._write(kind, rows[kind], tails[0].segment.first, tails[-1].segment.last, tails[-1].digest)

    def _write(self, kind: Kind, table: pa.Table, first: int, last: int, digest: str) -> None:
        facts = {"before": orjson.dumps(self.named.get(kind, ())).decode(), "object": digest}
        if kind == "steps" and first == 0:
            facts["heads"] = orjson.dumps(self.heads).decode()
        segment = compacted(self.run, kind, self.writer, first, last)
        data = memoryview(encode_compacted(table, kind, first, last, writer=self.writer, facts=facts))
        disk.write_durably(segment.path, data)
        self.named[kind] = segment.name, digest_of(data)


def tail_of(segment: Segment) -> Tail:
    """An object that another session left behind. Raises CorruptLogError, StorageError."""
    ledger = Segment(kind="ledger", path=segment.path, first=segment.first, last=segment.last, writer=segment.writer)
    table = conform(read_segment(segment), STEPS)
    return Tail(
        segment=segment,
        digest=digest_of(disk.read_whole(segment.path) or b""),
        table=table if table.num_rows else None,
        entries=ledger_records(conform(read_segment(ledger), LEDGER)),
        bytes=table.nbytes,
    )


def discard(segments: Iterable[Segment]) -> None:
    """Delete segments whose rows lie in a compacted file. Raises StorageError."""
    for segment in segments:
        disk.remove(segment.path)
