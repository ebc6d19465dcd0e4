"""The run's hard ceiling, shared by all lanes: `purse.py` decides, this waits and writes.

A lease is on disk before any of it may be spent, so a crash at any moment leaves the ceiling in force. While one refill
is under way everybody else waits for it, first come, first served; nobody overtakes a large reservation.
"""

import asyncio
import copy
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from evalkit.client.purse import Purse
from evalkit.errors import BudgetReached, EvalkitError
from evalkit.money import PicoUsd, show_usd
from evalkit.store.record import LedgerRecord


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
    charged: int
    """Part of this session's spending that is charges for attempts whose usage nobody knows."""
    reserved: int
    left: int | None
    waiting: int
    """Requests that wait for others to come back cheaper than their bound."""


class _Waiter:
    """A request that did not fit at once."""

    __slots__ = ("amount", "granted", "look")

    def __init__(self, amount: int) -> None:
        self.amount = amount
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


class Budget:
    """Reserve the worst case before a request, settle its true cost after."""

    def __init__(self, *, budget: PicoUsd | None, spent: PicoUsd, ledger: Ledger, session: str) -> None:
        """`spent`: the steps and charges (crash charges included) of all earlier sessions, from the log."""
        self._purse = Purse(budget=budget, before=spent)
        self._ledger = ledger
        self._session = session
        self._queue: deque[_Waiter] = deque()
        self._entered = 0
        """Leases that were handed to the ledger and are not known to be durable."""
        self._refilling = False
        self._end: EvalkitError | None = None

    def take(self, amount: int) -> bool:
        """Reserve without waiting, if that is possible now. The fast path: no await, nothing allocated."""
        return not self._queue and self._end is None and self._purse.take(amount)

    async def reserve(self, amount: int) -> None:
        """Reserve, after a new lease or after others have come back, if need be.

        Raises BudgetReached when not even that could make room, StorageError when a lease cannot be written, and what
        `end` was given.
        """
        if self.take(amount):
            return
        waiter = _Waiter(amount)
        self._queue.append(waiter)
        reserved = False
        try:
            while not waiter.granted:
                if self._end is not None:
                    raise copy.copy(self._end)  # one for each: a shared one would gather everybody's traceback
                if self._queue[0] is waiter and not self._refilling:
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
            self._purse.settle(waiter.amount, 0)
        else:
            self._queue.remove(waiter)
        self._serve()

    async def _advance(self, head: _Waiter) -> None:
        """The head's next step: a lease for itself and those behind it, a wait, or the end."""
        behind = sum(waiter.amount for waiter in self._queue) - head.amount
        step = self._purse.next(head.amount, behind)
        if self._entered or step.action == "lease":
            # A lease whose writer was cancelled is made sure of first: it may be on disk already.
            await self._refill(0 if self._entered else step.lease)
        elif step.action == "go":
            self._serve()
        elif step.action == "wait":
            await head.woken()
        else:
            raise BudgetReached(self._why(head.amount))

    async def _refill(self, lease: int) -> None:
        if lease:
            self._write("lease", lease)
            self._entered += lease
        self._refilling = True
        try:
            await self._ledger.durable()
        finally:
            self._refilling = False
        self._purse.lease(self._entered)
        self._entered = 0
        self._serve()

    def _serve(self) -> None:
        """Grant what fits, in order, and have the first that does not fit look for itself."""
        while self._queue and not self._refilling:
            head = self._queue[0]
            head.wake()
            if self._end is not None or not self._purse.take(head.amount):
                return
            head.granted = True
            self._queue.popleft()

    def settle(self, reserved: int, cost: int) -> bool:
        """A request came back. Returns whether its cost kept within what was reserved for it."""
        self._purse.settle(reserved, cost)
        if self._queue:
            self._serve()
        return cost <= reserved

    def book_charge(
        self, amount: int, *, lane: str, agent: str, episode: str, step: int, attempt: int, reason: str
    ) -> None:
        """An attempt whose usage nobody knows: its whole reservation is spent. Written, not waited for."""
        if amount:
            self._write(
                "charge", amount, lane=lane, agent=agent, episode=episode, step=step, attempt=attempt, reason=reason
            )
            self._purse.charged += amount
        self.settle(amount, amount)

    async def durable(self) -> None:
        """Return when every charge booked so far is on disk: before the retry that follows it is sent."""
        await self._ledger.durable()

    def end(self, error: EvalkitError) -> None:
        """No reservation is made any more; all that wait raise `error`. What is in flight still settles."""
        self._end = error
        for waiter in self._queue:
            waiter.wake()

    def close(self) -> None:
        """Give back what was leased and not spent, at a clean end: nothing may be in flight any more.

        Written also where there is nothing to give back: a session without a `close` has crashed.
        """
        purse = self._purse
        unused = 0 if purse.budget is None else max(0, purse.room) + self._entered
        self._write("close", unused)
        if purse.budget is not None:
            purse.leased, purse.room, self._entered = purse.leased - unused, 0, 0

    def stats(self) -> BudgetStats:
        """Where the money stands."""
        purse = self._purse
        return BudgetStats(
            budget=purse.budget,
            spent=purse.before + purse.spent,
            charged=purse.charged,
            reserved=purse.reserved,
            left=purse.left,
            waiting=len(self._queue),
        )

    def _write(self, kind: str, amount: int, **about: Any) -> None:
        self._ledger.enter(
            LedgerRecord(kind=kind, session=self._session, amount=PicoUsd(amount), at=time.time(), **about)
        )

    def _why(self, amount: int) -> str:
        purse = self._purse
        assert purse.budget is not None
        left = purse.budget - purse.before - purse.spent
        return (
            f"The budget of {show_usd(purse.budget)} is reached: {show_usd(max(0, left))} are left, and the next "
            f"request may cost up to {show_usd(amount)}. Raise `budget` in the sweep and run again to go on."
        )
