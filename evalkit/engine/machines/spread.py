"""Plays a session in several processes: the coordinator's side, with its clock, its loop and its journal.

What it lends is in its journal before a worker hears of it. A worker that ends without goodbye is reaped first, then
its journal is sealed and compacted, then its end is charged, and then its episodes go on elsewhere.
"""

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from evalkit import __version__
from evalkit.client.budget import RUN as RUN_SCOPE
from evalkit.client.lanes.stats import LaneStats, SeenElsewhere
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.machines.coordinator import Coordinator, DealtLane
from evalkit.engine.machines.dealing import JobDealer
from evalkit.engine.machines.launch import RESTARTS, RESTARTS_OVER_S, Child, WorkerSlot
from evalkit.engine.machines.leases import Leases, Pot
from evalkit.engine.machines.limits import limits_of, seats
from evalkit.engine.machines.link import Gone, WorkerLink, linked
from evalkit.engine.machines.messages import (
    RUN,
    Bye,
    Directive,
    Hello,
    Question,
    Renew,
    Reply,
    Welcome,
    WorkerRefused,
    decode_question,
    encode,
)
from evalkit.engine.machines.settling import settle
from evalkit.engine.machines.setup import WorkerSetup, without_instances
from evalkit.engine.machines.shares import Capacity, Shares
from evalkit.engine.resume import Holdings
from evalkit.engine.session import Session
from evalkit.engine.spending.money import WorstCase, open_row, settle_crashes
from evalkit.engine.universe import PlannedEpisode
from evalkit.errors import CorruptLogError, StorageError
from evalkit.money import PicoUsd, show_usd
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import FORMAT
from evalkit.store.manifests import manifest_digest
from evalkit.store.reading.accounts import Account
from evalkit.store.reading.unmetered import Unmetered

TICK_S = 0.05
SILENT_S = 20.0
"""A worker that neither says nor does anything for so long is ended."""
END_S = 30.0
"""What workers get to commit and close when the run ends at once."""


@dataclass(slots=True)
class _Ended:
    """Sums of workers that have ended."""

    steps: Counter[str] = field(default_factory=Counter)
    charged: int = 0
    unmetered: Unmetered = field(default_factory=Unmetered)


async def play_spread(session: Session, endpoints: Endpoints, workers: int) -> None:
    """Play all lanes in so many processes; return when each has ended."""
    with TemporaryDirectory(prefix="evalkit-workers-") as folder, seldom_collected():
        await _Spread(session, endpoints, workers, Path(folder)).play()


class _Spread:
    def __init__(self, session: Session, endpoints: Endpoints, workers: int, folder: Path) -> None:
        self._session, self._endpoints, self._workers, self._folder = session, endpoints, workers, folder
        self._loop = asyncio.get_running_loop()
        self._dealer = JobDealer(
            session.jobs,
            session.gate,
            session.forecast,
            None if session.question is None else session.question.ended,
        )
        limits = limits_of(session.resolved, endpoints.lanes)
        self._coordinator = Coordinator(
            [
                DealtLane(
                    name=job.name,
                    width=job.width,
                    model=job.lane is not None,
                    canary=job.lane is not None and job.lane.canary,
                    seats=seats(limits, job.name),
                )
                for job in session.jobs
            ],
            self._dealer,
            workers=workers,
            shares=Shares({one.name: Capacity(most=one.most, whole=one.unit == "in_flight") for one in limits}),
            leases=Leases(self._pots()),
            limits={one.name: (one.unit, one.lanes) for one in limits},
        )
        self._spent_before = {name: spent for name, spent, _ in self._coordinator.leases.spent()}
        self._accounts: dict[str, Account] = {}
        self._children: dict[int, Child] = {}
        """By slot."""
        self._ended = _Ended()
        self._busy = 0
        """Slots whose process has ended and is being settled."""
        self._replaced = 0
        self._started_at = self._loop.time()
        self._starting: set[int] = set()
        """Slots whose process has not said hello."""
        self._digest = manifest_digest(session.options.directory)

    def _pots(self) -> dict[str, Pot]:
        session, budget = self._session, self._endpoints.budget
        pots = {RUN: Pot(budget=session.resolved.sweep.budget, before=session.spent_before)}
        for (kind, name), ceiling in ({} if budget is None else budget.ceilings()).items():
            pots[f"{kind} {name}"] = Pot(budget=ceiling.budget, before=ceiling.before)
        return pots

    async def play(self) -> None:
        """See `play_spread`."""
        slots = [WorkerSlot(number) for number in range(self._workers)]
        try:
            async with asyncio.TaskGroup() as group:
                lives = [group.create_task(self._live(slot)) for slot in slots]
                while not all(life.done() for life in lives):
                    self._look()
                    await asyncio.wait(lives, timeout=TICK_S)
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            self._coordinator.abandon()
        self._look()
        if not self._coordinator.idle() and not self._session.stop.reason:
            self._session.stop.set("workers", self._words())

    def _words(self) -> str:
        return (
            f"Too many worker processes ended on their own: each of the {self._workers} was replaced {RESTARTS} times "
            f"within {RESTARTS_OVER_S / 60:.0f} minutes. See `worker_lost` in events.jsonl, then run again."
        )

    def _look(self) -> None:
        """Every now and then: who has stopped, and whether anything remains."""
        coordinator, stop = self._coordinator, self._session.stop
        if coordinator.stop_reason and not stop.reason:
            stop.set(coordinator.stop_reason, coordinator.stop_message)
        if stop.reason and not coordinator.stop_reason:
            coordinator.stop_reason, coordinator.stop_message = stop.reason, stop.message
        for job in self._session.jobs:
            if job.name in coordinator.lanes_stopped:
                job.context.lane_stop.set("lane", coordinator.lanes_stopped[job.name])
        if coordinator.members and not self._busy:
            if not any(member.outstanding for member in coordinator.members.values()):
                self._dealer.look()
            if not self._starting:
                coordinator.abandon(unclaimed=True)
            coordinator.finishing = coordinator.finishing or coordinator.idle()

    async def _live(self, slot: WorkerSlot) -> None:
        """One slot, process after process, until nothing remains to be done."""
        stop = self._session.stop
        for number in count():
            if not slot.may_begin(self._loop.time()):
                break
            self._replaced += number > 0
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
        child = self._children[slot.number] = Child(
            self._session.store.descriptors, self._folder / f"{slot.number}.txt"
        )
        watch = self._loop.create_task(self._watch(slot, child))
        link: WorkerLink | None = None
        try:
            link = await linked(child.end)
            await link.send(pickle.dumps(self._setup()))
            while not said_goodbye:
                question = decode_question(await link.receive())
                reply = await self._answer(slot, question)
                said_goodbye = isinstance(question, Bye)
                await link.send(encode(reply))
        except Gone:
            pass
        finally:
            if link is not None:
                link.close()
            watch.cancel()
            await self._reap(child)
            self._starting.discard(slot.number)
            del self._children[slot.number]
        if slot.writer and not said_goodbye:
            self._busy += 1
            try:
                await self._bury(slot, child)
            finally:
                self._busy -= 1
        elif not said_goodbye:
            self._session.store.event("worker_lost", worker=slot.number, detail=child.words())
        return said_goodbye

    async def _reap(self, child: Child) -> None:
        """Wait for a process that has lost its connection; one that does not end is ended."""
        deadline = self._loop.time() + END_S
        while not child.ended():
            if self._loop.time() > deadline:
                child.kill()
            await asyncio.sleep(TICK_S / 5)

    async def _watch(self, slot: WorkerSlot, child: Child) -> None:
        """End a process that is stopped or hangs."""
        while True:
            await asyncio.sleep(SILENT_S / 2)
            member = self._coordinator.members.get(slot.writer)
            stuck = child.is_stuck()
            if stuck and member is not None and self._loop.time() - member.heard > SILENT_S:
                child.kill()

    def _setup(self) -> WorkerSetup:
        session = self._session
        deadline_s = session.resolved.sweep.deadline_s
        if deadline_s is not None:
            deadline_s = max(0.0, deadline_s - (self._loop.time() - self._started_at))
        return WorkerSetup(
            resolved=without_instances(session.resolved),
            directory=session.options.directory,
            choice=session.options.choice,
            retry=session.options.retry,
            after=session.store.writer,
            urls=self._endpoints.urls,
            deadline_s=deadline_s,
        )

    # Questions.

    async def _answer(self, slot: WorkerSlot, question: Question) -> Reply:
        if isinstance(question, Hello):
            return await self._welcome(slot, question)
        if isinstance(question, Renew):
            return await self._renew(question)
        self._retire(question.writer)
        self._coordinator.bye(question.writer)
        return Directive(finish=True)

    async def _welcome(self, slot: WorkerSlot, hello: Hello) -> Reply:
        expected = (__version__, FORMAT, self._digest)
        if (hello.evalkit, hello.log, hello.manifest) != expected:
            return WorkerRefused(
                why=f"This worker has evalkit {hello.evalkit}, log format {hello.log} and another description of the "
                f"run than its coordinator, which has evalkit {__version__}, format {FORMAT}."
            )
        session, sweep = self._session, self._session.resolved.sweep
        self._accounts[hello.writer] = Account(session=hello.writer)
        if self._endpoints.lanes:
            lanes = self._coordinator.lanes.values()
            row = open_row(
                hello.writer,
                sum(lane.width + self._workers * self._coordinator.ahead(lane) for lane in lanes if lane.model),
                budgeted=sweep.budget is not None,
                apart=any(agent.budget is not None for agent in sweep.agents),
                partial=bool(session.options.choice.agents or session.options.choice.suites or session.options.retry),
            )
            await self._book(row)
        slot.writer = hello.writer
        self._starting.discard(slot.number)
        member = self._coordinator.hello(hello.writer, self._loop.time())
        return Welcome(widths=member.widths, workers=self._workers)

    async def _renew(self, question: Renew) -> Directive:
        self._dealer.progress(question.progress)
        turn = self._coordinator.renew(question, self._loop.time())
        rows = [
            LedgerRecord(kind="lease", session=question.writer, amount=PicoUsd(amount), at=time.time())
            for amount in (turn.lent, -turn.returned)
            if amount
        ]
        if rows:
            await self._book(*rows)
        if turn.returned:
            self._coordinator.leases.returned(question.writer, turn.returned)
        self._mirror()
        return turn.answer

    async def _book(self, *rows: LedgerRecord) -> None:
        for row in rows:
            self._session.store.enter(row)
            self._accounts[row.session].book(row)
        await self._session.store.durable()

    # What the session's own objects show.

    def _retire(self, writer: str) -> None:
        """Keep the sums of a worker that ends."""
        report = self._coordinator.members[writer].report
        if report is not None:
            self._ended.steps.update({name: lane.steps for name, lane in report.lanes.items()})
            self._ended.charged += report.charged
            self._ended.unmetered += report.unmetered

    def _mirror(self) -> None:
        """Show in the session's lanes, jobs and budget what the workers report."""
        reports = [member.report for member in self._coordinator.members.values() if member.report is not None]
        largest: dict[str, int] = {}
        for job in self._session.jobs:
            own = [report.lanes[job.name] for report in reports if job.name in report.lanes]
            context = job.context
            context.steps = self._ended.steps[job.name] + sum(lane.steps for lane in own)
            context.playing = sum(lane.playing for lane in own)
            context.unavailable = next((lane.unavailable for lane in own if lane.unavailable), context.unavailable)
            context.invalid = next((lane.invalid for lane in own if lane.invalid), context.invalid)
            context.stopped = self._coordinator.agents_stopped.get(job.name, context.stopped)
            if job.lane is None or not own:
                continue
            if any(lane.acted for lane in own):
                job.lane.acted()
            job.lane.notice = next((lane.notice for lane in own if lane.notice), job.lane.notice)
            largest[job.name] = max(lane.largest for lane in own)
            failures = sum((Counter(lane.failures) for lane in own), Counter[str]())
            job.lane.elsewhere = SeenElsewhere(
                proven=sum(lane.proven for lane in own),
                stats=LaneStats(
                    lane=job.name,
                    in_flight=sum(lane.in_flight for lane in own),
                    window=sum(lane.window for lane in own),
                    waiting=sum(lane.waiting for lane in own),
                    waits_for=next((lane.waits_for for lane in own if lane.waits_for), ""),
                    paused_s=max(lane.paused_s for lane in own),
                    trouble=next((lane.trouble for lane in own if lane.trouble), ""),
                    ended=next((lane.ended for lane in own if lane.ended), ""),
                    requests=context.steps,
                    input_tokens=0,
                    output_tokens=0,
                    requests_per_min=sum(lane.requests_per_min for lane in own),
                    input_tokens_per_min=sum(lane.input_per_min for lane in own),
                    output_tokens_per_min=sum(lane.output_per_min for lane in own),
                    median_latency_s=max(lane.latency_s for lane in own),
                    failures=failures,
                ),
            )
        self._mirror_money(reports, largest)
        there = len(self._coordinator.members)
        more = f"; {self._replaced:,} replaced since the start" if self._replaced else ""
        self._session.workers = f"{there} of {self._workers}{more}"

    def _mirror_money(self, reports: list[Renew], largest: dict[str, int]) -> None:
        if self._endpoints.budget is None:
            return
        spent = {}
        for name, paid, reserved in self._coordinator.leases.spent():
            kind, _, rest = name.partition(" ")
            spent[RUN_SCOPE if name == RUN else (kind, rest)] = paid - self._spent_before[name], reserved
        self._endpoints.budget.mirror(
            spent,
            charged=self._ended.charged + sum(report.charged for report in reports),
            unmetered=sum((report.unmetered for report in reports), self._ended.unmetered),
            largest=largest,
        )

    # A worker that ended without goodbye.

    async def _bury(self, slot: WorkerSlot, child: Child) -> None:
        session, member = self._session, self._coordinator.members[slot.writer]
        held = [self._dealer.episode(name) for name in member.outstanding]
        settled = await asyncio.to_thread(settle, session, slot.writer, held)
        session.store.took_over(settled.adopted)
        account = self._accounts.pop(slot.writer)
        settled.book(account)
        account.partial = False  # just which episodes it had is known
        rows = list(settle_crashes({slot.writer: account}, self._worst_cases(held, settled.holdings)))
        for row in rows if self._endpoints.lanes else ():
            session.store.enter(row)
        await session.store.durable()
        session.accounts[slot.writer] = account
        self._retire(slot.writer)
        spent = account.settled + account.charged + account.crashed
        rest = self._coordinator.lost(slot.writer, settled.ended, spent)
        self._mirror()
        unconfirmed = f"; {show_usd(account.crashed)} unconfirmed" if account.crashed else ""
        detail = f"{child.words()} worker {slot.number} ended; {rest} of its episodes go on{unconfirmed}".strip()
        session.store.event(
            "worker_lost", worker=slot.number, writer=slot.writer, unconfirmed=account.crashed, detail=detail
        )

    def _worst_cases(self, held: list[PlannedEpisode], holdings: Holdings) -> Iterator[WorstCase]:
        for episode in held:
            if episode.cell.agent.policy or episode.target.flaw or holdings.ended(episode):
                continue
            amount = self._endpoints.worst_case(holdings.activate(episode))
            yield WorstCase(amount, episode.cell.agent.lane, episode.cell.agent.name)
