"""One writer's journal: numbered objects, each created once and never changed.

A writer appends objects to its own folder. To stop it, another process creates the object with its next number, a seal.
So safety depends only on the creation of a file that must not exist yet: not on a clock, and not on a lock that may
have been lost. A commit's steps and money become durable by one object. What a footer contains, besides format and
rows:

    kind           commit, close (its writer ended it) or seal (another did)
    writer, by     whose journal it is of, and who wrote it
    number, nonce  its place, and a word drawn for each object
    money          the commit's money rows
    session        the writer's name in rows, and
    spent, leased  what that has come to so far, in pico-dollars
"""

import os
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evalkit.errors import CorruptLogError, FencedError
from evalkit.store import disk
from evalkit.store.files.layout import began, journal_object, journals, newest_object
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import (
    CLOSE,
    COMMIT,
    LOG,
    NO_MONEY,
    SEAL,
    WRITER,
    Segment,
    SessionMoney,
    encode_object,
    money_text,
    read_claim,
    session_money,
)


def new_writer(after: Sequence[str] = ()) -> str:
    """The name of a writer that begins now: random digits first, so that writers spread over an object store; then
    host, process and time. It is ordered after the existing writers, even if a clock was set back."""
    start = max([time.time(), *(began(writer)[0] + 0.001 for writer in after)])
    return f"{secrets.token_hex(4)}-{_host()}-{os.getpid()}-{start:.3f}"


def _host() -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in socket.gethostname())


def is_written_here(writer: str) -> bool:
    """Whether a process of this machine, other than this one, has a writer's number: as good as any name tells it."""
    host, pid, _ = writer.partition("-")[2].rsplit("-", 2)
    return host == _host() and int(pid) != os.getpid() and is_running(int(pid))


def is_running(pid: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


@dataclass(slots=True, kw_only=True)
class Appender:
    """A writer's own journal, open for appending. Not for two threads at once."""

    run: Path
    writer: str
    number: int = 0
    """Of the next object."""

    def commit(
        self, table: pa.Table | None, entries: Sequence[LedgerRecord] = (), money: SessionMoney = NO_MONEY
    ) -> Segment:
        """Make rows durable; `money`: what the session has come to with them. Raises FencedError, StorageError."""
        return self._append(COMMIT, table, entries, money)

    def close(self, money: SessionMoney = NO_MONEY) -> None:
        """End the journal. Raises FencedError, StorageError."""
        self._append(CLOSE, None, (), money)

    def withdraw(self) -> None:
        """Nothing was written: remove the journal, unless another process has ended it meanwhile."""
        with suppress(OSError):
            (self.run / LOG / self.writer).rmdir()

    def _append(
        self, kind: str, table: pa.Table | None, entries: Sequence[LedgerRecord], money: SessionMoney
    ) -> Segment:
        segment = journal_object(self.run, self.writer, self.number)
        if not self.number:
            disk.make_directories(segment.path.parent)
        data = object_of(segment, kind, table, entries, money, by=self.writer)
        try:
            disk.create_durably(segment.path, data)
        except FileExistsError:
            if disk.read_whole(segment.path) != data:  # else it is ours, and only its confirmation was lost
                raise FencedError(_fenced(segment)) from None
        self.number += 1
        return segment


def object_of(
    segment: Segment,
    kind: str,
    table: pa.Table | None,
    entries: Sequence[LedgerRecord],
    money: SessionMoney,
    *,
    by: str,
) -> bytes:
    """The bytes of an object of a journal."""
    facts = {
        "kind": kind,
        "writer": segment.writer,
        "by": by,
        "number": str(segment.first),
        "nonce": secrets.token_hex(8),
        **money.facts(),
        **({"money": money_text(entries)} if entries else {}),
    }
    return encode_object(table, facts)


def _fenced(segment: Segment) -> str:
    try:
        by = read_claim(segment).get("by", "")
    except (CorruptLogError, FileNotFoundError):
        by = ""
    return (
        f"Another process{f' ({by})' if by else ''} has taken this run over and ended this one's journal at "
        f"{segment.name}. Nothing more is sent or written here; what was durable before is valid."
    )


def open_journal(run: Path, writer: str) -> Appender:
    """A new journal in a run that is locked: every other writer that has not closed is sealed first, so that it cannot
    write any more.

    Its folder is created before that. If two processes start at once, although the lock should prevent it, the one that
    looks later finds the other's folder, and ends that journal before it has started. Raises FencedError,
    CorruptLogError, StorageError.
    """
    if not WRITER.fullmatch(writer):
        raise ValueError(f"{writer!r} is not the name of a writer")
    own = Appender(run=run, writer=writer)
    disk.make_directories(run / LOG / writer)
    ended: set[str] = set()
    # A worker shows its folder before its coordinator answers it, and a coordinator that is sealed answers nobody: so
    # a folder that appears while others are sealed is found by the next look, and none appears after that.
    while others := [other for other in journals(run) if other != writer and other not in ended]:
        newer = [other for other in others if began(other) > began(writer)]
        if newer:
            own.withdraw()
            raise FencedError(
                f"Another process ({newer[-1]}) has begun to write {run} at this moment. Nothing was written here. "
                "Check that no other process writes it, then start the same command again."
            )
        for other in others:
            seal(run, other, by=writer)
            ended.add(other)
    return own


def seal(run: Path, writer: str, *, by: str) -> None:
    """End another writer's journal by its next object, unless it has ended; the end is on the disk once this returns.
    Raises CorruptLogError, StorageError."""
    while True:
        newest = newest_object(run, writer)
        says = {} if newest is None else read_claim(newest)
        if _is_end(says):
            make_end_last(run, writer)
            return
        segment = journal_object(run, writer, 0 if newest is None else newest.first + 1)
        try:
            disk.create_durably(segment.path, object_of(segment, SEAL, None, (), session_money(says), by=by))
        except FileExistsError:  # the writer was faster
            continue
        return


def make_end_last(run: Path, writer: str) -> None:
    """Wait until the end of a journal is on the disk: whoever wrote it may have died, or have been refused by the disk,
    before it had waited. Without this, what builds on the end could last longer than the end. Raises StorageError."""
    folder = run / LOG / writer
    with disk.storage_errors(folder):
        disk.sync_directory(folder)


def refuse_sealed(run: Path, writer: str) -> None:
    """Raise FencedError if another process has ended a writer's journal: that one compacts what is in it."""
    newest = newest_object(run, writer)
    if newest is not None and read_claim(newest).get("kind") == SEAL:
        raise FencedError(_fenced(newest))


def has_ended(run: Path, writer: str) -> bool:
    """Whether nothing can be added to a journal any more. Raises CorruptLogError."""
    return _is_end(newest_claim(run, writer) or {})


def _is_end(says: dict[str, str]) -> bool:
    return says.get("kind") in (CLOSE, SEAL)


def newest_claim(run: Path, writer: str) -> dict[str, str] | None:
    """The footer of the newest object of one journal; None if it has none. Raises CorruptLogError."""
    newest = newest_object(run, writer)
    return None if newest is None else read_claim(newest)
