"""A new folder that is there whole or not at all: filled beside its place under a hidden name, then renamed."""

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
    """A folder to fill; it becomes `path` when the context is left in peace, and is deleted otherwise.

    Raises UsageError where something is there already, StorageError where the disk refuses.
    """
    refuse_existing(path)
    disk.make_directories(path.absolute().parent)
    with disk.storage_errors(path):
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=disk.ASIDE, dir=path.absolute().parent))
    done = False
    try:
        with disk.storage_errors(path):
            aside.chmod(0o755)  # as `mkdir` would have made it, had it been made in its place
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
    """Raise UsageError where something has the name already."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already; nothing was written. Choose another name.")


def _sync(folder: Path) -> None:
    for where, _, names in os.walk(folder):
        for name in names:
            with (Path(where) / name).open("rb") as file:
                os.fsync(file.fileno())
        disk.sync_directory(Path(where))
