"""A run that is taken over: its process is stopped, another begins although the lock should forbid it, then both go on.

Both live in this thread, each on a loop of its own; their loops share the time, and the first drives the second. What
is expected: whoever finds its journal ended by the other sends nothing more. Of each episode it may have sent one
request that the other has asked for as well, which the crash's charge covers; what depends on a reply that is not
durable it never sends; the log stays whole, and the run is completed by whoever is left.
"""

import math
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.store import lock
from tests.sim.loop import Died, SimLoop
from tests.sim.process import Process, Second
from tests.sim.scenario import TakenOver, undisturbed

if TYPE_CHECKING:
    from tests.sim.world import World


class TakingOver:
    """The second process of a world's lives."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.failed = False
        """Whether, in this life, the one that was stopped went on and ended with an error."""

    def begins(self, how: TakenOver) -> None:
        """The process is stopped here; another begins, and the lock does not keep it out. Then both go on."""
        world = self._world
        assert world.process is not None
        first, world.life = world.process, replace(world.life or undisturbed(), taken_over=None)
        world.counts["taken_over"] += 1
        world.say(f"the process is stopped for {how.seconds:.1f} s, and another one takes its run over")
        if not how.unlocked:
            (world.run / lock.FILE).unlink(missing_ok=True)
        loop = SimLoop(first.loop.time() + how.seconds / 2, self._turn_of_second)
        loop.set_exception_handler(world.failed)
        process = Process(world.network.join(), loop)
        world.second = Second(process, world.begun(RunOptions(directory=world.run)))
        world.processes[process.number] = process
        for _ in range(how.ahead):
            while world.crew.next_at() <= loop.time():
                world.crew.step()
            if not self._step(world.second):
                break
        first.loop.skip(max(how.seconds, loop.time() - first.loop.time()))
        world.others_live(first.loop.time())
        world.say("the one that was stopped goes on")

    def next_at(self) -> float:
        """When the second process, if there is one, has something to do."""
        second = self._world.second
        return math.inf if second is None or second.over else second.process.loop.next_at()

    def step(self) -> None:
        """The second process's loop turns once."""
        assert self._world.second is not None
        self._step(self._world.second)

    def _step(self, second: Second[RunOutcome | str]) -> bool:
        """The second process's loop turns once; whether it lives."""
        world = self._world
        if second.over:
            return False
        before = world.process
        world.process, world.network.process = second.process, second.process.number
        try:
            second.process.loop.step()
        finally:
            world.process = before
            world.network.process = second.process.number if before is None else before.number
        if second.flaw is not None:
            world.flaws.append(second.flaw)
        return not second.over

    def ends(self, second: Second[RunOutcome | str], first: RunOutcome | str | None) -> RunOutcome | str | None:
        """The first has ended: the second lives on to its own end, unless both died. The life's outcome."""
        world = self._world
        try:
            if world.disk.dead or world.flaws:
                world.disk.dead = world.network.dead = True
                return None
            world.say(f"the one that was stopped ends: {first if isinstance(first, str) else first and first.reason}")
            world.process = None
            self.failed = isinstance(first, str)
            with suppress(Died):
                while not second.over:
                    if world.crew.present and world.crew.next_at() < second.process.loop.next_at():
                        world.crew.step()
                    else:
                        self._step(second)
                    world.now = max(world.now, second.process.loop.time())
                found = second.result
                return first if isinstance(found, str) and isinstance(first, RunOutcome) else found
            return None
        finally:
            world.process = second.process
            world.now = max(world.now, second.process.loop.time())
            second.close()

    def _turn_of_second(self) -> None:
        world = self._world
        assert world.second is not None
        world.second.process.turn += 1
        if world.flaws:
            world.disk.dead = world.network.dead = True
        if world.disk.dead:
            raise Died
        world.moves(world.second.process.loop)


def closed_books(second: Second[RunOutcome | str]) -> bool:
    """Whether a second process has left nothing in flight that is not on the books yet: it has ended in good order, or
    has sent nothing. The end of the first does not tell: it may have ended in good order before, and knows nothing of
    the other's requests. What a disk has kept the second from closing is charged when the next one begins."""
    return has_closed(second.result) or not second.process.sent


def has_closed(outcome: RunOutcome | str | None) -> bool:
    """Whether a process has ended with all its money on the books: not one whose workers could not write theirs."""
    return isinstance(outcome, RunOutcome) and outcome.reason not in ("storage", "corrupt")


def granted(descriptor: int) -> bool:
    """Stands in for `lock._tried`: a file system on which everybody gets every lock."""
    del descriptor
    return True


def of_files(tried: Callable[[int], bool]) -> Callable[[int], bool]:
    """Stands in for `lock._tried`: a file system that locks no directories."""

    def only(descriptor: int) -> bool:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError("this file system locks no directories")
        return tried(descriptor)

    return only
