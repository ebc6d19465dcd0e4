"""Prepares a run's log for a new writer: the log is complete and durable, and no other process can write to it any
more."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.store import disk
from evalkit.store.bucket import BucketPath
from evalkit.store.files.damage import first_flaw
from evalkit.store.files.journal import Appender, has_ended, is_written_here, new_writer, open_journal, seal
from evalkit.store.files.layout import began, journals, lay_out
from evalkit.store.files.segment import KINDS, LOG, REMEDY, WRITER
from evalkit.store.lock import ENDING_S, LOOK_S
from evalkit.store.reading.index import RunIndex, read_index
from evalkit.store.writing.compact import adopt

MANIFESTS, SUITES = "manifest", "suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """A log that is open for writing."""

    journal: Appender
    index: RunIndex
    """What the log held before this writer's first object."""


def take_over(run: Path, session: str) -> OpenLog:
    """Make ready the log of a run that is held; its journal is named after the session where that is a writer's name.

    Raises CorruptLogError if files are missing, before anything is changed, or damaged; StorageError.
    """
    refuse_damage(run)
    tidy(run)
    if isinstance(run, BucketPath):  # on a disk they hold the lock until they have ended
        await_ends(run)
    others = list(journals(run))
    fits = WRITER.fullmatch(session) and all(began(other) < began(session) for other in others)
    journal = open_journal(run, session if fits else new_writer(others))
    adopt(run, journals(run).keys() - {journal.writer})
    return OpenLog(journal=journal, index=read_index(run))


def announce(run: Path, writer: str) -> None:
    """Show that there will be one more writer, before whoever leads the run is asked: its successor would seal it."""
    disk.make_directories(run / LOG / writer)


def withdraw(run: Path, writer: str) -> None:
    """It was not let in."""
    Appender(run=run, writer=writer).withdraw()


def join(run: Path, writer: str) -> OpenLog:
    """Make ready the log of a run for one more writer, beside the one that holds it and that has taken it over. It was
    announced. Raises CorruptLogError, StorageError."""
    return OpenLog(journal=Appender(run=run, writer=writer), index=read_index(run))


def end_journal(run: Path, writer: str, *, by: str) -> None:
    """End the journal of a writer whose process is gone, and compact what it did not: others may go on with its
    episodes then. Raises CorruptLogError, StorageError."""
    if not (run / LOG / writer).is_dir():
        return  # it had not begun to write
    seal(run, writer, by=by)
    # It may have ended before it waited for the name of a larger file, whose rows others build on now.
    _make_last(run / name for name in KINDS)
    adopt(run, {writer})


def await_ends(run: Path) -> None:
    """Wait a while for processes of this machine that write the run: whoever has started them is gone, so they commit
    what they have and close. What they closed need not be charged."""
    until = time.monotonic() + ENDING_S
    writing = list(journals(run))
    while time.monotonic() < until:
        writing = [writer for writer in writing if is_written_here(writer) and not has_ended(run, writer)]
        if not writing:
            return
        time.sleep(LOOK_S)


def refuse_damage(run: Path) -> None:
    """Look at every byte of a log that nobody writes: what is damaged is refused before money is spent on top of it,
    and before it is compacted. Raises CorruptLogError naming the file, StorageError."""
    flaw = first_flaw(run)
    if flaw:
        raise CorruptLogError(f"{run}: {flaw}. {REMEDY}")


def is_closed(run: Path) -> bool:
    """Whether nothing is left to be taken over: every journal has ended, and all before its end lies in compacted
    files."""
    try:
        ended = all(has_ended(run, writer) for writer in journals(run))
        layouts = [lay_out(run, kind) for kind in KINDS]
    except FileNotFoundError:
        return False  # a writer has moved it
    newest = layouts[0].newest
    rest = (segment for layout in layouts for segment in layout.segments if segment.is_object)
    return bool(newest) and ended and all(segment.first == newest.get(segment.writer) for segment in rest)


def tidy(run: Path) -> None:
    """Folders are there, without what a crash left under temporary names, and all names in them last, but for those
    in journals: whoever builds on a journal's end makes that last itself."""
    every = [run / LOG / writer for writer in journals(run)]
    folders = [run / name for name in (LOG, *KINDS)]
    for folder in folders:
        disk.make_directories(folder)
    for folder in (run, *folders, *every):
        disk.remove_leftovers(folder)
    # A process that was killed, or is stopped, may have named files and folders without waiting for the names: what is
    # built on now lasts.
    described = [run / name for name in (MANIFESTS, SUITES) if (run / name).is_dir()]
    _make_last((run.parent, run, *described, *folders))


def _make_last(folders: Iterable[Path]) -> None:
    """Wait until the names in folders are on the disk."""
    for folder in folders:
        with disk.storage_errors(folder):
            disk.sync_directory(folder)
