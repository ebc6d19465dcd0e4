"""A worker: plays the episodes that the coordinator assigns it, and writes them to a journal of its own.

It is the engine of a single process with other sources: its episodes come in blocks, its lanes use parts of the limits,
and its budget is lent. `process.py` has the process that it runs in. If the coordinator is gone it commits what it has,
closes its journal, and ends.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from msgspec import structs

from evalkit.client.budget import Budget
from evalkit.client.budget_state import Ceiling
from evalkit.client.lanes.tier_pace import TierPace
from evalkit.engine.checks import check_keys
from evalkit.engine.endpoints import Endpoints, WorkerPart, open_endpoints
from evalkit.engine.episode import LaneContext
from evalkit.engine.freezing.brought import require
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings, read_holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.universe import lanes
from evalkit.errors import FencedError, LaneClosed, StorageError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import manifest_digest, read_manifest
from evalkit.machines import limits
from evalkit.machines.assigned import AssignedEpisodes
from evalkit.machines.messages import (
    Bye,
    Gone,
    Hello,
    LaneGrant,
    LaneReport,
    Left,
    Welcome,
    WorkerRefused,
    WorkerTransport,
    WorkGrant,
    WorkReport,
)
from evalkit.machines.setup import code_digests, resolved_from
from evalkit.money import PicoUsd
from evalkit.store.files.journal import new_writer, newest_claim
from evalkit.store.files.schema import FORMAT
from evalkit.store.files.segment import SEAL
from evalkit.store.writing.opening import announce, withdraw
from evalkit.store.writing.writer import Store, open_beside
from evalkit.version import __version__

EVERY_S = 0.5
"""How often it reports, where nothing is urgent."""
AGAIN_S = 0.02
"""The least time between two reports."""
FLYING_EVERY_S = 1.0
"""How often it tells how far its episodes have come; of those that have ended each report tells."""
PAUSE_TOLD_S = 0.5
"""A pause that another worker has met counts if it is longer by so much."""


def boottime() -> float:
    """Seconds of a clock that does not stand still while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Worker:
    """One worker's life."""

    _store: Store
    _endpoints: Endpoints
    _budget: Budget
    _admitter: AssignedEpisodes
    """What it plays with, once it was let in."""

    def __init__(self, directory: Path, coordinator: WorkerTransport) -> None:
        self._directory, self._coordinator = directory, coordinator
        self._writer = new_writer()
        self._played = False
        self._stop = Stop()
        self._valid_until = self._flying_due = 0.0
        self._urgent, self._over = asyncio.Event(), asyncio.Event()
        self._jobs: list[LaneJob] = []
        self._turns = dict[str, float]()
        """By lane: `LaneGrant.turns`."""

    async def work(self) -> None:
        """Say hello, play until there is nothing more to do, close the journal, say goodbye. Raises EvalkitError."""
        whole = read_manifest(self._directory)
        require(whole)
        welcome, refused = await self._hello(whole), None
        try:
            with open_beside(self._directory, writer=self._writer) as self._store:
                await self._play(welcome, whole, resolved_from(welcome, whole))
        except UsageError as flaw:  # this machine lacks something, such as a key
            refused = flaw
        except Gone as flaw:
            last = newest_claim(self._directory, self._writer)
            if last is not None and last["kind"] == SEAL:
                raise Gone(f"{flaw}; its journal was sealed before, while this worker stood still") from None
            raise
        await self._coordinator.ask(Bye(writer=self._writer))
        if refused is not None:
            raise refused

    async def _hello(self, manifest: Manifest) -> Welcome:
        """Begin a journal, and be let in: another name is chosen where a later writer has begun. Raises UsageError."""
        digest, code = manifest_digest(self._directory), code_digests(manifest)
        while True:
            announce(self._directory, self._writer)
            hello = Hello(evalkit=__version__, log=FORMAT, writer=self._writer, manifest=digest, code=code)
            answer = await self._coordinator.ask(hello)
            if isinstance(answer, Welcome):
                return answer
            assert isinstance(answer, WorkerRefused)
            withdraw(self._directory, self._writer)
            if not answer.after:
                raise UsageError(answer.why)
            self._writer = new_writer([answer.after])

    async def _play(self, welcome: Welcome, whole: Manifest, resolved: ResolvedSweep) -> None:
        sweep, store, choice = welcome.sweep, self._store, welcome.choice
        check_keys(resolved, choice)
        asks = sweep.decide is not None
        holdings = read_holdings(self._directory, welcome.retry, store.found, keep_facts=asks)
        async with AsyncExitStack() as stack:
            part = WorkerPart(widths=welcome.widths, workers=sweep.workers, urls=welcome.urls)
            self._endpoints = endpoints = await open_endpoints(
                resolved, whole, choice, stack, launch=None, directory=self._directory, part=part
            )
            endpoints.budget = self._budget = Budget(
                budget=sweep.budget,
                spent=PicoUsd(0),
                ledger=store,
                session=self._writer,
                ceilings={
                    ("agent", agent.name): Ceiling(budget=agent.budget, before=0)
                    for agent in sweep.agents
                    if agent.budget is not None
                },
            )
            self._budget.borrow(self._urgent.set)
            for lane in endpoints.lanes.values():
                lane.lapsed = lambda: boottime() >= self._valid_until
                lane.paused = self._urgent.set
                if resolved.mixes(lane.name):
                    lane.pace = TierPace(lane.deadline, partial(self._left, lane.name), lambda _: 1.0)
            names = [name for name in lanes(resolved.manifest, choice) if welcome.widths.get(name)]
            self._admitter = AssignedEpisodes(resolved.manifest, holdings, names, low=self._urgent.set)
            self._jobs = [self._job(name, welcome.widths[name], holdings) for name in names]
            self._stop.listen(self._wake)
            try:
                await self._report()
                await self._play_and_report()
            finally:
                if endpoints.lanes:
                    # All players have ended, and each attempt that they left has its charge: nothing is in flight.
                    self._budget.close()

    def _left(self, lane: str) -> tuple[float, float, int]:
        return self._turns.get(lane, 0.0), 0.0, 1

    def _job(self, name: str, width: int, holdings: Holdings) -> LaneJob:
        lane, log = self._endpoints.lanes.get(name), self._store
        return LaneJob(
            name=name,
            width=width,
            activate=holdings.activate,
            asker=self._endpoints.asker,
            context=LaneContext(log=log, worker=self._writer, stop=self._stop, lane=lane),
            lane=lane,
            admitter=self._admitter,
        )

    async def _play_and_report(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._report_again())
                await play_lanes(self._jobs)
                await self._over.wait()  # one that has no part of any lane stands by
                self._played = True
                self._urgent.set()
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None  # without a coordinator its players were cancelled

    async def _report_again(self) -> None:
        """Report again and again, and once more when all is played. Raises Gone."""
        loop, over = asyncio.get_running_loop(), False
        while not over:
            due = loop.time() + EVERY_S
            await asyncio.sleep(AGAIN_S)
            timer = loop.call_at(due, self._urgent.set)
            await self._urgent.wait()
            timer.cancel()
            late_s = max(0.0, loop.time() - due)
            self._urgent.clear()
            medians = [lane.median_s for lane in self._endpoints.lanes.values() if lane.median_s]
            for lane in self._endpoints.lanes.values():
                lane.late(late_s)
            if medians:
                self._store.pace(min(medians))
            over = self._played
            await self._report()

    async def _report(self) -> None:
        """Say what it has done, and do what the answer says. Raises FencedError, Gone."""
        left, admitter, now = await self._durable(), self._admitter, boottime()
        stats, flying = self._budget.stats(), []
        paced = any(lane.pace is not None for lane in self._endpoints.lanes.values())
        if (paced or stats.budget is not None) and now >= self._flying_due:
            self._flying_due, flying = now + FLYING_EVERY_S, admitter.flying()
        answer = await self._coordinator.ask(
            WorkReport(
                writer=self._writer,
                lanes={job.name: _of_lane(job, admitter, self._budget) for job in self._jobs},
                money=self._budget.borrowed(),
                charged=stats.charged,
                unmetered=stats.unmetered,
                left=left,
                unbegun=[name for job in self._jobs if job.context.stopping for name in admitter.give_back(job.name)],
                flying=flying,
                stop=(self._stop.reason, self._stop.message),
            )
        )
        if isinstance(answer, WorkerRefused):
            raise FencedError(answer.why)
        assert isinstance(answer, WorkGrant)
        self._valid_until = now + answer.valid_s
        self._obey(answer)

    async def _durable(self) -> list[Left]:
        """The episodes that were left since the last report, all their rows durable; none if they cannot be."""
        left = self._admitter.reports()
        try:
            if left:
                await self._store.durable()
        except StorageError as flaw:
            self._stop.set("storage", str(flaw))
            return []
        return left

    def _obey(self, grant: WorkGrant) -> None:
        if self._budget.lend(grant.money):
            self._urgent.set()  # another waits for what goes back
        endpoints = self._endpoints
        limits.apply(endpoints.lanes, endpoints.pools, grant.limits, 1 / endpoints.resolved.sweep.workers)
        for job in self._jobs:
            self._obey_lane(job, grant.lanes.get(job.name, LaneGrant()))
        if grant.stop[0]:
            self._stop.set(*grant.stop)
        if grant.finish:
            self._end()

    def _obey_lane(self, job: LaneJob, grant: LaneGrant) -> None:
        """Its further episodes, and what other workers have met."""
        context, lane = job.context, job.lane
        context.stopped.update(
            {agent: why for agent, why in grant.agents_stopped.items() if agent not in context.stopped}
        )
        if lane is not None and grant.pause_s > lane.stats().paused_s + PAUSE_TOLD_S:
            lane.pause(asyncio.get_running_loop().time() + grant.pause_s)
        if lane is not None and grant.acted:
            lane.acted()
        self._turns[job.name] = grant.turns
        self._admitter.take(job.name, grant.episodes)
        if grant.stopped and not context.lane_stop.reason:
            context.lane_stop.set("lane", grant.stopped)
            if lane is not None:
                lane.end(LaneClosed(grant.stopped))

    def _end(self) -> None:
        """Nothing will come any more."""
        self._admitter.end()
        self._over.set()

    def _wake(self) -> None:
        """The run stops: players that wait for a limit, for money or for an episode leave."""
        self._endpoints.end(self._stop)
        self._end()
        self._urgent.set()


def _of_lane(job: LaneJob, admitter: AssignedEpisodes, budget: Budget) -> LaneReport:
    context, lane = job.context, job.lane
    report = LaneReport(
        playing=context.playing,
        queued=admitter.queued(job.name),
        steps=context.steps,
        unavailable=context.unavailable,
        refused=context.refused,
        too_large=context.too_large,
        agents_stopped=context.stopped,
        stopped=context.lane_stop.message if context.lane_stop.reason else "",
    )
    if lane is None:
        return report
    return structs.replace(
        report,
        stats=lane.stats(),
        proven=lane.proven(),
        notice=lane.notice,
        acted=not lane.trial,
        largest=budget.largest(job.name),
        quick_s=0.0 if lane.pace is None else lane.pace.quick.mean_s,
    )
