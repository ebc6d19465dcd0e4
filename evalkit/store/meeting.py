"""Where the coordinator of a run listens, for workers that know only the run's place: in a bucket with the signs of who
leads, on a disk in a file of its own. It is not part of the log, and contains nothing that lets anybody in.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from evalkit.errors import StorageError
from evalkit.store import disk
from evalkit.store.bucket import BucketPath
from evalkit.store.lead import CLOSE, Lead, Meeting, newest

FILE = "coordinator.json"


@contextmanager
def met_at(run: Path, lead: Lead | None, meeting: Meeting) -> Iterator[None]:
    """Say where the coordinator listens for as long as the context lasts."""
    if lead is not None:
        lead.meet_at(meeting)
        yield
        return
    disk.put(run / FILE, msgspec.json.encode(meeting))
    try:
        yield
    finally:
        with suppress(OSError):
            if meeting_place(run) == meeting:  # else a later coordinator has said where it is
                (run / FILE).unlink(missing_ok=True)


def say_again(run: Path, meeting: Meeting) -> None:
    """On a disk: say once more where the coordinator listens, where one that was deposed has said something else, or
    has taken back what it had said. Raises StorageError."""
    if meeting_place(run) != meeting:
        disk.put(run / FILE, msgspec.json.encode(meeting))


def meeting_place(run: Path) -> Meeting | None:
    """Where a run's coordinator listens; None if none says so, or if the store does not answer."""
    if isinstance(run, BucketPath):
        with suppress(StorageError):
            sign = newest(run)  # how old it is would be told by two clocks: whoever tries to connect learns it
            return None if sign is None or sign.kind == CLOSE else sign.leader.meeting
        return None
    try:
        return msgspec.json.decode((run / FILE).read_bytes(), type=Meeting)
    except (OSError, msgspec.MsgspecError):
        return None
