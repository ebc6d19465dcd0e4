"""What a row waits for company, and how often events are written: commits are cheap on a disk, and paid for in a
bucket."""

import math
from collections import deque
from statistics import median

SHARE = 0.1
"""How long a row waits for others to commit with: this part of the median reply time."""
COMMITS, LATEST = 2, 9
"""It waits for at least so many times the median of the latest commits too: what a commit costs hardly depends on its
rows, so a third of the time at most goes into commits."""
LOOK_S, MOST_SHARE, AMPLE_ROWS = 0.002, 0.5, 128
"""Rows that are due wait on while each look brings more of them, up to the second part of the median reply time, unless
they are as many as the third. Requests that one commit lets go are answered together: their rows would be spread over
several commits, each of which takes as much CPU time as ten requests."""
LEAST_S, MOST_S = 0.005, 0.25
PUT_LEAST_S, PUT_MOST_S = 0.25, 2.0
"""The bounds of both: on a disk, and in a bucket."""
LAZY_S = 0.25
"""The same for rows without a waiter; in a bucket they wait no shorter than others."""
LINES_S = 5.0
"""How often events are put in a bucket."""


class CommitPace:
    """Both, for one session."""

    def __init__(self, *, bucket: bool) -> None:
        self._bucket = bucket
        self._least_s, self._most_s = (PUT_LEAST_S, PUT_MOST_S) if bucket else (LEAST_S, MOST_S)
        self._share_s = self._least_s
        self._most_share_s = self._least_s
        self._commits_s: deque[float] = deque(maxlen=LATEST)
        """What the latest commits took."""
        self._commit_s = 0.0
        """What a row waits for their sake. Rows ask for it much more often than it changes."""
        self._lines: list[bytes] = []
        self._lines_at = -math.inf

    @property
    def wait_s(self) -> float:
        """How long a group with a waiter waits for more rows."""
        return max(self._share_s, self._commit_s)

    def fills(self, rows: int, waited_s: float) -> bool:
        """Whether a group that is due waits on, since more rows have just come."""
        return rows < AMPLE_ROWS and waited_s < max(self._most_share_s, self._commit_s)

    @property
    def lazy_s(self) -> float:
        """The same of one without."""
        return max(LAZY_S, self.wait_s) if self._bucket else LAZY_S

    def took(self, seconds: float) -> None:
        """A commit took as long."""
        self._commits_s.append(seconds)
        self._commit_s = min(self._most_s, COMMITS * median(self._commits_s))

    def reply(self, median_s: float) -> None:
        """Set what a row waits, from the median time of the fastest lane's replies."""
        self._share_s = self._bounded(SHARE * median_s)
        self._most_share_s = self._bounded(MOST_SHARE * median_s)

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
