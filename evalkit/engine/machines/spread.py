"""Plays a session in several processes: the coordinator's side, with its clock, its loop and its journal.

What it lends is in its journal before a worker hears of it. Where the processes are is left to others: `children.py`
has them on this machine, `on_ray.py` on a Ray cluster. They call `answer` for each question, and `bury` for a worker
that ended without goodbye: its journal is sealed and compacted, then its end is charged, and then its episodes go on
elsewhere.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from evalkit.client.ask import renewed
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.machines.coordinator import Coordinator
from evalkit.engine.machines.dealt import DealtLane
from evalkit.engine.machines.leases import Leases, Pot
from evalkit.engine.machines.limits import limits_of, seats
from evalkit.engine.machines.messages import (
    RUN,
    Attend,
    Directive,
    Hello,
    Left,
    Question,
    Renew,
    Reply,
    Welcome,
    WorkerRefused,
    WorkerSetup,
)
from evalkit.engine.machines.mirror import JobDealer, Mirror
from evalkit.engine.machines.setup import code_digests, setup_of
from evalkit.engine.machines.shares import Capacity, Shares
from evalkit.engine.session import Schedule, Session
from evalkit.engine.spending.money import open_row
from evalkit.engine.universe import PlannedEpisode
from evalkit.frozen.manifests import manifest_digest
from evalkit.money import PicoUsd, show_usd
from evalkit.store.files.layout import began
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import FORMAT
from evalkit.store.reading.accounts import Account, charge_crashes
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import money_rows
from evalkit.store.writing.opening import end_journal
from evalkit.version import __version__

TICK_S = 0.1
"""How often who hears workers that are elsewhere looks what has become of them."""
RESTARTS, RESTARTS_OVER_S = 3, 600.0
"""A slot gets so many new processes in so many seconds; then the run goes on with fewer."""
_LAST_WORDS = 500
"""Characters of what the last of many said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTimes:
    """How long processes of a run rely on each other, in seconds. The first is less than the second: a lost worker has
    stopped sending before others go on."""

    share_s: float = 15.0
    """A worker's part of the limits holds for so long after it asked: without an answer it sends nothing then."""
    silent_s: float = 20.0
    """A worker that says nothing for so long is taken for lost: others go on with its episodes."""
    orphan_s: float = 60.0
    """A worker whose coordinator does not answer for so long commits what it has and ends."""


@dataclass(slots=True)
class WorkerSlot:
    """The place of one worker, which may be taken by several processes in turn."""

    number: int
    begun: deque[float] = field(default_factory=deque)
    """When its last processes were started."""
    writer: str = ""
    """Of its present process, once it has said hello."""

    def may_begin(self, now: float) -> bool:
        """Whether a further process may be started here."""
        while self.begun and self.begun[0] <= now - RESTARTS_OVER_S:
            self.begun.popleft()
        return len(self.begun) <= RESTARTS


def too_often(workers: int, last: str) -> str:
    """That each slot was replaced too often, for whoever has started the run. `last`: why one could not go on."""
    said = " ".join(last.split())
    return (
        f"Too many workers ended on their own: each of the {workers} was replaced {RESTARTS} times within "
        f"{RESTARTS_OVER_S / 60:.0f} minutes. The events `worker_lost` and `worker_ended` of the run say more."
        + (f" The last one ended so: {said[-_LAST_WORDS:]}" if said else "")
    )


class Spread:
    """A session whose episodes others play."""

    times = MachineTimes()

    def __init__(self, schedule: Schedule, endpoints: Endpoints, *, elastic: bool) -> None:
        """`elastic`: whether workers come and go as they like."""
        self.session = session = schedule.session
        self.schedule, self.endpoints = schedule, endpoints
        self.workers = session.resolved.sweep.workers
        self.loop = asyncio.get_running_loop()
        self._elastic = elastic
        self._dealer = JobDealer(
            schedule.jobs,
            schedule.gate,
            schedule.forecast,
            None if session.question is None else session.question.ended,
        )
        limits = limits_of(session.resolved, endpoints.lanes)
        self.coordinator = Coordinator(
            [
                DealtLane(
                    name=job.name,
                    width=job.width,
                    model=job.lane is not None,
                    canary=job.lane is not None and job.lane.canary,
                    seats=seats(limits, job.name),
                )
                for job in schedule.jobs
            ],
            self._dealer,
            workers=self.workers,
            elastic=elastic,
            shares=Shares(
                {one.name: Capacity(most=one.most, whole=one.unit == "in_flight") for one in limits},
                valid_s=self.times.share_s,
            ),
            leases=Leases(self._pots()),
            limits={one.name: (one.unit, one.lanes) for one in limits},
            servers={one.name: one.server for one in limits if one.server is not None},
        )
        self.mirror = Mirror(schedule, endpoints, self.coordinator)
        self.replaced = 0
        self._accounts: dict[str, Account] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By writer: a worker is not settled while its question is answered."""
        self._busy = 0
        """Workers that have ended and are being settled."""
        self._latest = session.store.writer
        self._started_at = self.loop.time()
        self._digest = manifest_digest(session.options.place)
        self._code = code_digests(session.resolved.manifest)

    def _pots(self) -> dict[str, Pot]:
        session, budget = self.session, self.endpoints.budget
        pots = {RUN: Pot(budget=session.resolved.sweep.budget, before=session.spent_before)}
        for (kind, name), ceiling in ({} if budget is None else budget.ceilings()).items():
            pots[f"{kind} {name}"] = Pot(budget=ceiling.budget, before=ceiling.before)
        return pots

    def look(self, *, starting: bool) -> None:
        """Every now and then, and before a worker is answered: who has stopped, and whether anything remains.
        `starting`: whether processes were started that have not said hello."""
        coordinator, stop = self.coordinator, self.session.stop
        if coordinator.stop_reason and not stop.reason:
            stop.set(coordinator.stop_reason, coordinator.stop_message)
        if stop.reason and not coordinator.stop_reason:
            coordinator.stop_reason, coordinator.stop_message = stop.reason, stop.message
        for job in self.schedule.jobs:
            if job.name in coordinator.lanes_stopped:
                job.context.lane_stop.set("lane", coordinator.lanes_stopped[job.name])
        if self._busy or not (coordinator.members or self._elastic):
            return
        if not any(member.outstanding for member in coordinator.members.values()):
            self._dealer.look()
        if self._elastic:
            coordinator.refresh()
        elif not starting:
            coordinator.abandon(unclaimed=True)
        coordinator.finishing = coordinator.finishing or coordinator.idle()

    def setup(self) -> WorkerSetup:
        """What a worker that begins now is given."""
        deadline_s = self.session.resolved.sweep.deadline_s
        if deadline_s is not None:
            deadline_s = max(0.0, deadline_s - (self.loop.time() - self._started_at))
        return setup_of(self.session, after=self._latest, urls=self.endpoints.urls, deadline_s=deadline_s)

    # Questions.

    async def answer(self, question: Question) -> Reply:
        """The answer to a worker's question."""
        if self.session.store.lead is not None:
            await renewed(self.session.store.lead)
        if isinstance(question, Attend):
            return self._attended(question)
        async with self._turns[question.writer]:
            if isinstance(question, Hello):
                return await self._welcome(question)
            if question.writer not in self.coordinator.members:
                return WorkerRefused(why=SEALED)
            if isinstance(question, Renew):
                return await self._renew(question)
            self.mirror.retire(question.writer)
            self.coordinator.bye(question.writer)
            return Directive(finish=True)

    def _attended(self, attend: Attend) -> Reply:
        if (attend.evalkit, attend.log) != (__version__, FORMAT):
            return WorkerRefused(
                why=f"This worker has evalkit {attend.evalkit} and log format {attend.log}; its coordinator has "
                f"evalkit {__version__} and format {FORMAT}."
            )
        if self.coordinator.finishing or self.session.stop.reason:
            return NOTHING_MORE
        return self.setup()

    async def _welcome(self, hello: Hello) -> Reply:
        refused = self._refused(hello)
        if refused is not None:
            return refused
        self._latest = hello.writer
        await self._open(hello.writer)
        member = self.coordinator.hello(hello.writer, self.loop.time())
        self.show()
        return Welcome(widths=member.widths, workers=self.coordinator.workers)

    def _refused(self, hello: Hello) -> WorkerRefused | None:
        if hello.manifest != self._digest:
            return WorkerRefused(why="This worker reads another description of the run than its coordinator.")
        differing = sorted(name for name, digest in self._code.items() if hello.code.get(name) != digest)
        if differing:
            return WorkerRefused(
                why=f"This worker has other code than its coordinator for {', '.join(differing[:3])}: install the same "
                "packages on both."
            )
        if self.coordinator.finishing or self.session.stop.reason:
            return NOTHING_MORE
        if began(hello.writer) <= began(self._latest):  # the order of journals is that of what they hold
            return WorkerRefused(why="Another worker has begun at the same moment.", after=self._latest)
        return None

    async def _open(self, writer: str) -> None:
        self._accounts[writer] = Account(session=writer)
        if self.endpoints.lanes:
            await self._book(open_row(writer))

    async def _renew(self, question: Renew) -> Directive:
        self._dealer.progress(question.progress)
        turn = self.coordinator.renew(question, self.loop.time())
        rows = [_lease(question.writer, amount) for amount in (turn.lent, -turn.returned) if amount]
        if rows:
            await self._book(*rows)
        if turn.returned:
            self.coordinator.leases.returned(question.writer, turn.returned)
        self.show()
        return turn.answer

    async def _book(self, *rows: LedgerRecord) -> None:
        for row in rows:
            self.session.store.enter(row)
            self._accounts[row.session].book(row)
        await self.session.store.durable()

    def show(self) -> None:
        """Show what the workers report."""
        there = f"{len(self.coordinator.members)}{'' if self._elastic else f' of {self.workers}'}"
        word = "lost" if self._elastic else "replaced"
        more = f"; {self.replaced:,} {word} since the start" if self.replaced else ""
        self.mirror.show(f"{there}{more}")

    # A worker that ended without goodbye.

    async def bury(self, writer: str, *, who: int | str, words: str = "") -> None:
        """Settle a worker that ended without goodbye. Raises StorageError, CorruptLogError."""
        self._busy += 1
        try:
            async with self._turns[writer]:
                if writer in self.coordinator.members:
                    await self._bury(writer, who, words)
        finally:
            self._busy -= 1

    async def _bury(self, writer: str, who: int | str, words: str) -> None:
        session, member = self.session, self.coordinator.members[writer]
        held = [self._dealer.episode(name) for name in member.outstanding]
        settled = await asyncio.to_thread(settle, session, writer, held)
        account = self._accounts[writer]
        settled.book(account)
        del self._accounts[writer]
        for row in charge_crashes({writer: account}) if self.endpoints.lanes else ():
            session.store.enter(row)
        await session.store.durable()
        session.accounts[writer] = account
        self.mirror.retire(writer)
        spent = account.settled + account.charged + account.crashed
        rest = self.coordinator.lost(writer, settled.ended, spent)
        self.show()
        unconfirmed = f"; {show_usd(account.crashed)} unconfirmed" if account.crashed else ""
        detail = f"{words} worker {who} ended; {rest} of its episodes go on{unconfirmed}".strip()
        session.store.event("worker_lost", worker=who, writer=writer, unconfirmed=account.crashed, detail=detail)


def _lease(writer: str, amount: int) -> LedgerRecord:
    return LedgerRecord(kind="lease", session=writer, amount=PicoUsd(amount), at=time.time())


SEALED = (
    "The coordinator has heard nothing from this worker for too long, or another one has taken the run over: its "
    "journal was sealed, and others go on with its episodes. What was durable before is valid."
)
NOTHING_MORE = WorkerRefused(why="The run is ending: there is nothing more to play.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A journal that has ended."""

    own: Account
    """What the worker's own journal says of its session."""
    ended: Sequence[Left]
    """Of the worker's episodes, those that ended in its log."""

    def book(self, account: Account) -> None:
        """Add to a worker's account, which has what it was lent, what its own journal says."""
        account.settled = self.own.settled
        account.leased += self.own.leased  # where there is no budget, it leases for itself
        account.charged += self.own.charged
        account.ended, account.said = self.own.ended, self.own.said


def settle(session: Session, writer: str, held: Sequence[PlannedEpisode]) -> Settled:
    """End the journal of a worker, and look what it did with the episodes that it had. Raises CorruptLogError,
    StorageError."""
    run = session.options.place
    end_journal(run, writer, by=session.store.writer)
    index = read_index(run)
    begun = session.store.found.episodes
    ended = []
    for episode in held:
        now, before = index.episodes.get(episode.id), begun.get(episode.id)
        if now is not None and now.ended and (before is None or now.requests > before.requests):
            ended.append(Left(episode.id, now.ending, now.cost, now.steps))
    own = Account(session=writer, settled=index.cost_by_worker.get(writer, 0))
    for row in money_rows(run, writer):
        if row.session == writer:
            own.book(row)
    return Settled(own=own, ended=ended)
