"""The run's hard ceiling, shared by all lanes: `purse.py` decides, this waits and writes.

A provider that bills more than it reports cannot be noticed: where a reply states its usage, that is believed.

A lease is on disk before any of it may be spent, so a crash at any moment leaves the ceiling in force. While one refill
is under way everybody else waits for it. Within a lane it is first come, first served, and nobody overtakes a large
reservation; of several lanes that one is served which has the least money in flight, so that near the budget's end a
wide lane leaves a narrow one its turn.
"""

import asyncio
import copy
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from evalkit.client.purse import Ceiling, Purse
from evalkit.errors import BudgetReached, EpisodeUnavailable, EvalkitError, LaneClosed
from evalkit.money import PicoUsd, show_usd
from evalkit.store.accounts import closing_word
from evalkit.store.record import LedgerRecord
from evalkit.store.unmetered import Unmetered


class Ledger(Protocol):
    """Where movements of money are written; a run's store is one."""

    def enter(self, record: LedgerRecord) -> None:
        """Take a row, in memory."""

    async def durable(self) -> None:
        """Return when all that was entered before is on disk. Raises StorageError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStats:
    """Where the money stands, in pico-dollars."""

    budget: int | None
    spent: int
    """By all sessions: settled steps and charges."""
    session: int
    """The part of it that is this session's."""
    charged: int
    """Part of this session's spending that is charges for attempts whose usage nobody knows."""
    reserved: int
    left: int | None
    waiting: int
    """Requests that wait for others to come back cheaper than their bound."""
    unmetered: Unmetered
    """This session's replies without usage."""


class _Waiter:
    """A request that did not fit at once."""

    __slots__ = ("amount", "ceilings", "granted", "look", "number")

    def __init__(self, amount: int, ceilings: Mapping[str, Ceiling], number: int) -> None:
        self.amount = amount
        self.ceilings = ceilings
        self.number = number
        self.granted = False
        self.look = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Have it look again."""
        if not self.look.done():
            self.look.set_result(None)

    async def woken(self) -> None:
        """Wait for `wake`; what was woken before counts."""
        await self.look
        self.look = asyncio.get_running_loop().create_future()

    @property
    def fits(self) -> bool:
        """Whether its lane's and its agent's ceilings have room."""
        return all(one.fits(self.amount) for one in self.ceilings.values())

    @property
    def hopeless(self) -> str:
        """The ceiling that will not have room any more: `lane` or `agent`; empty if none."""
        return next((scope for scope, one in self.ceilings.items() if one.hopeless(self.amount)), "")


class _Line:
    """One lane before the till."""

    __slots__ = ("largest", "queue", "reserved")

    def __init__(self) -> None:
        self.queue: deque[_Waiter] = deque()
        self.reserved = 0
        self.largest = 0
        """The most that a single request was bounded by."""

    def head(self) -> _Waiter | None:
        """Who is next: the first that its own ceilings do not hold back. Others hear of a ceiling that is used up."""
        for waiter in self.queue:
            if waiter.fits:
                return waiter
            if waiter.hopeless:
                waiter.wake()
        return None


class _Till:
    """What all lanes and agents of a session share."""

    def __init__(self, purse: Purse, ledger: Ledger, session: str) -> None:
        self.purse = purse
        self.ledger = ledger
        self.session = session
        self.lines: dict[str, _Line] = {}
        self.ceilings: dict[tuple[str, str], Ceiling] = {}
        """By scope (`lane`, `agent`) and name."""
        self.waiting = 0
        self.came = 0
        """Waiters so far: their numbers."""
        self.entered = 0
        """Leases that were handed to the ledger and are not known to be durable."""
        self.refilling = False
        self.end: EvalkitError | None = None
        self.unmetered = Unmetered()

    def waiters(self) -> Iterator[_Waiter]:
        """All who wait, lane by lane."""
        for line in self.lines.values():
            yield from line.queue

    def next(self) -> tuple[_Line, _Waiter] | None:
        """Whose turn it is: of the lane with the least in flight; of several such, who came first."""
        found: tuple[_Line, _Waiter] | None = None
        for line in self.lines.values():
            head = line.head() if line.queue else None
            if head is not None and (
                found is None or (line.reserved, head.number) < (found[0].reserved, found[1].number)
            ):
                found = line, head
        return found

    def serve(self) -> None:
        """Grant what fits, in turn, and have the first that does not fit look for itself."""
        while self.waiting and not self.refilling:
            turn = self.next()
            if turn is None:
                return
            line, head = turn
            head.wake()
            if self.end is not None or not self.purse.take(head.amount):
                return
            book(line, head.ceilings, head.amount)
            head.granted = True
            line.queue.remove(head)
            self.waiting -= 1

    def write(self, kind: str, amount: int, **about: Any) -> None:
        """Enter a row of this session."""
        self.ledger.enter(
            LedgerRecord(kind=kind, session=self.session, amount=PicoUsd(amount), at=time.time(), **about)
        )


def book(line: _Line, ceilings: Mapping[str, Ceiling], amount: int) -> None:
    """What the purse has given is in flight."""
    line.reserved += amount
    line.largest = max(line.largest, amount)
    for one in ceilings.values():
        one.reserved += amount


class Budget:
    """Reserve the worst case before a request, settle its true cost after. One for each lane and agent (`of`)."""

    def __init__(
        self,
        *,
        budget: PicoUsd | None,
        spent: PicoUsd,
        ledger: Ledger,
        session: str,
        ceilings: Mapping[tuple[str, str], Ceiling] | None = None,
    ) -> None:
        """`spent`: the steps and charges (crash charges included) of all earlier sessions, from the log.

        `ceilings`: by (`lane` or `agent`, its name): what one of them may spend of the whole.
        """
        self._till = _Till(Purse(budget=budget, before=spent), ledger, session)
        self._till.ceilings = dict(ceilings or {})
        self._lane = self._agent = ""
        self._line = self._till.lines.setdefault("", _Line())
        self._ceilings: dict[str, Ceiling] = {}

    def of(self, lane: str, agent: str) -> "Budget":
        """The same money, as one agent in one lane draws upon it."""
        mine = copy.copy(self)
        mine._lane, mine._agent = lane, agent
        mine._line = self._till.lines.setdefault(lane, _Line())
        places = (("lane", lane), ("agent", agent))
        mine._ceilings = {place[0]: self._till.ceilings[place] for place in places if place in self._till.ceilings}
        return mine

    def take(self, amount: int) -> bool:
        """Reserve without waiting, if that is possible now. The fast path: no await, nothing allocated."""
        till, ceilings = self._till, self._ceilings
        if till.waiting or till.end is not None:
            return False
        if ceilings and not all(one.fits(amount) for one in ceilings.values()):
            return False
        if not till.purse.take(amount):
            return False
        book(self._line, ceilings, amount)
        return True

    async def reserve(self, amount: int) -> None:
        """Reserve, after a new lease or after others have come back, if need be.

        Raises BudgetReached when not even that could make room, EpisodeUnavailable or LaneClosed when it is the agent's
        or the lane's own ceiling, StorageError when a lease cannot be written, and what `end` was given.
        """
        if self.take(amount):
            return
        till = self._till
        till.came += 1
        waiter = _Waiter(amount, self._ceilings, till.came)
        self._line.queue.append(waiter)
        till.waiting += 1
        reserved = False
        try:
            while not waiter.granted:
                if till.end is not None:
                    raise copy.copy(till.end)  # one for each: a shared one would gather everybody's traceback
                if waiter.hopeless:
                    raise self._ceiling_reached(waiter)
                turn = till.next()
                if turn is not None and turn[1] is waiter and not till.refilling:
                    await self._advance(waiter)
                else:
                    await waiter.woken()
            reserved = True
        finally:
            if not reserved:
                self._withdraw(waiter)

    def _withdraw(self, waiter: _Waiter) -> None:
        """A waiter that failed or was cancelled leaves nothing behind, be it in the queue or served already."""
        if waiter.granted:
            self._give_back(waiter.amount, 0)
        else:
            self._line.queue.remove(waiter)
            self._till.waiting -= 1
        self._till.serve()

    async def _advance(self, head: _Waiter) -> None:
        """The next step of whose turn it is: leases for itself and for those who wait too, a wait, or the end."""
        till = self._till
        step = till.purse.next(head.amount)
        if till.entered or step.action == "lease":
            # A lease whose writer was cancelled is made sure of first: it may be on disk already.
            await self._refill(head)
        elif step.action == "go":
            till.serve()
        elif step.action == "wait":
            await head.woken()
        else:
            raise BudgetReached(self._why(head.amount))

    async def _refill(self, head: _Waiter) -> None:
        till = self._till
        if not till.entered:
            others = (waiter.amount for waiter in till.waiters() if waiter is not head and waiter.fits)
            for lease in till.purse.leases([head.amount, *others]):
                till.write("lease", lease, lane=self._lane, agent=self._agent)
                till.entered += lease
        till.refilling = True
        try:
            await till.ledger.durable()
        finally:
            till.refilling = False
        till.purse.lease(till.entered)
        till.entered = 0
        till.serve()

    def settle(self, reserved: int, cost: int) -> bool:
        """A request came back. Returns whether its cost kept within what was reserved for it."""
        self._give_back(reserved, cost)
        if self._till.waiting:
            self._till.serve()
        return cost <= reserved

    def _give_back(self, reserved: int, cost: int) -> None:
        self._till.purse.settle(reserved, cost)
        self._line.reserved -= reserved
        for one in self._ceilings.values():
            one.settle(reserved, cost)

    def note_unmetered(self, cost: int, guess: int | None) -> None:
        """Count a reply without usage that costs so much at worst; `guess`: by an estimate of its tokens."""
        self._till.unmetered += Unmetered(
            replies=1, cost=cost, estimated=int(guess is not None), guess=0 if guess is None else guess
        )

    def book_charge(
        self, amount: int, *, lane: str, agent: str, episode: str, step: int, attempt: int, reason: str
    ) -> None:
        """An attempt whose usage nobody knows: its whole reservation is spent. Written, not waited for."""
        if amount:
            self._till.write(
                "charge", amount, lane=lane, agent=agent, episode=episode, step=step, attempt=attempt, reason=reason
            )
            self._till.purse.charged += amount
        self.settle(amount, amount)

    async def durable(self) -> None:
        """Return when every charge booked so far is on disk: before the retry that follows it is sent."""
        await self._till.ledger.durable()

    def end(self, error: EvalkitError) -> None:
        """No reservation is made any more; all that wait raise `error`. What is in flight still settles."""
        self._till.end = error
        for waiter in self._till.waiters():
            waiter.wake()

    def close(self) -> None:
        """Give back what was leased and not spent, at a clean end: nothing may be in flight any more.

        Written also where there is nothing to give back: a session without a `close` has crashed.
        """
        till, purse = self._till, self._till.purse
        unused = 0 if purse.budget is None else max(0, purse.room) + till.entered
        till.write("close", unused, reason=closing_word(purse.spent))
        if purse.budget is not None:
            purse.leased, purse.room, till.entered = purse.leased - unused, 0, 0

    def stats(self) -> BudgetStats:
        """Where the money of all lanes stands."""
        till, purse = self._till, self._till.purse
        return BudgetStats(
            budget=purse.budget,
            spent=purse.before + purse.spent,
            session=purse.spent,
            charged=purse.charged,
            reserved=purse.reserved,
            left=purse.left,
            waiting=till.waiting,
            unmetered=till.unmetered,
        )

    def ceilings(self) -> Mapping[tuple[str, str], Ceiling]:
        """What single lanes and agents may spend."""
        return self._till.ceilings

    def largest(self, lane: str) -> int:
        """The most that a single request of a lane was bounded by so far."""
        line = self._till.lines.get(lane)
        return 0 if line is None else line.largest

    def _why(self, amount: int) -> str:
        purse = self._till.purse
        assert purse.budget is not None
        left = purse.budget - purse.before - purse.spent
        return (
            f"The budget of {show_usd(purse.budget)} is reached: {show_usd(max(0, left))} are left, and the next "
            f"request may cost up to {show_usd(amount)}. Raise `budget_usd` in the sweep and run again to go on."
        )

    def _ceiling_reached(self, waiter: _Waiter) -> EvalkitError:
        scope = waiter.hopeless
        one, name = waiter.ceilings[scope], self._lane if scope == "lane" else self._agent
        words = (
            f"The budget of {scope} {name} ({show_usd(one.budget)}) is reached: "
            f"{show_usd(max(0, one.budget - one.before - one.spent))} are left, and the next request may cost up to "
            f"{show_usd(waiter.amount)}. Raise it in the sweep and run again to go on."
        )
        return LaneClosed(words) if scope == "lane" else EpisodeUnavailable(words)
