"""Drives a run to its end, from async or sync code, and handles signals and cancellations."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Generic, TypeVar

from evalkit.engine.options import Stop

Result = TypeVar("Result")

Play = Callable[[Stop | None], Coroutine[Any, Any, Result]]
"""Gives a run that ends when it is told to by this `Stop`; with None it has one of its own, and handles signals."""

_NOHUP = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
SIGNALS = (signal.SIGINT, signal.SIGTERM, *(() if _NOHUP else (signal.SIGHUP,)))
"""What ends a run in good order. That a terminal has gone is no reason under `nohup`."""


GRACE_S = 1.0
"""How long tasks and threads are waited for that a run has left behind."""
STUCK_S = 1.0
"""A second signal that finds the loop held up for so long is raised in what holds it up."""
LEFT: list[object] = []
"""Tasks and threads that a run has left behind. They are kept, since what Python throws into a task that is freed, the
task may catch without end; and a process that has any ends without Python's own end, which waits for them."""


def run_loop(coroutine: Coroutine[None, None, Result]) -> Result:
    """Run on uvloop if it is installed: it saves a quarter of the CPU time of a request.

    An agent's code ends or holds up nothing but its episode: not by `sys.exit` in a task of its own, nor by stopping
    the loop, nor by a task that catches its cancellation, nor by a thread that does not end.
    """
    try:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    pool = ThreadPoolExecutor(thread_name_prefix="evalkit-loop")
    loop.set_default_executor(pool)
    task = loop.create_task(coroutine)
    try:
        return _driven(loop, task)
    finally:
        _driven(loop, loop.create_task(_end_others(task)))
        closing = threading.Thread(target=pool.shutdown, daemon=True)
        closing.start()
        closing.join(GRACE_S)
        if closing.is_alive():
            LEFT.append(closing)
        loop.close()


def _driven(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Result]") -> Result:
    """What comes of a task, whatever others do to its loop."""
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as flaw:
            if task.done() or _is_interrupt(flaw):
                raise
        except RuntimeError:  # the loop was stopped
            if task.done():
                raise


def _is_interrupt(flaw: BaseException) -> bool:
    """Whether it is Ctrl-C: not where signals are handled otherwise, and never in another thread."""
    heard = threading.current_thread() is threading.main_thread() and isinstance(flaw, KeyboardInterrupt)
    return heard and signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def _end_others(task: "asyncio.Task[Any]") -> None:
    """Cancel what is left: a run's own task until it has ended, others for as long as `GRACE_S`."""
    loop, others = asyncio.get_running_loop(), {one for one in asyncio.all_tasks() if one is not asyncio.current_task()}
    for one in others:
        one.cancel()
    await asyncio.wait({task})
    _, left = await asyncio.wait({task, *others}, timeout=GRACE_S)
    LEFT.extend(left)
    with suppress(TimeoutError):
        await asyncio.wait_for(loop.shutdown_asyncgens(), GRACE_S)
    loop.set_exception_handler(lambda *_: None)  # it would tell of each task that is left, in its own words


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
    """Ctrl-C, SIGTERM or SIGHUP drains, a second one stops at once. Outside the main thread signals are not handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    unheard: list[float] = []
    """When signals came that the loop has not been able to pass on."""

    def pass_on() -> None:
        unheard.clear()
        interrupt(stop, task)

    def arrived(number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if unheard and now - unheard[0] >= STUCK_S:
            raise KeyboardInterrupt
        unheard.append(now)

    for number in SIGNALS:
        loop.add_signal_handler(number, pass_on)
        signal.signal(number, arrived)  # the loop hears of them all the same
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
