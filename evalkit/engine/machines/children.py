"""Plays a session in processes of this machine: each slot has one after another, which are started, heard and reaped
here.

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
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.machines.messages import Bye, Gone, Hello, Welcome, decode_question, encode
from evalkit.engine.machines.process import WorkerLink, linked
from evalkit.engine.machines.spread import NOTHING_MORE, Spread, WorkerSlot, too_often
from evalkit.errors import CorruptLogError, StorageError

COMMAND = (sys.executable, "-m", "evalkit.engine.machines.process")
LOOK_S = 0.5
"""How often is looked what has become of the workers while none of them asks; workers ask more often."""
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
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

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


async def play_here(spread: Spread) -> None:
    """Play all lanes in as many processes as the sweep says; return when each has ended."""
    with TemporaryDirectory(prefix="evalkit-workers-") as folder, seldom_collected():
        await _Children(spread, Path(folder)).play()


class _Children:
    def __init__(self, spread: Spread, folder: Path) -> None:
        self._spread, self._folder = spread, folder
        self._session, self._coordinator, self._loop = spread.session, spread.coordinator, spread.loop
        self._silent_s = spread.times.silent_s
        self._starting: set[int] = set()
        """Slots whose process has not said hello."""
        self._last_words = ""
        """Of a process that has ended on its own."""

    async def play(self) -> None:
        """See `play_here`."""
        slots = [WorkerSlot(number) for number in range(self._spread.workers)]
        try:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._look_again())
                await asyncio.wait([group.create_task(self._live(slot)) for slot in slots])
                looking.cancel()
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            self._coordinator.abandon()
        self._look()
        if not self._coordinator.idle() and not self._session.stop.reason:
            self._session.stop.set("workers", too_often(self._spread.workers, self._last_words))

    async def _look_again(self) -> None:
        """Look where no worker asks, too."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        self._spread.look(starting=bool(self._starting))

    async def _live(self, slot: WorkerSlot) -> None:
        """One slot, process after process, until nothing remains to be done."""
        stop = self._session.stop
        for number in count():
            if not slot.may_begin(self._loop.time()):
                break
            self._spread.replaced += number > 0
            slot.begun.append(self._loop.time())
            try:
                if await self._one(slot):
                    return
            except (StorageError, CorruptLogError) as flaw:
                stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
            if self._coordinator.finishing or stop.reason:
                return
        self._session.store.event("fewer_workers", worker=slot.number, detail="It was replaced too often.")

    async def _one(self, slot: WorkerSlot) -> bool:
        """One process of a slot, to its end; whether it has said goodbye."""
        slot.writer, said_goodbye = "", False
        self._starting.add(slot.number)
        run, complaints = self._session.options.place, self._folder / f"{slot.number}.txt"
        child = Child(run, self._session.store.descriptors, complaints)
        watch = self._loop.create_task(self._watch(slot, child))
        link: WorkerLink | None = None
        try:
            link = await linked(child.end)
            while not said_goodbye:
                question = decode_question(await link.receive())
                self._look()  # so that the answer says what has changed
                reply = await self._spread.answer(question)
                if isinstance(question, Hello) and isinstance(reply, Welcome):
                    slot.writer = question.writer
                    self._starting.discard(slot.number)
                said_goodbye = isinstance(question, Bye) or reply == NOTHING_MORE
                await link.send(encode(reply))
        except Gone:
            pass
        finally:
            if link is not None:
                link.close()
            watch.cancel()
            await self._reap(child)
            self._starting.discard(slot.number)
        if not said_goodbye:
            self._last_words = child.words() or self._last_words
        if slot.writer and not said_goodbye:
            await self._spread.bury(slot.writer, who=slot.number, words=child.words())
        elif not said_goodbye:
            self._session.store.event("worker_lost", worker=slot.number, detail=child.words())
        return said_goodbye

    async def _reap(self, child: Child) -> None:
        """Wait for a process that has lost its connection; one that does not end is ended."""
        deadline = self._loop.time() + END_S
        while not child.ended():
            if self._loop.time() > deadline:
                child.kill()
            await asyncio.sleep(REAP_S)

    async def _watch(self, slot: WorkerSlot, child: Child) -> None:
        """End a process that is stopped or hangs: one that neither says nor does anything for long."""
        while True:
            await asyncio.sleep(self._silent_s / 2)
            member = self._coordinator.members.get(slot.writer)
            stuck = child.is_stuck()
            if stuck and member is not None and self._loop.time() - member.heard > self._silent_s:
                child.kill()
