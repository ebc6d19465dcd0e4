"""When rows are committed, and how often events are written: commits are cheap on a disk, and paid for in a bucket."""

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

PART = 0.125
"""The most of one core's time that commits take on a disk. A row waits until the latest commit, with what it cost, is
so long ago; and where one is under way, until it has ended."""
FIRST_S = 0.002
"""CPU time of a commit before one was measured. It hardly depends on the rows."""
LATEST = 9
"""The next commit is expected to cost the median of so many."""
LOOK_S, MOST_SHARE, AMPLE_ROWS = 0.003, 0.5, 128
"""Rows that are due wait on while each look brings more of them, up to the second part of the median reply time, unless
they are as many as the third. Requests that one commit lets go are answered together: their rows would be spread over
several commits, each of which takes as much CPU time as ten requests."""
SHARE, PUTS = 0.1, 2
"""In a bucket rows wait for this part of the median reply time, or so many times what a commit takes, ..."""
PUT_LEAST_S, PUT_MOST_S = 0.25, 2.0
"""... within these bounds."""
MOST_S = 0.25
"""The most that rows wait on a disk, and what they wait without a waiter; in a bucket no shorter than others."""
LINES_S = 5.0
"""How often events are put in a bucket."""


class CommitPace:
    """Both, for one session."""

    def __init__(self, *, bucket: bool) -> None:
        self._bucket = bucket
        self._least_s, self._most_s = (PUT_LEAST_S, PUT_MOST_S) if bucket else (0.0, MOST_S)
        self.reply_s = 0.0
        """Median time of the fastest lane's replies."""
        self._gaps_s: deque[float] = deque(maxlen=LATEST)
        """What the latest commits ask for."""
        self._gap_s = 0.0 if bucket else FIRST_S / PART
        """Between two commits on a disk; what a row waits for their sake in a bucket. Rows ask for it much more often
        than it changes."""
        self._began = -math.inf
        """When the latest commit began, ..."""
        self._cpu_s = 0.0
        """... and what it has cost."""
        self._lines: list[bytes] = []
        self._lines_at = -math.inf

    def due(self, began: float) -> float:
        """When a group with a waiter is due whose first row came then."""
        if self._bucket:
            return began + max(self._bounded(SHARE * self.reply_s), self._gap_s)
        return max(began, self._began + self._gap_s)

    def fills(self, rows: int, waited_s: float) -> bool:
        """Whether a group that is due waits on, since more rows have just come."""
        return rows < AMPLE_ROWS and waited_s < max(self._bounded(MOST_SHARE * self.reply_s), self._gap_s)

    def lazily_due(self, began: float) -> float:
        """The same of one without."""
        return max(began + MOST_S, self.due(began))

    def begins(self, now: float) -> None:
        """A commit begins."""
        self._began, self._cpu_s = now, 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within the block a thread works for that commit."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._cpu_s += time.thread_time() - began

    def ends(self, now: float) -> None:
        """It has ended."""
        self._gaps_s.append(PUTS * (now - self._began) if self._bucket else self._cpu_s / PART)
        self._gap_s = min(self._most_s, median(self._gaps_s))

    def _bounded(self, seconds: float) -> float:
        return min(self._most_s, max(self._least_s, seconds))

    @property
    def holds_lines(self) -> bool:
        """Whether events wait."""
        return bool(self._lines)

    def lines(self, fresh: list[bytes], now: float, *, all_of_them: bool = False) -> list[bytes]:
        """The events that are written now, of those that waited and of these."""
        if not self._bucket:
            return fresh
        self._lines += fresh
        if now < self._lines_at + LINES_S and not all_of_them:
            return []
        due, self._lines, self._lines_at = self._lines, [], now
        return due
