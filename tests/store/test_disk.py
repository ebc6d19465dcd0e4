import errno
import os
import re
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import StorageError, UsageError
from evalkit.store import disk

OPERATIONS = ("write", "sync_file", "rename", "sync_directory")


class Shim:
    """Records what is done to the disk; may leave one operation out, as a careless change would."""

    def __init__(self, patch: pytest.MonkeyPatch, without: str = "") -> None:
        self.done: list[tuple[str, str]] = []
        for name in (*OPERATIONS, "link"):
            patch.setattr(disk, name, self._recording(name, getattr(disk, name), name == without))

    def _recording(self, name: str, real: Callable[..., object], left_out: bool) -> Callable[..., object]:
        def call(*args: Any) -> object:
            if left_out:
                return FileIO(args[0], "w") if name == "write" else None
            subject = args[-1] if name in ("rename", "link") else args[0]
            self.done.append((name, Path(subject.name if isinstance(subject, FileIO) else str(subject)).name))
            return real(*args)

        return call


def durable(done: list[tuple[str, str]], name: str, folder: str, *, new: bool = False) -> bool:
    """Whether a file was written aside, synced, given its name and its directory synced: in this order. `new`: the name
    was one that nothing had."""
    aside, naming = (f".{name}.{os.getpid()}.tmp", "link") if new else (f".{name}.tmp", "rename")
    wanted = [("write", aside), ("sync_file", aside), (naming, name), ("sync_directory", folder)]
    rest = iter(done)
    return all(step in rest for step in wanted)


def test_a_file_is_written_aside_synced_renamed_and_its_directory_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = Shim(monkeypatch)
    disk.write_durably(tmp_path / "one", b"content")
    assert durable(shim.done, "one", tmp_path.name)
    assert (tmp_path / "one").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("left_out", OPERATIONS)
def test_leaving_out_any_operation_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    shim = Shim(monkeypatch, without=left_out)
    disk.write_durably(tmp_path / "one", b"content")
    assert not durable(shim.done, "one", tmp_path.name)


@pytest.mark.parametrize("broken", OPERATIONS)
@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "writable"), (errno.EIO, "Check the disk")]
)
def test_a_refusing_disk_is_named_with_a_remedy_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, number: int, remedy: str
) -> None:
    disk.write_durably(tmp_path / "one", b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk, broken, refuse)
    with pytest.raises(StorageError, match=rf"(?s){re.escape(str(tmp_path / 'one'))}.*{remedy}"):
        disk.write_durably(tmp_path / "one", b"new")
    assert (tmp_path / "one").read_bytes() == (b"new" if broken == "sync_directory" else b"old")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_parts_are_written_as_one_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = Shim(monkeypatch)
    disk.write_parts_durably(tmp_path / "one", (b"%d\n" % i for i in range(3)))
    assert durable(shim.done, "one", tmp_path.name)
    assert (tmp_path / "one").read_bytes() == b"0\n1\n2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_part_that_cannot_be_made_leaves_the_old_file(tmp_path: Path) -> None:
    disk.write_durably(tmp_path / "one", b"old")

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise UsageError("no more")

    with pytest.raises(UsageError, match="no more"):
        disk.write_parts_durably(tmp_path / "one", parts())
    assert (tmp_path / "one").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_new_directories_are_synced_into_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = Shim(monkeypatch)
    disk.make_directories(tmp_path / "a" / "b")
    assert shim.done == [("sync_directory", tmp_path.name), ("sync_directory", "a")]


def test_half_a_line_left_by_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":1}\n{"b"')
    disk.append_lines(path, b'{"c":3}\n')
    assert path.read_bytes() == b'{"a":1}\n{"b"\n{"c":3}\n'


@pytest.mark.parametrize("left_out", ["", "write", "sync_file", "link", "sync_directory"])
def test_leaving_out_any_operation_of_creating_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    shim = Shim(monkeypatch, without=left_out)
    disk.create_durably(tmp_path / "one", b"content")
    assert durable(shim.done, "one", tmp_path.name, new=True) is (not left_out)


def test_of_two_that_create_a_file_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "one"
    disk.create_durably(path, b"first")
    with pytest.raises(FileExistsError):
        disk.create_durably(path, b"second")
    assert path.read_bytes() == b"first"
    assert [one.name for one in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_renames_and_replaces_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    test_of_two_that_create_a_file_one_succeeds(tmp_path)


def test_a_disk_that_refuses_to_create_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="free some space"):
        disk.create_durably(tmp_path / "one", b"data")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "events.jsonl")
    with pytest.raises(StorageError, match=r"events\.jsonl: (this is no regular file|Is a directory)"):
        disk.read_lines(tmp_path / "events.jsonl")
