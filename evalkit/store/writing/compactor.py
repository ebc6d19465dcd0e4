"""When to compact: batches large enough to keep the number of files small, and early enough that readers are almost up
to date.

A batch is 16 MB of rows, or the rows of 5 s at first and of 40 s later: readers of `steps/` lag less than a minute, and
a slow run has about 2,000 files of a kind after a day.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from evalkit.store.files.journal import Named
from evalkit.store.files.segment import Segment
from evalkit.store.writing.adopt import Adopted
from evalkit.store.writing.compact import CompactedFiles, Tail, discard

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
