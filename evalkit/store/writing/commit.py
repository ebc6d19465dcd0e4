"""One commit: the waiting rows become one object of the journal. It uses no threads and no event loop; the writer calls
it.

Steps and money rows of a commit are in one file, so neither can exist without the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from evalkit.store import disk
from evalkit.store.events import FILE as EVENTS
from evalkit.store.files.journal import Appender, Carried
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one commit writes."""

    steps: pa.Table | None
    """Of schema STEPS. Built by the caller: on the thread that made the records they are in its core's cache, and a
    row costs 2 us; on another thread it was 10."""
    entries: Sequence[LedgerRecord]
    lines: Sequence[bytes]
    """Events: whole lines, not synced."""
    carried: Carried
    """What the object repeats of those before it, as of this commit."""


def commit(journal: Appender, load: Load) -> Segment | None:
    """Write a load; it is durable once this returns. The object, or None if nothing but events came.

    Raises FencedError, StorageError.
    """
    segment = None
    if load.steps is not None or load.entries:
        journal.carried = load.carried
        segment = journal.commit(load.steps, load.entries)
    if load.lines:
        disk.append_lines(journal.run / EVENTS, b"".join(load.lines))
    return segment
