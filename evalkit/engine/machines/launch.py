"""Worker processes on this machine: each is a child, spawned and never forked, with one end of a pair of sockets.

A child inherits what locks the run, so nobody else writes the run before the last of them has ended.
"""

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

RESTARTS, RESTARTS_OVER_S = 3, 600.0
"""A slot gets so many new processes in so many seconds; then the run goes on with fewer."""
COMMAND = (sys.executable, "-m", "evalkit.engine.machines.process")
_WORDS = 2000
"""Bytes of what a process printed last that an error tells."""
_LAST_WORDS = 500
"""Characters of what the last of many said."""


@dataclass(slots=True)
class WorkerSlot:
    """The place of one worker, which may be taken by several processes in turn."""

    number: int
    begun: deque[float] = field(default_factory=deque)
    """When its last processes were started."""
    writer: str = ""
    """Of its present process, once it has said hello."""

    def may_begin(self, now: float) -> bool:
        """Whether a further process may be started here."""
        while self.begun and self.begun[0] <= now - RESTARTS_OVER_S:
            self.begun.popleft()
        return len(self.begun) <= RESTARTS


def too_often(workers: int, last: str) -> str:
    """That each slot was replaced too often, for whoever has started the run. `last`: why one could not go on."""
    said = " ".join(last.split())
    return (
        f"Too many workers ended on their own: each of the {workers} was replaced {RESTARTS} times within "
        f"{RESTARTS_OVER_S / 60:.0f} minutes. The events `worker_lost` and `worker_ended` of the run say more."
        + (f" The last one ended so: {said[-_LAST_WORDS:]}" if said else "")
    )


class Child:
    """One worker's process."""

    def __init__(self, inherited: Sequence[int], complaints: Path) -> None:
        """`inherited`: descriptors that it is to keep open; `complaints`: where its standard error goes."""
        self.end, theirs = socket.socketpair()
        self._complaints, self._idle, self._cpu_s = complaints, 0.0, -1.0
        with theirs, complaints.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - evalkit itself
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(theirs.fileno(), *inherited),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return self._process.wait()

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once, also if it is stopped."""
        with suppress(OSError):
            self._process.kill()

    def words(self) -> str:
        """What it has complained of."""
        with suppress(OSError):
            return self._complaints.read_bytes()[-_WORDS:].decode(errors="replace").strip()
        return ""

    def is_stuck(self) -> bool:
        """Whether it has done nothing since the last call: it is stopped, or waits for what never comes."""
        before, self._cpu_s = self._cpu_s, _cpu_s(self.pid)
        return before == self._cpu_s


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process; 0 where the system does not say it."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
