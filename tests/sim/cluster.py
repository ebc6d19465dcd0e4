"""A Ray cluster as `on_ray.py` uses it: it starts actors, carries calls, and says when it takes an actor for dead.

What it says may be wrong, as with Ray: an actor that it calls dead may live on, a call that breaks off may have been
heard, and one that it is told to end may be out of reach. When a coordinator dies, it ends only some of its actors.
"""

import math
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from evalkit.machines.process import RayWorker, Said
from evalkit.seeds import Stream
from tests.sim.crew_plan import CallPlan
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

LEAST_S, MOST_S = 0.001, 0.02
"""What a message takes."""
NOTICED_S = 30.0
"""After which an actor that was lost without a word is called dead."""
REACHED = 0.5
"""Of how many actors that are to end Ray reaches the process."""
ENDS_WITHIN_S = 5.0
"""After the end of a coordinator, if Ray reaches the process."""


class RayError(Exception):
    """Stands in for Ray's own."""


class ActorUnavailableError(RayError):
    """A call broke off: it was heard, or it was not."""


class ActorDiedError(RayError):
    """Ray takes the actor for dead."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of an actor, as its coordinator has it."""

    number: int
    answer: bytes
    said: Future[Said] = field(default_factory=Future)

    def future(self) -> Future[Said]:
        """What Ray gives to wait for."""
        return self.said

    def gives(self, said: Said) -> None:
        """Its answer has come."""
        if not self.said.done():
            self.said.set_result(said)

    def fails(self, flaw: RayError) -> None:
        """Ray says that none will come."""
        if not self.said.done():
            self.said.set_exception(flaw)


class Actor:
    """An actor, from the call that makes it."""

    def __init__(self, cluster: "Cluster", driver: Process, number: int, worker: RayWorker) -> None:
        self.driver, self.worker = driver, worker
        self.process: Process | None = None
        """None: it has not begun."""
        self.is_to_end = False
        self._cluster, self._number = cluster, number
        self._called_dead = False
        self._calls = 0
        self._open: list[Call] = []
        self._early: list[Call] = []
        """Calls that came before its process had begun."""

    # What `on_ray.py` uses.

    @property
    def turn(self) -> "Actor":
        """Its only method that is called."""
        return self

    def remote(self, number: int, answer: bytes) -> Call:
        """Call it."""
        call, now, plan = Call(number, answer), self.driver.loop.time(), self._cluster.plan
        draws = Stream(self._cluster.world.scenario.seed, "call", self._number, self._calls)
        self._calls += 1
        self._open = [*(one for one in self._open if not one.said.done()), call]
        at, fate = now + _latency(draws), draws.uniform()
        if self._called_dead or fate < plan.called_dead:
            if not self._called_dead:
                self._note("called_dead")
            self._is_called_dead(at)
            return call
        fate -= plan.called_dead
        if fate < plan.broken:
            self._note("broken_calls")
            self.driver.loop.call_at(at, call.fails, ActorUnavailableError("simulated"))
            if draws.uniform() < 0.5:
                self._deliver(call, at + 10 ** (2 * draws.uniform()) - 1)
            return call
        if fate - plan.broken < plan.late:
            self._note("late_calls")
            at += 10 ** (2 * draws.uniform())
        self._deliver(call, at)
        return call

    # Its process.

    def begins(self, process: Process) -> None:
        """Its process is there."""
        self.process = process
        for call in self._early:
            process.loop.call_soon(self._hears, call)

    def died(self, process: Process) -> None:
        """Its process is gone: the cluster learns it at once, or later, if it was lost with its machine."""
        lost = Stream(self._cluster.world.scenario.seed, "lost with its machine", process.number).uniform() < 0.5
        self._is_called_dead(process.loop.time() + (NOTICED_S if lost else MOST_S))

    def _deliver(self, call: Call, at: float) -> None:
        if self.process is None:
            self._early.append(call)
            return
        at = self._through(self.process, at)
        if at < math.inf and not self.process.dead:
            self.process.loop.call_at(at, self._hears, call)

    def _hears(self, call: Call) -> None:
        assert self.process is not None
        task = self.process.loop.create_task(self._answer(self.process, call))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # `crew.py` looks at its life

    async def _answer(self, process: Process, call: Call) -> None:
        said = await self.worker.turn(call.number, call.answer)
        draws = Stream(self._cluster.world.scenario.seed, "said", self._number, call.number)
        at = self._through(process, process.loop.time() + _latency(draws))
        if at < math.inf and self._is_driven():
            self.driver.loop.call_at(at, call.gives, said)

    def _through(self, process: Process, at: float) -> float:
        """When what is on its way then comes through; infinite: never, because the actor is called dead before."""
        span = process.cut_off
        if span is None or not span[0] <= at < span[1]:
            return at
        self._note("cut_off")
        if span[1] - at <= NOTICED_S:
            return span[1]
        self._is_called_dead(at + NOTICED_S)
        return math.inf

    def _is_called_dead(self, at: float) -> None:
        if self._is_driven():
            self.driver.loop.call_at(at, self._fails)

    def _fails(self) -> None:
        self._called_dead = True
        for call in self._open:
            call.fails(ActorDiedError("simulated"))

    def _is_driven(self) -> bool:
        return not (self.driver.dead or self.driver.loop.is_closed())

    def _note(self, what: str) -> None:
        self._cluster.counts[what] += 1
        self._cluster.world.say(f"{what}: call {self._calls} of actor {self._number}")


@dataclass(slots=True, eq=False)
class Cluster:
    """The cluster of a world."""

    world: "World"
    plan: CallPlan = field(default_factory=CallPlan)
    counts: Counter[str] = field(default_factory=Counter)
    _actors: int = 0

    def options(self, **_: object) -> "Cluster":
        """Of an actor: what they say concerns Ray alone."""
        return self

    def remote(self, place: str, orphan_s: float) -> Actor:
        """Make an actor."""
        driver = self.world.process
        assert driver is not None
        self._actors += 1
        actor = Actor(self, driver, self._actors, RayWorker(place, orphan_s))
        self.world.crew.starts(actor, driver.loop.time())
        return actor

    def kill(self, actor: Actor) -> None:
        """End an actor's process, if it can be reached."""
        actor.is_to_end = True
        process = actor.process
        now = actor.driver.loop.time()
        if process is None or not (process.cut_off and process.cut_off[0] <= now < process.cut_off[1]):
            self.world.crew.kills(actor, now + MOST_S)

    def module(self) -> ModuleType:
        """What `import ray` gives."""
        ray = ModuleType("ray")
        ray.__dict__.update(
            remote=lambda made: self,
            kill=self.kill,
            get_runtime_context=lambda: SimpleNamespace(gcs_address="simulated"),
            cluster_resources=lambda: {"CPU": 1.0},
        )
        return ray

    @contextmanager
    def imported(self) -> Iterator[None]:
        """While the context lasts, it is Ray."""
        exceptions = ModuleType("ray.exceptions")
        exceptions.__dict__.update(RayError=RayError, ActorUnavailableError=ActorUnavailableError)
        before = {name: sys.modules.get(name) for name in ("ray", "ray.exceptions")}
        sys.modules.update({"ray": self.module(), "ray.exceptions": exceptions})
        try:
            yield
        finally:
            for name, module in before.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module


@asynccontextmanager
async def connected(*_: Any) -> AsyncIterator[None]:
    """Stands in for `on_cluster`."""
    yield


async def reached(address: str) -> None:
    """Stands in for `ray_head.reach`: the head always answers."""
    del address


def _latency(draws: Stream) -> float:
    return LEAST_S + (MOST_S - LEAST_S) * draws.uniform()
