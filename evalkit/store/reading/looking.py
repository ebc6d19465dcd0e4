"""Retries for a log that is being written: files may move while they are read, and are then searched again."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from evalkit.errors import CorruptLogError
from evalkit.store.files.layout import Layout, journal_object, lay_out
from evalkit.store.files.segment import KINDS, REMEDY, Kind, Segment

LOOKS = 6
PAUSE_S = 0.05
"""How often, and after which pauses, a listing without an expected file is repeated."""
CHANGES = 60
"""How often in all, where each listing lacks another file than the one before: somebody writes faster than this process
reads."""

_ReadT = TypeVar("_ReadT")


class UnsettledListing(Exception):
    """A listing that cannot be right as it stands: `where` and `what`, as messages name them."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


def patiently(run: Path, read: Callable[[], _ReadT]) -> _ReadT:
    """The result of `read`, once it finds neither an Unsettled listing nor a missing file. Raises CorruptLogError if
    repeating does not help, and what `read` raises."""
    found = ("", "")
    alike = 0
    for _ in range(CHANGES):
        try:
            return read()
        except FileNotFoundError as gone:
            before, found = found, ("log", f"keeps changing while it is read: {Path(str(gone)).name} is gone")
        except UnsettledListing as flaw:
            before, found = found, (flaw.where, flaw.what)
        alike = alike + 1 if found == before else 1
        if alike == LOOKS:
            break
        time.sleep(PAUSE_S)
    where, what = found
    raise CorruptLogError(f"{run}: {where} {what}. {REMEDY}")


def settled(run: Path, kind: Kind) -> Layout:
    """The files of one kind, of which none is missing. Raises Unsettled."""
    layout = lay_out(run, kind)
    for where, what in layout.flaws:
        raise UnsettledListing(where, what)
    return layout


def files_at_once(run: Path) -> dict[Kind, list[Segment]]:
    """The files of each kind, all of them as of the moment at which the first kind's objects were listed. Raises
    Unsettled."""
    files: dict[Kind, list[Segment]] = {}
    upto: Mapping[str, int] | None = None
    for kind in KINDS:
        layout = settled(run, kind)
        upto = layout.newest if upto is None else upto
        files[kind] = [segment for segment in layout.segments if _within(run, segment, upto)]
    return files


def _within(run: Path, segment: Segment, upto: Mapping[str, int]) -> bool:
    """Whether a file is of the moment when these were the newest objects. Raises Unsettled if it is in part."""
    newest = upto.get(segment.writer, -1)
    if segment.last <= newest:
        return True
    if not segment.is_object:
        raise UnsettledListing(journal_object(run, segment.writer, segment.last).name, "is missing")
    return False
