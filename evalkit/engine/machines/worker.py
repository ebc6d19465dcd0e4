"""A worker: plays the episodes that the coordinator assigns it, and writes them to a journal of its own.

It is the engine of a single process with other sources: its episodes come in blocks, its lanes use shares of the
limits, and its budget is lent. `process.py` has the process that it runs in. If the coordinator is gone it commits what
it has, closes its journal, and ends.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from evalkit.client.budget import Budget
from evalkit.client.budget_state import Ceiling
from evalkit.engine.checks import check_keys
from evalkit.engine.endpoints import Endpoints, WorkerPart, open_endpoints
from evalkit.engine.episode import LaneContext
from evalkit.engine.freezing.brought import require
from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.machines import limits
from evalkit.engine.machines.assigned import AssignedEpisodes
from evalkit.engine.machines.messages import (
    Bye,
    Directive,
    FlightReport,
    Gone,
    Hello,
    LaneReport,
    Left,
    Purse,
    Renew,
    Welcome,
    WorkerRefused,
    WorkerSetup,
    WorkerTransport,
)
from evalkit.engine.machines.setup import code_digests, resolved_from
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings, read_holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.universe import lanes
from evalkit.errors import FencedError, LaneClosed, StorageError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import manifest_digest, read_manifest
from evalkit.money import PicoUsd
from evalkit.spec.model import Sweep
from evalkit.store.files.journal import new_writer, newest_claim
from evalkit.store.files.segment import SEAL
from evalkit.store.writing.opening import announce, withdraw
from evalkit.store.writing.writer import Store, open_beside

EVERY_S = 0.5
"""How often it tells what it does and asks what to do, where nothing is urgent."""
AGAIN_S = 0.02
"""The least time between two questions."""
PROGRESS_EVERY_S = 1.0
"""How often it tells how far its episodes have come; of those that have ended it tells with the next question."""


def boottime() -> float:
    """Seconds of a clock that does not stand still while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Worker:
    """One worker's life."""

    def __init__(self, directory: Path, setup: WorkerSetup, coordinator: WorkerTransport) -> None:
        self._directory, self._setup, self._coordinator = directory, setup, coordinator
        self.writer = new_writer([setup.after])
        self._leaving = self._anew = False
        self._stop = Stop()
        self._share = 0
        self._workers = 1
        self._valid_until = 0.0
        self._progress_due = 0.0
        self._urgent = asyncio.Event()
        self._given_back: list[str] = []
        self._jobs: list[LaneJob] = []

    async def work(self) -> bool:
        """Say hello, play until there is nothing more to do, close the journal, say goodbye. Returns whether it is to
        begin anew. Raises EvalkitError."""
        whole = read_manifest(self._directory)
        require(whole)
        resolved = resolved_from(self._setup, whole)
        check_keys(resolved, self._setup.choice)
        welcome = await self._hello(resolved.manifest)
        self._workers = welcome.workers
        try:
            with open_beside(self._directory, writer=self.writer) as store:
                await self._play(store, welcome, whole, resolved)
        except Gone as flaw:
            last = newest_claim(self._directory, self.writer)
            if last is not None and last["kind"] == SEAL:
                raise Gone(f"{flaw}; its journal was sealed before, while this worker stood still") from None
            raise
        await self._coordinator.ask(Bye(writer=self.writer, number=store.last))
        return self._anew

    async def _hello(self, manifest: Manifest) -> Welcome:
        """Begin a journal, and be let in: another name is chosen where a later writer has begun. Raises UsageError."""
        digest, code = manifest_digest(self._directory), code_digests(manifest)
        while True:
            announce(self._directory, self.writer)
            answer = await self._coordinator.ask(Hello(writer=self.writer, manifest=digest, code=code))
            if isinstance(answer, Welcome):
                return answer
            assert isinstance(answer, WorkerRefused)
            withdraw(self._directory, self.writer)
            if not answer.after:
                raise UsageError(answer.why)
            self.writer = new_writer([answer.after])

    def leave(self) -> None:
        """Stop what is played, for others to go on with."""
        self._leaving = True
        self._stop.set(LEAVING, "This worker leaves.")

    async def _play(self, store: Store, welcome: Welcome, whole: Manifest, resolved: Resolved) -> None:
        setup = self._setup
        holdings = read_holdings(self._directory, setup.retry, store.found, keep_facts=setup.asks)
        async with AsyncExitStack() as stack:
            endpoints = await open_endpoints(
                resolved,
                whole,
                setup.choice,
                stack,
                launch=None,
                directory=self._directory,
                part=WorkerPart(widths=welcome.widths, workers=welcome.workers, urls=setup.urls),
            )
            endpoints.budget = budget = self._budget(store, resolved.sweep)
            budget.borrow(self._urgent.set)
            for lane in endpoints.lanes.values():
                lane.lapsed = lambda: boottime() >= self._valid_until
                lane.paused = self._urgent.set
            names = [name for name in lanes(resolved.manifest, setup.choice) if welcome.widths.get(name)]
            gate = AssignedEpisodes(resolved.manifest, holdings, names, low=self._urgent.set)
            self._jobs = [self._job(name, welcome.widths[name], endpoints, holdings, gate, store) for name in names]
            self._stop.wakes[self] = lambda: self._wake(endpoints, gate)
            try:
                await self._with_coordinator(endpoints, budget, gate, store)
            finally:
                if endpoints.lanes:
                    # All players have ended, and each attempt that they left has its charge: nothing is in flight.
                    budget.close()

    async def _with_coordinator(
        self, endpoints: Endpoints, budget: Budget, gate: AssignedEpisodes, store: Store
    ) -> None:
        await self._renew(endpoints, budget, gate, store)
        try:
            async with asyncio.TaskGroup() as group:
                talking = group.create_task(self._talk(endpoints, budget, gate, store))
                await play_lanes(self._jobs)
                talking.cancel()
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None  # without a coordinator its players were cancelled
        await self._renew(endpoints, budget, gate, store)

    async def _talk(self, endpoints: Endpoints, budget: Budget, gate: AssignedEpisodes, store: Store) -> None:
        """Ask again and again what to do. Raises Gone."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY_S
            await asyncio.sleep(AGAIN_S)
            timer = loop.call_at(due, self._urgent.set)
            await self._urgent.wait()
            timer.cancel()
            late_s = max(0.0, loop.time() - due)
            self._urgent.clear()
            medians = [lane.median_s for lane in endpoints.lanes.values() if lane.median_s]
            for lane in endpoints.lanes.values():
                lane.late(late_s)
            if medians:
                store.pace(min(medians))
            await self._renew(endpoints, budget, gate, store)

    async def _renew(self, endpoints: Endpoints, budget: Budget, gate: AssignedEpisodes, store: Store) -> None:
        left, back = await self._durable(gate, store), self._given_back
        self._given_back = []
        for job in self._jobs:
            if job.context.stopping:
                back += gate.give_back(job.name)
        asked_at, stats = boottime(), budget.stats()
        question = Renew(
            writer=self.writer,
            lanes={job.name: _report(job, gate, budget) for job in self._jobs},
            share=self._share,
            purses={
                " ".join(scope).strip(): Purse(
                    one.spent, one.reserved, one.lack.wanted, one.lack.first, one.returned, one.over
                )
                for scope, one in budget.borrowed().items()
            },
            charged=stats.charged,
            unmetered=stats.unmetered,
            left=left,
            given_back=back,
            progress=self._progress(gate, asked_at) if stats.budget is not None else [],
            # That a worker leaves stops nobody else.
            stop="" if self._stop.reason == LEAVING else self._stop.reason,
            stop_message="" if self._stop.reason == LEAVING else self._stop.message,
            leaving=self._leaving,
        )
        answer = await self._coordinator.ask(question)
        if isinstance(answer, WorkerRefused):
            raise FencedError(answer.why)
        assert isinstance(answer, Directive)
        self._obey(answer, asked_at, endpoints, budget, gate)

    def _progress(self, gate: AssignedEpisodes, now: float) -> list[FlightReport]:
        if now < self._progress_due:
            return []
        self._progress_due = now + PROGRESS_EVERY_S
        return gate.progress()

    async def _durable(self, gate: AssignedEpisodes, store: Store) -> list[Left]:
        """The episodes that were left since the last question, all their rows durable; none if they cannot be."""
        left = gate.reports()
        try:
            if left:
                await store.durable()
        except StorageError as flaw:
            self._stop.set("storage", str(flaw))
            return []
        return left

    def _obey(
        self, answer: Directive, asked_at: float, endpoints: Endpoints, budget: Budget, gate: AssignedEpisodes
    ) -> None:
        loop = asyncio.get_running_loop()
        budget.lend(
            {_scope(name): amount for name, amount in answer.leased.items()},
            {_scope(name): amount for name, amount in answer.before.items()},
        )
        budget.give_back({_scope(name): amount for name, amount in answer.give_back.items()})
        if answer.give_back:
            self._urgent.set()
        self._valid_until = asked_at + answer.valid_s
        self._share, self._workers = answer.share, answer.workers
        limits.apply(endpoints, answer.rates, self._workers)
        for name, seconds in answer.pauses.items():
            if name in endpoints.lanes:
                endpoints.lanes[name].pause(loop.time() + seconds)
        for name in answer.acted:
            if name in endpoints.lanes:
                endpoints.lanes[name].acted()
        for name, places in answer.blocks.items():
            gate.take(name, places)
        for name, count in answer.recall.items():
            self._given_back += gate.give_back(name, count)
        if self._given_back:
            self._urgent.set()
        for job in self._jobs:
            self._stop_parts(job, answer)
        if answer.stop:
            self._stop.set(answer.stop, answer.stop_message)
        if answer.finish:
            gate.end()
        if answer.leave and not self._leaving:
            self._anew = True
            self.leave()

    def _stop_parts(self, job: LaneJob, answer: Directive) -> None:
        """A lane, or an agent in it, was stopped by what another worker met."""
        for agent, why in answer.agents_stopped.get(job.name, {}).items():
            job.context.stopped.setdefault(agent, why)
        ended = answer.lanes_stopped.get(job.name)
        if ended is not None and not job.context.lane_stop.reason:
            job.context.lane_stop.set("lane", ended)
            if job.lane is not None:
                job.lane.end(LaneClosed(ended))

    def _wake(self, endpoints: Endpoints, gate: AssignedEpisodes) -> None:
        """The run stops: players that wait for a limit, for money or for an episode leave."""
        error = LaneClosed(self._stop.message or f"The run stops ({self._stop.reason}).")
        for lane in endpoints.lanes.values():
            lane.end(error)
        if endpoints.budget is not None:
            endpoints.budget.end(error)
        for job in self._jobs:
            self._given_back += gate.give_back(job.name)
        gate.end()
        self._urgent.set()

    def _budget(self, store: Store, sweep: Sweep) -> Budget:
        budgets = {("agent", agent.name): agent.budget for agent in sweep.agents if agent.budget is not None}
        ceilings = {scope: Ceiling(budget=budget, before=0) for scope, budget in budgets.items()}
        return Budget(budget=sweep.budget, spent=PicoUsd(0), ledger=store, session=self.writer, ceilings=ceilings)

    def _job(
        self, name: str, width: int, endpoints: Endpoints, holdings: Holdings, gate: AssignedEpisodes, store: Store
    ) -> LaneJob:
        lane = endpoints.lanes.get(name)
        context = LaneContext(log=store, worker=self.writer, stop=self._stop, lane_stop=Stop(), lane=lane)
        return LaneJob(
            name=name,
            width=width,
            episodes=0,
            planned=0,
            done_before=0,
            todo=iter(()),
            activate=holdings.activate,
            asker=endpoints.asker,
            context=context,
            lane=lane,
            gate=gate,
        )


def _report(job: LaneJob, gate: AssignedEpisodes, budget: Budget) -> LaneReport:
    context, lane = job.context, job.lane
    stopped = context.lane_stop.message if context.lane_stop.reason else ""
    if lane is None:
        return LaneReport(
            players=job.width,
            playing=context.playing,
            queued=gate.queued(job.name),
            steps=context.steps,
            stopped=stopped,
        )
    stats = lane.stats()
    return LaneReport(
        players=job.width,
        playing=context.playing,
        queued=gate.queued(job.name),
        steps=context.steps,
        in_flight=stats.in_flight,
        window=stats.window,
        proven=lane.proven(),
        waiting=stats.waiting,
        waits_for=stats.waits_for,
        requests_per_min=stats.requests_per_min,
        input_per_min=stats.input_tokens_per_min,
        output_per_min=stats.output_tokens_per_min,
        paused_s=stats.paused_s,
        latency_s=stats.median_latency_s,
        trouble=stats.trouble,
        ended=stats.ended,
        notice=lane.notice,
        unavailable=context.unavailable,
        refused=context.refused,
        too_large=context.too_large,
        agents_stopped=context.stopped,
        failures=dict(stats.failures),
        acted=not lane.canary,
        largest=budget.largest(job.name),
        stopped=stopped,
        servers=stats.servers,
    )


def _scope(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(" ")
    return kind, rest


LEAVING = "leaving"
