"""`voids.jsonl`: which of a run's episodes are excluded, since when, by whom, and why. The log itself does not change.

One line per episode and decision, oldest first; the last line of an episode applies. The file is replaced as a whole,
so that it is never incomplete.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from evalkit.store.disk import read_whole, write_parts_durably
from evalkit.store.json_text import decode

FILE = "voids.jsonl"

MOST_REASON = 1000
"""Characters of a reason."""


class Void(msgspec.Struct, frozen=True, kw_only=True):
    """One decision on one episode."""

    episode: str
    agent: str
    suite: str
    instance: str
    replicate: int
    undo: bool
    """Whether the episode counts again."""
    reason: str
    by: str
    """User and host."""
    at: float
    """Wall time, seconds since 1970."""


def read_voids(run: Path) -> Mapping[str, Void]:
    """The episodes that are void, by id, each with the decision that applies. Raises CorruptLogError."""
    latest = {decision.episode: decision for decision in read_decisions(run)}
    return {name: decision for name, decision in latest.items() if not decision.undo}


def read_decisions(run: Path) -> list[Void]:
    """All decisions, oldest first. Raises CorruptLogError."""
    return _decisions(_content(run), run)


def add_voids(run: Path, decisions: Iterable[Void]) -> None:
    """Append decisions to the existing ones. The caller has locked the run (`lock.py`).

    Raises StorageError (the file is then as it was), CorruptLogError where the file cannot be read.
    """
    before = _content(run)
    _decisions(before, run)
    lines = (msgspec.json.encode(decision) + b"\n" for decision in decisions)
    write_parts_durably(run / FILE, (part for source in ((before,), lines) for part in source))


def _content(run: Path) -> bytes:
    data = read_whole(run / FILE) or b""
    return data if data.endswith(b"\n") or not data else data + b"\n"


_REMEDY = (
    "Restore the file from a copy, or delete the line: its episode then counts as the lines before say. The log beside "
    "it is intact."
)


def _decisions(data: bytes, run: Path) -> list[Void]:
    decisions = []
    for number, line in enumerate(data.splitlines(), 1):
        decisions.append(decode(line, Void, f"{run / FILE}:{number}", _REMEDY))
    return decisions
