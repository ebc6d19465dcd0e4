"""A run's ledger as accounts, one per session, and what they show about lost steps.

A session writes `open` when it begins, `lease` before it spends, and `close` with what it has spent when it ends. One
without a `close` has crashed, and may have spent its open leases: what it leased and no step and no charge shows. The
next session books them as its `crash`. Money that was spent stays spent: if steps are lost, or never reached the log,
the `close` of their session still shows the sum, and `unaccounted` charges what nothing else shows.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord

UNACCOUNTED = "paid for replies that the log does not have"
UNCONFIRMED = "unconfirmed: leased, and not known to be spent when the session died"


@dataclass(slots=True, kw_only=True)
class Account:
    """One session's money, in pico-dollars."""

    session: str
    leased: int = 0
    """Less what it gave back while it played."""
    charged: int = 0
    """Charges for single attempts."""
    settled: int = 0
    """Its steps."""
    crashed: int = 0
    """The open leases that were charged for its crash."""
    released: int = 0
    confirmed: int = 0
    """Part of `released` that was taken off `crashed`: the provider's usage showed that it was not spent."""
    ended: bool = False
    """Whether it closed itself."""
    died: bool = False
    """Whether a later session has charged its crash."""
    said: int = 0
    """What it had spent according to its `close` row; 0 if it has none."""

    def book(self, row: LedgerRecord) -> None:
        """Count one of its money rows."""
        if row.kind == "lease":
            self.leased += row.amount
        elif row.kind == "charge":
            self.charged += row.amount
        elif row.kind == "crash":
            self.crashed, self.died = self.crashed + row.amount, True
        elif row.kind == "release":
            self.released += row.amount
            self.confirmed += 0 if row.episode else row.amount
        elif row.kind == "close":
            self.said, self.ended = self.said + row.amount, True

    @property
    def closed(self) -> bool:
        """Whether nothing of it is open any more."""
        return self.ended or self.died

    @property
    def unspent(self) -> int:
        """The part of its leases that no step and no charge accounts for, even that of its crash."""
        return max(0, self.leased - self.settled - self.charged - self.crashed)

    @property
    def open_leases(self) -> int:
        """What its crash would cost now."""
        return 0 if self.closed else self.unspent

    @property
    def missing(self) -> int:
        """The part of its spending, when it closed, that no step and no charge shows any more: its `close` row outlives
        its steps. 0 for a crashed session."""
        return max(0, self.said - self.settled - self.charged)


def accounts(ledger: Iterable[LedgerRecord], settled: Mapping[str, int]) -> dict[str, Account]:
    """All sessions of a run, from its ledger and the cost of each session's steps."""
    books: dict[str, Account] = {}
    for row in ledger:
        books.setdefault(row.session, Account(session=row.session, settled=settled.get(row.session, 0))).book(row)
    return books


def charge_crashes(books: Mapping[str, Account]) -> Iterator[LedgerRecord]:
    """The rows that charge and close every session that has crashed: its open leases. Books them too."""
    for account in books.values():
        if not account.closed:
            row = crash_row(account.session, account.unspent)
            account.book(row)
            yield row


def crash_row(session: str, amount: int) -> LedgerRecord:
    """The row that charges the open leases of a crashed session, and closes it."""
    return LedgerRecord(kind="crash", session=session, amount=PicoUsd(amount), reason=UNCONFIRMED, at=time.time())


def unaccounted(books: Mapping[str, Account]) -> Iterator[LedgerRecord]:
    """The charges for what sessions had spent when they closed and what nothing shows any more; books them too."""
    for account in books.values():
        amount = account.missing
        if amount:
            account.charged += amount
            yield LedgerRecord(
                kind="charge", session=account.session, amount=PicoUsd(amount), reason=UNACCOUNTED, at=time.time()
            )


def spent(steps: int, ledger: Iterable[Account]) -> PicoUsd:
    """All that counts against the budget: steps and charges, including crash charges, less releases."""
    return PicoUsd(steps + sum(account.charged + account.crashed - account.released for account in ledger))
