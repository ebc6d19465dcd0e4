"""Plays a session in several processes: the coordinator's side, with its clock, its loop and its journal.

What it lends is in its journal before a worker hears of it. Where the processes are is left to others: `children.py`
has them on this machine, `on_ray.py` on a Ray cluster. They call `answer` for each question, and `close_lost` for a
worker that ended without goodbye: its journal is sealed and compacted, then its end is charged, and then its episodes
go on elsewhere.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count

from evalkit.client.ask import renewed
from evalkit.client.budget import RUN
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.session import Schedule, Session
from evalkit.engine.spending.money import open_row
from evalkit.engine.universe import PlannedEpisode
from evalkit.errors import CorruptLogError, StorageError
from evalkit.frozen.manifests import manifest_digest
from evalkit.machines.allocator import Allocator, DealtLane
from evalkit.machines.dealer import JobDealer
from evalkit.machines.limits import limits_of, seats
from evalkit.machines.messages import (
    ENDED,
    REFUSED,
    Bye,
    Hello,
    Left,
    Question,
    Reply,
    Welcome,
    WorkerRefused,
    WorkGrant,
    WorkReport,
    decode_question,
    encode,
)
from evalkit.machines.seen import show
from evalkit.machines.setup import code_digests, welcome
from evalkit.machines.sharing import SharedBalance
from evalkit.money import PicoUsd, show_usd
from evalkit.store.bucket import is_bucket
from evalkit.store.files.journal import refuse_sealed
from evalkit.store.files.layout import began, journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import FORMAT
from evalkit.store.reading.accounts import Account, charge_crashes
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import money_rows
from evalkit.store.writing.opening import end_journal
from evalkit.version import __version__

TICK_S = 0.25
"""How often is looked what has become of the workers while none of them asks; workers ask more often."""
RESTARTS, RESTARTS_OVER_S = 3, 600.0
"""A slot gets so many new processes in so many seconds; then the run goes on with fewer."""
BEGINS_S = 45.0
"""A process that was started is awaited for so long where only one that begins now may go on with what others left."""
_LAST_WORDS = 500
"""Characters of what the last of many said."""
SEALED = (
    "The coordinator has heard nothing from this worker for too long, or another one has taken the run over: its "
    "journal was sealed, and others go on with its episodes. What was durable before is valid."
)
NOTHING_MORE = WorkerRefused(why="The run is ending: there is nothing more to play.")


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
    begun: list[float] = field(default_factory=list)
    """When its last processes were started."""
    writer: str = ""
    """Of its present process, between its hello and its goodbye."""
    begins: bool = False
    """Whether a process was started that has said nothing yet."""

    def may_begin(self, now: float) -> bool:
        """Whether a further process may be started here; if so, that is noted."""
        self.begun = [at for at in self.begun if at > now - RESTARTS_OVER_S]
        if len(self.begun) > RESTARTS:
            return False
        self.begun.append(now)
        self.begins = True
        return True


class Spread:
    """A session whose episodes others play."""

    times = MachineTimes()

    def __init__(self, schedule: Schedule, endpoints: Endpoints) -> None:
        self.session = session = schedule.session
        self.schedule, self.endpoints = schedule, endpoints
        self.workers = session.resolved.sweep.workers
        self.loop = asyncio.get_running_loop()
        self.slots = [WorkerSlot(number) for number in range(self.workers)]
        self._last_words, self._refused = "", False
        """Of a process that has ended on its own; whether one may not play."""
        self._dealer = JobDealer(schedule)
        limits, budget = limits_of(session.resolved, endpoints.lanes), endpoints.budget
        balances = {RUN: SharedBalance(budget=session.resolved.sweep.budget, before=session.spent_before)}
        for scope, ceiling in ({} if budget is None else budget.ceilings()).items():
            balances[scope] = SharedBalance(budget=ceiling.budget, before=ceiling.before)
        self.allocator = Allocator(
            [
                DealtLane(
                    name=job.name,
                    width=job.width,
                    trial=job.lane is not None and job.lane.trial,
                    seats=seats(limits, job.name),
                )
                for job in schedule.jobs
            ],
            self._dealer,
            limits=limits,
            balances=balances,
            workers=self.workers,
            valid_s=self.times.share_s,
        )
        self._ended: list[WorkReport] = []
        """The last ones of workers that have ended."""
        self._replaced = 0
        self._accounts: dict[str, Account] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By writer: a worker is not settled while its question is answered."""
        self._closing = 0
        self._latest = session.store.writer
        self._began = self.loop.time()
        self._digest = manifest_digest(session.options.place)
        self._code = code_digests(session.resolved.manifest)

    @property
    def ends(self) -> bool:
        """Whether nothing more is begun."""
        return self.allocator.finishing or bool(self.session.stop.reason)

    # Processes, one after another in each slot.

    async def play(
        self,
        life: Callable[[WorkerSlot], Awaitable[tuple[int, str]]],
        *,
        beside: Callable[[], Coroutine[None, None, None]] | None = None,
    ) -> None:
        """Play all lanes; return when each process has ended. `life`: that of a slot's next process, until it is
        settled; returns how it ended (`ENDED`, ...) and what it said. `beside`: when it returns, all are left."""
        try:
            with seldom_collected():
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._look_again())]
                    lives = [group.create_task(self._live(slot, life)) for slot in self.slots]
                    if beside is not None:
                        tasks.append(group.create_task(beside()))
                        tasks[-1].add_done_callback(lambda _: [one.cancel() for one in lives])
                    await asyncio.wait(lives)
                    for task in tasks:
                        task.cancel()
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            idle = self.allocator.idle()
            self.allocator.abandon()
        self.look()
        if not idle and not self.session.stop.reason:
            self.session.stop.set("workers", self._why_none())

    async def _live(self, slot: WorkerSlot, life: Callable[[WorkerSlot], Awaitable[tuple[int, str]]]) -> None:
        """One slot, process after process, until nothing remains to be done."""
        event, announce = self.session.store.event, self.session.options.announce
        for number in count():
            if not slot.may_begin(self.loop.time()):
                event("fewer_workers", worker=slot.number, detail="It was replaced too often.")
                return
            self._replaced += number > 0
            try:
                code, words = await life(slot)
            except (StorageError, CorruptLogError) as flaw:
                self._stop_for(flaw)
                return
            finally:
                slot.begins = False
            if self.ends:
                return
            if code != ENDED:  # else another goes on with what others have left
                self._last_words, self._refused = words or self._last_words, self._refused or code == REFUSED
                event("worker_refused" if code == REFUSED else "worker_ended", worker=slot.number, detail=words)
            if code == REFUSED:
                if announce is not None:
                    announce([f"Worker {slot.number} may not play: {words}"])
                return

    def _why_none(self) -> str:
        """Why nobody plays what is left, for whoever has started the run."""
        if self._refused:
            return f"No worker may play: {self._last_words}"
        said = " ".join(self._last_words.split())
        return (
            f"Too many workers ended on their own: each of the {self.workers} was replaced {RESTARTS} times within "
            f"{RESTARTS_OVER_S / 60:.0f} minutes. The events `worker_lost` and `worker_ended` of the run say more."
            + (f" The last one ended so: {said[-_LAST_WORDS:]}" if said else "")
        )

    def _stop_for(self, flaw: StorageError | CorruptLogError) -> None:
        self.session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))

    async def _look_again(self) -> None:
        """Look where no worker asks, too."""
        store = self.session.store
        while True:
            self.look()
            if not self.allocator.members and store.lead is None:
                # Nothing is written: on a disk whose locks do not hold, nobody would learn that another has taken over.
                try:
                    refuse_sealed(self.session.options.place, store.writer)
                except (StorageError, CorruptLogError) as flaw:
                    self._stop_for(flaw)
            await asyncio.sleep(TICK_S)

    def look(self) -> None:
        """Every now and then, and before a worker is answered: who has stopped, and whether anything remains."""
        allocator, stop, now = self.allocator, self.session.stop, self.loop.time()
        if allocator.stop[0]:
            stop.set(*allocator.stop)
        if stop.reason:
            allocator.stop = stop.reason, stop.message
        for job in self.schedule.jobs:
            if allocator.lanes[job.name].stopped:
                job.context.lane_stop.set("lane", allocator.lanes[job.name].stopped)
        if self._closing:
            return
        if not any(member.episodes for member in allocator.members.values()):
            self._dealer.look()
        if not any(slot.begins and now < slot.begun[-1] + BEGINS_S for slot in self.slots):
            allocator.refresh()
        allocator.finishing = allocator.finishing or allocator.idle()

    # Questions.

    async def hear(self, slot: WorkerSlot, said: bytes) -> bytes:
        """The answer to what a slot's process asks."""
        question = decode_question(said)
        self.look()  # so that the answer says what has changed
        if self.session.store.lead is not None:
            await renewed(self.session.store.lead)
        async with self._turns[question.writer]:
            reply = await self._answer(question)
        if isinstance(question, Hello) and isinstance(reply, Welcome):
            slot.writer, slot.begins = question.writer, False
        elif isinstance(question, Bye):
            slot.writer = ""
        return encode(reply)

    async def _answer(self, question: Question) -> Reply:
        if isinstance(question, Hello):
            return await self._welcome(question)
        member = self.allocator.members.get(question.writer)
        if member is None:
            return WorkerRefused(why=SEALED)
        if isinstance(question, WorkReport):
            return await self._reported(question)
        self._ended += filter(None, [member.report])
        self.allocator.bye(question.writer)
        return WorkGrant(finish=True)

    async def _welcome(self, hello: Hello) -> Reply:
        refused = self._refusal(hello)
        if refused is not None:
            return refused
        self._latest = hello.writer
        self._accounts[hello.writer] = Account(session=hello.writer)
        if self.endpoints.lanes:
            await self._book(open_row(hello.writer))
        member = self.allocator.hello(hello.writer, self.loop.time())
        self._show()
        deadline_s = self.session.resolved.sweep.deadline_s
        if deadline_s is not None:
            deadline_s = max(0.0, deadline_s - (self.loop.time() - self._began))
        widths = {name: hand.width for name, hand in member.hands.items()}
        return welcome(self.session, widths=widths, urls=self.endpoints.urls, deadline_s=deadline_s)

    def _refusal(self, hello: Hello) -> WorkerRefused | None:
        if (hello.evalkit, hello.log) != (__version__, FORMAT):
            return WorkerRefused(
                why=f"This worker has evalkit {hello.evalkit} and log format {hello.log}; its coordinator has "
                f"evalkit {__version__} and format {FORMAT}."
            )
        directory = self.session.options.place
        if not is_bucket(directory) and hello.writer not in journals(directory):
            return WorkerRefused(
                why=f"{directory.resolve()} is another directory on this worker's node than on the coordinator's. All "
                "nodes need the same: use a bucket, or a disk that they share (`--dir`)."
            )
        if hello.manifest != self._digest:
            return WorkerRefused(why="This worker reads another description of the run than its coordinator.")
        differing = sorted(name for name, digest in self._code.items() if hello.code.get(name) != digest)
        if differing:
            return WorkerRefused(
                why=f"This worker has other code than its coordinator for {', '.join(differing[:3])}: install the same "
                "packages on both."
            )
        if self.ends:
            return NOTHING_MORE
        if began(hello.writer) <= began(self._latest):  # the order of journals is that of what they hold
            return WorkerRefused(why="Another worker has begun at the same moment.", after=self._latest)
        return None

    async def _reported(self, report: WorkReport) -> WorkGrant:
        writer = report.writer
        self._dealer.progress(report.flying)
        grant, lent, returned = self.allocator.report(report, self.loop.time())
        if lent or returned:
            await self._book(*[_lease(writer, amount) for amount in (lent, -returned) if amount])
            self.allocator.balances[RUN].returned(writer, returned)
        self._show()
        return grant

    async def _book(self, *rows: LedgerRecord) -> None:
        for row in rows:
            self.session.store.enter(row)
            self._accounts[row.session].book(row)
        await self.session.store.durable()

    def _show(self) -> None:
        more = f"; {self._replaced:,} replaced since the start" if self._replaced else ""
        self.schedule.workers = f"{len(self.allocator.members)} of {self.workers}{more}"
        show(self.schedule.jobs, self.endpoints, self.allocator, self._ended)

    # A worker that ended without goodbye.

    async def close_lost(self, slot: WorkerSlot, words: str = "") -> None:
        """Settle the worker of a slot, which has ended without goodbye. Raises StorageError, CorruptLogError."""
        writer, slot.writer = slot.writer, ""
        self._closing += 1
        try:
            async with self._turns[writer]:
                if writer in self.allocator.members:
                    await self._close_lost(writer, slot.number, words)
        finally:
            self._closing -= 1

    async def _close_lost(self, writer: str, number: int, words: str) -> None:
        session, account = self.session, self._accounts.pop(writer)
        held = [self._dealer.episode(name) for name in self.allocator.members[writer].episodes]
        ended = await asyncio.to_thread(settle, session, account, held)
        for row in charge_crashes({writer: account}) if self.endpoints.lanes else ():
            session.store.enter(row)
        await session.store.durable()
        session.accounts[writer] = account
        self._ended += filter(None, [self.allocator.members[writer].report])
        rest = self.allocator.lost(writer, ended, account.settled + account.charged + account.crashed)
        self._show()
        unconfirmed = f"; {show_usd(account.crashed)} unconfirmed" if account.crashed else ""
        detail = f"{words} worker {number} ended; {rest} of its episodes go on{unconfirmed}".strip()
        session.store.event("worker_lost", worker=number, writer=writer, unconfirmed=account.crashed, detail=detail)


def _lease(writer: str, amount: int) -> LedgerRecord:
    return LedgerRecord(kind="lease", session=writer, amount=PicoUsd(amount), at=time.time())


def settle(session: Session, account: Account, held: Sequence[PlannedEpisode]) -> list[Left]:
    """End the journal of a worker, and add what it says to the account, which has what the worker was lent. Returns
    which of the episodes that it had ended in its log. Raises CorruptLogError, StorageError."""
    run, writer = session.options.place, account.session
    end_journal(run, writer, by=session.store.writer)
    index, begun, ended = read_index(run), session.store.found.episodes, list[Left]()
    for episode in held:
        now, before = index.episodes.get(episode.id), begun.get(episode.id)
        if now is not None and now.ended and (before is None or now.requests > before.requests):
            ended.append(Left(episode.id, now.ending, now.cost, now.steps))
    account.settled = index.cost_by_worker.get(writer, 0)
    for row in money_rows(run, writer):
        if row.session == writer:
            account.book(row)
    return ended
