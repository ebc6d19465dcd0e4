"""The budget's arithmetic: what may be reserved now, what must be leased first, what must wait, what never fits.

No clock, no loop, no disk. One invariant, whatever the order of calls:

    before + spent + reserved  <=  before + leased  <=  budget

as long as no reply costs more than was reserved for it. (One that does is counted in full, and later leases shrink.)
A run without a budget leases likewise, only without end, so a crash costs it no more than one with a budget.
"""

from collections.abc import Iterable
from typing import Literal

LEASE_PARTS = 1000
"""A tranche is this part of the budget, or what the requests in flight have reserved if that is more: each lease makes
so much room. A crash costs what is leased and not spent, so leases are small."""

_BOUNDLESS = 1 << 100
"""What an unlimited budget has to lease: 10^18 dollars."""


Step = Literal["go", "lease", "wait", "never"]
"""What a reservation has to do next; `lease`: set aside durably what `lease_for` says before looking again."""


class BudgetState:
    """What one session of a run has leased, spent and reserved, in pico-dollars."""

    __slots__ = ("_least", "before", "budget", "charged", "leased", "reserved", "room", "spent")

    def __init__(self, *, budget: int | None, before: int) -> None:
        """`before`: what was spent when the session began, according to the log; `budget` None: unlimited."""
        self.budget = budget
        self._least = (budget or 0) // LEASE_PARTS
        self.before = before
        self.leased = 0
        self.spent = 0
        self.charged = 0
        """Part of `spent` that is charges."""
        self.reserved = 0
        self.room = 0
        """What may be reserved without another lease: `leased - spent - reserved`."""

    def take(self, amount: int) -> bool:
        """Reserve now, if the lease has room."""
        if amount > self.room:
            return False
        self.room -= amount
        self.reserved += amount
        return True

    def settle(self, reserved: int, cost: int) -> int:
        """A reservation has come back at its true cost. Returns what it spent beyond the leases: that is leased now."""
        self.reserved -= reserved
        self.room += reserved - cost
        self.spent += cost
        # If the reply cost more than was reserved, the excess is spent, so it is taken from what could still be leased.
        # Otherwise a later reservation would wait for money that no request in flight can release.
        over = max(0, -self.room)
        self.lease(over)
        return over

    def lease(self, amount: int) -> None:
        """A lease has become durable."""
        self.leased += amount
        self.room += amount

    def next(self, amount: int) -> Step:
        """What a reservation of `amount` has to do."""
        short = amount - self.room
        if short <= 0:
            return "go"
        if short <= self.leasable:
            return "lease"
        assert self.budget is not None
        # All requests in flight may turn out to cost nothing; if even that were not enough, waiting is useless.
        return "wait" if amount <= self.budget - self.before - self.spent else "never"

    def lease_for(self, amounts: Iterable[int]) -> int:
        """The lease that makes room for these reservations, in order, as far as the budget allows, or for a tranche."""
        leasable, needed = self.leasable, 0
        for amount in amounts:
            if needed + amount - self.room > leasable:
                break
            needed += amount
        return min(leasable, max(0, max(needed, self._least, self.reserved) - self.room))

    @property
    def runs_low(self) -> bool:
        """Whether less than half a tranche is left of the leases."""
        room = 2 * self.room
        return room < self._least or room < self.reserved

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

    __slots__ = ("before", "budget", "leased", "reserved", "spent")

    def __init__(self, *, budget: int, before: int) -> None:
        """`before`: what the log says it had spent when the session began, crash charges included."""
        self.budget = budget
        self.before = before
        self.spent = 0
        self.reserved = 0
        self.leased: int | None = None
        """Where others lend the money: so much of it, in total."""

    def lease(self, amount: int) -> None:
        """Others lend so much, in addition."""
        self.leased = amount + (self.leased or 0)

    @property
    def room(self) -> int:
        """What may be reserved now."""
        if self.leased is not None:
            return self.leased - self.spent - self.reserved
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
