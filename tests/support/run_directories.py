"""Run directories: whole, or as a crash leaves them."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.lock import hold_run
from evalkit.store.writing.opening import take_over
from evalkit.store.writing.writer import open_store
from tests.support.log_rows import a_charge, a_step, rounds

__all__ = ["a_charge", "a_step", "rounds", "write_run", "write_tails"]


def write_run(run: Path, commits: Iterable[Iterable[StepRecord]], ledger: Iterable[LedgerRecord] = ()) -> Path:
    """A run that ended well: its rows are compacted."""

    async def go() -> None:
        with open_store(run, session="s") as store:
            for row in ledger:
                store.enter(row)
            for rows in commits:
                for step in rows:
                    store.append(step)
                await store.durable()

    asyncio.run(go())
    return run


def write_tails(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """A run that died before anything was compacted; `ledger` came with its first rows."""
    with hold_run(run):
        journal = take_over(run, "s").journal
        for rows in commits:
            journal.commit(steps_table(rows), ledger)
            ledger = ()
        if not journal.number:
            journal.withdraw()
    return run
