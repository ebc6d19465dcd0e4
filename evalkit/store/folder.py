"""A new folder that appears completely or not at all: filled next to its place under a hidden name, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.store import disk


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `path` when the context ends without an error, and is deleted otherwise.

    Raises UsageError if the name is taken, StorageError if the disk refuses.
    """
    refuse_existing(path)
    disk.make_directories(path.absolute().parent)
    with disk.storage_errors(path):
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=disk.ASIDE, dir=path.absolute().parent))
    done = False
    try:
        with disk.storage_errors(path):
            aside.chmod(0o755)  # the mode that `mkdir` would have given
            yield aside
            _sync(aside)
            refuse_existing(path)
            disk.rename(aside, path)
            done = True
            disk.sync_directory(path.absolute().parent)
    finally:
        if not done:
            shutil.rmtree(aside, ignore_errors=True)


def refuse_existing(path: Path) -> None:
    """Raise UsageError if the name is taken."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already; nothing was written. Choose another name.")


DIGITS = 6


def numbered(folder: Path) -> list[Path]:
    """The files `000000.json`, `000001.json`, ... of a folder, in order; none if there is no folder. Raises
    StorageError."""
    if not folder.is_dir():
        return []
    with disk.storage_errors(folder):
        return sorted(path for path in folder.glob("*.json") if path.stem.isdecimal() and len(path.stem) == DIGITS)


def next_numbered(folder: Path) -> Path:
    """The file after those."""
    files = numbered(folder)
    number = int(files[-1].stem) + 1 if files else 0
    return folder / f"{number:0{DIGITS}}.json"


def _sync(folder: Path) -> None:
    for where, _, names in os.walk(folder):
        for name in names:
            with (Path(where) / name).open("rb") as file:
                os.fsync(file.fileno())
        disk.sync_directory(Path(where))
