"""Leases of money: what the coordinator lends its workers of the run's budget, and of agents' and lanes' own ones.

    before + sum(leased) <= budget, in each scope

A lease is durable before it is told, a return before it is lent anew. A worker that died is charged: what it has spent
and what it may have left in flight stay, the rest is free. Pure arithmetic in pico-dollars.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from evalkit.client.budget_state import LEASE_PARTS
from evalkit.engine.machines.messages import RUN, Purse

SPAN_S = 5.0
"""A lease is for the spending of so many seconds, and no larger than that of a process that plays alone."""


@dataclass(slots=True)
class _Borrower:
    """One worker in one scope."""

    leased: int = 0
    """Returns subtracted, once they are durable."""
    returned: int = 0
    noted: int = 0
    """Returns that were reported."""
    over: int = 0
    """Spent beyond what was lent, by replies above their bounds; part of `leased`."""
    spent: int = 0
    reserved: int = 0

    @property
    def held(self) -> int:
        """What counts against the budget."""
        return max(self.leased, self.spent + self.reserved)


@dataclass(slots=True, kw_only=True)
class Pot:
    """One scope's budget."""

    budget: int | None
    before: int
    """What was spent before, and by workers that have ended."""
    accounts: dict[str, _Borrower] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """What is lent to nobody."""
        assert self.budget is not None
        return max(0, self.budget - self.before - sum(account.held for account in self.accounts.values()))

    @property
    def spent(self) -> int:
        """As far as it was reported."""
        return self.before + sum(account.spent for account in self.accounts.values())

    @property
    def reserved(self) -> int:
        """Of requests in flight."""
        return sum(account.reserved for account in self.accounts.values())


class Leases:
    """All scopes of a run."""

    def __init__(self, pots: Mapping[str, Pot]) -> None:
        """`pots`: by scope; there is always one for the run, whose budget may be None: no limit."""
        self.pots = dict(pots)
        self._wants: dict[str, dict[str, Purse]] = {}

    def join(self, worker: str) -> None:
        """A worker begins."""
        for pot in self.pots.values():
            pot.accounts[worker] = _Borrower()
        self._wants[worker] = {}

    def report(self, worker: str, purses: Mapping[str, Purse]) -> int:
        """What a worker says. Returns what it has newly given back to the run, which must be durable before it is lent
        anew: `returned` then says so."""
        news = 0
        for scope, purse in purses.items():
            pot = self.pots.get(scope)
            account = None if pot is None else pot.accounts.get(worker)
            if account is None:
                continue
            account.spent, account.reserved = max(account.spent, purse.spent), purse.reserved
            more = max(0, purse.over - account.over)
            account.over += more
            account.leased += more
            fresh = max(0, purse.returned - account.noted)
            account.noted += fresh
            if scope == RUN:
                news = fresh
            else:
                account.returned += fresh
                account.leased -= fresh
        self._wants[worker] = dict(purses)
        return news

    def returned(self, worker: str, amount: int) -> None:
        """What a worker gave back to the run is durable."""
        account = self.pots[RUN].accounts[worker]
        account.returned += amount
        account.leased -= amount

    def grants(self, worker: str, rate: float, largest: int) -> dict[str, int]:
        """By scope, what is lent to a worker now. `rate`: its spending a second; `largest`: its highest bound of a
        request. The run's lease is to be made durable before it is told."""
        lent = {}
        for scope, pot in self.pots.items():
            if pot.budget is None:
                continue
            amount = self._grant(worker, scope, pot, rate, largest)
            if amount:
                pot.accounts[worker].leased += amount
                lent[scope] = amount
        return lent

    def _grant(self, worker: str, scope: str, pot: Pot, rate: float, largest: int) -> int:
        assert pot.budget is not None
        account, purse, free = pot.accounts[worker], self._wants[worker].get(scope), pot.free
        room = max(0, account.leased - account.spent - account.reserved)
        most = max(pot.budget // LEASE_PARTS, account.reserved)
        usual = min(round(SPAN_S * rate) + 2 * largest, most, free // (2 * len(pot.accounts)))
        amount = max(0, usual - room) if room < usual / 2 else 0
        if purse is not None and purse.wanted:
            # All that waits if that is there; else at least the next request.
            wanted = min(purse.wanted, max(purse.first - room, free // len(pot.accounts)))
            amount = max(amount, wanted)
        first = self._first(scope)
        if first is not None and first != worker:
            free -= max(0, self._lack(first, scope, pot))  # it waits for what others give back
        return amount if amount <= free else 0

    def _first(self, scope: str) -> str | None:
        """Of the workers that wait for money, the one that is served first: what it lacks is least."""
        waiting = {name: purses[scope] for name, purses in self._wants.items() if scope in purses}
        waiting = {name: purse for name, purse in waiting.items() if purse.wanted}
        return min(waiting, key=lambda name: (waiting[name].first, name), default=None)

    def before(self, worker: str) -> dict[str, int]:
        """By scope, what all but this worker have spent, as far as it was reported."""
        return {scope: pot.spent - pot.accounts[worker].spent for scope, pot in self.pots.items()}

    def recalls(self, worker: str) -> dict[str, int]:
        """By scope, what a worker should give back, because another one waits for more than is free."""
        asked = {}
        for scope, pot in self.pots.items():
            if pot.budget is None:
                continue
            first = self._first(scope)
            account = pot.accounts[worker]
            idle = max(0, account.leased - account.spent - account.reserved)
            if first is not None and first != worker and idle and self._lack(first, scope, pot) > pot.free:
                asked[scope] = idle
        return asked

    def _lack(self, worker: str, scope: str, pot: Pot) -> int:
        account = pot.accounts[worker]
        return self._wants[worker][scope].first - max(0, account.leased - account.spent - account.reserved)

    def leased(self, worker: str) -> dict[str, int]:
        """By scope, all that a worker was ever lent."""
        return {
            scope: pot.accounts[worker].leased + pot.accounts[worker].returned - pot.accounts[worker].over
            for scope, pot in self.pots.items()
            if pot.budget is not None
        }

    def settle(self, worker: str, spent: Mapping[str, int]) -> None:
        """A worker has ended. `spent`: by scope, what it has cost the run, with what was charged for its end; where it
        is not known, all that it was lent counts."""
        for scope, pot in self.pots.items():
            account = pot.accounts.pop(worker)
            pot.before += spent.get(scope, account.held)
        del self._wants[worker]

    def spent(self) -> Iterator[tuple[str, int, int]]:
        """(scope, spent, reserved) as far as it was reported."""
        for scope, pot in self.pots.items():
            yield scope, pot.spent, pot.reserved
