"""What logs hold by definition, row by row; and whole logs, made without the writer."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import ENDS, STEPS
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
        compact(journal, 0, len(commits) - 1, ends_of([row for rows in commits for row in rows]))
        journal.close()
        discard(journal, 0, len(commits) - 1)
    return run


LOGS = (new_log, packed_log)


def in_effect(rows: Iterable[StepRecord]) -> list[StepRecord]:
    """The rows of one episode that are in effect, by the definition."""
    held = list(rows)
    begin = {row.take: min(one.step for one in held if one.take == row.take) for row in held}
    live = [row for row in held if not any(take > row.take and row.step >= step for take, step in begin.items())]
    return sorted(live, key=lambda row: row.step)


def state_of(rows: Sequence[StepRecord]) -> dict[str, Any]:
    """One episode by all its rows: what ENDS says of it."""
    live = in_effect(rows)
    place = {name: getattr(rows[0], name) for name in ENDS.names if name in STEPS.names}
    ending = live[-1].ending
    facts = b"[" + b",".join(row.facts for row in live) + b"]"
    sums = {name: sum(getattr(row, name) for row in rows) for name in place if name == "cost" or "tokens" in name}
    take = max(row.take for row in rows)
    last = {"take": take, "steps": len(live), "ending": ending, "requests": len(rows)}
    return {**place, **sums, **last, "facts": facts.decode() if ending else None}


def ends_of(rows: Sequence[StepRecord], before: Sequence[StepRecord] = ()) -> pa.Table:
    """The rows of ENDS that a compaction of these rows writes."""
    names = dict.fromkeys(row.episode for row in rows)
    states: list[Mapping[str, Any]] = [
        state_of([row for row in (*before, *rows) if row.episode == name]) for name in names
    ]
    return pa.Table.from_pylist([{name: one[name] for name in ENDS.names} for one in states], schema=ENDS)
