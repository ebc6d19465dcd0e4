"""How many requests a run's lanes had in flight, remembered for its next start.

The notes are events of the run: nothing depends on them. Where they are missing, a lane finds its window anew.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.client.lanes.lane import Lane
from evalkit.store.events import read_events

KIND = "windows"
"""Of the event: `lanes`, the requests that each lane was allowed in flight."""
MOST = 10**6
"""No lane is wider; an edited file may say anything."""
GROWN = 2.0
"""Noted again once it has grown or shrunk by this factor, so that a killed run remembers it nearly."""


@dataclass(slots=True, kw_only=True)
class WindowNotes:
    """What was noted of a session's lanes."""

    lanes: Mapping[str, Lane]
    event: Callable[..., None]
    """Adds an event to the run."""
    noted: dict[str, int] = field(default_factory=dict)

    def look(self, *, last: bool = False) -> None:
        """Note the lanes whose window has changed much since; `last`: at all."""
        changed = {name: size for name, size in self._sizes() if self._is_new(name, size, last)}
        if changed:
            self.noted |= changed
            self.event(KIND, lanes=changed)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for name, lane in self.lanes.items():
            size = lane.proven()
            if size:
                yield name, size

    def _is_new(self, name: str, size: int, last: bool) -> bool:
        before = self.noted.get(name)
        if before is None or last:
            return size != before
        return not before / GROWN < size < before * GROWN


def remembered(run: Path) -> dict[str, int]:
    """Requests that each lane was last allowed in flight; none where no session has noted any. Raises StorageError."""
    found: dict[str, int] = {}
    for event in read_events(run, KIND):
        lanes = event.get("lanes")
        for name, size in lanes.items() if isinstance(lanes, dict) else ():
            if type(size) is int and 0 < size <= MOST:
                found[name] = size
    return found
