"""A loop under virtual time that can end a process: at any turn of the loop, or wherever the disk is touched.

Nothing of a dead process may reach the outside: its tasks are unwound so that locks and descriptors are given back, and
meanwhile the disk and the network of `world.py` refuse everything it tries.
"""

import asyncio
import contextlib
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

_MOST_UNWINDING = 1000
"""Times that the tasks of a dead process are stepped before the harness gives up."""


class Died(SystemExit):
    """The process is gone. A SystemExit, since asyncio lets nothing else pass through a callback."""


class Hung(AssertionError):
    """Everybody waits, for nothing that will come or for longer than anything may take."""


class _Jumping(selectors.DefaultSelector):
    """Waits by moving the clock."""

    def __init__(self, now: float, turn: Callable[[], None]) -> None:
        super().__init__()
        self.now, self._turn, self.quiet = now, turn, False
        self.beside: Callable[[float], float] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None and not self.quiet:
            raise Hung("everybody waits, and no timer is set")
        until = self.now + max(timeout or 0.0, 0.0)
        if self.beside is not None and not self.quiet:
            until = self.beside(until)
        self.now = max(self.now, until)
        if not self.quiet:
            self._turn()
        return super().select(0)


class SimLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at `now` and jumps; `turn` is called once each time round."""

    def __init__(self, now: float, turn: Callable[[], None]) -> None:
        self._jumping = _Jumping(now, turn)
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now

    def waiting(self) -> str:
        """Who waits for what, innermost calls of all tasks: for the story."""
        return "; ".join(sorted(filter(None, map(_innermost, asyncio.all_tasks(self)))))

    def skip(self, seconds: float) -> None:
        """Let time pass while nobody acts: the process was stopped, or a call of the system took so long."""
        self._jumping.now += seconds

    def beside(self, catch_up: Callable[[float], float]) -> None:
        """Have this called before time passes, with the time that will be: other processes live meanwhile. It says
        which time it is then: theirs may have given this one something to do before."""
        self._jumping.beside = catch_up

    @property
    def expects(self) -> bool:
        """Whether something happens, even if nothing comes from outside."""
        return bool(self._ready or self._scheduled)  # type: ignore[attr-defined]

    @property
    def next_timer(self) -> float:
        """When its next timer is due; infinite if none is set."""
        return self._scheduled[0].when() if self._scheduled else math.inf  # type: ignore[attr-defined]

    def next_at(self) -> float:
        """When something happens next, if nothing comes from outside. Raises Hung if nothing ever does."""
        if self._ready:  # type: ignore[attr-defined]
            return self.time()
        if not self._scheduled:  # type: ignore[attr-defined]
            raise Hung("everybody waits, and no timer is set")
        return max(self.time(), self._scheduled[0].when())  # type: ignore[attr-defined]

    def step(self) -> None:
        """Go round once, also while another loop is running."""
        self._jumping.now = self.next_at()
        self.call_soon(self.stop)
        with _in_place_of_another():
            self.run_forever()

    def unwind(self) -> None:
        """Cancel all tasks and step them until none is left, also while another loop is running."""
        with _in_place_of_another():
            self._unwind()

    def _unwind(self) -> None:
        self._jumping.quiet = True
        for _ in range(_MOST_UNWINDING):
            for task in asyncio.all_tasks(self):
                task.cancel()
            # One round: `run_until_complete` would meet the end of the life's own main task, which may be under way.
            self.call_soon(self.stop)
            try:
                self.run_forever()
            except Died:
                continue  # the round is not over: its `stop` would end the next
            if not asyncio.all_tasks(self):
                break
        for generators in (self.shutdown_asyncgens(),):
            with contextlib.suppress(Died):
                self.run_until_complete(generators)


@contextlib.contextmanager
def _in_place_of_another() -> Iterator[None]:
    """A loop turns within a callback of another one."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


def _innermost(task: "asyncio.Task[Any]") -> str:
    names: list[str] = []
    step: Any = task.get_coro()
    while step is not None:
        frame = getattr(step, "cr_frame", None) or getattr(step, "ag_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None:
            names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        step = getattr(step, "cr_await", None) or getattr(step, "ag_await", None) or getattr(step, "gi_yieldfrom", None)
    return f"{task.get_name()} in {' < '.join(reversed(names[-2:]))}" if names else ""


def run_life(loop: SimLoop, main: Coroutine[Any, Any, Result]) -> Result | None:
    """Run one process to its end; None if it died before."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    except Died:
        return None
    finally:
        loop.unwind()
        asyncio.set_event_loop(None)
        loop.close()
