"""Takes over what dead writers left: their journals have ended, and the next writer compacts what they did not.

That comes before anything is appended, so at most the newest writer has rows that no compacted file holds. The files
are named in the next writer's journal; only then the objects that they cover are deleted.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from evalkit.store import disk
from evalkit.store.files.journal import Named, carried_of, heads_of, newest_claims
from evalkit.store.files.layout import journal_object, journals, lay_out
from evalkit.store.files.schema import ENDS
from evalkit.store.files.segment import KINDS, LOG, Kind, Segment, digest_of, read_claim, read_segment
from evalkit.store.reading.arrays import coded, take_rows
from evalkit.store.reading.ends import PLACE, Recall, Standing, read_standings
from evalkit.store.writing.compact import CompactedFiles, Tail, discard, tail_of

ADOPTED_BYTES, BATCH_OBJECTS = 16_000_000, 2048
"""Memory of the rows that are compacted at once, and objects."""


@dataclass(slots=True, kw_only=True)
class Adopted:
    """What was taken over from dead writers."""

    named: dict[str, dict[str, Named]] = field(default_factory=dict)
    """By writer and kind: the newest compacted file, where no object names it yet."""
    unnamed: list[Segment] = field(default_factory=list)
    """Objects that they cover: to be deleted when they are named."""
    covered: list[Segment] = field(default_factory=list)
    """Objects that files cover which are named: to be deleted."""


def adopt(run: Path, recall: Recall, ended: Collection[str]) -> Adopted:
    """Compact what dead writers left uncompacted. `ended`: those whose journals have ended.

    Others are left alone. They have begun since, and their writers live: they compact their journals themselves, and
    two compacted files with the same rows would be there. Raises CorruptLogError, StorageError.
    """
    adopted, known = Adopted(), _named(run)
    there = _Compacted(run)
    for journal in (journal for journal in journals(run) if journal.writer in ended):
        by_kind, end = there.files(journal.writer), journal.numbers[-1]
        if any(_upto(by_kind[kind]) < end for kind in KINDS):
            _compact(run, journal.writer, by_kind, end, recall)
            there = _Compacted(run)
            by_kind = there.files(journal.writer)
        names: dict[str, Named] = {kind: _name(files[-1]) for kind, files in by_kind.items() if files}
        compacted = there.covered(journal.writer)
        covered = [journal.object(run, number) for number in journal.numbers[:-1] if number in compacted]
        if not known.issuperset(names.values()):
            adopted.named[journal.writer] = names
            adopted.unnamed += covered
        else:
            adopted.covered += covered
    return adopted


class _Compacted:
    """What compacted files hold, listed once."""

    def __init__(self, run: Path) -> None:
        self._files: dict[tuple[Kind, str], list[Segment]] = {}
        self._covered: dict[tuple[Kind, str], set[int]] = {}
        for kind in KINDS:
            layout = lay_out(run, kind)
            for segment in layout.segments:
                if not segment.is_object:
                    self._files.setdefault((kind, segment.writer), []).append(segment)
            for segment in layout.covered:
                self._covered.setdefault((kind, segment.writer), set()).add(segment.first)

    def files(self, writer: str) -> dict[Kind, list[Segment]]:
        """A writer's compacted files of each kind, in order."""
        return {kind: self._files.get((kind, writer), []) for kind in KINDS}

    def covered(self, writer: str) -> set[int]:
        """Numbers of a journal's objects that files of every kind cover: a repair may have left holes in one."""
        return set.intersection(*(self._covered.get((kind, writer), set()) for kind in KINDS))


def _named(run: Path) -> set[Named]:
    """The compacted files that objects name as what they are."""
    names = set[Named]()
    for writer, says in newest_claims(run).items():
        carried = carried_of(says, f"{LOG}/{writer}")
        names.update(named for kinds in carried.compacted.values() for named in kinds.values())
        names.update(carried.repaired.items())
    return names


def _upto(files: Sequence[Segment]) -> int:
    """The number after the last that compacted files hold."""
    return files[-1].last + 1 if files else 0


def _name(segment: Segment) -> Named:
    return segment.name, digest_of(disk.read_whole(segment.path) or b"")


def _compact(run: Path, writer: str, by_kind: Mapping[Kind, list[Segment]], end: int, recall: Recall) -> None:
    """Complete what kinds lack that others have, under the same names; then compact the rest up to the last object."""
    begin = min(_upto(by_kind[kind]) for kind in KINDS)
    wanted = _episodes(run, writer, begin, end)
    states = standings(run, wanted, (writer, begin))
    chain = CompactedFiles(run=run, writer=writer, heads=_heads(run, writer, begin), recall=recall, before=states.get)
    for kind in KINDS:
        older = [segment for segment in by_kind[kind] if segment.first < begin]
        if older:
            chain.named[kind] = _name(older[-1])
    there = {
        (kind, segment.first, segment.last): segment
        for kind in KINDS
        for segment in by_kind[kind]
        if segment.first >= begin
    }
    ranges = sorted({(first, last) for _, first, last in there})
    for first, last in ranges:
        tails = [_tail(run, writer, number) for number in range(first, last + 1)]
        chain.compact(tails, [kind for kind in KINDS if (kind, first, last) not in there])
        for kind in KINDS:
            if (kind, first, last) in there:
                chain.named[kind] = _name(there[kind, first, last])
        begin = last + 1
    for tails in _batches(_tail(run, writer, number) for number in range(begin, end)):
        chain.compact(tails)


def _tail(run: Path, writer: str, number: int) -> Tail:
    return tail_of(journal_object(run, writer, number))


def _batches(tails: Iterator[Tail]) -> Iterator[list[Tail]]:
    batch, size = list[Tail](), 0
    for tail in tails:
        batch.append(tail)
        size += tail.bytes
        if size >= ADOPTED_BYTES or len(batch) >= BATCH_OBJECTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _episodes(run: Path, writer: str, begin: int, end: int) -> set[str]:
    """The episodes that objects have rows of."""
    episodes: set[str] = set()
    for number in range(begin, end):
        table = read_segment(journal_object(run, writer, number), ("episode",), ("episode",))
        episodes.update(coded(table, "episode")[0])
    return episodes


def _heads(run: Path, writer: str, begin: int) -> Mapping[str, tuple[int, str]]:
    """What the first object says, if that is still to be compacted."""
    if begin:
        return {}
    first = journal_object(run, writer, 0)
    return heads_of(read_claim(first), first.name)


def standings(run: Path, wanted: Collection[str], upto: tuple[str, int]) -> dict[str, Standing]:
    """How episodes stood after all that is compacted, up to this object of a writer; facts left out.

    Raises CorruptLogError, StorageError.
    """
    known: dict[str, Standing] = {}
    if not wanted:
        return known
    columns = [name for name in ENDS.names if name != "facts"]
    few = ["episode", *(name for name in PLACE if name != "replicate"), "ending"]
    for segment in lay_out(run, "ends").segments:
        if not segment.is_object and not (segment.writer == upto[0] and segment.first >= upto[1]):
            known |= read_standings(_rows_of(read_segment(segment, columns, few), wanted))
    return known


def _rows_of(table: pa.Table, wanted: Collection[str]) -> pa.Table:
    names, codes = coded(table, "episode")
    keep = np.array([name in wanted for name in names], np.bool_)
    return table if keep.all() else take_rows(table, np.flatnonzero(keep[codes]))


# When to compact: batches large enough to keep the number of files small, and early enough that readers are almost up
# to date.
#
# A batch is 16 MB of rows, or the rows of 5 s at first and of 40 s later: readers of `steps/` lag less than a minute,
# and a slow run has about 2,000 files of a kind after a day.

BATCH_BYTES = 16_000_000
BATCH_TAILS = 2048
GRACE_S = 5.0
"""How long an object stays when files are named that hold its rows: a reader that has just listed it still finds it."""
LEAST_S, MOST_S, SHARE = 5.0, 40.0, 0.125


class Timer(Protocol):
    """What `call_at` returns."""

    def cancel(self) -> None:
        """Forget the call."""


class Clock(Protocol):
    """What is needed of an event loop."""

    def time(self) -> float:
        """Now, s."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back at that time."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """Call back soon, on the loop's thread."""


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
    """Runs compaction during a session. Its state is on the event loop; `start` runs a job elsewhere."""

    def __init__(
        self,
        chain: CompactedFiles,
        adopted: Adopted,
        clock: Clock,
        start: Callable[[Callable[[], None]], Future[None]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._chain, self._clock, self._start, self._failed = chain, clock, start, failed
        self._backlog = Backlog(clock.time())
        self._running: tuple[Tail, ...] = ()
        self._job: Future[None] | None = None
        self._unnamed: list[Segment] = list(adopted.unnamed)
        """Objects whose rows lie in files that no object names yet."""
        self._naming: list[Segment] = []
        """The same of those files that the object names which is being written."""
        self._graves: deque[tuple[float, list[Segment]]] = deque()
        self._timer: Timer | None = None
        self._stopped = False
        self._compacted: dict[str, dict[str, Named]] = dict(adopted.named)

    def adopt(self, adopted: Adopted) -> None:
        """Name what was taken over from another writer in the next object; then what its files cover may go."""
        self._compacted |= adopted.named
        self._unnamed += [*adopted.unnamed, *adopted.covered]

    def names(self) -> dict[str, dict[str, Named]]:
        """What the next object names: by writer and kind, the newest compacted file. `named` says that it is there."""
        self._naming += self._unnamed
        self._unnamed = []
        return dict(self._compacted)

    def named(self) -> None:
        """The object that names all that `names` has told is durable: after a while nobody needs what they cover."""
        if self._naming:
            self._graves.append((self._clock.time() + GRACE_S, self._naming))
            self._naming = []
            self._look()

    @property
    def waits(self) -> bool:
        """Whether files are there that no object names."""
        return bool(self._unnamed or self._naming)

    def add(self, tail: Tail) -> None:
        """A further commit that waits for compaction."""
        self._backlog.add(tail, self._clock.time())
        if self._timer is None or self._backlog.full:
            self._look()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        """Compact everything, at once and on this thread; stopped, and no job running.

        Raises what the last job failed with, StorageError, CorruptLogError.
        """
        if self._job is not None:  # it ended while the loop was not looking
            self._job.result()
            self._have(self._running)
        while batch := self._backlog.take(self._clock.time()):
            self._chain.compact(batch)
            self._have(batch)

    def bury(self) -> None:
        """Delete what compacted files hold, once a last object has named them all. Raises StorageError."""
        discard(segment for _, segments in self._graves for segment in segments)
        discard(self._naming)

    def _look(self) -> None:
        """Start what is due, and come back when the next thing is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        now = self._clock.time()
        if self._graves and self._graves[0][0] <= now:
            job = self._start(partial(discard, self._graves.popleft()[1]))
            job.add_done_callback(lambda done: self._clock.call_soon_threadsafe(self._report, done))
        times = [self._graves[0][0]] if self._graves else []
        due = self._backlog.due_at()
        if due is not None and self._job is None:
            if due <= now:
                self._compact(now)
            else:
                times.append(due)
        self._timer = self._clock.call_at(min(times), self._look) if times else None

    def _compact(self, now: float) -> None:
        self._running = self._backlog.take(now)
        self._job = self._start(partial(self._chain.compact, self._running))
        self._job.add_done_callback(lambda done: self._clock.call_soon_threadsafe(self._settle, done))

    def _settle(self, job: Future[None]) -> None:
        self._job = None
        if self._report(job):
            self._have(self._running)
            self._running = ()
            self._look()

    def _have(self, batch: Sequence[Tail]) -> None:
        """A batch lies in compacted files."""
        self._compacted[self._chain.writer] = dict(self._chain.named)
        self._unnamed += [tail.segment for tail in batch]

    def _report(self, job: Future[None]) -> bool:
        flaw = job.exception()
        if flaw is not None:
            self._failed(flaw)
        return flaw is None
