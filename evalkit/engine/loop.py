"""Drives a run to its end, from async or sync code, and handles signals and cancellations."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Generic, TypeVar

from evalkit.engine.episode import Stop

Result = TypeVar("Result")

Play = Callable[[Stop | None], Coroutine[Any, Any, Result]]
"""Gives a run that ends when it is told to by this `Stop`; with None it has one of its own, and heeds signals."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_loop(coroutine: Coroutine[None, None, Result]) -> Result:
    """Run on uvloop if it is installed: it saves a quarter of the CPU time of a request."""
    return _runner()(coroutine)


# Nothing is played inside `except`: each traceback of an agent's code would begin with what was caught there.


def _runner() -> Callable[[Coroutine[None, None, Result]], Result]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def inside_loop() -> bool:
    """Whether this thread is running an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def finish(play: Play[Result]) -> Result:
    """Run to the end, from any thread, also inside a running loop, which is blocked meanwhile.

    Signals are handled in the main thread: the first drains, a second one stops at once.
    """
    if not inside_loop():
        return run_loop(play(None))
    apart = _Apart(play)
    with apart.interruptible(), ThreadPoolExecutor(1, thread_name_prefix="evalkit") as pool:
        return pool.submit(lambda: run_loop(apart.play())).result()


async def drained(play: Play[Result]) -> Result:
    """Await a run. On a cancellation it drains; on a second one it stops at once."""
    stop, cancelled = Stop(), False
    task = asyncio.get_running_loop().create_task(play(stop))
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            interrupt(stop, task)
    if not cancelled:
        return task.result()
    raise asyncio.CancelledError from None if task.cancelled() else task.exception()


def interrupt(stop: Stop, task: "asyncio.Task[Any] | None") -> None:
    """The first call asks players to end after their durable step; a second call stops everything at once."""
    if stop.reason == "interrupt" and task is not None:
        task.cancel()
    stop.set("interrupt", "Interrupted.")


@contextmanager
def interruptible(stop: Stop) -> Iterator[None]:
    """Ctrl-C or SIGTERM drains, a second one stops at once. Outside the main thread signals are not handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupt, stop, task)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)


class _Apart(Generic[Result]):
    """A run in a thread of its own, while another loop is blocked."""

    def __init__(self, play: Play[Result]) -> None:
        self._play = play
        self._stop = Stop()
        self._signals = self._taken = 0
        """How many signals arrived, and how many were passed to the run."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    async def play(self) -> Result:
        """To be run in the other thread."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._take()
        return await self._play(self._stop)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While the main thread waits here, signals are passed to the run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._signals += 1
        if self._loop is not None:  # else it has not begun, and looks when it does
            with suppress(RuntimeError):  # it has ended, and its loop is closed
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        """Pass new signals to the run; on its loop."""
        while self._taken < self._signals:
            self._taken += 1
            interrupt(self._stop, self._task)
