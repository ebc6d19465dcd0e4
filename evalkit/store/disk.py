"""The only module that writes what must last: a temporary file, fsync, rename, fsync of the directory; where a run is
in a bucket, one request to its store.

Each operation is a function of its own, looked up in this module when it is called, so that a test can record the order
of operations or break one of them. Every failure becomes a StorageError that says what to do.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from evalkit.errors import StorageError
from evalkit.files import TOO_LONG
from evalkit.store.bucket import BucketPath

ASIDE = ".tmp"
"""Ending of a temporary name; with the dot in front no glob for `*.parquet` or `*.json` finds the file."""

# macOS: fsync leaves the data in the drive's cache, only this command empties it.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Make `path` contain `data`, completely or not at all. After the return it survives a power loss.

    Raises StorageError; an older file of that name is then still intact. In a bucket no older object is replaced by
    one with other bytes: only another process can have made it.
    """
    if isinstance(path, BucketPath):
        try:
            path.create(data)
            return
        except FileExistsError:
            raise StorageError(
                f"{path} has just been written by another process. Check that no other process writes this run, then "
                "start the same command again; what was durable before is valid."
            ) from None
    aside = path.with_name(f".{path.name}{ASIDE}")
    with storage_errors(path):
        try:
            with write(aside, data) as file:
                sync_file(file)
            rename(aside, path)
        except OSError:
            # The directory itself may refuse; the next open removes what remains.
            _forget(aside)
            raise
        sync_directory(path.parent)


def create_durably(path: Path, data: bytes | memoryview) -> None:
    """Make a new file `path` that contains `data`, completely or not at all. After the return it survives a power loss.

    If several try, one succeeds. Raises FileExistsError for the others, of whose data nothing remains, and
    StorageError.
    """
    if isinstance(path, BucketPath):
        path.create(data)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}{ASIDE}")
    taken = False
    with storage_errors(path):
        try:
            with write(aside, data) as file:
                sync_file(file)
            try:
                link(aside, path)
            except FileExistsError:
                taken = True
        finally:
            _forget(aside)
        sync_directory(path.parent)  # also if the name is taken: the caller relies on that file
    if taken:
        raise FileExistsError(path)


def write_parts_durably(path: Path, parts: Iterable[bytes]) -> None:
    """The same as `write_durably` for data that is made while it is written: only one part is in memory at a time.

    Raises StorageError, and whatever making a part raises; an older file of that name is then still intact. In a bucket
    all of it is in memory, and an older object is replaced.
    """
    if isinstance(path, BucketPath):
        path.put(b"".join(parts))
        return
    aside = path.with_name(f".{path.name}{ASIDE}")
    done = False
    with storage_errors(path):
        try:
            with write(aside, b"") as file:
                for part in parts:
                    _write_all(file, part)
                sync_file(file)
            rename(aside, path)
            done = True
        finally:
            if not done:
                _forget(aside)
        sync_directory(path.parent)


def write(path: Path, data: bytes | memoryview) -> FileIO:
    """Create or empty the file and write all of `data`; returns it open, for `sync_file`."""
    file = FileIO(path, "w")
    try:
        _write_all(file, data)
    except OSError:
        file.close()
        raise
    return file


def _write_all(file: FileIO, data: bytes | memoryview) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]


def sync_file(file: FileIO) -> None:
    """Wait until the file's content is on the disk."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(file.fileno(), _FULL_SYNC)
        except OSError:  # a file system without it; plain fsync is all there is
            os.fsync(file.fileno())
    else:
        os.fsync(file.fileno())


def rename(source: Path, target: Path) -> None:
    """Give the file its name, in one step."""
    source.rename(target)


def link(source: Path, target: Path) -> None:
    """Give the file a second name, in one step; on a file system without hard links, rename it.

    Raises FileExistsError if the name is taken: then nothing has changed.
    """
    try:
        os.link(source, target)
    except OSError as flaw:
        if flaw.errno not in _NO_LINKS:
            raise
        _rename_exclusively(source, target)


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NO_REPLACE, _EXCL = 1, 4
"""Flags of Linux's `renameat2` and of macOS's `renamex_np`."""


def _rename_exclusively(source: Path, target: Path) -> None:
    """Rename, but replace nothing: for file systems without hard links."""
    library = ctypes.CDLL(None, use_errno=True)
    before, after = os.fsencode(source), os.fsencode(target)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, before, _HERE, after, _NO_REPLACE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(before, after, _EXCL)
    else:
        raise OSError(errno.ENOTSUP, f"the file system has no hard links, and {sys.platform} has no exclusive renaming")
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


_HERE = -100
"""Linux's number for the working directory."""


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    if isinstance(path, BucketPath):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Create a directory with its parents; their names are on the disk once this returns. Raises StorageError."""
    if isinstance(path, BucketPath):
        path.begin_folder()
        return
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    with storage_errors(path):
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent)


def put(path: Path, data: bytes) -> None:
    """Put a file in place that the log does not depend on, in one step and not durably; its folder is created.

    Several processes may do the same at once. If the disk refuses, nothing changes, and nothing is said.
    """
    if isinstance(path, BucketPath):
        with suppress(StorageError):
            path.put_once(data)
        return
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{ASIDE}")
    try:
        path.parent.mkdir(exist_ok=True)
        aside.write_bytes(data)
        aside.replace(path)
    except OSError:
        _forget(aside)


def append_lines(path: Path, data: bytes) -> None:
    """Add whole lines to a text file. Not synced: its content is for people. Raises StorageError.

    In a bucket each call adds an object to a folder that stands for the file (`read_lines`).
    """
    if isinstance(path, BucketPath):
        (path.parent / path.stem / f"{time.time_ns():020d}-{secrets.token_hex(4)}{path.suffix}").put(data)
        return
    with storage_errors(path), path.open("ab") as file:
        if file.tell() and not _ends_a_line(path):
            file.write(b"\n")  # a crash left half a line
        file.write(data)


def read_lines(path: Path) -> bytes:
    """What `append_lines` has added; nothing if there is no such file. Raises StorageError.

    A run that was brought from a bucket, or to one, by another program has the folder beside the file.
    """
    folder = path.parent / path.stem
    if isinstance(folder, BucketPath):
        names = sorted(folder.below())
    else:
        names = sorted(one.name for one in folder.glob(f"*{path.suffix}"))
    return b"".join(read_whole(part) or b"" for part in (path, *(folder / name for name in names)))


def remove(path: Path) -> None:
    """Delete a file whose content is durable elsewhere; a missing file is not an error."""
    with storage_errors(path):
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Delete what a crash left under temporary names."""
    if isinstance(directory, BucketPath):
        return  # an object appears completely or not at all
    for path in directory.glob(f".*{ASIDE}"):
        remove(path)


def read_whole(path: Path) -> bytes | None:
    """A file's content; None if there is none. Raises StorageError for one that cannot be read. A pipe or a device is
    none: it would be read without end."""
    with storage_errors(path), suppress(FileNotFoundError):
        if not isinstance(path, BucketPath) and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise OSError(errno.EINVAL, "this is no regular file")
        return path.read_bytes()
    return None


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the path and the remedy."""
    try:
        yield
    except OSError as flaw:
        raise StorageError(f"{path}: {flaw.strerror or flaw}. {_remedy(flaw.errno)}") from flaw


def entries_of(folder: Path) -> "Sequence[Entry]":
    """What is in a folder; nothing if there is no folder. A glob of pathlib takes several times as long. Raises
    StorageError."""
    if isinstance(folder, BucketPath):
        return folder.entries()
    with storage_errors(folder), suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        return list(found)
    return []


class Entry(Protocol):
    """What is in a folder."""

    @property
    def name(self) -> str:
        """Without the folder's."""

    def is_dir(self) -> bool:
        """Whether it is a folder, or a link to one."""

    def is_symlink(self) -> bool:
        """Whether it is a link."""


def _remedy(number: int | None) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "The disk or quota is full: free some space, then start the same command again; the log is valid."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make the directory writable for this user, then start the same command again; the log is valid."
    if number == errno.ENAMETOOLONG:
        return TOO_LONG
    return "Check the disk, then start the same command again; what was durable before is valid."


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
