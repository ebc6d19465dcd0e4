"""Workers of a run, each a process of its own beside the coordinator that the world lives through.

Each has a loop; all loops share the time, the disk and the provider. Whoever drives them (the coordinator's loop, as a
rule) has those go on first whose time is least. So a worker lives on where its coordinator dies, and one that stands
still is passed over until its time has come; and one that dies leaves all others alone.

What is simulated are workers on Ray: `on_ray.py` and `spread.py` on one side, `process.py` and
`worker.py` on the other, over calls of `cluster.py`. Left out are the processes of `--workers` alone (`children.py`:
whether one has ended is asked of the system), and buckets, whose lead beats in a thread: real processes test these.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from evalkit.machines import apart, on_ray, worker
from evalkit.machines.spread import MachineTimes, Spread
from evalkit.seeds import Stream
from evalkit.store.writing.writer import Store, open_beside
from tests.sim.cluster import ENDS_WITHIN_S, REACHED, Actor, connected, reached
from tests.sim.crew_plan import CrewPlan, WorkerPlan
from tests.sim.loop import Died, Hung, SimLoop
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

EVERY_S, LOOK_S = 1.0, 1.0
"""Slower beats than evalkit's, so that a seed costs less. Nothing rests on these."""


@dataclass(slots=True, eq=False)
class _Worker:
    """One process."""

    process: Process
    plan: WorkerPlan
    actor: Actor
    stopped: dict[int, float]
    stopped_sent: tuple[int, float] | None
    killed_at: float = math.inf

    @property
    def over(self) -> bool:
        """Whether it has nothing more to do, and nobody will ask why."""
        life = self.actor.worker._life
        return (life is None or life.done()) and (self.actor.is_to_end or self.actor.driver.dead)

    def next_at(self) -> float:
        loop = self.process.loop
        if self.over:
            return loop.time()
        return min(self.killed_at, loop.next_at() if loop.expects else math.inf)


@dataclass(slots=True, kw_only=True)
class _Starting:
    """A process that is about to begin."""

    at: float
    plan: WorkerPlan
    actor: Actor


class Crew:
    """The workers that there are."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._plan: CrewPlan | None = None
        self._begun = 0
        self._workers: list[_Worker] = []
        self._starting: list[_Starting] = []

    @property
    def present(self) -> bool:
        """Whether there are any, or will be."""
        return bool(self._workers or self._starting)

    def begin(self, plan: CrewPlan) -> None:
        """A coordinator begins, and will make actors."""
        self._plan, self._begun = plan, 0
        self._world.cluster.plan = plan.calls

    def ended(self) -> None:
        """The coordinators have ended: their workers are on their own, or are ended by Ray."""
        self._starting = []
        for one in self._workers:
            draws = Stream(self._world.scenario.seed, "coordinator's end", one.process.number)
            if draws.uniform() < REACHED:
                one.killed_at = min(one.killed_at, self._world.now + ENDS_WITHIN_S * draws.uniform())

    # What the cluster does.

    def starts(self, actor: Actor, now: float) -> None:
        """An actor was made: its process will begin."""
        assert self._plan is not None
        plan = self._plan.processes[min(self._begun, len(self._plan.processes) - 1)]
        self._begun += 1
        self._starting.append(_Starting(at=now + plan.begins_s, plan=plan, actor=actor))

    def kills(self, actor: Actor, at: float) -> None:
        """An actor's process is to end."""
        self._starting = [start for start in self._starting if start.actor is not actor]
        for one in self._workers:
            reached = Stream(self._world.scenario.seed, "kill", one.process.number).uniform() < REACHED
            if one.actor is actor and reached:
                one.killed_at = min(one.killed_at, at)

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
        if one.over:
            self._ends(one)
            return
        if one.killed_at <= at:
            one.process.loop.skip(max(0.0, at - one.process.loop.time()))
            self._dies(one, "is ended by Ray")
            return
        if self._stands_still(one):
            return
        alive = not self._world.disk.dead
        with self._acting(one.process):
            try:
                one.process.loop.step()
                died = alive and self._world.disk.dead  # what it raised may have been caught
            except Died:
                died = True
        if died:
            self._dies(one, "is dead")
            return
        life = one.actor.worker._life
        flaw = life.exception() if life is not None and life.done() and not life.cancelled() else None
        if flaw is not None:
            self._world.flaws.append(first_of(flaw))
            self._dies(one, "is broken")

    def finish(self) -> None:
        """Nobody coordinates any more: all live on to their ends."""
        self.ended()
        while self._workers:
            if self.next_at() == math.inf:
                raise Hung(f"a worker waits for nothing: {self._workers[0].process.loop.waiting()}")
            self.step()

    def die(self) -> None:
        """All die at once."""
        self._starting = []
        for one in list(self._workers):
            self._dies(one, "dies with all others")

    # One of them.

    def _start(self, start: _Starting) -> None:
        world, plan = self._world, start.plan
        loop = SimLoop(start.at, lambda: self._turn(one))
        loop.set_exception_handler(world.failed)
        own = Process(world.network.join(), loop)
        own.of = start.actor.driver.number
        if plan.cut_off is not None:
            own.cut_off = start.at + plan.cut_off[0], start.at + plan.cut_off[1]
        one = _Worker(
            process=own, plan=plan, actor=start.actor, stopped=dict(plan.stopped), stopped_sent=plan.stopped_sent
        )
        self._workers.append(one)
        world.processes[own.number] = own
        with self._acting(own):
            world.say(f"worker {own.number} begins")
            start.actor.begins(own)

    def _turn(self, one: _Worker) -> None:
        """Once each time round a worker's loop."""
        world, own = self._world, one.process
        own.turn += 1
        if world.flaws:
            raise Died
        sent = one.plan.die_sent
        if own.turn == one.plan.die_turn or (sent is not None and own.sent >= sent):
            world.counts["worker_dies"] += 1
            world.say(f"worker {own.number} dies at turn {own.turn} of its loop, when it has sent {own.sent} requests")
            raise Died

    def _stands_still(self, one: _Worker) -> bool:
        """Whether a worker's system stops it now, before its loop turns: all others go on meanwhile."""
        own, world = one.process, self._world
        seconds = one.stopped.pop(own.turn + 1, None)
        if one.stopped_sent is not None and own.sent >= one.stopped_sent[0]:
            (_, seconds), one.stopped_sent = one.stopped_sent, None
        if seconds is None:
            return False
        with self._acting(own):
            world.say(f"worker {own.number} is stopped for {seconds:.1f} s")
        world.counts["worker_stopped"] += 1
        own.loop.skip(seconds)
        return True

    def _dies(self, one: _Worker, how: str) -> None:
        world = self._world
        with self._acting(one.process):
            world.say(f"worker {one.process.number} {how}")
            before = world.disk.dead, world.network.dead  # where the whole machine dies, it stays so
            world.disk.dead = world.network.dead = True
            one.process.loop.unwind()
            world.disk.dead, world.network.dead = before
        self._closes(one)

    def _ends(self, one: _Worker) -> None:
        life = one.actor.worker._life
        with self._acting(one.process):
            self._world.say(f"worker {one.process.number} ends: {None if life is None else life.result()}")
            one.process.loop.unwind()
        self._closes(one)

    def _closes(self, one: _Worker) -> None:
        self._workers.remove(one)
        one.actor.died(one.process)
        one.process.dead = True
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
        """Stand in for what workers and coordinators use of the system, and of Ray."""
        with (
            self._world.cluster.imported(),
            mock.patch.object(on_ray, "check_ray"),
            mock.patch.object(apart, "on_cluster", connected),
            mock.patch.object(on_ray, "reach", reached),
            mock.patch.object(on_ray, "LOOK_S", LOOK_S),
            mock.patch.object(worker, "boottime", self._boottime),
            mock.patch.object(worker, "open_beside", self._open_beside),
            mock.patch.object(worker, "EVERY_S", EVERY_S),
            mock.patch.object(Spread, "times", MachineTimes() if self._plan is None else self._plan.times),
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
        with open_beside(run, writer=writer, inline=True) as store:
            own.learns(world.durable, world.asked)
            yield store


def first_of(flaw: BaseException) -> BaseException:
    """The first of a group of flaws."""
    while isinstance(flaw, BaseExceptionGroup):
        flaw = flaw.exceptions[0]
    return flaw
