"""One writer a run: a lock that the kernel takes back when its holder dies, with a note saying who holds it."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from evalkit.errors import RunError
from evalkit.store.disk import make_directories, storage_errors

FILE = "lock"

_TRIES = 5
_PAUSE_S = 0.02
"""Somebody who only looks whether the lock is held (`holder`) holds it for a moment himself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who writes a run."""

    host: str
    pid: int
    started_at: float
    """Wall time, seconds since 1970."""


@contextmanager
def hold_run(run: Path) -> Iterator[Holder]:
    """Be the only writer of a run for as long as the context lasts; creates the directory if need be.

    Raises RunError naming the other holder's host and pid (nothing is written then), StorageError where the directory
    cannot be written. The lock of a dead process is no lock. The file stays: deleting it would let two writers in.
    """
    make_directories(run)
    path = run / FILE
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _seize(descriptor, path):
            raise RunError(_refusal(run, _read(path)))
        me = Holder(host=socket.gethostname(), pid=os.getpid(), started_at=time.time())
        with storage_errors(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _note(me), 0)
        yield me
    finally:
        os.close(descriptor)  # gives the lock back


def holder(run: Path) -> Holder | None:
    """Who is writing the run at this moment; None if nobody is, or if he has not signed yet."""
    path = run / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def _seize(descriptor: int, path: Path) -> bool:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)
        with storage_errors(path), suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _note(me: Holder) -> bytes:
    return orjson.dumps({"host": me.host, "pid": me.pid, "started_at": me.started_at}) + b"\n"


def _read(path: Path) -> Holder | None:
    try:
        value = orjson.loads(path.read_bytes())
        return Holder(host=str(value["host"]), pid=int(value["pid"]), started_at=float(value["started_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _refusal(run: Path, other: Holder | None) -> str:
    if other is None:
        return f"{run} is being written by another process. Wait until it has ended."
    since = max(0.0, time.time() - other.started_at)
    return (
        f"{run} is being written by process {other.pid} on {other.host}, for {since:.0f} s now. "
        "Wait until it has ended, stop it, or choose another run name."
    )
