"""Run directories: whole, or as a crash leaves them."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from evalkit.store.commit import Load, commit
from evalkit.store.record import LedgerRecord, StepRecord
from evalkit.store.schema import steps_table
from evalkit.store.segment import FOLDERS, lay_out
from evalkit.store.writer import open_store
from tests.rows import a_charge, a_step, rounds

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
    for folder in (*FOLDERS["steps"], *FOLDERS["ledger"]):
        (run / folder).mkdir(parents=True, exist_ok=True)
    first = lay_out(run, "steps").next
    for number, rows in enumerate(commits, first):
        entries = ledger if number == first else ()
        commit(run, Load(steps=steps_table(rows), entries=entries, lines=(), steps_number=number, ledger_number=0))
    return run
