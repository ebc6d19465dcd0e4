"""A loop whose time jumps to the next timer: an hour of waiting takes no time. It has no sockets."""

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar
from unittest import mock

Result = TypeVar("Result")


class _NoWait(selectors.DefaultSelector):
    """A selector that turns the wait for the next timer into a jump of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits and no timer is set: the test would hang for ever")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop under virtual time, from 0."""

    def __init__(self) -> None:
        self._virtual = _NoWait()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Done at once: virtual time would run away from a thread."""
        done: asyncio.Future[Any] = self.create_future()
        done.set_result(func(*args))
        return done


def virtual_cpu() -> AbstractContextManager[object]:
    """Within the context a thread's CPU clock moves on by a millisecond each time that it is read: what is paced by it
    is the same on any machine."""
    return mock.patch("time.thread_time", partial(next, itertools.count(0.0, 0.001)))


def run_virtual(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` on a VirtualLoop."""
    with virtual_cpu(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
