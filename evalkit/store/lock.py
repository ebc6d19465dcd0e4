"""One writer per run: locks that the kernel releases when their holder dies, with a note that names the holder.

There are two locks: on the run's directory itself, which cannot be deleted without deleting the run, and on the file
`lock`, which contains the note. The file's lock stops processes that check only the file, and it is the only lock on a
file system that cannot lock directories.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from evalkit.errors import RunError, StorageError
from evalkit.store.bucket import BucketPath
from evalkit.store.disk import make_directories, storage_errors
from evalkit.store.files.journal import is_running
from evalkit.store.lead import Lead, lead_run, leads

FILE = "lock"

ENDING_S = 20.0
LOOK_S = 0.2
"""How long the end of processes is awaited that a killed one has started, and how often they are looked at."""
_TRIES = 5
_PAUSE_S = 0.02
"""A process that only checks whether a lock is held (`holder`) holds it for a moment itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that writes a run."""

    host: str
    pid: int
    started_at: float
    """Wall time, seconds since 1970."""


@dataclass(slots=True, kw_only=True)
class Hold:
    """A run that is locked for writing."""

    run: Path
    me: Holder
    _directory: int = field(repr=False)
    """Descriptor of the run's directory."""
    _locked: bool = field(repr=False)
    """Whether the directory itself is locked; if not, the file is all there is."""
    _file: int = field(repr=False)

    def check(self) -> None:
        """Check that the run is still locked: called before each commit, and costs two look-ups of names.

        A file `lock` that was deleted or replaced is restored if the directory is locked. Raises StorageError if it is
        not, or if the directory was renamed or deleted: then another process may write.
        """
        if not _same(self.run, self._directory):
            raise StorageError(_moved(self.run))
        path = self.run / FILE
        if _same(path, self._file):
            return
        if not self._locked:
            raise StorageError(
                f"{path} was deleted or replaced while the run was being written, so another process may write it too. "
                "Nothing more is written. Check that no other process does, then start the same command again; what "
                "was durable before is valid."
            )
        with storage_errors(path):
            fresh = _open(path)
        os.close(self._file)
        self._file = fresh
        if _seize(fresh, path):
            _sign(fresh, path, self.me)

    @property
    def descriptors(self) -> tuple[int, int]:
        """What a process inherits that writes for this one: the run is locked until it has ended too."""
        return self._directory, self._file

    def close(self) -> None:
        """Release the locks."""
        os.close(self._file)
        os.close(self._directory)


@contextmanager
def hold_run(run: Path) -> Iterator[Hold | Lead]:
    """Be the only writer of a run for as long as the context lasts; creates the directory if need be.

    Raises RunError naming the other holder's host and pid (nothing is written then), StorageError where the directory
    cannot be written. The lock of a dead process does not count. It does not matter whether the file `lock` is deleted
    or replaced.
    """
    if isinstance(run, BucketPath):
        with lead_run(run) as lead:
            yield lead
        return
    make_directories(run)
    path = run / FILE
    with storage_errors(run):
        directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    opened = [directory]
    try:
        locked = _seize_directory(directory)
        waited_s = 0.0
        while locked is False and waited_s < ENDING_S and is_gone(_read(path)):
            time.sleep(LOOK_S)
            waited_s += LOOK_S
            locked = _seize_directory(directory)
        with storage_errors(path):
            file = _open(path)
        opened.append(file)
        if locked is False or not _seize(file, path):
            raise RunError(_refusal(run, _read(path)))
        # Between opening and locking it may have been replaced: then another process may hold the new file.
        if not locked and not _same(path, file):
            raise RunError(_refusal(run, None))
        me = Holder(host=socket.gethostname(), pid=os.getpid(), started_at=time.time())
        _sign(file, path, me)
        hold = Hold(run=run, me=me, _directory=directory, _locked=bool(locked), _file=file)
        opened.clear()
    finally:
        for descriptor in opened:
            os.close(descriptor)
    try:
        yield hold
    finally:
        hold.close()


@contextmanager
def standing(run: Path) -> Iterator[Callable[[], None]]:
    """Watch a run that another process holds, which this one writes for: the check raises StorageError if the run is
    not where it was. One in a bucket has no place that could be lost, and a seal ends whoever writes it too long."""
    if isinstance(run, BucketPath):
        yield lambda: None
        return

    def check() -> None:
        if not _same(run, directory):
            raise StorageError(_moved(run))

    with storage_errors(run):
        directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield check
    finally:
        os.close(directory)


def refuse_writer(run: Path, verb: str) -> None:
    """Raise RunError if the run is being written; `verb`: what is to be done when that has ended."""
    other = holder(run)
    if other is not None:
        raise RunError(f"{run} is being written by process {other.pid} on {other.host}. {verb} it when that has ended.")


def holder(run: Path) -> Holder | None:
    """Who is writing the run at this moment; None if there is none, or if it has not written its note yet."""
    if isinstance(run, BucketPath):
        leader = leads(run)
        return None if leader is None else Holder(host=leader.host, pid=leader.pid, started_at=leader.started_at)
    path = run / FILE
    return _read(path) if _held(run) or _held(path) else None


def _held(path: Path) -> bool:
    """Whether a process holds the lock of a file or directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks of this kind
        return False
    finally:
        os.close(descriptor)
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def _same(path: Path, descriptor: int) -> bool:
    """Whether the name still refers to the open file."""
    try:
        named = path.stat()
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _seize(descriptor: int, path: Path) -> bool:
    with storage_errors(path):
        return _tried(descriptor)


def _seize_directory(descriptor: int) -> bool | None:
    """Whether the directory's lock could be taken; None on a file system that has none for directories."""
    try:
        return _tried(descriptor)
    except OSError:
        return None


def _tried(descriptor: int) -> bool:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _sign(descriptor: int, path: Path, me: Holder) -> None:
    with storage_errors(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps(me, option=orjson.OPT_APPEND_NEWLINE), 0)


def _read(path: Path) -> Holder | None:
    try:
        value = orjson.loads(path.read_bytes())
        return Holder(host=str(value["host"]), pid=int(value["pid"]), started_at=float(value["started_at"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _moved(run: Path) -> str:
    return (
        f"{run} was moved or deleted while it was being written. Nothing more is written. Put the "
        "directory back, then start the same command again; what was durable before is valid."
    )


def is_gone(holder: Holder | None) -> bool:
    """Whether a process of this machine that held a lock has ended: what it has started ends soon."""
    if holder is None or holder.host != socket.gethostname():
        return False
    return not is_running(holder.pid)


def _refusal(run: Path, other: Holder | None) -> str:
    if other is None:
        return f"{run} is being written by another process. Wait until it has ended."
    if is_gone(other):
        return (
            f"{run} is still being written by processes that process {other.pid} on {other.host} has started; it was "
            "killed, and they have not ended. Stop them, or choose another run name."
        )
    since = max(0.0, time.time() - other.started_at)
    return (
        f"{run} is being written by process {other.pid} on {other.host}, for {since:.0f} s now. "
        "Wait until it has ended, stop it, or choose another run name."
    )
