"""`journal.jsonl`: what the nights' logs do not contain: how each call ended, what the user accepted, what the hook was
told. Lines are only added."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from evalkit.errors import CorruptLogError
from evalkit.store.disk import append_lines, read_whole
from evalkit.store.json_text import decode

FILE = "journal.jsonl"

Kind = Literal["began", "ended", "accepted", "told"]


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    kind: Kind
    """`began`, `ended`: a call that plays the night begins, and comes to its end; `accepted`: the user takes cells as
    they are from this night on; `told`: the hook has run."""
    night: str
    at: float
    """Wall time, seconds since 1970."""
    reason: str = ""
    """Of `ended`: why it stopped, as of an outcome."""
    budget: int | None = None
    """Of `ended`: in pico-dollars; None: there was none."""
    cells: tuple[tuple[str, str], ...] = ()
    """Of `accepted` and `told`: (agent, suite)."""


def read_journal(folder: Path) -> list[JournalEntry]:
    """All lines in order; one that a crash cut is passed over. Raises StorageError."""
    entries = []
    for line in (read_whole(folder / FILE) or b"").splitlines():
        with suppress(CorruptLogError):
            entries.append(decode(line, JournalEntry, FILE, ""))
    return entries


def note(
    folder: Path,
    kind: Kind,
    night: str,
    *,
    reason: str = "",
    budget: int | None = None,
    cells: Sequence[tuple[str, str]] = (),
) -> None:
    """Add a line. Raises StorageError."""
    entry = JournalEntry(kind=kind, night=night, at=time.time(), reason=reason, budget=budget, cells=tuple(cells))
    append_lines(folder / FILE, msgspec.json.encode(entry) + b"\n")


def last_end(entries: Sequence[JournalEntry], night: str) -> JournalEntry | None:
    """How the night's last call ended; None if it was killed, or if nobody knows of one."""
    last = next(
        (entry for entry in reversed(entries) if entry.kind in ("began", "ended") and entry.night == night), None
    )
    return last if last is not None and last.kind == "ended" else None


def accepted(entries: Sequence[JournalEntry]) -> Mapping[tuple[str, str], Sequence[str]]:
    """By (agent, suite): the nights at which it was accepted."""
    nights_of: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for cell in entry.cells if entry.kind == "accepted" else ():
            nights_of.setdefault(cell, []).append(entry.night)
    return nights_of


def told(entries: Sequence[JournalEntry], night: str) -> frozenset[tuple[str, str]]:
    """The cells whose alarm of that night the hook has been told."""
    return frozenset(cell for entry in entries if entry.kind == "told" and entry.night == night for cell in entry.cells)
