"""The run's hard ceiling, shared by all lanes: `budget_state.py` decides, this module waits and writes.

A provider that bills more than it reports cannot be noticed: the usage that a reply states is taken as true.

A lease is on disk before any of it may be spent, so a crash at any moment leaves the ceiling in force. The next one is
entered when the last one runs low, so it comes on disk with rows that are written anyway. Where one is used up before
that, a request waits for its own, and all others wait for it. Within a lane, requests are served in order of arrival,
and none overtakes a large reservation. Among lanes, the one with the least money in flight is served first, so that a
wide lane does not starve a narrow one near the budget's end.

Where a request does not fit the rest, the run is at its end, unless the request is out of the ordinary and one of the
usual size would fit: then its episode alone is left. Otherwise one reply of some megabytes would end all others, too.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from evalkit.client.budget_state import BudgetState, Ceiling
from evalkit.errors import BudgetReached, EpisodeUnavailable, EvalkitError, RequestTooLarge
from evalkit.money import PicoUsd, show_usd
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.unmetered import UnmeteredReplies
from evalkit.waiting import Waiter, WaitQueue


class Ledger(Protocol):
    """Where movements of money are written, such as a run's store."""

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        """Take a row, in memory. `then` is called once it is on disk."""

    async def durable(self) -> None:
        """Return when everything entered before is on disk. Raises StorageError."""


class BudgetStats(Struct, frozen=True, kw_only=True):
    """The state of the money, in pico-dollars."""

    budget: int | None
    spent: int
    """By all sessions: settled steps and charges."""
    session: int
    """This session's part of it."""
    charged: int
    """The part of this session's spending that is charges for attempts of unknown usage."""
    reserved: int
    left: int | None
    waiting: int
    """Requests that wait until others are settled below their bound."""
    unmetered: UnmeteredReplies
    """This session's replies without usage."""


OUTSIZE = 4
"""A request of more than this many times the usual bound is out of the ordinary: bounds of ordinary chats, which hold
the output's, grow to two or three times that of their opening."""
RUN = "run", ""
"""The scope of the whole budget."""


class LoanBalance(Struct, frozen=True, array_like=True):
    """What has become of money that others lent, of one scope, in pico-dollars."""

    spent: int
    reserved: int
    lent: int
    over: int = 0
    """Spent beyond what was lent, by replies above their bounds."""
    wanted: int = 0
    """What the requests that wait lack."""
    first: int = 0
    """The bound of the first of them."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A request that did not fit at once."""

    amount: int
    ceilings: Mapping[tuple[str, str], Ceiling]
    """Its agent's, by scope, if there is one."""
    number: int
    usual: int
    """What a request of ordinary size is bounded by, as far as its episode shows it."""

    @property
    def fits(self) -> bool:
        """Whether its agent's ceiling has room."""
        return all(ceiling.fits(self.amount) for ceiling in self.ceilings.values())

    @property
    def hopeless(self) -> Ceiling | None:
        """The ceiling that will never have room for it, if there is one."""
        return next((ceiling for ceiling in self.ceilings.values() if ceiling.hopeless(self.amount)), None)


_Waiter = Waiter[_Reservation, None]


class _LaneQueue:
    """One lane: its requests that wait for money, and its money in flight."""

    __slots__ = ("largest", "queue", "reserved", "usual")

    def __init__(self, shared: "_SharedBudget") -> None:
        self.queue = WaitQueue[_Reservation, None](returned=partial(shared.take_back, self), left=shared.left)
        self.reserved = 0
        self.largest = 0
        """The highest bound of a single request."""
        self.usual = 0
        """About the median bound of its requests."""

    def head(self) -> _Waiter | None:
        """The next waiter: the first that its own ceilings do not hold back. Waiters whose ceiling is used up are told
        to check."""
        for waiter in self.queue:
            if waiter.item.fits:
                return waiter
            if waiter.item.hopeless:
                waiter.nudge()
        return None


class _SharedBudget:
    """What all lanes and agents of a session share."""

    def __init__(self, state: BudgetState, ledger: Ledger, session: str) -> None:
        self.state = state
        self.ledger = ledger
        self.session = session
        self.lane_queues: dict[str, _LaneQueue] = {}
        self.ceilings: dict[tuple[str, str], Ceiling] = {}
        """By scope (`lane`, `agent`) and name."""
        self.waiting = 0
        self.came = 0
        """Waiters so far: their numbers."""
        self.entered = 0
        """A lease that was passed to the ledger and is not yet known to be durable."""
        self.leases = 0
        """How many were passed: the number of the last one."""
        self.refilling = False
        self.borrows: Callable[[], None] | None = None
        """Called when money is waited for that others have to lend (`lend`); None: leases are this session's own."""
        self.lent: dict[tuple[str, str], int] = {}
        """By scope: what others have lent, less what they were given back."""
        self.end: EvalkitError | None = None
        self.unmetered = UnmeteredReplies()

    @property
    def scopes(self) -> Mapping[tuple[str, str], BudgetState | Ceiling]:
        """The whole budget, and those within it."""
        return {RUN: self.state, **self.ceilings}

    def lane_queue(self, lane: str) -> _LaneQueue:
        """A lane's queue."""
        if lane not in self.lane_queues:
            self.lane_queues[lane] = _LaneQueue(self)
        return self.lane_queues[lane]

    def waiters(self) -> Iterator[_Waiter]:
        """All who wait, lane by lane."""
        for lane_queue in self.lane_queues.values():
            yield from lane_queue.queue

    def next(self) -> tuple[_LaneQueue, _Waiter] | None:
        """The next waiter: from the lane with the least money in flight; if several lanes are equal, the first to
        arrive."""
        first: tuple[_LaneQueue, _Waiter] | None = None
        for lane_queue in self.lane_queues.values():
            head = lane_queue.head() if lane_queue.queue else None
            if head is not None and (
                first is None or (lane_queue.reserved, head.item.number) < (first[0].reserved, first[1].item.number)
            ):
                first = lane_queue, head
        return first

    def serve(self) -> None:
        """Grant what fits, in order, and let the first that does not fit check for itself."""
        while self.waiting and not self.refilling:
            turn = self.next()
            if turn is None:
                return
            lane_queue, head = turn
            head.nudge()
            if self.end is not None or not self.state.take(head.item.amount):
                return
            book(lane_queue, head.item.ceilings, head.item.amount)
            lane_queue.queue.grant(head, None)
            self.waiting -= 1
            if not self.waiting:
                self.renew()

    def left(self, _: _Reservation) -> None:
        """A request left without its money: another may be the first now."""
        self.waiting -= 1
        self.serve()

    def take_back(self, lane_queue: _LaneQueue, reservation: _Reservation, _: None) -> None:
        """A request was granted its money and cancelled before it could run."""
        self.give_back(lane_queue, reservation.ceilings, reservation.amount, 0)
        self.serve()

    def give_back(
        self, lane_queue: _LaneQueue, ceilings: Mapping[tuple[str, str], Ceiling], reserved: int, cost: int
    ) -> None:
        """A reservation has come back at its true cost."""
        over = self.state.settle(reserved, cost)
        if over:
            self.write("lease", over)
        lane_queue.reserved -= reserved
        for ceiling in ceilings.values():
            ceiling.settle(reserved, cost)
        if reserved:
            self.renew()

    def renew(self) -> None:
        """Enter the next lease while the last one has some room: nobody waits for it then."""
        if self.state.runs_low and not self.entered and self.end is None and not self.others_lend:
            self.lease(())

    @property
    def others_lend(self) -> bool:
        """Whether leases are not this session's own."""
        return self.borrows is not None and self.state.budget is not None

    def lease(self, amounts: Iterable[int]) -> None:
        """Enter a lease for these reservations. It may be spent once it is on disk."""
        self.entered = self.state.lease_for(amounts)
        self.leases += 1
        if self.entered:
            self.write("lease", self.entered, then=partial(self.leased, self.leases))

    def leased(self, number: int) -> None:
        """The lease of this number is on disk."""
        if number == self.leases:
            self.state.lease(self.entered)
            self.entered = 0
        self.serve()

    def write(self, kind: str, amount: int, then: Callable[[], None] | None = None, **about: Any) -> None:
        """Enter a row of this session."""
        row = LedgerRecord(kind=kind, session=self.session, amount=PicoUsd(amount), at=time.time(), **about)
        self.ledger.enter(row, then)


def book(lane_queue: _LaneQueue, ceilings: Mapping[tuple[str, str], Ceiling], amount: int) -> None:
    """The amount taken from the budget is in flight."""
    lane_queue.reserved += amount
    lane_queue.largest = max(lane_queue.largest, amount)
    usual = lane_queue.usual or amount
    lane_queue.usual = usual + (usual >> 4 if amount > usual else -(usual >> 4) if amount < usual else 0)
    for ceiling in ceilings.values():
        ceiling.reserved += amount


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

        `ceilings`: by (`agent`, its name): what each of them may spend of the whole budget.
        """
        self._shared = _SharedBudget(BudgetState(budget=budget, before=spent), ledger, session)
        self._shared.ceilings = dict(ceilings or {})
        self._lane = self._agent = ""
        self._lane_queue = self._shared.lane_queue("")
        self._ceilings: dict[tuple[str, str], Ceiling] = {}

    def of(self, lane: str, agent: str) -> "Budget":
        """The same budget, from the view of one agent in one lane."""
        mine = copy.copy(self)
        mine._lane, mine._agent = lane, agent
        mine._lane_queue = self._shared.lane_queue(lane)
        scope = ("agent", agent)
        own = self._shared.ceilings.get(scope)
        mine._ceilings = {} if own is None else {scope: own}
        return mine

    def take(self, amount: int) -> bool:
        """Reserve without waiting, if that is possible now. The fast path: no await, nothing allocated."""
        shared, ceilings = self._shared, self._ceilings
        if shared.waiting or shared.end is not None:
            return False
        if ceilings and not all(ceiling.fits(amount) for ceiling in ceilings.values()):
            return False
        if not shared.state.take(amount):
            return False
        book(self._lane_queue, ceilings, amount)
        shared.renew()
        return True

    async def reserve(self, amount: int, *, usual: int = 0) -> None:
        """Reserve; if necessary after a new lease, or after others are settled. `usual`: what an ordinary request of
        its episode is bounded by; 0: that is not known.

        Raises BudgetReached when not even that can make room, EpisodeUnavailable when the agent's own ceiling
        is reached, RequestTooLarge where only this request is too large for any of them,
        StorageError when a lease cannot be written, and the error that was passed to `end`.
        """
        if self.take(amount):
            return
        shared = self._shared
        shared.came += 1
        shared.waiting += 1
        with self._lane_queue.queue.hold(_Reservation(amount, self._ceilings, shared.came, usual)) as waiter:
            while not waiter.granted:
                if shared.end is not None:
                    raise copy.copy(shared.end)  # one for each: a shared one would collect the tracebacks of all
                if (ceiling := waiter.item.hopeless) is not None:
                    raise self._ceiling_reached(waiter.item, ceiling)
                if shared.borrows is not None and not waiter.item.fits:
                    shared.borrows()
                turn = shared.next()
                if turn is not None and turn[1] is waiter and not shared.refilling:
                    await self._advance(waiter)
                else:
                    await waiter.woken()

    async def _advance(self, head: _Waiter) -> None:
        """The next step of the waiter whose turn it is: leases for itself and for the others, a wait, or the end."""
        shared = self._shared
        step = shared.state.next(head.item.amount)
        if step == "go":
            shared.serve()
        elif shared.borrows is not None and shared.others_lend and step != "never":
            shared.borrows()
            await head.woken()
        elif shared.entered or step == "lease":
            await self._refill(head)
        elif step == "wait":
            await head.woken()
        else:
            state, amount = shared.state, head.item.amount
            assert state.budget is not None
            left = max(0, state.budget - state.before - state.spent)
            if self._is_alone(head.item, budget=state.budget, left=left):
                raise RequestTooLarge(
                    _too_large(amount, f"the budget of {show_usd(state.budget)}", left, "`--budget`, or `budget_usd`")
                )
            raise BudgetReached(
                _reached(f"The budget of {show_usd(state.budget)}", left, amount, "`--budget`, or `budget_usd`")
            )

    async def _refill(self, head: _Waiter) -> None:
        shared = self._shared
        if not shared.entered:
            others = (waiter.item.amount for waiter in shared.waiters() if waiter is not head and waiter.item.fits)
            shared.lease([head.item.amount, *others])
        shared.refilling, number = True, shared.leases
        try:
            await shared.ledger.durable()
        finally:
            shared.refilling = False
        shared.leased(number)

    def borrow(self, asked: Callable[[], None]) -> None:
        """From now on others lend the money: `asked` is called when requests wait for some, and `lend` brings it."""
        self._shared.borrows = asked
        for ceiling in self._shared.ceilings.values():
            ceiling.lease(0)

    def lend(self, loans: Mapping[tuple[str, str], tuple[int, int]]) -> bool:
        """By scope (`run` with an empty name, or an `agent`): what others lend in all from now on, and what all other
        sessions have spent. Less than before: what is free goes back, at most. Returns whether any did."""
        shared, lowered = self._shared, False
        for scope, (most, others) in loans.items():
            own = shared.scopes[scope]
            own.before = others
            more = max(most - shared.lent.get(scope, 0), min(0, -own.room))
            shared.lent[scope] = shared.lent.get(scope, 0) + more
            own.lease(more)
            lowered = lowered or more < 0
        shared.serve()
        for lane_queue in shared.lane_queues.values():
            lane_queue.queue.nudge_all()
        return lowered

    def borrowed(self) -> dict[tuple[str, str], LoanBalance]:
        """What was lent, by scope, what has become of it, and what requests lack that wait for money."""
        shared, sums = self._shared, dict[tuple[str, str], list[int]]()
        for waiter in shared.waiters():
            for key in (RUN, *waiter.item.ceilings):
                sums.setdefault(key, [0, waiter.item.amount])[0] += waiter.item.amount
        borrowed = {}
        for scope, own in shared.scopes.items():
            lent, (wanted, first) = shared.lent.get(scope, 0), sums.get(scope, (0, 0))
            lacks = wanted > own.room
            borrowed[scope] = LoanBalance(
                own.spent,
                own.reserved,
                lent,
                max(0, (own.leased or 0) - lent) if shared.state.budget is not None else 0,
                wanted - own.room if lacks else 0,
                first if lacks else 0,
            )
        return borrowed

    def mirror(
        self,
        spent: Mapping[tuple[str, str], tuple[int, int]],
        *,
        charged: int,
        unmetered: UnmeteredReplies,
        largest: Iterable[tuple[str, int]],
    ) -> None:
        """Other sessions spend this budget: by scope, what all have spent so far, and what they have reserved; with its
        lane, the highest bound of a request."""
        shared = self._shared
        for lane, bound in largest:
            lane_queue = shared.lane_queue(lane)
            lane_queue.largest = max(lane_queue.largest, bound)
        shared.state.charged, shared.unmetered = charged, unmetered
        for scope, own in shared.scopes.items():
            own.spent, own.reserved = spent[scope][0] - own.before, spent[scope][1]

    def settle(self, reserved: int, cost: int) -> bool:
        """A request was answered. Returns whether its cost stayed within its reservation."""
        self._shared.give_back(self._lane_queue, self._ceilings, reserved, cost)
        if self._shared.waiting:
            self._shared.serve()
        return cost <= reserved

    def note_doubtful(self, cost: int) -> None:
        """Count a reply whose figures of usage contradict each other."""
        self._shared.unmetered += UnmeteredReplies(doubtful=1, doubtful_cost=cost)

    def note_unmetered(self, cost: int) -> None:
        """Count a reply without usage."""
        self._shared.unmetered += UnmeteredReplies(replies=1, cost=cost)

    def book_charge(
        self, amount: int, *, lane: str, agent: str, episode: str, step: int, attempt: int, reason: str
    ) -> None:
        """An attempt of unknown usage: its whole reservation counts as spent. Written, but not waited for."""
        if amount:
            self._shared.write(
                "charge", amount, lane=lane, agent=agent, episode=episode, step=step, attempt=attempt, reason=reason
            )
            self._shared.state.charged += amount
        self.settle(amount, amount)

    async def durable(self) -> None:
        """Return when every charge booked so far is on disk: so that it is durable before the retry is sent."""
        await self._shared.ledger.durable()

    def end(self, error: EvalkitError) -> None:
        """No more reservations: all waiters raise `error`. Requests in flight are still settled."""
        self._shared.end = error
        for lane_queue in self._shared.lane_queues.values():
            lane_queue.queue.nudge_all()

    def close(self) -> None:
        """Write what was spent, at a clean end: leases hold nothing any more. Nothing may be in flight."""
        self._shared.write("close", self._shared.state.spent)

    def stats(self) -> BudgetStats:
        """The state of the money of all lanes."""
        shared, state = self._shared, self._shared.state
        return BudgetStats(
            budget=state.budget,
            spent=state.before + state.spent,
            session=state.spent,
            charged=state.charged,
            reserved=state.reserved,
            left=state.left,
            waiting=shared.waiting,
            unmetered=shared.unmetered,
        )

    def ceilings(self) -> Mapping[tuple[str, str], Ceiling]:
        """What single lanes and agents may spend."""
        return self._shared.ceilings

    def largest(self, lane: str) -> int:
        """The highest bound of a single request of a lane so far, of those that are not out of the ordinary."""
        lane_queue = self._shared.lane_queues.get(lane)
        if lane_queue is None:
            return 0
        return min(lane_queue.largest, OUTSIZE * lane_queue.usual) if lane_queue.usual else lane_queue.largest

    def _is_alone(self, item: _Reservation, *, budget: int, left: int) -> bool:
        """Whether a request that will never fit is out of the ordinary, and the money enough for ordinary ones."""
        usual = max(item.usual, self._lane_queue.usual)
        return item.usual > 0 and usual <= left and (item.amount > budget or item.amount > OUTSIZE * usual)

    def _ceiling_reached(self, item: _Reservation, ceiling: Ceiling) -> EvalkitError:
        left = max(0, ceiling.budget - ceiling.before - ceiling.spent)
        whose = f"budget of agent {self._agent} ({show_usd(ceiling.budget)})"
        if self._is_alone(item, budget=ceiling.budget, left=left):
            return RequestTooLarge(_too_large(item.amount, f"the {whose}", left, "it"))
        return EpisodeUnavailable(_reached(f"The {whose}", left, item.amount, "it"))


def _reached(budget: str, left: int, amount: int, setting: str) -> str:
    return (
        f"{budget} is reached: {show_usd(left)} remain, and the next request may cost up to {show_usd(amount)}. To "
        f"continue, raise {setting} in the sweep and run it again."
    )


def _too_large(amount: int, budget: str, left: int, setting: str) -> str:
    return (
        f"the next request of an episode may cost up to {show_usd(amount)}, far more than is usual. "
        f"{show_usd(left)} remain of {budget}, so it is not sent; the other episodes go on. To continue this one, "
        f"raise {setting} in the sweep and run it again."
    )
