"""What a run has spent, and what its crashed sessions may have left in flight: the ledger read as accounts.

A session writes `open` when it begins and `close` when it ends. One without a `close` has crashed: the money of its
leases that no step and no charge accounts for may have been spent on requests whose replies nobody wrote down.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from evalkit.client.purse import crash_charge
from evalkit.money import PicoUsd
from evalkit.store.record import LedgerRecord


@dataclass(slots=True, kw_only=True)
class Account:
    """One session's money, in pico-dollars."""

    session: str
    leased: int = 0
    charged: int = 0
    """Charges for single attempts."""
    settled: int = 0
    """Its steps."""
    crashed: int = 0
    """What was charged for its crash."""
    released: int = 0
    confirmed: int = 0
    """Part of `released` that was taken off `crashed`: the provider's usage showed that it was not spent."""
    had_budget: bool = False
    partial: bool = False
    """Whether it played a part of the sweep, or episodes that had ended before (`--only`, `--retry`)."""
    closed: bool = False
    width: int = 0
    """Episodes it could have in flight in all its lanes."""

    @property
    def unspent(self) -> int:
        """What no step and no charge accounts for in its leases."""
        return max(0, self.leased - self.settled - self.charged)


def accounts(ledger: Iterable[LedgerRecord], settled: Mapping[str, int]) -> dict[str, Account]:
    """All sessions of a run, from its ledger and the cost of each session's steps."""
    found: dict[str, Account] = {}
    for row in ledger:
        account = found.setdefault(row.session, Account(session=row.session, settled=settled.get(row.session, 0)))
        if row.kind == "open":
            account.width = row.attempt
            account.had_budget = row.reason.startswith(BUDGETED)
            account.partial = row.reason.endswith(PARTLY)
        elif row.kind == "lease":
            account.leased += row.amount
        elif row.kind == "charge":
            account.charged += row.amount
        elif row.kind == "crash":
            account.crashed += row.amount
        elif row.kind == "release":
            account.released += row.amount
            account.confirmed += 0 if row.episode else row.amount
        elif row.kind == "close":
            account.closed = True
    return found


BUDGETED, UNBUDGETED = "spends from leases", "has no budget"
"""Reasons of `open` rows: without leases, nothing but the worst cases bounds what a crash left in flight."""
PARTLY = "; plays a part"


def open_row(session: str, width: int, *, budgeted: bool, partial: bool = False) -> LedgerRecord:
    """The row that begins a session; `attempt` holds the episodes it may have in flight."""
    reason = (BUDGETED if budgeted else UNBUDGETED) + (PARTLY if partial else "")
    return LedgerRecord(kind="open", session=session, amount=PicoUsd(0), attempt=width, reason=reason, at=time.time())


def settle_crashes(
    ledger: Mapping[str, Account], worst_cases: Iterable[int], *, all_known: bool = True
) -> Iterator[LedgerRecord]:
    """The rows that charge and close every session that has crashed.

    `worst_cases`: of the next request of each episode that was or may have been begun, read only as far as needed.
    `all_known`: whether none of them is missing. Where one may be (a session that played a part may have begun other
    episodes than those next in order), all that is left of the leases is charged.
    """
    known, more = list[int](), iter(worst_cases)
    for account in ledger.values():
        if account.closed:
            continue
        left = account.unspent if account.had_budget else None
        if left is not None and (account.partial or not all_known):
            charge = PicoUsd(left)
        else:
            _read_until(left, known, more)
            charge = crash_charge(
                leased=account.leased if account.had_budget else None,
                settled=account.settled,
                charged=account.charged,
                worst_cases=known,
            )
        account.crashed, account.closed = charge, True
        if charge:
            yield crash_row(account.session, charge)
        yield closing_row(account.session)


def crash_row(session: str, amount: int, *, lane: str = "", agent: str = "") -> LedgerRecord:
    """The row that charges what a crashed session may have left in flight."""
    return LedgerRecord(
        kind="crash",
        session=session,
        amount=PicoUsd(amount),
        lane=lane,
        agent=agent,
        reason="unconfirmed: what may have been in flight when the session died",
        at=time.time(),
    )


def closing_row(session: str) -> LedgerRecord:
    """The row that closes a crashed session."""
    return LedgerRecord(kind="close", session=session, amount=PicoUsd(0), reason="crashed", at=time.time())


def _read_until(enough: int | None, known: list[int], more: Iterator[int]) -> None:
    """Add to the known amounts until their sum is `enough`; all there are if None."""
    total = sum(known)
    while enough is None or total < enough:
        amount = next(more, None)
        if amount is None:
            return
        known.append(amount)
        total += amount


def spent(steps: int, ledger: Iterable[Account]) -> PicoUsd:
    """All that counts against the budget: steps and charges, crash charges included, releases taken off."""
    return PicoUsd(steps + sum(one.charged + one.crashed - one.released for one in ledger))
