"""What the workers of a run have of one sum of money, and of one limit: the parts never exceed the whole.

Pure arithmetic; the caller gives the time. A worker reports and is answered in turn, so its report shows what the last
answer has made of its parts. What one worker loses another gets only once the first has reported that it is gone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from evalkit.client.budget import LoanBalance
from evalkit.client.budget_state import LEASE_PARTS

FLOOR = 0.01
"""The part of a limit that a worker has at least, so that it can begin at once."""
NOTHING = LoanBalance(spent=0, reserved=0, lent=0)


@dataclass(slots=True)
class WorkerBalance:
    """One worker's part of a balance, in pico-dollars."""

    lent: int = 0
    """Less what has come back."""
    back: int = 0
    """What has come back, and is not known to be durable."""
    said: LoanBalance = NOTHING

    @property
    def held(self) -> int:
        """What counts against the budget."""
        return max(self.lent + self.said.over, self.said.spent + self.said.reserved) + self.back

    @property
    def idle(self) -> int:
        """What it has and neither spent nor reserved."""
        return max(0, self.lent + self.said.over - self.said.spent - self.said.reserved)

    @property
    def shortfall(self) -> int:
        """What the request lacks that is next."""
        return self.said.first - self.idle


@dataclass(slots=True, kw_only=True)
class SharedBalance:
    """The run's money, or an agent's own.

        before + sum(held) <= budget

    A loan is durable before it is told, a return before it is lent anew. A worker that died is charged: what it has
    spent and what it may have left in flight stay, the rest is free.
    """

    budget: int | None
    before: int
    """What was spent before, and by workers that have ended."""
    accounts: dict[str, WorkerBalance] = field(default_factory=dict)
    """By worker."""

    @property
    def free(self) -> int:
        """What is lent to nobody."""
        held = sum(account.held for account in self.accounts.values())
        return max(0, (self.budget or 0) - self.before - held)

    @property
    def spent(self) -> int:
        """As far as it was reported."""
        return self.before + sum(account.said.spent for account in self.accounts.values())

    @property
    def reserved(self) -> int:
        """Of requests in flight."""
        return sum(account.said.reserved for account in self.accounts.values())

    def hear(self, worker: str, said: LoanBalance) -> int:
        """What a worker says. Returns what it has given back: it counts until that is durable (`returned`)."""
        account = self.accounts[worker]
        back = account.lent - said.lent
        account.said, account.lent, account.back = said, said.lent, account.back + back
        return back

    def returned(self, worker: str, amount: int) -> None:
        """What a worker gave back is free."""
        self.accounts[worker].back -= amount

    def lend(self, worker: str, largest: int) -> tuple[int, int]:
        """(what a worker may have of it from now on, what it is lent for that). The first is less than it has where
        another waits for more than is free: it is to give back what idles. `largest`: its highest bound of a request.
        A loan is for few requests, since what idles is charged if the worker dies."""
        if self.budget is None:
            return 0, 0
        account, free, waits = self.accounts[worker], self.free, self._waits_first()
        said, kept = account.said, 0
        if waits is not None and waits != worker:
            kept = max(0, self.accounts[waits].shortfall)
            if kept > free:
                return account.lent - account.idle, 0
        usual = min(max(self.budget // LEASE_PARTS, 2 * largest), free // (2 * len(self.accounts)))
        amount = max(0, usual - account.idle) if account.idle < usual / 2 else 0
        if said.wanted:  # all that waits if that is there; else at least the next request
            amount = max(amount, min(said.wanted, max(account.shortfall, free // len(self.accounts))))
        amount = amount if amount <= free - kept else 0
        account.lent += amount
        return account.lent, amount

    def settle(self, worker: str, spent: int | None) -> None:
        """A worker has ended. `spent`: what it has cost, with what was charged for its end; None: nobody knows, so all
        that it had counts."""
        account = self.accounts.pop(worker)
        self.before += account.held if spent is None else spent

    def _waits_first(self) -> str | None:
        """Of the workers that wait for money, the one that is served first: the bound of its request is least."""
        waiting = [(account.said.first, name) for name, account in self.accounts.items() if account.said.wanted]
        return min(waiting, default=(0, None))[1]


@dataclass(slots=True)
class _Use:
    """One worker's part of a limit."""

    demand: float = 0.0
    in_flight: float = 0.0
    told: list[tuple[float, float]] = field(default_factory=list)
    """Parts that it may be using, each with the time until when."""

    def most(self, now: float) -> float:
        """What it may be using. A smaller part takes no request in flight back: what is above it is free once it was
        answered."""
        return max(self.in_flight, max((part for part, until in self.told if until > now), default=0.0))


class SharedLimit:
    """One limit of the run, of which each worker may use its part for a while.

    What one worker loses another gets when the first has reported since, or when all that it was ever told has lapsed.
    A worker counts a part's time from when it reported, the coordinator from when that arrived: so the worker stops
    first.
    """

    def __init__(self, most: float, *, whole: bool) -> None:
        """`whole`: whether it is divided in integers, as requests in flight are."""
        self._most, self._whole = most, whole
        self._uses: dict[str, _Use] = {}

    def hear(self, worker: str, demand: float, in_flight: float = 0.0) -> None:
        """A worker reports, or begins: how much it could use (`inf`: all that there is), and what it has in flight."""
        use = self._uses.setdefault(worker, _Use())
        use.demand, use.in_flight, use.told = demand, in_flight, use.told[-1:]

    def leave(self, worker: str) -> None:
        """A worker has ended: its process is gone, so it sends nothing more."""
        self._uses.pop(worker, None)

    def part(self, worker: str, now: float, until: float) -> float:
        """The worker's part from now on."""
        others = sum(use.most(now) for name, use in self._uses.items() if name != worker)
        target = divided({name: use.demand for name, use in self._uses.items()}, self._most, whole=self._whole)[worker]
        part = max(0.0, min(target, self._most - others))
        part = float(math.floor(part + 1e-9)) if self._whole else part
        self._uses[worker].told.append((part, until))
        return part


def divided(demands: Mapping[str, float], most: float, *, whole: bool = False) -> dict[str, float]:
    """Max-min division: nobody gets more than it demands while another lacks something; what nobody demands is divided
    equally. Of what is not `whole` everybody has `FLOOR` at least, or an equal part if they are many."""
    least = 0.0 if whole else min(FLOOR * most, most / len(demands))
    order = sorted(demands, key=lambda name: (demands[name], name))
    parts, left = dict.fromkeys(order, 0.0), most
    for wanted in (demands, dict.fromkeys(order, math.inf)):
        for number, name in enumerate(order):
            even = left / (len(order) - number)
            more = min(max(wanted[name] - parts[name], least - parts[name]), math.floor(even) if whole else even)
            parts[name] += max(0.0, more)
            left -= max(0.0, more)
    return parts
