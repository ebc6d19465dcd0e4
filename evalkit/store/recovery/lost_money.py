"""What rows that a log has lost had cost, as far as the rest of the run still knows it: what was spent stays spent.

A session that ended by itself knows the sum: its closing word, or its leases less what it gave back. Of one that
crashed the leases bound it: what no step, no charge and no crash charge accounts for is charged if it may have written
lost rows. `events.jsonl` holds what all sessions together had spent whenever one ended; the books never fall below it.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.money import PicoUsd
from evalkit.store.events import read_events
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import (
    APART,
    BUDGETED,
    CRASHED,
    LEASES_LOST,
    PARTLY,
    UNACCOUNTED,
    UNBUDGETED,
    Account,
    accounts,
    closing_word,
    spent,
    unaccounted,
)
from evalkit.store.reading.totals import Totals


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
    """The rows that can be read, and the charges for rows that are given up."""
    ledger_whole: bool
    said: Totals = field(default_factory=Totals)
    """Running totals of the journals, which outlive files."""


def lost_money(run: Path, remains: Remains) -> tuple[list[LedgerRecord], tuple[str, ...]]:
    """(charges for what nothing else shows any more, sessions of which nobody knows what lost rows of theirs cost)."""
    settled = Counter[str]()
    for file in remains.files:
        settled.update(file.settled)
    known = list(_told(remains, settled))
    ledger = [*remains.ledger, *known]
    books = accounts(ledger, settled)
    found = [*known, *unaccounted(books)]
    uncounted: list[str] = []
    now = time.time()
    for account in _suspects(remains, books):
        if account.closed and not account.crashed_close and (account.said or account.leased):
            continue  # its sum is known, and charged above
        if not account.had_budget:
            uncounted.append(account.session)
            continue
        amount = account.unspent - account.crashed
        if amount > 0:
            account.charged += amount
            found.append(_charge(account.session, amount, now))
    short = _seen_spent(run, ledger) - spent(settled.total(), books.values())
    if short > 0:
        session = f"repair:{time.time_ns()}"
        found.append(_charge(session, short, now))
        found.append(LedgerRecord(kind="close", session=session, amount=PicoUsd(0), reason="repaired", at=now))
    if not remains.ledger_whole:
        found += _unbounded(books, settled, now)
    return found, tuple(uncounted)


def _told(remains: Remains, settled: Mapping[str, int]) -> Iterator[LedgerRecord]:
    """Rows that make up for lost ones, so that each session's account is what running totals say it was: how it began
    and ended, what it leased, and what it spent."""
    books = accounts(remains.ledger, settled)
    opened = {row.session for row in remains.ledger if row.kind == "open" and row.reason != LEASES_LOST}
    now = time.time()
    for session in dict.fromkeys((*remains.said.accounts, *remains.said.workers)):
        said = remains.said.accounts.get(session, Account(session=session))
        mine = books.get(session, Account(session=session, settled=settled.get(session, 0)))
        begun = said.width or said.had_budget
        if begun and session not in opened:
            reason = (BUDGETED if said.had_budget else UNBUDGETED) + (APART if said.apart else "")
            yield _row("open", session, 0, reason + (PARTLY if said.partial else ""), now, attempt=said.width)
        if said.leased > mine.leased:
            yield _row("lease", session, said.leased - mine.leased, "", now)
        spent_once = remains.said.workers.get(session, 0) + said.charged - mine.settled - mine.charged
        if spent_once > 0:
            yield _row("charge", session, spent_once, UNACCOUNTED, now)
        if said.crashed > mine.crashed:
            yield _row("crash", session, said.crashed - mine.crashed, "", now)
        if said.closed and not mine.closed:
            word = CRASHED if said.crashed_close else closing_word(said.said) if said.said else ""
            yield _row("close", session, max(0, said.returned - mine.returned), word, now)


def _row(kind: str, session: str, amount: int, reason: str, at: float, attempt: int = -1) -> LedgerRecord:
    return LedgerRecord(kind=kind, session=session, amount=PicoUsd(amount), reason=reason, at=at, attempt=attempt)


def _unbounded(books: Mapping[str, Account], settled: Mapping[str, int], at: float) -> Iterator[LedgerRecord]:
    """For each session that has not ended, as far as the ledger still says: that its leases may be lost. What it left
    in flight is then charged at the worst case of each episode, as of a session without a budget."""
    for session in dict.fromkeys((*books, *settled)):
        account = books.get(session, Account(session=session))
        if not account.closed and not account.leases_lost:
            yield LedgerRecord(
                kind="open", session=session, amount=PicoUsd(0), attempt=account.width, reason=LEASES_LOST, at=at
            )


def _charge(session: str, amount: int, at: float) -> LedgerRecord:
    return LedgerRecord(kind="charge", session=session, amount=PicoUsd(amount), reason=UNACCOUNTED, at=at)


def _suspects(remains: Remains, books: Mapping[str, Account]) -> Iterator[Account]:
    """The sessions that may have written what is lost: those from the one that wrote before a hole to the one that
    wrote behind it, in the order in which they began; all of them where money rows are lost."""
    order = list(dict.fromkeys(row.session for row in remains.ledger))
    place = {session: number for number, session in enumerate(order)}
    suspected = set() if remains.ledger_whole else set(order)
    wrote = [[place[one] for one in file.settled if one in place] for file in remains.files]
    for number, file in enumerate(remains.files):
        if not file.whole:
            ahead = max((one for part in wrote[:number] for one in part), default=0)
            behind = min((one for part in wrote[number + 1 :] for one in part), default=len(order))
            suspected.update(order[min([ahead, *wrote[number]]) : max([behind, *wrote[number]]) + 1])
    return (books[session] for session in order if session in suspected)


def _seen_spent(run: Path, ledger: Sequence[LedgerRecord]) -> int:
    """The most that all sessions together had spent when one of them ended, by `events.jsonl`, less what was released
    since; in pico-dollars."""
    releases = [(row.at, row.amount) for row in ledger if row.kind == "release"]
    most = 0
    for event in read_events(run, "ended"):
        usd, at = event.get("spent_usd"), event.get("time")
        if isinstance(usd, float) and isinstance(at, float) and 0 <= usd < 1e7:
            # Whole pico-dollars again up to 2,000 dollars; beyond, a float is off by too few to matter.
            most = max(most, round(usd * 1e12) - sum(amount for when, amount in releases if when > at))
    return most
