"""Compaction: the rows of many small tails move once into one file of `steps/`, and the tails go after a grace period.

A file of `steps/` is never touched again and no two of them share a row, so any reader's glob sees each row once. The
order on the disk is: mark, compacted file, grace period, deletion; a crash anywhere leaves tails that a compacted file
covers, which readers ignore and the next open deletes.

Chosen: files of `steps/` are not merged later, because no sequence of deletions and renames replaces two files by one
in a single step for a reader that has listed them. `compactor.py` bounds their number by its choice of batches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evalkit.store import disk
from evalkit.store.schema import LEDGER, STEPS, conform
from evalkit.store.segment import (
    LEDGER_FOLDER,
    MARK,
    STEPS_FOLDER,
    TAIL,
    Segment,
    encode_mark,
    encode_segment,
    read_segment,
    segment_name,
)

_GROWTH = 4
"""Bytes of a table for one byte of its file, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """One commit that waits for compaction."""

    segment: Segment
    table: pa.Table | None
    """Its rows, kept from when they were written; None: read them again (a crash left the file)."""
    bytes: int
    """Of memory; a guess where the table is not there."""


def waiting_tails(segments: Iterable[Segment]) -> list[Tail]:
    """The tails that an earlier session left behind."""
    left = [segment for segment in segments if segment.path.parent.name == TAIL]
    return [Tail(segment=one, table=None, bytes=_GROWTH * one.path.stat().st_size) for one in left]


def merge_ledger(run: Path, segments: Sequence[Segment], *, steps_segments: int) -> None:
    """Make one file of many small ones of `ledger/`, which a run does when it is opened.

    Unlike `steps/`, a glob of `ledger/` may see rows twice in that moment; evalkit's reader does not.
    """
    first, last = segments[0].first, segments[-1].last
    tables = [conform(read_segment(segment), LEDGER) for segment in segments]
    data = encode_segment(pa.concat_tables(tables), "ledger", first, last, compacted=True)
    disk.write_durably(run / MARK, encode_mark(steps=steps_segments, ledger=last + 1))
    disk.write_durably(run / LEDGER_FOLDER / segment_name(first, last), memoryview(data))
    discard(segments)


def compact(run: Path, tails: Sequence[Tail], *, ledger_segments: int) -> None:
    """Write the tails' rows, in order, as one file of `steps/`. `ledger_segments`: how many are durable by now.

    Raises StorageError, CorruptLogError (a tail that was read again is damaged).
    """
    first, last = tails[0].segment.first, tails[-1].segment.last
    tables = [conform(read_segment(tail.segment) if tail.table is None else tail.table, STEPS) for tail in tails]
    data = encode_segment(pa.concat_tables(tables), "steps", first, last, compacted=True)
    disk.write_durably(run / MARK, encode_mark(steps=last + 1, ledger=ledger_segments))
    disk.write_durably(run / STEPS_FOLDER / segment_name(first, last), memoryview(data))


def discard(segments: Iterable[Segment]) -> None:
    """Delete segments whose rows lie in a compacted file. Raises StorageError."""
    for segment in segments:
        disk.remove(segment.path)
