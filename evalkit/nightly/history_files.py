"""A sweep's nights on disk: `runs/NAME/nights/`, a run directory for each night, beside them history and journal."""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.nightly.journal import accepted, read_journal
from evalkit.report.nights.history import NightRecord, Rule, decode, encode, read_night, with_alarms
from evalkit.store.disk import read_whole, write_durably
from evalkit.store.manifests import runs_in
from evalkit.store.reading.accounts import accounts, spent

FOLDER = "nights"
HISTORY = "history.jsonl"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def nights(folder: Path) -> list[str]:
    """The nights whose runs exist, oldest first."""
    return sorted(path.name for path in runs_in(folder) if _DATE.fullmatch(path.name))


def read_history(folder: Path) -> list[NightRecord]:
    """The history, oldest night first; empty if there is none. Raises CorruptLogError."""
    path = folder / HISTORY
    return decode(read_whole(path) or b"", str(path))


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
    records = {record.night: record for record in known}
    read = []
    for night in nights(folder):
        if night in records and night not in again:
            continue
        try:
            records[night] = read_night(folder / night, night, spent_in(folder / night))
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


def spent_in(run: Path) -> int:
    """Pico-dollars that a run has spent: steps, charges and crash charges."""
    from evalkit.store.reading.index import read_index

    index = read_index(run)
    return spent(index.totals["cost"], accounts(index.ledger, index.cost_by_worker).values())
