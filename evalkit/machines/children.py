"""Plays a session in processes of this machine, which are started, heard and reaped here.

Each is a child, spawned and never forked, with one end of a pair of sockets. It inherits what locks the run, so nobody
else writes the run before the last of them has ended.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from evalkit.machines.messages import Gone
from evalkit.machines.process import linked
from evalkit.machines.spread import Spread, WorkerSlot

COMMAND = (sys.executable, "-m", "evalkit.machines.process")
REAP_S = 0.02
"""How often is looked whether a process that is to end has ended."""
END_S = 30.0
"""What workers get to commit and close when the run ends at once."""
_WORDS = 2000
"""Bytes of what a process printed last that an error tells."""


class Child:
    """One worker's process."""

    def __init__(self, run: Path, inherited: Sequence[int], complaints: Path) -> None:
        """`inherited`: descriptors that it is to keep open; `complaints`: where its standard error goes."""
        self.end, theirs = socket.socketpair()
        self._complaints, self._cpu_s = complaints, -1.0
        with theirs, complaints.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - evalkit itself
                [*COMMAND, str(theirs.fileno()), str(run)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(theirs.fileno(), *inherited),
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """How it has ended; None: it has not."""
        return self._process.poll()

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
        before, self._cpu_s = self._cpu_s, _cpu_s(self._process.pid)
        return before == self._cpu_s


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process; 0 where the system does not say it."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


async def play_here(spread: Spread) -> None:
    """Play all lanes in as many processes as the sweep says; return when each has ended."""
    session, loop = spread.session, spread.loop

    async def life(slot: WorkerSlot) -> tuple[int, str]:
        child = Child(session.options.place, session.store.descriptors, Path(folder) / f"{slot.number}.txt")
        watching, link = loop.create_task(_watch(spread, slot, child)), None
        try:
            link = await linked(child.end)
            with suppress(Gone):
                while True:
                    await link.send(await spread.hear(slot, await link.receive()))
        finally:
            if link is not None:
                link.close()
            watching.cancel()
            deadline = loop.time() + END_S
            while (code := child.code) is None:
                if loop.time() > deadline:
                    child.kill()
                await asyncio.sleep(REAP_S)
        await spread.close_lost(slot, child.words())
        return code, child.words()

    with TemporaryDirectory(prefix="evalkit-workers-") as folder:
        await spread.play(life)


async def _watch(spread: Spread, slot: WorkerSlot, child: Child) -> None:
    """End a process that is stopped or hangs: one that neither says nor does anything for long."""
    quiet, last = 0, None
    while True:
        await asyncio.sleep(spread.times.silent_s / 2)
        member = spread.allocator.members.get(slot.writer)
        heard = None if member is None else member.heard
        quiet, last = quiet + 1 if child.is_stuck() and heard == last else 0, heard
        if quiet > 1 and member is not None:
            child.kill()
