"""Timeouts for many requests from one timer: aiohttp's own take about a tenth of a request's CPU time, these a
hundredth.

All timeouts of one `Timeouts` have the same length, so the first started is the first due: one timer, aimed at the
oldest, is enough. One that expires cancels the task that started it, as `asyncio.timeout` does, and
`caused_cancellation` tells that cancellation from one that came from outside.
"""

import asyncio
from typing import Any


class Timeout:
    """One running timeout."""

    __slots__ = ("_cancelling", "_task", "due", "expired")

    def __init__(self, task: "asyncio.Task[Any]", due: float) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self.due = due
        self.expired = False

    def expire(self) -> None:
        """Interrupt the task."""
        self.expired = True
        self._task.cancel()

    def caused_cancellation(self) -> bool:
        """To be called on CancelledError: whether this timeout caused it, and nothing else did as well."""
        return self.expired and self._task.uncancel() <= self._cancelling


class Timeouts:
    """Timeouts of one length."""

    __slots__ = ("_loop", "_pending", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Timeout, None] = {}
        """In the order in which they are due."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Timeout:
        """A timeout for the running task, `seconds` from now."""
        task = asyncio.current_task()
        assert task is not None
        timeout = Timeout(task, self._loop.time() + self.seconds)
        self._pending[timeout] = None
        if self._timer is None:
            self._timer = self._loop.call_at(timeout.due, self._expire_due)
        return timeout

    def clear(self, timeout: Timeout) -> None:
        """Stop the timeout. To be called however the work ended."""
        self._pending.pop(timeout, None)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._pending:
            timeout = next(iter(self._pending))
            if timeout.due > now:
                self._timer = self._loop.call_at(timeout.due, self._expire_due)
                return
            del self._pending[timeout]
            timeout.expire()
