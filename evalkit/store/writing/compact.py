"""Compaction: the rows of many objects move once into one file of each kind, and the objects go after a grace period.

A compacted file is never changed, and no two of a kind share a row, so any reader's glob of `steps/` sees each row
once. A crash leaves objects that compacted files cover: readers ignore them, and the next writer deletes them. All
kinds are always written, also where they have no rows: so the numbers of each have no gap. The newest object of a
journal is never deleted (`layout.py`).

Chosen: compacted files are not merged later, because no sequence of deletions and renames replaces two files by one in
a single step for a reader that has listed them. `Compactor` bounds their number by its choice of batches.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from evalkit.store import disk
from evalkit.store.files.journal import refuse_sealed
from evalkit.store.files.layout import compacted, journal_object, lay_out
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import STEPS, conform, ledger_table, steps_table
from evalkit.store.files.segment import (
    KINDS,
    Kind,
    Segment,
    SessionMoney,
    claim,
    encode_compacted,
    money_of,
    open_file,
    read_rows,
    session_money,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """One object that waits for compaction."""

    segment: Segment
    table: pa.Table | None
    """Its steps, kept from when they were written; None if it has none."""
    entries: Sequence[LedgerRecord]
    money: SessionMoney
    bytes: int
    """Of memory."""


def compact(run: Path, tails: Sequence[Tail], kinds: Collection[Kind] = KINDS) -> None:
    """Write the rows of one journal's objects, in order, as one file of each of these kinds. Raises StorageError."""
    tables = [conform(tail.table, STEPS) for tail in tails if tail.table is not None]
    rows: dict[Kind, pa.Table] = {
        "steps": pa.concat_tables(tables) if tables else steps_table([]),
        "ledger": ledger_table([entry for tail in tails for entry in tail.entries]),
    }
    first, last = tails[0].segment, tails[-1].segment
    for kind in kinds:
        segment = compacted(run, kind, first.writer, first.first, last.last)
        disk.write_durably(segment.path, encode_compacted(segment, rows[kind], tails[-1].money))


def discard(objects: Iterable[Segment]) -> None:
    """Delete objects whose rows lie in compacted files. Raises StorageError."""
    for segment in objects:
        disk.remove(segment.path)


# What dead writers left: their journals have ended, and the next writer compacts what they did not. That comes before
# anything is appended, so at most the newest writer has rows that no compacted file holds.

ADOPTED_BYTES, ADOPTED_OBJECTS = 16_000_000, 2048
"""Memory of the rows that are compacted at once, and objects."""


def adopt(run: Path, ended: Collection[str]) -> None:
    """Compact what dead writers left uncompacted, and delete what compacted files cover. `ended`: those whose journals
    have ended.

    Others are left alone: their writers live and compact their journals themselves. Raises CorruptLogError,
    StorageError.
    """
    newest = {writer: number for writer, number in lay_out(run, "steps").newest.items() if writer in ended}
    for writer, number in newest.items():
        _compact_rest(run, writer, number)
    layouts = [lay_out(run, kind) for kind in KINDS]
    # A repair may have left holes in one kind.
    covered = set.intersection(*({(one.writer, one.first) for one in layout.covered} for layout in layouts))
    discard(
        journal_object(run, writer, number) for writer, number in sorted(covered) if number < newest.get(writer, -1)
    )


def _compact_rest(run: Path, writer: str, end: int) -> None:
    """Compact what compacted files lack before the last object, in both kinds or in one. A repair may have written
    compacted files behind it."""
    lacking = {
        kind: {one.first for one in lay_out(run, kind).segments if one.writer == writer and one.is_object}
        for kind in KINDS
    }
    numbers = sorted(number for number in set.union(*lacking.values()) if number < end)
    wanted = [tuple(kind for kind in KINDS if number in lacking[kind]) for number in numbers]
    neighbours = groupby(enumerate(numbers), lambda one: (wanted[one[0]], one[1] - one[0]))
    for (kinds, _), group in neighbours:
        for tails in _batches(tail_of(journal_object(run, writer, number)) for _, number in group):
            compact(run, tails, kinds)


def tail_of(segment: Segment) -> Tail:
    """An object that another session left behind. Raises CorruptLogError, StorageError."""
    with open_file(segment) as file:
        table, says = read_rows(segment, file), claim(file.metadata)
    return Tail(
        segment=segment,
        table=table if table.num_rows else None,
        entries=money_of(says, segment.name),
        money=session_money(says),
        bytes=table.nbytes,
    )


def _batches(tails: Iterator[Tail]) -> Iterator[list[Tail]]:
    batch, size = list[Tail](), 0
    for tail in tails:
        batch.append(tail)
        size += tail.bytes
        if size >= ADOPTED_BYTES or len(batch) >= ADOPTED_OBJECTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# When to compact during a session: batches large enough to keep the number of files small, and early enough that
# readers are almost up to date.
#
# A batch is 16 MB of rows, or the rows of 5 s at first and of 40 s later: readers of `steps/` lag less than a minute,
# and a slow run has about 2,000 files of a kind after a day.

BATCH_BYTES = 16_000_000
BATCH_TAILS = 2048
GRACE_S = 5.0
"""How long an object stays when its rows lie in compacted files: a reader that has just listed it still finds it."""
LEAST_S, MOST_S, SHARE = 5.0, 40.0, 0.125


@dataclass(slots=True)
class Backlog:
    """The objects that wait, oldest first, and when their time has come."""

    began: float
    """When the session began. All times in one clock, s."""
    tails: deque[Tail] = field(default_factory=deque)
    bytes: int = 0
    oldest: float = 0.0
    """When the first of `tails` came."""

    def add(self, tail: Tail, now: float) -> None:
        """A further commit."""
        if not self.tails:
            self.oldest = now
        self.tails.append(tail)
        self.bytes += tail.bytes

    @property
    def full(self) -> bool:
        """Whether a batch is there."""
        return self.bytes >= BATCH_BYTES or len(self.tails) >= BATCH_TAILS

    def due_at(self) -> float | None:
        """When to compact: a time that may have passed; None while nothing waits."""
        if not self.tails:
            return None
        if self.full:
            return self.oldest
        return self.oldest + min(MOST_S, max(LEAST_S, SHARE * (self.oldest - self.began)))

    def take(self, now: float) -> tuple[Tail, ...]:
        """The next batch; what exceeds it stays."""
        batch: list[Tail] = []
        size = 0
        while self.tails and size < BATCH_BYTES and len(batch) < BATCH_TAILS:
            batch.append(self.tails.popleft())
            size += batch[-1].bytes
        self.bytes -= size
        self.oldest = now
        return tuple(batch)


class Compactor:
    """Runs compaction of a writer's own journal during its session. Its state is on the event loop; `start` runs a job
    elsewhere."""

    def __init__(
        self,
        run: Path,
        writer: str,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[Callable[[], None]], Future[None]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._run, self._writer, self._loop, self._start, self._failed = run, writer, loop, start, failed
        self._backlog = Backlog(loop.time())
        self._running: tuple[Tail, ...] = ()
        self._job: Future[None] | None = None
        self._discarded: deque[tuple[float, list[Segment]]] = deque()
        """Objects whose rows lie in compacted files, and when they are deleted."""
        self._latest: list[Segment] = []
        """The last of them, which may be the journal's newest and stays until others follow."""
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def add(self, tail: Tail) -> None:
        """A further commit that waits for compaction."""
        self._backlog.add(tail, self._loop.time())
        if self._timer is None or self._backlog.full:
            self._look()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        """Compact everything, at once and on this thread; stopped, and no job running.

        Raises what the last job failed with, StorageError, FencedError.
        """
        if self._job is not None:  # it ended while the loop was not looking
            self._job.result()
            self._discard_later(self._running)
        while batch := self._backlog.take(self._loop.time()):
            self._write(batch)
            self._discard_later(batch)

    def clear(self) -> None:
        """Delete what compacted files hold, once the journal has its last object. Raises StorageError."""
        discard([*(segment for _, segments in self._discarded for segment in segments), *self._latest])

    def _look(self) -> None:
        """Start what is due, and come back when the next thing is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        now = self._loop.time()
        if self._discarded and self._discarded[0][0] <= now:
            job = self._start(partial(discard, self._discarded.popleft()[1]))
            job.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._report, done))
        times = [self._discarded[0][0]] if self._discarded else []
        due = self._backlog.due_at()
        if due is not None and self._job is None:
            if due <= now:
                self._running = self._backlog.take(now)
                self._job = self._start(partial(self._write, self._running))
                self._job.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._settle, done))
            else:
                times.append(due)
        self._timer = self._loop.call_at(min(times), self._look) if times else None

    def _write(self, batch: Sequence[Tail]) -> None:
        refuse_sealed(self._run, self._writer)  # one that stood still would write rows that others have compacted
        compact(self._run, batch)

    def _settle(self, job: Future[None]) -> None:
        self._job = None
        if self._report(job):
            self._discard_later(self._running)
            self._running = ()
            self._look()

    def _discard_later(self, batch: Sequence[Tail]) -> None:
        """A batch lies in compacted files."""
        objects = [*self._latest, *(tail.segment for tail in batch)]
        self._latest = objects[-1:]
        self._discarded.append((self._loop.time() + GRACE_S, objects[:-1]))

    def _report(self, job: Future[None]) -> bool:
        flaw = job.exception()
        if flaw is not None:
            self._failed(flaw)
        return flaw is None
