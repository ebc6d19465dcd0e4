"""The store of a run: rows are collected in memory, and a thread commits them in groups.

All state lives on the event loop and all waiting is in the loop's time; the threads only carry out single jobs (commit
this, compact that), so nothing here needs a lock. `inline=True` carries the jobs out at once on the loop's own thread:
under virtual time the same code is then deterministic.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa

from evalkit.errors import CorruptLogError, EvalkitError, StorageError
from evalkit.redact import KEYS
from evalkit.store import disk
from evalkit.store.bucket import BucketPath
from evalkit.store.events import FILE as EVENTS
from evalkit.store.files.journal import Appender
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import memory_of, steps_table
from evalkit.store.files.segment import Segment, SessionMoney
from evalkit.store.lead import Lead
from evalkit.store.lock import hold_run, standing
from evalkit.store.writing.compact import Compactor, Tail
from evalkit.store.writing.opening import OpenLog, join, take_over
from evalkit.store.writing.pace import LOOK_S, CommitPace
from evalkit.waiting import Crowd

# One commit: the waiting rows become one object of the journal. It uses no threads and no event loop; the writer
# calls it.
#
# Steps and money rows of a commit are in one file, so neither can exist without the other.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one commit writes."""

    steps: pa.Table | None
    """Of schema STEPS. Built by the caller: on the thread that made the records they are in its core's cache, and a
    row costs 2 us; on another thread it was 10."""
    entries: Sequence[LedgerRecord]
    lines: Sequence[bytes]
    """Events: whole lines, not synced."""
    money: SessionMoney
    """What the session has come to, as of this commit."""


def commit(journal: Appender, load: Load) -> Segment | None:
    """Write a load; it is durable once this returns. The object, or None if nothing but events came.

    Raises FencedError, StorageError.
    """
    segment = None
    if load.steps is not None or load.entries:
        segment = journal.commit(load.steps, load.entries, load.money)
    if load.lines:
        disk.append_lines(journal.run / EVENTS, b"".join(load.lines))
    return segment


GROUP_ROWS = 1024
"""Rows that are committed without waiting for more."""
PACK_ROWS = 256
"""Rows that are turned into columns at once; bounds the pause this makes, to about 1 ms."""
MOST_UNWRITTEN = 20_000
"""Rows in memory beyond which `room()` waits."""
ENTRY_BYTES = 500
"""Memory of a money row, roughly."""

_MadeT = TypeVar("_MadeT")


@contextmanager
def open_store(run: Path, *, session: str, inline: bool = False) -> Iterator["Store"]:
    """The run's log, open for writing inside a running event loop; creates the directory if need be.

    `session` names this life of the run in `events.jsonl`; where it is a writer's name it names the journal too.
    However the context is left, what was taken is committed, everything compacted, the journal closed, the threads
    are joined. Raises RunError if another process writes the run, CorruptLogError if files are missing (nothing is
    changed then) or damaged, StorageError if the disk refuses; also on leaving, because rows that nobody waited for may
    be lost.
    """
    with hold_run(run) as hold:
        store = Store(hold.check, take_over(run, session), session=session, inline=inline)
        store.descriptors = hold.descriptors
        store.lead = hold if isinstance(hold, Lead) else None
        with _closed_after(store):
            yield store


@contextmanager
def open_beside(run: Path, *, writer: str, inline: bool = False) -> Iterator["Store"]:
    """The same log, open for one more writer that was announced, while another process holds the run and writes too.

    Each has a journal of its own. Raises and closes as `open_store` does.
    """
    with standing(run) as check, _closed_after(Store(check, join(run, writer), session=writer, inline=inline)) as store:
        yield store


@contextmanager
def _closed_after(store: "Store") -> Iterator["Store"]:
    failing = True
    try:
        yield store
        failing = False
    finally:
        store.close(quiet=failing)


@dataclass(slots=True)
class _CommitGroup:
    """What the next commit will write, and who waits for it."""

    steps: list[StepRecord] = field(default_factory=list)
    """The latest rows; those before them are in `tables`."""
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    entries: list[LedgerRecord] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)
    """Called once it is on disk."""
    lines: list[bytes] = field(default_factory=list)
    waiters: Crowd = field(default_factory=Crowd)
    began: float = 0.0
    """Loop time of its first row."""
    looked: int = 0
    """Its rows when it was last due."""

    def pack(self) -> None:
        """Turn the latest rows into a table: a third of the memory."""
        if self.steps:
            self.tables.append(steps_table(self.steps))
            self.steps = []


class Store:
    """See `open_store`."""

    def __init__(self, check: Callable[[], None], opened: OpenLog, *, session: str, inline: bool) -> None:
        """check: raises StorageError if the run is not there and ours any more."""
        self._check, self._session, self._inline = check, session, inline
        self.lead: Lead | None = None
        """Who leads the run, where it is in a bucket."""
        self._journal = opened.journal
        self.descriptors: tuple[int, ...] = ()
        """What keeps the run locked in a process that inherits them."""
        self.found = opened.index
        """What the log held when it was opened."""
        self._spent = self._leased = 0
        """Of this session, in pico-dollars: what has been taken, be it on the disk or not."""
        self._books_closed = False
        """Whether its last movement of money has been taken."""
        self._loop = asyncio.get_running_loop()
        self._group = _CommitGroup()
        self._writing: tuple[_CommitGroup, Load, Future[Segment | None]] | None = None
        """What is being written."""
        self._timer: asyncio.TimerHandle | None = None
        """Set from a group's first row until it is handed to the writer."""
        self._due = 0.0
        self._pace = CommitPace(bucket=isinstance(opened.journal.run, BucketPath))
        self._unwritten = 0
        self._squeezed = Crowd()
        self._failure: BaseException | None = None
        self._closed = False
        self._writer = ThreadPoolExecutor(1, "evalkit-writer")
        self._helper = ThreadPoolExecutor(1, "evalkit-compactor")
        self._compactor = Compactor(
            opened.journal.run, self.writer, self._loop, partial(self._start, self._helper), self._fail
        )

    def append(self, record: StepRecord) -> None:
        """Take a row. It is durable once a `durable()` that is called later returns. Raises StorageError."""
        self._refuse()
        group = self._group
        group.steps.append(record)
        group.rows += 1
        if record.worker == self._session:
            self._spent += record.cost
        self._unwritten += 1
        if self._timer is None:
            self._begin()
        if len(group.steps) >= PACK_ROWS:
            with self._or_fail():
                group.pack()
            if group.rows >= GROUP_ROWS:
                self._want(self._loop.time())

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        """Take a movement of money, likewise; it becomes durable no later than steps appended after it. `then` is
        called as soon as it is."""
        self._refuse()
        self._group.entries.append(record)
        if then is not None:
            self._group.then.append(then)
        if record.session == self._session:
            self._spent += record.amount if record.kind == "charge" else 0
            self._leased += record.amount if record.kind == "lease" else 0
            self._books_closed |= record.kind == "close"
        if self._timer is None:
            self._begin()

    def event(self, kind: str, **facts: object) -> None:
        """Add a line to `events.jsonl`: for people and tools, not part of the log, not synced. Never refuses."""
        line = {"time": time.time(), "session": self._session, "kind": kind, **facts}
        self._group.lines.append(KEYS.body(_json_line(line), good=True))
        if self._timer is None and not self._closed:
            self._begin()

    async def durable(self) -> None:
        """Wait until everything taken so far is on the disk. Raises StorageError, here and from then on."""
        self._refuse()
        group = self._group
        if not (group.rows or group.entries):
            if self._writing is None:
                return
            group = self._writing[0]
        if group is self._group:
            self._want(self._pace.due(group.began))
        await group.waiters.wait()

    async def room(self) -> None:
        """Wait while the disk is behind: more than MOST_UNWRITTEN rows in memory. Raises StorageError."""
        self._refuse()
        while self._unwritten > MOST_UNWRITTEN:
            if self._group.rows:
                self._want(self._loop.time())
            await self._squeezed.wait()
            self._refuse()

    @property
    def writer(self) -> str:
        """Whose journal it writes."""
        return self._journal.writer

    @property
    def last(self) -> int:
        """The number of its journal's newest object; -1: it has none."""
        return self._journal.number - 1

    def pace(self, median_reply_s: float) -> None:
        """Tell the median reply time of the fastest lane, s: rows wait for company no longer than a part of it."""
        self._pace.reply_s = median_reply_s

    def close(self, *, quiet: bool) -> None:
        """Commit what waits, compact, join. Raises what has failed unless `quiet`: then another error is on its way."""
        self._closed = True
        self._compactor.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._writer.shutdown(wait=True)
        self._helper.shutdown(wait=True)
        self._settle()
        if self._failure is None:
            try:
                self._finish()
            except EvalkitError as flaw:
                self._fail(flaw)
        if self._failure is not None and not quiet:
            raise _again(self._failure)

    def _finish(self) -> None:
        group = self._group
        if group.rows or group.entries or group.lines or self._pace.holds_lines:
            load = self._load(group)
            self._written(group, load, self._commit(load))
        self._compactor.finish()
        if self._journal.number:
            self._check()
            self._journal.close(self._money())
            self._compactor.clear()
        else:
            self._journal.withdraw()

    def _commit(self, load: Load) -> Segment | None:
        with self._pace.working():
            self._check()
            return commit(self._journal, load)

    def _money(self) -> SessionMoney:
        return SessionMoney(session=self._session, spent=self._spent, leased=self._leased, closed=self._books_closed)

    def _refuse(self) -> None:
        if self._failure is not None:
            raise _again(self._failure)
        if self._closed:
            raise RuntimeError("the store is closed")

    def _begin(self) -> None:
        """The group has got its first row: its time runs."""
        self._group.began = now = self._loop.time()
        self._due = self._pace.lazily_due(now)
        self._timer = self._loop.call_at(self._due, self._ripe)

    def _want(self, due: float) -> None:
        """Commit the group at `due` if that is earlier than planned."""
        if due >= self._due:
            return
        self._due = due
        if self._timer is not None:
            self._timer.cancel()
        if due <= self._loop.time():
            self._ripe()
        else:
            self._timer = self._loop.call_at(due, self._ripe)

    def _ripe(self) -> None:
        """The group's time has come. While the writer is busy nothing happens: `_settle` looks again."""
        if self._writing is not None:
            # Not by the clock: uvloop's timers may fire a moment early, and nobody would look again at the due time.
            self._due = -math.inf
            return
        if self._failure is not None or self._closed:
            return
        group = self._group
        if group.looked < group.rows and self._pace.fills(group.rows, self._loop.time() - group.began):
            group.looked = group.rows
            self._timer = self._loop.call_later(LOOK_S, self._ripe)
            return
        self._pace.begins(self._loop.time())
        with self._or_fail(), self._pace.working():
            load = self._load(group)
        self._group, self._timer = _CommitGroup(), None
        job = self._start(self._writer, partial(self._commit, load))
        self._writing = group, load, job
        job.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._settle))

    @contextmanager
    def _or_fail(self) -> Iterator[None]:
        """A bug in here must not leave those hanging who wait for the log."""
        sound = False
        try:
            yield
            sound = True
        finally:
            if not sound:
                self._fail(RuntimeError("rows could not be converted to columns"))

    def _load(self, group: _CommitGroup) -> Load:
        group.pack()
        return Load(
            steps=pa.concat_tables(group.tables) if group.tables else None,
            entries=group.entries,
            lines=self._pace.lines(group.lines, self._loop.time(), all_of_them=self._closed),
            money=self._money(),
        )

    def _settle(self) -> None:
        """The writer has ended a commit."""
        if self._writing is None:  # `close` was faster
            return
        (group, load, job), self._writing = self._writing, None
        if not self._inline:  # virtual time must not depend on the machine's
            self._pace.ends(self._loop.time())
        flaw = job.exception()
        if flaw is not None:
            self._fail(flaw)
            group.waiters.dismiss(_again(flaw))
            return
        self._written(group, load, job.result())
        if self._timer is not None and self._loop.time() >= self._due:
            self._ripe()

    def _written(self, group: _CommitGroup, load: Load, segment: Segment | None) -> None:
        self._unwritten -= group.rows
        if segment is not None:
            size = (0 if load.steps is None else memory_of(load.steps)) + ENTRY_BYTES * len(load.entries)
            self._compactor.add(
                Tail(segment=segment, table=load.steps, entries=load.entries, money=load.money, bytes=size)
            )
        for then in group.then:
            then()
        group.waiters.release()
        if self._unwritten <= MOST_UNWRITTEN:
            self._squeezed.release()

    def _fail(self, flaw: BaseException) -> None:
        """The log can no longer be written: all present and later waiters get the error."""
        if self._failure is None:
            self._failure = flaw
        for waiters in (self._group.waiters, self._squeezed):
            waiters.dismiss(_again(self._failure))

    def _start(self, where: ThreadPoolExecutor, work: Callable[[], _MadeT]) -> Future[_MadeT]:
        if not self._inline:
            return where.submit(work)
        done: Future[_MadeT] = Future()
        try:
            done.set_result(work())
        except EvalkitError as flaw:
            done.set_exception(flaw)
        return done


def _again(flaw: BaseException) -> Exception:
    """The failure for one more who meets it: an exception that is raised twice gathers tracebacks."""
    fresh: Exception
    if isinstance(flaw, (StorageError, CorruptLogError)):
        fresh = type(flaw)(str(flaw))
    else:
        fresh = RuntimeError(f"the log's writer failed: {flaw!r}")
    fresh.__cause__ = flaw
    return fresh


def _json_line(value: dict[str, object]) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return json.dumps(value, default=str).encode() + b"\n"
