"""One commit: what waits in memory becomes segments on the disk. Pure of threads and loops; the writer calls it.

Money rows go first: a crash between the two leaves the budget too careful, never too generous.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evalkit.store import disk
from evalkit.store.events import FILE as EVENTS
from evalkit.store.record import LedgerRecord
from evalkit.store.schema import ledger_table
from evalkit.store.segment import LEDGER_FOLDER, TAIL, encode_segment, segment_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one commit writes."""

    steps: pa.Table | None
    """Of schema STEPS. Built by the caller: on the thread that made the records they are in its core's cache, and a
    row costs 2 us; on another thread it was 10."""
    entries: Sequence[LedgerRecord]
    lines: Sequence[bytes]
    """Events: whole lines, not synced."""
    steps_number: int
    """The number of the steps segment, if there are steps."""
    ledger_number: int


def commit(run: Path, load: Load) -> None:
    """Write a load; it is durable once this returns. Raises StorageError."""
    if load.entries:
        number = load.ledger_number
        data = encode_segment(ledger_table(load.entries), "ledger", number, number, compacted=False)
        disk.write_durably(run / LEDGER_FOLDER / segment_name(number), memoryview(data))
    if load.steps is not None:
        number = load.steps_number
        data = encode_segment(load.steps, "steps", number, number, compacted=False)
        disk.write_durably(run / TAIL / segment_name(number), memoryview(data))
    if load.lines:
        disk.append_lines(run / EVENTS, b"".join(load.lines))
