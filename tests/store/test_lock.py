import asyncio
import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from evalkit.errors import RunError, StorageError
from evalkit.store import lock
from evalkit.store.lock import FILE, hold_run, holder
from evalkit.store.writing.writer import open_store
from tests.support.run_directories import a_step

HOLD = """
import sys
from collections.abc import Callable
from pathlib import Path
from evalkit.store.lock import hold_run
with hold_run(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(run: Path) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_process_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start_holder(run) as child:
        before = (run / "lock").read_bytes()
        with pytest.raises(RunError, match=rf"process {child.pid} on {os.uname().nodename}"), hold_run(run):
            pass
        assert (run / "lock").read_bytes() == before
        seen = holder(run)
        assert seen is not None
        assert seen.pid == child.pid
        assert child.stdin is not None
        child.stdin.close()
    assert holder(run) is None


def test_the_lock_of_a_killed_process_is_no_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start_holder(run) as child:
        child.kill()
    with hold_run(run) as hold:
        assert hold.me.pid == os.getpid()
        assert holder(run) == hold.me


LEAVE = """
import subprocess, sys
from pathlib import Path
from evalkit.store.lock import hold_run
with hold_run(Path(sys.argv[1])) as hold:
    wait = "import os, sys; sys.stdin.read(); os.closerange(3, 256)"
    subprocess.Popen([sys.executable, "-S", "-c", wait], pass_fds=hold.descriptors)
    print("held", flush=True)
    sys.stdin.read()
"""
"""Holds a run, and starts a process that inherits what locks it. Both live until their standard input ends; its lock is
gone before its standard output is."""


class Orphaned:
    """A holder was killed, and what it has started lives until it is told to end."""

    def __init__(self, run: Path) -> None:
        words = [sys.executable, "-c", LEAVE, str(run)]
        self._elder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._elder.stdout is not None
        assert self._elder.stdout.readline() == "held\n"
        self._elder.kill()
        self._elder.wait()

    def end(self) -> None:
        """Return once the process has ended too."""
        assert self._elder.stdin is not None
        assert self._elder.stdout is not None
        self._elder.stdin.close()
        assert self._elder.stdout.read() == ""
        self._elder.stdout.close()


class Clock:
    """What `lock.py` knows of time: its sleeps are noted and take none; `looked` is called after the third look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looked: Callable[[], None] = lambda: None) -> None:
        self.slept, self._looked, self.time = list[float](), looked, time.time
        monkeypatch.setattr(lock, "time", self)

    def sleep(self, seconds: float) -> None:
        """Take no time."""
        self.slept.append(seconds)
        if self.slept.count(lock.LOOK_S) == 3:
            self._looked()


def test_what_a_killed_process_has_started_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = Orphaned(tmp_path / "run")
    clock = Clock(monkeypatch, left.end)
    with hold_run(tmp_path / "run") as hold:
        assert hold.me.pid == os.getpid()
    assert clock.slept.count(lock.LOOK_S) == 3


def test_what_a_killed_process_has_started_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, clock = Orphaned(tmp_path / "run"), Clock(monkeypatch)
    monkeypatch.setattr(lock, "ENDING_S", 0.5)
    with (
        pytest.raises(RunError, match=r"still being written by processes that process \d+ on \S+ has started"),
        hold_run(tmp_path / "run"),
    ):
        pass
    assert clock.slept.count(lock.LOOK_S) == 3
    left.end()


def test_a_process_that_lives_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOOK_S", "never: who waits raises a TypeError")
    with start_holder(tmp_path / "run") as child:
        with pytest.raises(RunError, match=f"process {child.pid} on"), hold_run(tmp_path / "run"):
            pass
        assert child.stdin is not None
        child.stdin.close()


def test_the_same_process_cannot_write_a_run_twice(tmp_path: Path) -> None:
    with hold_run(tmp_path), pytest.raises(RunError, match=str(os.getpid())), hold_run(tmp_path):
        pass


Change = Callable[[Path], None]


def delete(lock: Path) -> None:
    lock.unlink()


def replace(lock: Path) -> None:
    lock.with_name("other").write_bytes(lock.read_bytes())
    lock.with_name("other").replace(lock)


@pytest.mark.parametrize("change", [delete, replace])
def test_a_second_process_is_refused_although_the_file_is_gone(tmp_path: Path, change: Change) -> None:
    run = tmp_path / "run"
    with start_holder(run) as child:
        change(run / FILE)
        with pytest.raises(RunError, match="is being written"), hold_run(run):
            pass
        assert child.stdin is not None
        child.stdin.close()
    with hold_run(run):
        pass


def test_a_writer_puts_its_note_back_at_the_next_commit(tmp_path: Path) -> None:
    async def go() -> None:
        with open_store(tmp_path, session="s") as store:
            (tmp_path / FILE).unlink()
            store.append(a_step(step=0))
            await store.durable()
            found = holder(tmp_path)
            assert found is not None
            assert found.pid == os.getpid()

    asyncio.run(go())
    assert holder(tmp_path) is None


def test_a_directory_that_was_moved_is_written_no_more(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"

    async def go() -> None:
        with open_store(run, session="s") as store:
            run.rename(other)
            run.mkdir()
            store.append(a_step(step=0))
            with pytest.raises(StorageError, match="moved or deleted"):
                await store.durable()

    with pytest.raises(StorageError, match="moved or deleted"):
        asyncio.run(go())
    assert list(run.iterdir()) == []


@pytest.fixture
def no_directory_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that locks files alone, as NFS does."""
    lock = fcntl.flock

    def flock(file: int | IO[bytes], how: int) -> None:
        if isinstance(file, int) and stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EBADF, "no lock of a directory")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.usefixtures("no_directory_locks")
@pytest.mark.parametrize("change", [delete, replace])
def test_where_directories_have_no_locks_a_writer_stops_when_its_file_is_gone(tmp_path: Path, change: Change) -> None:
    async def go() -> None:
        with open_store(tmp_path, session="s") as store:
            with pytest.raises(RunError, match=str(os.getpid())), hold_run(tmp_path):
                pass
            store.append(a_step(step=0))
            await store.durable()
            change(tmp_path / FILE)
            store.append(a_step(step=1))
            with pytest.raises(StorageError, match="deleted or replaced"):
                await store.durable()

    with pytest.raises(StorageError, match="deleted or replaced"):
        asyncio.run(go())
    assert len(list((tmp_path / "log").glob("*/*.parquet"))) == 1
