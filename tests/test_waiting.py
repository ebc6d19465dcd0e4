"""The queue of all who wait: order, grants and dismissals, and a cancellation at every moment."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import product
from typing import Any

import pytest

from evalkit.errors import LaneClosed
from evalkit.waiting import Crowd, Waiter, WaitQueue
from tests.support.virtual_clock import run_virtual

Queue = WaitQueue[str, int]


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(play())


async def turns(count: int = 1) -> None:
    """Let everybody run who can, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class Heard:
    """A queue, and what its owner hears of it."""

    def __init__(self) -> None:
        self.returned: list[tuple[str, int]] = []
        self.left: list[str] = []
        self.queue = Queue(returned=lambda item, value: self.returned.append((item, value)), left=self.left.append)

    def waiter(self, item: str) -> "asyncio.Task[int]":
        return asyncio.ensure_future(self.queue.wait(item))

    def grant_first(self, value: int) -> None:
        first = self.queue.head()
        assert first is not None
        self.queue.grant(first, value)

    @property
    def waiting(self) -> list[str]:
        return [waiter.item for waiter in self.queue]


def test_who_waits_longest_is_first_and_gets_what_is_granted() -> None:
    async def play() -> None:
        heard = Heard()
        tasks = [heard.waiter(name) for name in "abc"]
        await turns()
        assert heard.waiting == ["a", "b", "c"]
        for value, task in enumerate(tasks):
            heard.grant_first(value)
            assert await task == value
        assert (len(heard.queue), heard.queue.head(), heard.returned, heard.left) == (0, None, [], [])

    played(play)


def test_all_are_woken_in_their_order() -> None:
    async def play() -> None:
        heard, order = Heard(), list[str]()
        tasks = [heard.waiter(name) for name in "abc"]
        for name, task in zip("abc", tasks, strict=True):
            task.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
        await turns()
        heard.queue.grant_all(7)
        assert len(heard.queue) == 0
        assert await asyncio.gather(*tasks) == [7, 7, 7]
        assert order == ["a", "b", "c"]

    played(play)


def test_who_is_nudged_looks_and_keeps_its_place() -> None:
    async def play() -> None:
        heard, looks = Heard(), list[bool]()

        async def looking() -> None:
            with heard.queue.hold("a") as waiter:
                while not waiter.granted:
                    await waiter.woken()
                    looks.append(waiter.granted)

        task = asyncio.ensure_future(looking())
        await turns()
        second = heard.waiter("b")
        await turns()
        for _ in range(2):
            heard.queue.nudge_all()
            heard.queue.nudge_all()  # twice before it looks is once
            await turns(2)
        assert (looks, heard.waiting, second.done()) == ([False, False], ["a", "b"], False)
        heard.grant_first(0)
        await task
        assert looks == [False, False, True]
        heard.grant_first(1)
        assert await second == 1

    played(play)


def test_a_grant_before_anybody_looks_counts() -> None:
    async def play() -> None:
        heard = Heard()
        with heard.queue.hold("a") as waiter:
            heard.queue.grant(waiter, 5)
            assert await waiter.turn() == 5
        with heard.queue.hold("b") as waiter:
            waiter.nudge()
            await waiter.woken()
        assert heard.left == ["b"]

    played(play)


def test_who_is_dismissed_raises_an_error_of_its_own() -> None:
    async def play() -> None:
        heard, error = Heard(), LaneClosed("over")
        tasks = [heard.waiter(name) for name in "ab"]
        await turns()
        heard.queue.dismiss_all(error)
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [(type(one), str(one)) for one in said] == [(LaneClosed, "over")] * 2
        assert len({id(error), *map(id, said)}) == 3
        assert (len(heard.queue), heard.left, heard.returned) == (0, [], [])

    played(play)


def test_nothing_is_granted_to_one_who_has_gone() -> None:
    async def play() -> None:
        heard = Heard()
        first, second = heard.waiter("a"), heard.waiter("b")
        await turns()
        gone = heard.queue.head()
        assert gone is not None
        first.cancel()
        assert (gone.gone, heard.waiting) == (True, ["b"])  # though its task has not run since
        heard.grant_first(1)
        with pytest.raises(KeyError):
            heard.queue.grant(gone, 2)
        assert await second == 1
        assert first.cancelled()
        assert (heard.left, heard.returned) == (["a"], [])

    played(play)


def test_an_error_of_the_waiter_itself_is_a_leave_or_gives_the_grant_back() -> None:
    async def play() -> None:
        heard = Heard()
        for granted in (False, True):

            def fail(waiter: Waiter[str, int], *, granted: bool = granted) -> None:
                if granted:
                    heard.queue.grant(waiter, 3)
                raise ValueError

            with pytest.raises(ValueError), heard.queue.hold("a") as waiter:  # noqa: PT011
                fail(waiter)
        assert (heard.left, heard.returned, len(heard.queue)) == (["a"], [("a", 3)], 0)

    played(play)


class Rooms:
    """So many rooms, for whoever comes first: the smallest owner of a queue."""

    def __init__(self, count: int) -> None:
        self.free = self.count = count
        self.order: list[str] = []
        self.queue = WaitQueue[str, None](returned=lambda *_: self.release(), left=lambda _: self.serve())

    async def enter(self, name: str) -> None:
        if self.queue or not self.free:
            await self.queue.wait(name)
        else:
            self.free -= 1
        self.order.append(name)

    def release(self) -> None:
        self.free += 1
        assert self.free <= self.count
        self.serve()

    def serve(self) -> None:
        while self.free and (first := self.queue.head()) is not None:
            self.free -= 1
            self.queue.grant(first, None)


GUESTS = "abcde"


async def stay(rooms: Rooms, name: str) -> None:
    await rooms.enter(name)
    try:
        await turns(2)
    finally:
        rooms.release()


async def lived_through(cancellations: list[tuple[int, str, bool]]) -> tuple[Rooms, set[str]]:
    """Everybody comes at once; each cancellation is (turn, who, before or after all others do theirs in that turn).

    Returns the rooms and who was cancelled before the end of its stay.
    """
    rooms, loop = Rooms(2), asyncio.get_running_loop()
    tasks = {name: asyncio.ensure_future(stay(rooms, name)) for name in GUESTS}
    for turn in range(30):
        for at, name, early in cancellations:
            if at == turn:
                tasks[name].cancel() if early else loop.call_soon(tasks[name].cancel)
        await turns()
    assert all(task.done() for task in tasks.values())
    return rooms, {name for name, task in tasks.items() if task.cancelled()}


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("early", [(True, True), (True, False), (False, True), (False, False)])
def test_whenever_anybody_is_cancelled_no_room_is_lost_and_nobody_is_passed_over(early: tuple[bool, bool]) -> None:
    async def play() -> None:
        undisturbed, _ = await lived_through([])
        assert undisturbed.order == list(GUESTS)
        seen = set[int]()
        for first, second in product(product(range(9), GUESTS), repeat=2):
            rooms, gone = await lived_through([(*first, early[0]), (*second, early[1])])
            assert (rooms.free, len(rooms.queue)) == (2, 0), (first, second)
            assert rooms.order == sorted(rooms.order), (first, second)
            assert set(GUESTS) - gone <= set(rooms.order), (first, second)
            seen.add(len(rooms.order))
        assert seen == {3, 4, 5}

    played(play)


def test_who_is_sent_away_hears_the_cause() -> None:
    async def sent_away() -> BaseException | None:
        queue = WaitQueue[None, None]()
        task = asyncio.create_task(queue.wait(None))
        await asyncio.sleep(0)
        error = RuntimeError("over")
        error.__cause__ = OSError("full")
        queue.dismiss_all(error)
        with pytest.raises(RuntimeError, match="over") as told:
            await task
        return told.value.__cause__

    assert str(asyncio.run(sent_away())) == "full"


def test_an_event_wakes_everybody_in_their_order_and_those_who_come_later_wait_for_the_next() -> None:
    async def play() -> None:
        crowd, woken = Crowd(), list[str]()

        async def wait(name: str) -> None:
            await crowd.wait()
            woken.append(name)

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await turns()
        tasks[1].cancel()
        crowd.release()
        tasks.append(asyncio.create_task(wait("d")))
        await turns(2)
        assert (woken, tasks[1].cancelled(), tasks[3].done()) == (["a", "c"], True, False)
        crowd.release()
        await asyncio.wait(tasks)
        assert woken == ["a", "c", "d"]

    played(play)


def test_each_of_those_to_whom_an_event_will_not_come_raises_an_error_of_its_own() -> None:
    async def play() -> None:
        crowd = Crowd()
        tasks = [asyncio.create_task(crowd.wait()) for _ in range(3)]
        await turns()
        error = LaneClosed("over")
        error.__cause__ = OSError("full")
        crowd.dismiss(error)
        tasks[2].cancel()  # its error has come, and it was cancelled before it could run
        await asyncio.wait(tasks)
        first, second = (task.exception() for task in tasks[:2])
        assert isinstance(first, LaneClosed)
        assert isinstance(second, LaneClosed)
        assert len({id(first), id(second), id(error)}) == 3
        assert (str(first), str(first.__cause__), tasks[2].cancelled()) == ("over", "full", True)

    played(play)
