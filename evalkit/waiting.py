"""One queue for everything that waits its turn: defer, wake one, wake all, leave on cancel. The caller decides what is
granted. (`Crowd` is for those who wait for the same event: there is no turn, and nothing is granted.)

A waiter holds a place from the moment it joins until it leaves, and leaves in one of four ways:

- it was granted something, and continues with it;
- it was granted something and cancelled before it could run: `returned` takes back what it was granted;
- it goes, or is cancelled, before anything was granted to it: `left` is called, so that the next one can have its turn;
- it was dismissed: it raises the error, and neither function is called.

So no grant is lost, and nobody waits for a waiter that has left, whenever a cancellation comes. All calls but `turn`,
`woken` and `wait` are synchronous: nothing else runs between a decision and its grant. The cost of joining, granting
and leaving does not depend on the number of waiters.
"""

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")
GrantT = TypeVar("GrantT")


def _ignore(*_: Any) -> None:
    """For queues that need no notice of waiters that leave."""


class Waiter(Generic[ItemT, GrantT]):
    """One waiter in a queue."""

    __slots__ = ("_error", "_look", "_value", "granted", "item")

    def __init__(self, item: ItemT) -> None:
        self.item = item
        """What it waits for, in its owner's terms."""
        self.granted = False
        self._value: GrantT | None = None
        self._error: Exception | None = None
        self._look: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        """Whether it was cancelled while it waited; its task may not have run since."""
        return self._look.cancelled()

    def nudge(self) -> None:
        """Let it check for itself; it keeps its place."""
        if not self._look.done():
            self._look.set_result(None)

    async def woken(self) -> None:
        """Wait for a nudge or a grant; one that came earlier counts. Raises the error of its dismissal."""
        await self._look
        if self._error is not None:
            raise self._error
        if not self.granted:
            self._look = asyncio.get_running_loop().create_future()

    async def turn(self) -> GrantT:
        """Wait until something is granted, and return it. Raises the error of its dismissal."""
        while not self.granted:
            await self.woken()
        return self._value  # type: ignore[return-value]  # `None` only where that was granted

    def _grant(self, value: GrantT) -> None:
        self.granted, self._value = True, value
        self.nudge()

    def _dismiss(self, error: Exception) -> None:
        self._error = error
        self.nudge()


class WaitQueue(Generic[ItemT, GrantT]):
    """Waiters in order of arrival."""

    __slots__ = ("_left", "_returned", "_waiters")

    def __init__(
        self,
        *,
        returned: Callable[[ItemT, GrantT], None] = _ignore,
        left: Callable[[ItemT], None] = _ignore,
    ) -> None:
        """`returned`: takes back what was granted to one that was cancelled before it could use it. `left`: called with
        each one that left without a grant, after it is out of the queue."""
        self._returned = returned
        self._left = left
        self._waiters: OrderedDict[Waiter[ItemT, GrantT], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter[ItemT, GrantT]]:
        """Those who wait, in order. The queue must not change meanwhile."""
        return (waiter for waiter in self._waiters if not waiter.gone)

    def head(self) -> Waiter[ItemT, GrantT] | None:
        """Who has waited longest."""
        while self._waiters:
            first = next(iter(self._waiters))
            if not first.gone:
                return first
            del self._waiters[first]
        return None

    def grant(self, waiter: Waiter[ItemT, GrantT], value: GrantT) -> None:
        """Wake one with what it waits for. Raises KeyError if it no longer waits."""
        del self._waiters[waiter]
        waiter._grant(value)

    def grant_all(self, value: GrantT) -> None:
        """Wake everybody, in order."""
        waiters, self._waiters = self._waiters, OrderedDict()
        for waiter in waiters:
            waiter._grant(value)

    def nudge_all(self) -> None:
        """Let each one check for itself, in order."""
        for waiter in self._waiters:
            waiter.nudge()

    def dismiss_all(self, error: Exception) -> None:
        """Dismiss everybody. Each raises a copy of the error: a shared one would collect the tracebacks of all."""
        waiters, self._waiters = self._waiters, OrderedDict()
        for waiter in waiters:
            waiter._dismiss(_copy(error))

    @contextmanager
    def hold(self, item: ItemT) -> Iterator[Waiter[ItemT, GrantT]]:
        """A place at the end of the queue, for as long as the block runs."""
        waiter: Waiter[ItemT, GrantT] = Waiter(item)
        self._waiters[waiter] = None
        try:
            yield waiter
        except BaseException:
            if waiter.granted:
                self._returned(item, waiter._value)  # type: ignore[arg-type]
            raise
        finally:
            if not waiter.granted and waiter._error is None:
                self._waiters.pop(waiter, None)
                self._left(item)

    async def wait(self, item: ItemT) -> GrantT:
        """Wait at the end of the queue until something is granted. Raises the error of its dismissal."""
        with self.hold(item) as waiter:
            return await waiter.turn()


class Crowd:
    """All who wait for one event, which comes for everybody at once. Nobody is first, so waiting costs a future each
    and no more."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        # A future each: cancelling a task cancels what it waits for. Its value is the error of a dismissal.
        self._futures: list[asyncio.Future[Exception | None]] = []

    async def wait(self) -> None:
        """Wait for the event. Raises the error of a dismissal."""
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        error = await future
        if error is not None:
            raise error

    def release(self) -> None:
        """The event has come: wake everybody, in order of arrival."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)

    def dismiss(self, error: Exception) -> None:
        """It will not come. Each raises a copy of the error: a shared one would collect the tracebacks of all."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(_copy(error))


def _copy(error: Exception) -> Exception:
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
