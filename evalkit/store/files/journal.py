"""One writer's journal: numbered objects, each created once and never changed.

A writer appends objects to its own folder. To stop it, another process creates the object with its next number, a seal.
So safety depends only on the creation of a file that must not exist yet: not on a clock, and not on a lock that may
have been lost. A commit's steps and money become durable by one object, and each object names its predecessor by a
digest over all its bytes. What a footer contains, besides format, kind, number and rows:

    writer, by     whose journal it is of, and who wrote it: a seal is another's
    nonce          drawn for each object
    before         digest of the object before; empty in the first
    money          the commit's money rows
    totals         what the writer has done so far (`totals.py`)
    heads          in the first: by writer, number and digest of the newest object of every journal that there was
    compacted      by writer and kind: name and digest of the newest compacted file, its own and of those it took over
    repaired       by file: digest of what a repair has put in its place
    check          digest of all that the footer says
"""

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from evalkit.errors import CorruptLogError, FencedError
from evalkit.store import disk
from evalkit.store.files.layout import began, journal_object, journals, newest_object
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import (
    CLOSE,
    COMMIT,
    LOG,
    REMEDY,
    SEAL,
    WRITER,
    Segment,
    digest_of,
    encode_object,
    json_of,
    money_text,
    read_claim,
)

Named = tuple[str, str]
"""A file of the log, by its name within the run and its digest."""


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
    if host != _host() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


@dataclass(slots=True, kw_only=True)
class Carried:
    """What each object repeats from those before it, so that the newest one has it all."""

    totals: str = "{}"
    compacted: dict[str, dict[str, Named]] = field(default_factory=dict)
    """By writer and kind: the newest compacted file."""
    repaired: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """The same as JSON for a footer; empty values are left out."""
        facts = {"totals": self.totals}
        if self.compacted:
            facts["compacted"] = orjson.dumps(self.compacted).decode()
        if self.repaired:
            facts["repaired"] = orjson.dumps(self.repaired).decode()
        return facts


@dataclass(slots=True, kw_only=True)
class Appender:
    """A writer's own journal, open for appending. Not for two threads at once."""

    run: Path
    writer: str
    heads: Mapping[str, tuple[int, str]]
    carried: Carried = field(default_factory=Carried)
    number: int = 0
    """Of the next object."""
    before: str = ""
    """Digest of the one before."""

    def commit(self, table: pa.Table | None, entries: Sequence[LedgerRecord] = ()) -> Segment:
        """Make rows durable, with what is carried. Raises FencedError, StorageError."""
        return self._append(COMMIT, table, {"money": money_text(entries)} if entries else {})

    def close(self) -> None:
        """End the journal. Raises FencedError, StorageError."""
        self._append(CLOSE, None, {})

    def withdraw(self) -> None:
        """Nothing was written: remove the journal, unless another process has ended it meanwhile."""
        with suppress(OSError):
            (self.run / LOG / self.writer).rmdir()

    def _append(self, kind: str, table: pa.Table | None, more: Mapping[str, str]) -> Segment:
        segment = journal_object(self.run, self.writer, self.number)
        if not self.number:
            disk.make_directories(segment.path.parent)
            more = {**more, "heads": orjson.dumps(self.heads).decode()}
        data = memoryview(
            encode_object(
                table,
                {
                    "kind": kind,
                    "writer": self.writer,
                    "by": self.writer,
                    "number": str(self.number),
                    "nonce": secrets.token_hex(8),
                    "before": self.before,
                    **self.carried.facts(),
                    **more,
                },
            )
        )
        try:
            disk.create_durably(segment.path, data)
        except FileExistsError:
            if disk.read_whole(segment.path) != bytes(data):  # else it is ours, and only its confirmation was lost
                raise FencedError(_fenced(segment)) from None
        self.number, self.before = self.number + 1, digest_of(data)
        return segment


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
    own = Appender(run=run, writer=writer, heads={})
    disk.make_directories(run / LOG / writer)
    heads: dict[str, tuple[int, str]] = {}
    # A worker shows its folder before its coordinator answers it, and a coordinator that is sealed answers nobody: so
    # a folder that appears while others are sealed is found by the next look, and none appears after that.
    while others := [one.writer for one in journals(run) if one.writer != writer and one.writer not in heads]:
        newer = [other for other in others if began(other) > began(writer)]
        if newer:
            own.withdraw()
            raise FencedError(
                f"Another process ({newer[-1]}) has begun to write {run} at this moment. Nothing was written here. "
                "Check that no other process writes it, then start the same command again."
            )
        for other in others:
            seal(run, other, by=writer)
            heads[other] = head_of(run, other)
    own.heads = heads
    return own


def seal(run: Path, writer: str, *, by: str) -> None:
    """End another writer's journal by its next object, unless it has ended; the end is on the disk once this returns.
    Raises CorruptLogError, StorageError."""
    while True:
        newest = newest_object(run, writer)
        says = {} if newest is None else read_claim(newest)
        if says.get("kind") in (CLOSE, SEAL):
            make_end_last(run, writer)
            return
        number = 0 if newest is None else newest.first + 1
        facts = {
            "kind": SEAL,
            "writer": writer,
            "by": by,
            "number": str(number),
            "nonce": secrets.token_hex(8),
            "before": "" if newest is None else digest_of(newest.path.read_bytes()),
            **{name: says[name] for name in ("totals", "compacted", "repaired") if name in says},
            **({} if number else {"heads": "{}"}),
        }
        path = journal_object(run, writer, number).path
        try:
            disk.create_durably(path, memoryview(encode_object(None, facts)))
        except FileExistsError:  # the writer was faster
            continue
        return


def make_end_last(run: Path, writer: str) -> None:
    """Wait until the end of a journal is on the disk: whoever wrote it may have died, or have been refused by the disk,
    before it had waited. Without this, an object that names the end could last longer than the end. Raises
    StorageError."""
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
    says = newest_claim(run, writer)
    return says is not None and says.get("kind") in (CLOSE, SEAL)


def head_of(run: Path, writer: str) -> tuple[int, str]:
    """Number and digest of the newest object of a journal that has one."""
    newest = newest_object(run, writer)
    assert newest is not None
    with disk.storage_errors(newest.path):
        return newest.first, digest_of(newest.path.read_bytes())


def newest_claim(run: Path, writer: str) -> dict[str, str] | None:
    """The footer of the newest object of one journal; None if it has none. Raises CorruptLogError."""
    newest = newest_object(run, writer)
    return None if newest is None else read_claim(newest)


def newest_claims(run: Path) -> dict[str, dict[str, str]]:
    """By writer, in order, the footer of the newest object of its journal: one file per writer, whatever the run's
    length.

    While the run is being written, another may be added; that does not matter. Raises CorruptLogError.
    """
    return {
        journal.writer: read_claim(journal.object(run, journal.numbers[-1]))
        for journal in journals(run)
        if journal.numbers
    }


def carried_of(says: Mapping[str, str], where: str) -> Carried:
    """What an object carries. Raises CorruptLogError."""
    compacted = json_of(says, "compacted", where)
    repaired = json_of(says, "repaired", where)
    try:
        named = {
            str(writer): {str(kind): (str(name), str(digest)) for kind, (name, digest) in files.items()}
            for writer, files in compacted.items()
        }
        return Carried(
            totals=says.get("totals", "{}"),
            compacted=named,
            repaired={str(name): str(digest) for name, digest in repaired.items()},
        )
    except (ValueError, TypeError, AttributeError) as flaw:
        raise CorruptLogError(f"{where} is damaged (what it carries: {flaw}). {REMEDY}") from flaw


def heads_of(says: Mapping[str, str], where: str) -> dict[str, tuple[int, str]]:
    """The newest objects that are named by a journal's first object, or by the compacted file that contains it. Raises
    CorruptLogError."""
    heads: Any = json_of(says, "heads", where)
    try:
        return {str(writer): (int(number), str(digest)) for writer, (number, digest) in heads.items()}
    except (ValueError, TypeError, AttributeError) as flaw:
        raise CorruptLogError(f"{where} is damaged (its heads: {flaw}). {REMEDY}") from flaw
