"""A sweep's nights on disk: `runs/NAME/nights/`, a run directory for each night, beside them history and journal."""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from evalkit.errors import CorruptLogError
from evalkit.frozen.manifests import runs_in
from evalkit.report.nights.history import NightRecord, Rule, encode, read_night, with_alarms
from evalkit.report.nights.history import decode as decode_night
from evalkit.store.disk import append_lines, read_whole, write_durably
from evalkit.store.json_text import decode

# `journal.jsonl`: what the nights' logs do not contain: how each call ended, what the user accepted, what the hook
# was told. Lines are only added.

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


FOLDER = "nights"
HISTORY = "history.jsonl"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SEVERAL = re.compile(rf"{_DATE.pattern}(\.\.{_DATE.pattern})?(,{_DATE.pattern}(\.\.{_DATE.pattern})?)*")


def nights(folder: Path) -> list[str]:
    """The nights whose runs exist, oldest first."""
    return sorted(path.name for path in runs_in(folder) if _DATE.fullmatch(path.name))


def is_night(run: Path) -> bool:
    """Whether a run is a night of a sweep."""
    path = run.resolve()
    return path.parent.name == FOLDER and _DATE.fullmatch(path.name) is not None


def several(name: str) -> tuple[str, str]:
    """(folder, which) of a name such as `runs/mine/nights/2026-11-01..2026-11-05,2026-11-09`; empty: it is no such."""
    folder, _, which = name.rpartition("/")
    return (folder, which) if folder and _SEVERAL.fullmatch(which) and not _DATE.fullmatch(which) else ("", "")


def among(which: str, night_names: Sequence[str]) -> list[str]:
    """Of these nights those that `several` means."""
    spans = [span.partition("..") for span in which.split(",")]
    return [night for night in night_names if any(first <= night <= (last or first) for first, _, last in spans)]


def spans_of(chosen: Sequence[str], night_names: Sequence[str]) -> str:
    """What `among` reads as some of these nights, both in order; a night alone by its name."""
    runs: list[list[str]] = []
    for night in night_names:
        if night not in chosen:
            runs.append([])
        elif runs:
            runs[-1].append(night)
        else:
            runs.append([night])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs if run)


def read_history(folder: Path) -> list[NightRecord]:
    """The history, oldest night first; empty if there is none. Raises CorruptLogError."""
    path = folder / HISTORY
    return decode_night(read_whole(path) or b"", str(path))


def derive(
    folder: Path,
    known: Sequence[NightRecord],
    again: Collection[str],
    rule: Rule,
    announce: Callable[[Sequence[str]], None] | None = None,
) -> list[NightRecord]:
    """The history with what the nights' logs hold, and written so: nights it lacks and those in `again` are read again.

    A night whose log is gone stays as it is known; one that the history lacks and whose log is damaged is left out, and
    `announce` is told. `rule` is for the nights that are read. Raises CorruptLogError for a damaged one of `again`,
    StorageError.
    """
    from evalkit.store.reading.index import read_index

    records = {record.night: record for record in known}
    read = []
    for night in nights(folder):
        if night in records and night not in again:
            continue
        try:
            records[night] = read_night(folder / night, night, read_index(folder / night).spent)
        except CorruptLogError as flaw:
            if night in again:
                raise
            if announce is not None:
                announce([f"The night {night} is left out of the history: {flaw}"])
            continue
        read.append(night)
    done = with_alarms(list(records.values()), accepted(read_journal(folder)), rule, read)
    if read:
        write_durably(folder / HISTORY, encode(done))
    return done


def rebuild(folder: Path, rule: Rule) -> tuple[list[NightRecord], list[str]]:
    """The history made again from all logs, and the nights that were kept because their logs are gone.

    Raises as `derive`.
    """
    night_names = nights(folder)
    try:
        known = read_history(folder)
    except CorruptLogError:
        known = []  # what is damaged is made again; nights without a log were in it alone
    kept = [record.night for record in known if record.night not in night_names]
    return derive(folder, known, night_names, rule), kept
