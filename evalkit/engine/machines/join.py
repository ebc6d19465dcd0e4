"""Worker processes of this machine for a run whose coordinator is elsewhere: started, started again where they end on
their own, and told to leave when this is to end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from evalkit.engine.episode import Stop
from evalkit.engine.loop import interruptible
from evalkit.engine.machines.launch import RESTARTS, RESTARTS_OVER_S, Child, WorkerSlot
from evalkit.engine.machines.link import Gone, WorkerLink, linked
from evalkit.engine.machines.messages import LEAVE, Errand, JoinSettings
from evalkit.engine.machines.process import GONE, REFUSED

LOOK_S = 0.1
AGAIN_S = 60.0
"""How long a worker that is started again awaits the coordinator: the run may have ended meanwhile."""
LEAVE_S = 300.0
"""What workers that leave get for the replies that are on their way."""


@dataclass(slots=True, kw_only=True)
class JoinOutcome:
    """How it ended."""

    done: int = 0
    """Slots that have worked until there was nothing more to do, or until they were told to leave."""
    left: bool = False
    refused: str = ""
    """Why no worker may work here, or need."""
    orphaned: str = ""
    """In words, that the coordinator is gone."""
    lost: int = 0
    """Slots that were replaced too often."""


async def join_run(directory: Path, join: JoinSettings, workers: int, tell: Callable[[str], None]) -> JoinOutcome:
    """Work for a run's coordinator in so many processes, until each has ended."""
    with TemporaryDirectory(prefix="evalkit-join-") as folder:
        joining = _JoinedSlots(directory, join, Path(folder), tell)
        with interruptible(joining.stop):
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(joining.live(WorkerSlot(number)))
        return joining.joined


class _JoinedSlots:
    def __init__(self, directory: Path, join: JoinSettings, folder: Path, tell: Callable[[str], None]) -> None:
        again = msgspec.structs.replace(join, wait_s=min(join.wait_s, AGAIN_S))
        self._first, self._later = (Errand(place=str(directory), join=one) for one in (join, again))
        self._folder, self._tell = folder, tell
        self.stop, self.joined = Stop(), JoinOutcome()
        self._loop = asyncio.get_running_loop()

    async def live(self, slot: WorkerSlot) -> None:
        """One slot, process after process."""
        joined = self.joined
        for number in count():
            if not slot.may_begin(self._loop.time()):
                self._tell(
                    f"Worker {slot.number} was replaced {RESTARTS} times within {RESTARTS_OVER_S / 60:.0f} minutes; "
                    "this machine goes on with fewer."
                )
                joined.lost += 1
                return
            slot.begun.append(self._loop.time())
            code, words = await self._one(slot, self._later if number else self._first)
            if code == GONE:
                joined.orphaned = words
                return
            if code == REFUSED:
                joined.refused = words
                return
            if code == 0 or self.stop.reason:
                joined.done += code == 0
                joined.left = joined.left or bool(self.stop.reason)
                return
            self._tell(f"Worker {slot.number} ended on its own and is started again: {words or f'exit code {code}'}")

    async def _one(self, slot: WorkerSlot, errand: Errand) -> tuple[int, str]:
        """One process, to its end: its exit code and what it has complained of."""
        child = Child((), self._folder / f"{slot.number}.txt")
        link: WorkerLink | None = None
        told_at = 0.0
        try:
            link = await linked(child.end)
            await link.send(msgspec.msgpack.encode(errand))
            while not child.ended():
                if self.stop.reason and not told_at:
                    told_at = self._loop.time()
                    await link.send(LEAVE)
                if told_at and self._loop.time() - told_at > LEAVE_S:
                    child.kill()
                await asyncio.sleep(LOOK_S)
        except Gone:
            await asyncio.to_thread(child.wait)
        finally:
            if link is not None:
                link.close()
            if not child.ended():
                child.kill()  # we are told to end at once
                child.wait()
        return child.wait(), child.words()
