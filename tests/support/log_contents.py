"""What logs hold by definition, row by row; and whole logs, made without the writer."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evalkit.store.files.record import CUT, LedgerRecord, StepRecord
from tests.support.handmade_logs import append, begin, compact, discard


def new_log(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """A log that nothing has compacted, of a writer that has not closed."""
    append(begin(run), *commits, money=ledger)
    return run


def packed_log(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """The same, all of it compacted and closed."""
    journal, commits = begin(run), list(commits)
    append(journal, *commits, money=ledger)
    if commits:
        compact(journal, 0, len(commits) - 1)
        journal.close()
        discard(journal, 0, len(commits) - 1)
    return run


LOGS = (new_log, packed_log)


def in_effect(rows: Iterable[StepRecord]) -> list[StepRecord]:
    """The steps of one episode that are in effect, by the definition."""
    held = list(rows)
    begin = {row.take: min(one.step for one in held if one.take == row.take) for row in held}
    live = [row for row in held if not any(take > row.take and row.step >= step for take, step in begin.items())]
    return sorted((row for row in live if row.row_kind != CUT), key=lambda row: row.step)


TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")
_PLACE = ("suite", "instance", "agent", "replicate")
FIELDS = (*_PLACE, "take", "steps", "ending", "requests", "cost")
"""What an index says of an episode."""


def state_of(rows: Sequence[StepRecord]) -> dict[str, Any]:
    """FIELDS of one episode by all its rows but its asks."""
    live = in_effect(rows)
    return {
        **{name: getattr(rows[0], name) for name in _PLACE},
        "take": max(row.take for row in rows),
        "steps": len(live),
        "ending": live[-1].ending if live else "",
        "requests": sum(row.row_kind != CUT for row in rows),
        "cost": sum(row.cost for row in rows),
    }
