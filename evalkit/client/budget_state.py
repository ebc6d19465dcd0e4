"""The budget's arithmetic: what may be reserved now, what must be leased first, what must wait, what never fits.

No clock, no loop, no disk. One invariant, whatever the order of calls:

    before + spent + reserved  <=  before + leased  <=  budget

as long as no reply costs more than was reserved for it. (One that does is counted in full, and later leases shrink.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from evalkit.money import PicoUsd

LEASE_PARTS = 100
"""A lease is at most this part of the budget, unless a single request needs more."""

_BOUNDLESS = 1 << 100
"""The room of an unlimited budget: 10^18 dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a reservation has to do next."""

    action: Literal["go", "lease", "wait", "never"]
    lease: int = 0
    """For `lease`: how much to set aside durably before looking again."""


GO, WAIT, NEVER = Step(action="go"), Step(action="wait"), Step(action="never")


class BudgetState:
    """What one session of a run has leased, spent and reserved, in pico-dollars."""

    __slots__ = ("before", "budget", "charged", "leased", "reserved", "room", "spent")

    def __init__(self, *, budget: int | None, before: int) -> None:
        """`before`: what was spent when the session began, according to the log; `budget` None: unlimited."""
        self.budget = budget
        self.before = before
        self.leased = 0
        self.spent = 0
        self.charged = 0
        """Part of `spent` that is charges."""
        self.reserved = 0
        self.room = _BOUNDLESS if budget is None else 0
        """What may be reserved without another lease: `leased - spent - reserved`."""

    def take(self, amount: int) -> bool:
        """Reserve now, if the lease has room."""
        if amount > self.room:
            return False
        self.room -= amount
        self.reserved += amount
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """A reservation has come back at its true cost."""
        self.reserved -= reserved
        self.room += reserved - cost
        self.spent += cost
        if self.room < 0:
            # The reply cost more than was reserved. The excess is spent, so it is taken from what could still be
            # leased. Otherwise a later reservation would wait for money that no request in flight can release.
            self.leased -= self.room
            self.room = 0

    def lease(self, amount: int) -> None:
        """A lease has become durable."""
        self.leased += amount
        self.room += amount

    def next(self, amount: int) -> Step:
        """What a reservation of `amount` has to do."""
        short = amount - self.room
        if short <= 0 or self.budget is None:
            return GO
        leasable = self.leasable
        if short <= leasable:
            return Step(action="lease", lease=min(leasable, max(short, self.budget // LEASE_PARTS)))
        # All requests in flight may turn out to cost nothing; if even that were not enough, waiting is useless.
        return WAIT if amount <= self.budget - self.before - self.spent else NEVER

    def leases(self, amounts: Iterable[int]) -> Iterator[int]:
        """The leases that these reservations need, as far as the budget allows: each is the one that `next` returns.

        They become durable together, so that many waiters share one commit.
        """
        ahead = BudgetState(budget=self.budget, before=self.before)
        ahead.leased, ahead.room = self.leased, self.room
        for amount in amounts:
            step = ahead.next(amount)
            if step.action == "lease":
                ahead.lease(step.lease)
                yield step.lease
            if not ahead.take(amount):
                return

    @property
    def leasable(self) -> int:
        """The part of the budget that is not in any lease yet. A reply above its bound reduces it."""
        if self.budget is None:
            return _BOUNDLESS
        return max(0, self.budget - self.before - self.leased)

    @property
    def left(self) -> int | None:
        """What is neither spent nor reserved; None if unlimited."""
        return None if self.budget is None else max(0, self.budget - self.before - self.spent - self.reserved)


class Ceiling:
    """What one agent, or one lane, may spend of the run's money, in pico-dollars. It draws on the run's leases.

    before + spent + reserved <= budget, under the same condition as the budget's.
    """

    __slots__ = ("before", "budget", "lent", "reserved", "spent")

    def __init__(self, *, budget: int, before: int) -> None:
        """`before`: what the log says it had spent when the session began, crash charges included."""
        self.budget = budget
        self.before = before
        self.spent = 0
        self.reserved = 0
        self.lent: int | None = None
        """Where others lend the money: so much of it, in total."""

    def lend(self, more: int) -> None:
        """Others lend so much, in addition."""
        self.lent = more + (self.lent or 0)

    @property
    def room(self) -> int:
        """What may be reserved now."""
        if self.lent is not None:
            return self.lent - self.spent - self.reserved
        return self.budget - self.before - self.spent - self.reserved

    def fits(self, amount: int) -> bool:
        """Whether so much may be reserved now."""
        return amount <= self.room

    def hopeless(self, amount: int) -> bool:
        """Whether the amount would not fit even if all requests in flight cost nothing."""
        return self.before + self.spent + amount > self.budget

    def settle(self, reserved: int, cost: int) -> None:
        """A reservation has come back at its true cost."""
        self.reserved -= reserved
        self.spent += cost


def in_flight_bound(left: int, worst_case: int) -> int:
    """Requests that may be in flight at once: each needs room for its worst case in the remaining budget.

    Both in pico-dollars, `worst_case` above 0.
    """
    return max(0, left) // worst_case


def crash_charge(*, leased: int | None, settled: int, charged: int, worst_cases: Iterable[int]) -> PicoUsd:
    """What to charge for requests that may have been in flight when a session crashed.

    The smaller of what remained of its leases (`leased - settled - charged`) and the sum of the worst cases of the next
    request of each episode it had begun and not finished: one episode has one request in flight. `leased` None: the
    session had no budget, so only the second bound exists.
    """
    bound = sum(worst_cases)
    return PicoUsd(bound if leased is None else min(bound, max(0, leased - settled - charged)))
