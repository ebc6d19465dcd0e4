"""Corrections of running totals that do not agree with the rows, for example after a repair."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from evalkit.money import PicoUsd
from evalkit.store.events import read_events
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import UNACCOUNTED, Account, accounts, crash_row, spent, unaccounted
from evalkit.store.reading.totals import SUMMED, CellTotals, Totals

COUNTS = tuple(name for name in SUMMED if name not in ("ended_squares", "earlier", "earlier_s"))
"""Fields of cells that are whole numbers of rows, episodes and money."""


def difference(wanted: Totals, recorded: Totals) -> Totals:
    """What makes of `recorded`, added to it, the sums that are wanted; of spells those it lacks."""
    correction = Totals()
    for key in {**wanted.cells, **recorded.cells}:
        cell = CellTotals(agent=key[0], suite=key[1])
        wanted_cell, recorded_cell = wanted.cells.get(key, cell), recorded.cells.get(key, cell)
        made = CellTotals(agent=key[0], suite=key[1])
        for name in SUMMED:
            setattr(made, name, getattr(wanted_cell, name) - getattr(recorded_cell, name))
        words = {**wanted_cell.endings, **recorded_cell.endings}
        made.endings = {
            word: count
            for word in words
            if (count := wanted_cell.endings.get(word, 0) - recorded_cell.endings.get(word, 0))
        }
        for far_off, amounts in wanted_cell.going.items():
            made.stay(far_off, *amounts)
        for far_off, (count, steps, cost) in recorded_cell.going.items():
            made.stay(far_off, -count, -steps, -cost)
        made.earlier, made.earlier_s, made.spells = 0, 0.0, wanted_cell.spells
        correction.cells[key] = made
    for name in {**wanted.workers, **recorded.workers}:
        correction.workers[name] = wanted.workers.get(name, 0) - recorded.workers.get(name, 0)
    for name in {**wanted.accounts, **recorded.accounts}:
        none = Account(session=name)
        correction.accounts[name] = _less(wanted.accounts.get(name, none), recorded.accounts.get(name, none))
    return correction


def _less(account: Account, other: Account) -> Account:
    """What `_join` adds to the other to make it like the first."""
    remainder = Account(session=account.session)
    for member in fields(Account):
        value, subtracted = getattr(account, member.name), getattr(other, member.name)
        if isinstance(value, bool):
            setattr(remainder, member.name, value)
        elif member.name != "session":
            setattr(remainder, member.name, value - subtracted)
    return remainder


# The cost of rows that a log has lost, as far as the rest of the run still shows it: what was spent stays spent.
#
# For a session that ended by itself the sum is known: from its `close` row. For a crashed session the leases bound it:
# what no step, no charge and no crash charge accounts for is charged if it may have written lost rows. `events.jsonl`
# holds what all sessions together had spent whenever one ended; the books never fall below it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Remnant:
    """What is left of one file of steps."""

    settled: Mapping[str, int]
    """Cost of the rows that stay, by session, in the order in which these wrote."""
    whole: bool
    """Whether the cost of every row that it held is known, be it kept or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a log."""

    files: Sequence[Remnant]
    """In the log's order, one without rows for each file that is missing."""
    ledger: Sequence[LedgerRecord]
    """The rows that can be read, and the charges for rows that are dropped."""
    ledger_whole: bool
    said: Totals = field(default_factory=Totals)
    """Running totals of the journals, which outlive files."""


def lost_money(run: Path, remains: Remains) -> tuple[list[LedgerRecord], tuple[str, ...]]:
    """(charges for what nothing else shows any more, sessions whose latest leases may be lost)."""
    settled = Counter[str]()
    for file in remains.files:
        settled.update(file.settled)
    known = list(_told(remains, settled))
    ledger = [*remains.ledger, *known]
    books = accounts(ledger, settled)
    charges = [*known, *unaccounted(books)]
    now = time.time()
    for account in _suspects(remains, books):
        amount = 0 if account.ended else account.unspent  # what one that ended had spent is known, and charged above
        if amount > 0:
            account.charged += amount
            charges.append(_charge(account.session, amount, now))
    short = _seen_spent(run, ledger) - spent(settled.total(), books.values())
    if short > 0:
        session = f"repair:{time.time_ns()}"
        charges.append(_charge(session, short, now))
        charges.append(_row("close", session, short, "repaired", now))
    if remains.ledger_whole:
        return charges, ()
    return charges, tuple(name for name in {**books, **settled} if name not in books or not books[name].closed)


def _told(remains: Remains, settled: Mapping[str, int]) -> Iterator[LedgerRecord]:
    """Rows that make up for lost ones, so that each session's account is what running totals say it was: what it
    leased and spent, and how it ended."""
    books = accounts(remains.ledger, settled)
    now = time.time()
    for session in dict.fromkeys((*remains.said.accounts, *remains.said.workers)):
        recorded = remains.said.accounts.get(session, Account(session=session))
        booked = books.get(session, Account(session=session, settled=settled.get(session, 0)))
        if recorded.leased > booked.leased:
            yield _row("lease", session, recorded.leased - booked.leased, "", now)
        spent_once = remains.said.workers.get(session, 0) + recorded.charged - booked.settled - booked.charged
        if spent_once > 0:
            yield _charge(session, spent_once, now)
        if recorded.died and (recorded.crashed > booked.crashed or not booked.died):
            yield crash_row(session, max(0, recorded.crashed - booked.crashed))
        if recorded.ended and not booked.ended:
            yield _row("close", session, recorded.said, "", now)


def _row(kind: str, session: str, amount: int, reason: str, now: float) -> LedgerRecord:
    return LedgerRecord(kind=kind, session=session, amount=PicoUsd(amount), reason=reason, at=now)


def _charge(session: str, amount: int, now: float) -> LedgerRecord:
    return _row("charge", session, amount, UNACCOUNTED, now)


def _suspects(remains: Remains, books: Mapping[str, Account]) -> Iterator[Account]:
    """The sessions that may have written what is lost: those from the one that wrote before a hole to the one that
    wrote after it, in the order in which they began; all of them where money rows are lost."""
    order = list(dict.fromkeys(row.session for row in remains.ledger))
    positions = {session: number for number, session in enumerate(order)}
    suspected = set() if remains.ledger_whole else set(order)
    wrote = [[positions[session] for session in file.settled if session in positions] for file in remains.files]
    for number, file in enumerate(remains.files):
        if not file.whole:
            ahead = max((position for part in wrote[:number] for position in part), default=0)
            behind = min((position for part in wrote[number + 1 :] for position in part), default=len(order))
            suspected.update(order[min([ahead, *wrote[number]]) : max([behind, *wrote[number]]) + 1])
    return (books[session] for session in order if session in suspected)


def _seen_spent(run: Path, ledger: Sequence[LedgerRecord]) -> int:
    """The most that all sessions together had spent when one of them ended, by `events.jsonl`, less what was released
    since; in pico-dollars."""
    releases = [(row.at, row.amount) for row in ledger if row.kind == "release"]
    most = 0
    for event in read_events(run, "ended"):
        usd, ended_at = event.get("spent_usd"), event.get("time")
        if isinstance(usd, float) and isinstance(ended_at, float) and 0 <= usd < 1e7:
            # Whole pico-dollars again up to 2,000 dollars; beyond, a float is off by too few to matter.
            most = max(most, round(usd * 1e12) - sum(amount for when, amount in releases if when > ended_at))
    return most
