"""Sums over a whole log: those that each journal's newest object says, and of files of format 1 those of their rows.

That takes one file a writer, however long the run is. What rows come to by themselves is here too: what a writer says
must be the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evalkit.store.files.layout import journal_object
from evalkit.store.files.record import ESTIMATED, UNMETERED, LedgerRecord
from evalkit.store.files.schema import LEDGER, ledger_records
from evalkit.store.files.segment import Kind, Segment, read_claim
from evalkit.store.reading.accounts import Account
from evalkit.store.reading.arrays import coded, floats, ints
from evalkit.store.reading.effect import Flags
from evalkit.store.reading.looking import files_at_once, patiently
from evalkit.store.reading.reader import tables_of
from evalkit.store.reading.states import ROW, SUMS, States
from evalkit.store.reading.totals import PAUSE_S, CellTotals, Totals, far, joined, read, together

_MORE = ("worker", "attempts", "started_at")
COLUMNS = (*ROW, *_MORE)
"""Columns of STEPS that sums are made of."""


def read_totals(run: Path) -> Totals:
    """The sums of a run. Raises CorruptLogError for missing and damaged files among those that are read."""

    def look() -> Totals:
        files, upto = files_at_once(run)
        return totals_at(run, files, upto)

    return patiently(run, look)


def totals_at(run: Path, files: Mapping[Kind, Sequence[Segment]], upto: Mapping[str, int]) -> Totals:
    """The same of the moment at which these were the files and each journal's newest object."""
    newest = [journal_object(run, writer, number) for writer, number in upto.items()]
    said = [read(read_claim(one).get("totals") or "{}", one.name) for one in newest]
    old = {kind: [one for one in files[kind] if not one.writer] for kind in files}
    if old["steps"] or old["ledger"]:
        rows = tables_of("steps", old["steps"], COLUMNS)
        money = ledger_records(tables_of("ledger", old["ledger"], LEDGER.names))
        said.insert(0, totals_of(rows, money, apart=not newest))
    return together(said)


def totals_of(rows: pa.Table, money: Iterable[LedgerRecord] = (), *, apart: bool = False) -> Totals:
    """What rows of steps, in the order in which they were written, and of money come to.

    `apart`: each episode that goes on by itself, however many there are. Raises CorruptLogError if a step is missing.
    """
    states = States()
    states.fold(rows)
    found = Totals(cells=_cells(states, apart=apart))
    _add_rows(found, rows)
    for row in money:
        found.accounts.setdefault(row.session, Account(session=row.session)).book(row)
    return found


def _cells(states: States, *, apart: bool) -> dict[tuple[str, str], CellTotals]:
    """By agent and suite, what the states of episodes say."""
    agents, suites, words = (list(states.values[name]) for name in ("agent", "suite", "ending"))
    place = states.texts["agent"] * len(suites) + states.texts["suite"]
    numbers, ending, found = states.numbers, states.texts["ending"], {}
    for code in np.unique(place).tolist():
        mine = place == code
        ended = mine & (ending != 0)
        cost = numbers["cost"][ended]
        cell = CellTotals(
            agent=agents[code // len(suites)],
            suite=suites[code % len(suites)],
            rows=int(numbers["requests"][mine].sum()),
            steps=int(numbers["steps"][mine].sum()),
            begun=int(mine.sum()),
            endings={words[one]: int((ending[ended] == one).sum()) for one in np.unique(ending[ended]).tolist()},
            ended_cost=int(cost.sum()),
            ended_squares=float((cost.astype(np.float64) ** 2).sum()),
            ended_steps=int(numbers["steps"][ended].sum()),
        )
        for name in SUMS:
            setattr(cell, name, int(numbers[name][mine].sum()))
        for number, one in enumerate(np.flatnonzero(mine & (ending == 0)).tolist(), 1):
            steps = int(numbers["steps"][one])
            cell.stay(-number if apart else far(steps), 1, steps, int(numbers["cost"][one]))
        found[cell.place] = cell
    return found


def _add_rows(totals: Totals, rows: pa.Table) -> None:
    """Add what only rows say: who wrote them, when their requests were sent, which came without usage."""
    agents, agent = coded(rows, "agent")
    suites, suite = coded(rows, "suite")
    words, attempts = coded(rows, "attempts")
    workers, worker = coded(rows, "worker")
    last = [word.rpartition(",")[2] for word in words]
    estimated = np.array([word == ESTIMATED for word in last], np.bool_)[attempts]
    unmetered = np.array([word in (UNMETERED, ESTIMATED) for word in last], np.bool_)[attempts]
    cost, at = ints(rows, "cost"), floats(rows, "started_at")
    for code, name in enumerate(workers):
        totals.workers[name] = int(cost[worker == code].sum())
    place = agent * len(suites) + suite
    for code in np.unique(place).tolist():
        cell = totals.cells[agents[code // len(suites)], suites[code % len(suites)]]
        mine = place == code
        cell.spells = _spells(np.sort(at[mine]))
        cell.forget()
        cell.unmetered = int((mine & unmetered).sum())
        cell.unmetered_cost = int(cost[mine & unmetered].sum())
        cell.estimated, cell.estimated_in, cell.estimated_out = _estimated(rows, mine & estimated)


def _spells(at: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """When requests were sent without a pause, from their times in order."""
    ends = np.append(np.flatnonzero(np.diff(at) >= PAUSE_S), len(at) - 1)
    begins = np.append(0, ends[:-1] + 1)
    return joined(zip(at[begins].tolist(), at[ends].tolist(), strict=True))


def _estimated(rows: pa.Table, chosen: Flags) -> tuple[int, int, int]:
    return int(chosen.sum()), int(ints(rows, "tokens_in")[chosen].sum()), int(ints(rows, "tokens_out")[chosen].sum())
