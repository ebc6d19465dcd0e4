"""Timeouts for many requests from one timer: aiohttp's own cost about a tenth of a request's CPU, these a hundredth.

All alarms of one `Alarms` have the same length, so the first set is the first due: one timer, aimed at the oldest, is
enough. An alarm that goes off cancels the task that set it, as `asyncio.timeout` does, and `rang` tells that
cancellation from one that came from outside.
"""

import asyncio
from typing import Any


class Alarm:
    """One running timeout."""

    __slots__ = ("_cancelling", "_task", "due", "went_off")

    def __init__(self, task: "asyncio.Task[Any]", due: float) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self.due = due
        self.went_off = False

    def go_off(self) -> None:
        """Interrupt the task."""
        self.went_off = True
        self._task.cancel()

    def rang(self) -> bool:
        """To be called on CancelledError: whether it was this alarm's doing, and nobody else's as well."""
        return self.went_off and self._task.uncancel() <= self._cancelling


class Alarms:
    """Timeouts of one length."""

    __slots__ = ("_loop", "_pending", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Alarm, None] = {}
        """In the order in which they are due."""
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> Alarm:
        """An alarm for the running task, `seconds` from now."""
        task = asyncio.current_task()
        assert task is not None
        alarm = Alarm(task, self._loop.time() + self.seconds)
        self._pending[alarm] = None
        if self._timer is None:
            self._timer = self._loop.call_at(alarm.due, self._ring)
        return alarm

    def clear(self, alarm: Alarm) -> None:
        """It is not needed any more. To be called however the work ended."""
        self._pending.pop(alarm, None)

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._pending:
            alarm = next(iter(self._pending))
            if alarm.due > now:
                self._timer = self._loop.call_at(alarm.due, self._ring)
                return
            del self._pending[alarm]
            alarm.go_off()
