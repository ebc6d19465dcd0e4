"""What of a run's directory cannot be made again, and a run in a bucket as a folder of this machine."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalkit.frozen.manifests import FOLDER, SPEC_FOLDER, read_manifest
from evalkit.frozen.question_files import ANSWERS, QUESTION
from evalkit.store import disk
from evalkit.store.bucket import BucketPath
from evalkit.store.events import FILE as EVENTS
from evalkit.store.lock import refuse_writer

KEPT = (
    *(FOLDER, "suites", SPEC_FOLDER, "log", "steps", "ledger"),
    *(EVENTS, Path(EVENTS).stem, "voids.jsonl", QUESTION, ANSWERS),
)
"""What of a run's directory cannot be made again. The rest is derived, a lock, or the bill of a simulated provider."""


def kept_files(run: Path) -> dict[str, int]:
    """By name within the run, in order: the size of each file that belongs to it."""
    if isinstance(run, BucketPath):
        every = run.below()
    else:
        tops = (run / name for name in KEPT)
        paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
        every = {path.relative_to(run).as_posix(): path.stat().st_size for path in paths}
    return {
        name: every[name]
        for name in sorted(every)
        if name.split("/")[0] in KEPT and not any(part.startswith(".") for part in name.split("/"))
    }


@contextmanager
def on_disk(run: Path) -> Iterator[Path]:
    """A run as a folder of this machine: where it is in a bucket, a copy that goes afterwards.

    Raises RunError if it is none or is being written, CorruptLogError, StorageError.
    """
    if not isinstance(run, BucketPath):
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="evalkit-") as room:
        folder = Path(room) / run.name
        download(run, folder)
        yield folder


def download(run: Path, folder: Path) -> None:
    """Bring the files of a run to a folder. Raises as `on_disk`."""
    read_manifest(run)
    refuse_writer(run, "Copy")
    for name in kept_files(run):
        if name.split("/")[0] in (EVENTS, Path(EVENTS).stem):
            continue
        with disk.storage_errors(folder):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((run / name).read_bytes())
    disk.append_lines(folder / EVENTS, disk.read_lines(run / EVENTS))
