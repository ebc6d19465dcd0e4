"""Copies of a run, from disk or bucket to disk or bucket. A copy is complete, or is no run.

Each file is read back and compared; then the whole chain of digests is followed, so that what was damaged before is
noticed too. The copied log is the same: only who holds the run, and what it shows while it is played, stay behind.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evalkit.errors import RunError, UsageError
from evalkit.store import disk
from evalkit.store.bucket import BucketPath
from evalkit.store.events import FILE as EVENTS
from evalkit.store.files.chain import digest_of_file
from evalkit.store.folder import new_folder
from evalkit.store.lock import refuse_writer
from evalkit.store.manifests import FOLDER, is_run, read_manifest
from evalkit.store.question_files import ANSWERS, QUESTION
from evalkit.store.spec_file import FOLDER as SPEC
from evalkit.store.writing.opening import refuse_damage

KEPT = (
    *(FOLDER, "suites", SPEC, "log", "steps", "ledger", "ends"),
    *(EVENTS, "voids.jsonl", QUESTION, ANSWERS),
)
"""What of a run's directory cannot be made again. The rest is derived, a lock, or the bill of a simulated provider."""
BESIDE = ("derived", "forecast.json")
"""What takes long to make again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied."""

    files: int
    bytes: int


def kept_files(run: Path, kept: tuple[str, ...] = KEPT) -> dict[str, int]:
    """By name within the run, in order: the size of each file that belongs to it."""
    if isinstance(run, BucketPath):
        every = run.below()
    else:
        tops = (run / name for name in kept)
        paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
        every = {path.relative_to(run).as_posix(): path.stat().st_size for path in paths}
    return {
        name: every[name]
        for name in sorted(every)
        if name.split("/")[0] in kept and not any(part.startswith(".") for part in name.split("/"))
    }


def copy_run(run: Path, target: Path) -> Copied:
    """Copy a run to a place that has none. Raises RunError, UsageError, CorruptLogError (the source is damaged),
    StorageError.

    What a broken copy has left in a bucket is no run, and the same copy goes on with it.
    """
    read_manifest(run)
    refuse_writer(run, "Copy")
    if isinstance(target, BucketPath):
        copied = _fill_bucket(run, target)
    else:
        with new_folder(target) as folder:
            copied = _fill(run, folder)
            refuse_damage(folder)
    return copied


def _fill_bucket(run: Path, target: BucketPath) -> Copied:
    if is_run(target):
        raise UsageError(f"{target} holds a run already; nothing was written. Choose another name.")
    # What a broken copy left has the names of this one.
    strangers = {name.split("/")[0] for name in target.below()} - {*KEPT, *BESIDE, Path(EVENTS).stem}
    if strangers:
        raise UsageError(f"{target} is not empty ({min(strangers)}); nothing was written. Choose another name.")
    here = kept_files(run, (*KEPT, *BESIDE))
    for name in target.below():
        if name not in here:
            (target / name).unlink(missing_ok=True)
    copied = _fill(run, target)
    refuse_damage(target)
    return copied


def _fill(run: Path, target: Path) -> Copied:
    """All files, the manifest last: before it is there, the copy is no run."""
    before = kept_files(run, (*KEPT, *BESIDE))
    events = disk.read_lines(run / EVENTS)
    if events:
        disk.append_lines(target / EVENTS, events)
    for name in sorted(before.keys() - {EVENTS}, key=lambda name: (name.split("/")[0] == FOLDER, name)):
        _copy(run / name, target / name)
    refuse_writer(run, "Copy")
    if kept_files(run, KEPT) != {name: size for name, size in before.items() if name.split("/")[0] in KEPT}:
        raise RunError(f"{run} has changed while it was copied: it is being written. Copy it when that has ended.")
    return Copied(files=len(before), bytes=sum(before.values()))


def _copy(source: Path, target: Path) -> None:
    with disk.storage_errors(target):
        if isinstance(target, BucketPath):
            target.put(source.read_bytes())
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
    if digest_of_file(source) != digest_of_file(target):
        raise RunError(f"{target} is not what {source} holds. Check the disk or the store, then copy again.")


@contextmanager
def on_disk(run: Path) -> Iterator[Path]:
    """A run as a folder of this machine: where it is in a bucket, a copy that goes afterwards. Raises as `copy_run`."""
    if not isinstance(run, BucketPath):
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="evalkit-") as room:
        folder = Path(room) / run.name
        copy_run(run, folder)
        yield folder
