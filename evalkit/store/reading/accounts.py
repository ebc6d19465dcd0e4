"""A run's ledger as accounts, one per session, and what they show about lost steps.

A session writes `open` when it begins and `close` when it ends. One without a `close` has crashed. Money that was spent
stays spent: if steps are lost, or never reached the log, the leases of their session less its `close` still show the
sum, and `unaccounted` charges what nothing else shows.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord

BUDGETED, UNBUDGETED = "spends from leases", "has no budget"
"""Reasons of `open` rows: without leases, only the worst cases bound what a crash left in flight."""
APART, PARTLY = "; bounds single agents", "; plays a part"
LEASES_LOST = "its leases may be lost"
"""Reason of an `open` row that a repair writes: leases of the session do not bound what it left in flight."""
CRASHED = "crashed"
"""Reason of a `close` that a later session wrote."""
UNACCOUNTED = "spent, and no step in the log shows for what"


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
    """Whether it played only a part of the sweep, or episodes that had ended before (`--only`, `--retry`)."""
    apart: bool = False
    """Whether agents had budgets of their own, so that some may have been skipped in the order."""
    leases_lost: bool = False
    """Whether some of its leases may be lost with their file: then they are not a bound."""
    closed: bool = False
    crashed_close: bool = False
    """Whether a later session closed it."""
    returned: int = 0
    """What it gave back of its leases when it closed."""
    said: int = 0
    """What it had spent according to its `close` row; 0 if it has none."""
    width: int = 0
    """Episodes it could have in flight in all its lanes."""

    def book(self, row: LedgerRecord) -> None:
        """Count one of its money rows."""
        if row.kind == "open" and row.reason == LEASES_LOST:
            self.leases_lost, self.width = True, max(self.width, row.attempt)
        elif row.kind == "open":
            self.width = row.attempt
            self.had_budget |= row.reason.startswith(BUDGETED)
            self.partial = row.reason.endswith(PARTLY)
            self.apart = APART in row.reason
        elif row.kind == "lease":
            self.leased += row.amount
            self.had_budget |= row.amount > 0  # even if the row that opened it is lost
        elif row.kind == "charge":
            self.charged += row.amount
        elif row.kind == "crash":
            self.crashed += row.amount
        elif row.kind == "release":
            self.released += row.amount
            self.confirmed += 0 if row.episode else row.amount
        elif row.kind == "close":
            self.closed = True
            self.crashed_close = row.reason == CRASHED
            self.returned += row.amount
            self.said = max(self.said, closing_sum(row.reason))

    @property
    def unspent(self) -> int:
        """The part of its leases that no step and no charge accounts for."""
        return max(0, self.leased - self.settled - self.charged)

    @property
    def missing(self) -> int:
        """The part of its spending, when it closed, that no step and no charge shows any more: its `close` row, and its
        leases less what it returned, outlive its steps. 0 for a crashed session."""
        if not self.closed or self.crashed_close:
            return 0
        known = max(self.said, self.leased - self.returned)
        return max(0, known - self.settled - self.charged)


def accounts(ledger: Iterable[LedgerRecord], settled: Mapping[str, int]) -> dict[str, Account]:
    """All sessions of a run, from its ledger and the cost of each session's steps."""
    books: dict[str, Account] = {}
    for row in ledger:
        books.setdefault(row.session, Account(session=row.session, settled=settled.get(row.session, 0))).book(row)
    return books


_SAID = re.compile(r"spent (\d{1,19}) pico-dollars")


def closing_word(spent: int) -> str:
    """The reason of a session's own `close`: what it has spent, so that this outlives its steps."""
    return f"spent {spent} pico-dollars"


def closing_sum(reason: str) -> int:
    """The amount in the reason of a `close` row; 0 for any other."""
    match = _SAID.fullmatch(reason)
    return int(match[1]) if match else 0


def unaccounted(books: Mapping[str, Account]) -> Iterator[LedgerRecord]:
    """The charges for what sessions had spent when they closed and what nothing shows any more; books them too."""
    for account in books.values():
        amount = account.missing
        if amount:
            account.charged += amount
            yield LedgerRecord(
                kind="charge", session=account.session, amount=PicoUsd(amount), reason=UNACCOUNTED, at=time.time()
            )


def closing_row(session: str) -> LedgerRecord:
    """The row that closes a crashed session."""
    return LedgerRecord(kind="close", session=session, amount=PicoUsd(0), reason=CRASHED, at=time.time())


def spent(steps: int, ledger: Iterable[Account]) -> PicoUsd:
    """All that counts against the budget: steps and charges, including crash charges, less releases."""
    return PicoUsd(steps + sum(account.charged + account.crashed - account.released for account in ledger))
