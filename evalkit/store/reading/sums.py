"""Sums over a whole log: those in each journal's newest object.

That takes one file per writer, whatever the length of the run. The sums of the rows themselves are computed here too: a
writer's sums must be equal to them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evalkit.store.files.journal import newest_claims
from evalkit.store.files.layout import journal_object, lay_out
from evalkit.store.files.record import DOUBTFUL, UNMETERED, UNSCORED, LedgerRecord
from evalkit.store.files.segment import CLOSE, KINDS, SEAL, read_claim
from evalkit.store.reading.accounts import Account
from evalkit.store.reading.arrays import coded, floats, ints
from evalkit.store.reading.looking import files_at_once, patiently
from evalkit.store.reading.states import ROW, SUMS, States
from evalkit.store.reading.totals import PAUSE_S, CellTotals, Totals, far, joined, read, together

_MORE = ("worker", "attempts", "started_at")
COLUMNS = (*ROW, *_MORE)
"""Columns of STEPS that sums are made of."""


def read_totals(run: Path) -> Totals:
    """The sums of a run. Raises CorruptLogError for missing and damaged files among those that are read."""

    def look() -> Totals:
        return totals_at(run, files_at_once(run)[1])

    return patiently(run, look)


def closed_totals(run: Path) -> Totals | None:
    """The sums of a run in which nothing is left to be settled: every writer has closed its journal, or another has
    sealed and compacted it, no file is missing, and every session has closed. None for any other run.

    It lists names and reads one file per writer. Raises CorruptLogError for damage in these.
    """
    try:
        claims = newest_claims(run)
        layouts = [lay_out(run, kind) for kind in KINDS]
    except FileNotFoundError:
        return None  # a writer has moved it
    for segment in (segment for layout in layouts for segment in layout.segments):
        if segment.is_object and not _ends_journal(claims.get(segment.writer, {}), segment.first):
            return None
    if not claims or any(layout.flaws for layout in layouts):
        return None
    totals = together(read(says.get("totals") or "{}", writer) for writer, says in claims.items())
    return totals if all(account.closed for account in totals.accounts.values()) else None


def _ends_journal(says: Mapping[str, str], number: int) -> bool:
    """Whether the newest object of a journal ends it, and is the one of this number."""
    return says.get("kind") in (CLOSE, SEAL) and says.get("number") == str(number)


def totals_at(run: Path, upto: Mapping[str, int]) -> Totals:
    """The same of the moment at which these were the numbers of each journal's newest object."""
    newest = (journal_object(run, writer, number) for writer, number in upto.items())
    return together([read(read_claim(segment).get("totals") or "{}", segment.name) for segment in newest])


def totals_of(rows: pa.Table, money: Iterable[LedgerRecord] = ()) -> Totals:
    """What rows of steps, in the order in which they were written, and of money come to. Raises CorruptLogError if a
    step is missing."""
    states = States()
    states.fold(rows)
    totals = Totals(cells=_cells(states))
    _add_rows(totals, rows)
    for row in money:
        totals.accounts.setdefault(row.session, Account(session=row.session)).book(row)
    return totals


def _cells(states: States) -> dict[tuple[str, str], CellTotals]:
    """By agent and suite, what the states of episodes say."""
    agents, suites, words = (list(states.values[name]) for name in ("agent", "suite", "ending"))
    codes = states.texts["agent"] * len(suites) + states.texts["suite"]
    numbers, ending, cells = states.numbers, states.texts["ending"], {}
    scored = np.array([bool(word) and word not in UNSCORED for word in words], np.bool_)[ending]
    for code in np.unique(codes).tolist():
        in_cell = codes == code
        said, ended = in_cell & (ending != 0), in_cell & scored
        cost = numbers["cost"][ended]
        cell = CellTotals(
            agent=agents[code // len(suites)],
            suite=suites[code % len(suites)],
            rows=int(numbers["requests"][in_cell].sum()),
            steps=int(numbers["steps"][in_cell].sum()),
            begun=int(in_cell.sum()),
            endings={words[index]: int((ending[said] == index).sum()) for index in np.unique(ending[said]).tolist()},
            ended_cost=int(cost.sum()),
            ended_squares=float((cost.astype(np.float64) ** 2).sum()),
            ended_steps=int(numbers["steps"][ended].sum()),
        )
        for name in SUMS:
            setattr(cell, name, int(numbers[name][in_cell].sum()))
        for episode in np.flatnonzero(in_cell & ~scored).tolist():
            steps = int(numbers["steps"][episode])
            cell.stay(far(steps), 1, steps, int(numbers["cost"][episode]))
        cells[cell.place] = cell
    return cells


def _add_rows(totals: Totals, rows: pa.Table) -> None:
    """Add what only rows say: who wrote them, when their requests were sent, which came without usage."""
    agents, agent = coded(rows, "agent")
    suites, suite = coded(rows, "suite")
    words, attempts = coded(rows, "attempts")
    workers, worker = coded(rows, "worker")
    last = [word.rpartition(",")[2] for word in words]
    unmetered = np.array([word == UNMETERED for word in last], np.bool_)[attempts]
    doubtful = np.array([word == DOUBTFUL for word in last], np.bool_)[attempts]
    cost, sent = ints(rows, "cost"), floats(rows, "started_at")
    for code, name in enumerate(workers):
        totals.workers[name] = int(cost[worker == code].sum())
    codes = agent * len(suites) + suite
    for code in np.unique(codes).tolist():
        cell = totals.cells[agents[code // len(suites)], suites[code % len(suites)]]
        in_cell = codes == code
        cell.spells = _spells(np.sort(sent[in_cell]))
        cell.forget()
        cell.unmetered = int((in_cell & unmetered).sum())
        cell.unmetered_cost = int(cost[in_cell & unmetered].sum())
        cell.doubtful = int((in_cell & doubtful).sum())
        cell.doubtful_cost = int(cost[in_cell & doubtful].sum())


def _spells(sent: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """When requests were sent without a pause, from their times in order."""
    ends = np.append(np.flatnonzero(np.diff(sent) >= PAUSE_S), len(sent) - 1)
    begins = np.append(0, ends[:-1] + 1)
    return joined(zip(sent[begins].tolist(), sent[ends].tolist(), strict=True))
