"""Workers of a run, each a process of its own beside the coordinator that the world lives through.

Each has a loop; all loops share the time, the disk and the provider. Whoever drives them (the coordinator's loop, as a
rule) has those go on first whose time is least. So a worker lives on where its coordinator dies, and meets its
successor; one that stands still is passed over until its time has come; and one that dies leaves all others alone.

What is simulated are workers that join: `joined.py`, `silence.py` and `spread.py` on one side, `process.py` and
`worker.py` on the other, over streams of `wires.py`. Left out are processes that a coordinator starts itself
(`children.py`: whether one has ended is asked of the system), TLS, and buckets, whose lead beats in a thread: real
processes test these.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from evalkit.engine import sweep
from evalkit.engine.machines import process, silence, tcp, worker
from evalkit.engine.machines.messages import LEAVE, JoinSettings
from evalkit.errors import EvalkitError
from evalkit.store.writing.writer import Store, open_beside
from tests.sim.crew_plan import CrewPlan, WorkerPlan
from tests.sim.loop import Died, SimLoop
from tests.sim.process import Process
from tests.sim.wires import TOKEN

if TYPE_CHECKING:
    from tests.sim.world import World

AWAITED_S = 600.0
"""How long a worker awaits its coordinator."""
TICK_S, EVERY_S, ANSWER_S = 0.25, 1.0, 5.0
"""Slower beats than evalkit's, and a shorter patience, so that a seed costs less, and repeats its questions more
often. Nothing rests on these."""


class _Parent:
    """The process that has started a worker: it says at most that it is enough."""

    def __init__(self) -> None:
        self._enough = asyncio.Event()

    def says_leave(self) -> None:
        self._enough.set()

    async def receive(self) -> bytes:
        await self._enough.wait()
        self._enough.clear()
        return LEAVE


@dataclass(slots=True, eq=False)
class _Worker:
    """One process."""

    process: Process
    plan: WorkerPlan
    slot: int
    """-1: its coordinator is gone, and so is whoever would start another in its place."""
    incarnation: int
    parent: _Parent
    task: "asyncio.Task[str]"
    stopped: dict[int, float]

    def next_at(self) -> float:
        loop = self.process.loop
        return loop.next_at() if loop.expects else math.inf


@dataclass(slots=True, kw_only=True)
class _Starting:
    """A process that is about to begin."""

    at: float
    slot: int
    incarnation: int


class Crew:
    """The workers that there are."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._plan: CrewPlan | None = None
        self._workers: list[_Worker] = []
        self._starting: list[_Starting] = []

    @property
    def present(self) -> bool:
        """Whether there are any, or will be."""
        return bool(self._workers or self._starting)

    def begin(self, plan: CrewPlan | None, now: float) -> None:
        """A coordinator begins: its workers follow. Those of the one before are on their own."""
        self._plan = plan
        for one in self._workers:
            one.slot = -1
        self._starting = []
        if plan is not None:
            self._world.wires.plan = plan.wires
            self._starting = [
                _Starting(at=now + slot[0].begins_s, slot=number, incarnation=0)
                for number, slot in enumerate(plan.slots)
            ]

    def ended(self) -> None:
        """The coordinator has ended: nobody starts workers any more."""
        self.begin(None, 0.0)

    # Time passes.

    def next_at(self) -> float:
        """When something happens next."""
        return min(
            min((one.next_at() for one in self._workers), default=math.inf),
            min((one.at for one in self._starting), default=math.inf),
        )

    def step(self) -> None:
        """What happens next, happens."""
        at = self.next_at()
        for start in self._starting:
            if start.at <= at:
                self._starting.remove(start)
                self._start(start)
                return
        one = min(self._workers, key=_Worker.next_at)
        if self._stands_still(one):
            return
        with self._acting(one.process):
            try:
                one.process.loop.step()
            except Died:
                self._dies(one)
                return
        if one.task.done():
            self._ends(one)

    def finish(self) -> None:
        """Nobody coordinates any more: all live on to their ends."""
        self.ended()
        while self._workers:
            self.step()

    def die(self) -> None:
        """All die at once."""
        self.ended()
        for one in list(self._workers):
            with self._acting(one.process):
                self._dies(one)

    # One of them.

    def _start(self, start: _Starting) -> None:
        assert self._plan is not None
        plans, world = self._plan.slots[start.slot], self._world
        plan = plans[min(start.incarnation, len(plans) - 1)]
        loop = SimLoop(start.at, lambda: self._turn(one))
        loop.set_exception_handler(world.failed)
        own = Process(world.network.join(), loop)
        if plan.cut_off is not None:
            own.cut_off = start.at + plan.cut_off[0], start.at + plan.cut_off[1]
        parent = _Parent()
        one = _Worker(
            process=own,
            plan=plan,
            slot=start.slot,
            incarnation=start.incarnation,
            parent=parent,
            task=loop.create_task(self._work(parent)),
            stopped=dict(plan.stopped),
        )
        self._workers.append(one)
        world.processes[own.number] = own
        with self._acting(own):
            world.say(f"worker {own.number} begins")

    async def _work(self, parent: _Parent) -> str:
        """A worker's life; in words, how it ended."""
        try:
            await process._joined(self._world.run, JoinSettings(wait_s=AWAITED_S), cast(Any, parent))
        except EvalkitError as flaw:
            return f"{type(flaw).__name__}: {flaw}"
        return "has ended in good order"

    def _turn(self, one: _Worker) -> None:
        """Once each time round a worker's loop."""
        world, own, plan = self._world, one.process, one.plan
        own.turn += 1
        if world.flaws:
            raise Died
        if own.turn == plan.die_turn:
            world.counts["worker_dies"] += 1
            world.say(f"worker {own.number} dies at turn {own.turn} of its loop")
            raise Died
        if own.turn == plan.leave_turn:
            world.counts["told_to_leave"] += 1
            world.say(f"worker {own.number} is told to leave")
            one.parent.says_leave()

    def _stands_still(self, one: _Worker) -> bool:
        """Whether a worker's system stops it now, before its loop turns: all others go on meanwhile."""
        own, world = one.process, self._world
        seconds = one.stopped.pop(own.turn + 1, None)
        if seconds is None:
            return False
        with self._acting(own):
            world.say(f"worker {own.number} is stopped for {seconds:.1f} s")
        world.counts["worker_stopped"] += 1
        own.loop.skip(seconds)
        return True

    def _dies(self, one: _Worker) -> None:
        world = self._world
        world.say(f"worker {one.process.number} is dead")
        self._remove(one)
        world.disk.dead = world.network.dead = True
        one.process.loop.unwind()
        world.disk.dead = world.network.dead = False
        self._closes(one)

    def _ends(self, one: _Worker) -> None:
        flaw = None if one.task.cancelled() else one.task.exception()
        with self._acting(one.process):
            if flaw is not None:
                self._world.flaws.append(first_of(flaw))
            else:
                self._world.say(f"worker {one.process.number}: {one.task.result()}")
            self._remove(one)
            one.process.loop.unwind()
        self._closes(one)

    def _remove(self, one: _Worker) -> None:
        self._workers.remove(one)
        if one.slot >= 0 and self._plan is not None:
            plans = self._plan.slots[one.slot]
            following = plans[min(one.incarnation + 1, len(plans) - 1)]
            self._starting.append(
                _Starting(
                    at=one.process.loop.time() + following.begins_s, slot=one.slot, incarnation=one.incarnation + 1
                )
            )

    def _closes(self, one: _Worker) -> None:
        one.process.dead = True
        self._world.wires.died(one.process)
        if one.task.done() and not one.task.cancelled():
            one.task.exception()  # else the loop complains that nobody has asked
        one.process.loop.close()

    @contextmanager
    def _acting(self, own: Process) -> Iterator[None]:
        world = self._world
        before, number = world.process, world.network.process
        world.process, world.network.process = own, own.number
        try:
            yield
        finally:
            world.process, world.network.process = before, number

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Stand in for what workers and coordinators use of the system."""
        wires = self._world.wires
        with (
            mock.patch.object(sweep, "opened", wires.opened),
            mock.patch.object(asyncio, "start_server", wires.listen),
            mock.patch.object(asyncio, "open_connection", wires.connect),
            mock.patch.object(process, "workers_token", return_value=TOKEN),
            mock.patch.object(worker, "boottime", self._boottime),
            mock.patch.object(worker, "open_beside", self._open_beside),
            mock.patch.object(worker, "EVERY_S", EVERY_S),
            mock.patch.object(silence, "TICK_S", TICK_S),
            mock.patch.object(tcp, "ANSWER_S", ANSWER_S),
        ):
            yield

    def _boottime(self) -> float:
        loop = self._world.loop
        assert loop is not None
        return loop.time()

    @contextmanager
    def _open_beside(self, run: Path, *, writer: str) -> Iterator[Store]:
        """Stands in for `open_beside`: what is durable when the log has been read, the worker knows."""
        world, own = self._world, self._world.process
        assert own is not None
        own.of = own.heeds
        with open_beside(run, writer=writer, inline=True) as store:
            own.learns(world.durable, world.asked)
            yield store


def first_of(flaw: BaseException) -> BaseException:
    """The first of a group of flaws."""
    while isinstance(flaw, BaseExceptionGroup):
        flaw = flaw.exceptions[0]
    return flaw
