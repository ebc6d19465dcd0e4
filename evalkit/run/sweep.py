"""`evalkit run`: one command to start, to resume and to extend. A spec is a desired state; what is missing is played.

Order of events: everything the spec names is checked, the run is locked, the manifest is extended, the money that a
crash may have left in flight is charged, then the lanes play. Nothing is sent before all of that is durable.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from evalkit.client.budget import Budget
from evalkit.client.file_limit import make_room
from evalkit.errors import LaneClosed, RunError, nearest
from evalkit.money import PicoUsd
from evalkit.run.askers import Desk, Launch, check_keys, open_desk
from evalkit.run.episode import LEFT_OWED, Stop, Table
from evalkit.run.freeze import Resolved, merge, worker_name
from evalkit.run.money import Account, accounts, open_row, settle_crashes, spent
from evalkit.run.outcome import Outcome
from evalkit.run.resume import Holdings, order, read_holdings
from evalkit.run.scheduler import LaneJob, play_lanes
from evalkit.run.universe import Choice, Episode, episodes, lanes
from evalkit.run.view import Pace, View, view_of
from evalkit.store.manifest import FILE, Manifest, ManifestAgent, read_manifest, write_manifest
from evalkit.store.reader import read_through
from evalkit.store.writer import Store, open_store

SHOW_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What one call of `run` asks for beside the spec."""

    directory: Path
    choice: Choice = field(default_factory=Choice)
    limit: int | None = None
    """End at most so many episodes a lane in this call."""
    retry: frozenset[str] = frozenset()
    """Endings whose episodes are played again."""
    repair: bool = False
    """Give up what a damaged log has lost, and go on."""
    launch: Launch | None = None
    """Starts a provider that evalkit runs itself, given the run's directory; gives its base URL."""
    announce: Callable[[Sequence[str]], None] | None = None
    """Is told what a repair gives up, before anything is changed."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One life of a run: everything that its parts share."""

    name: str
    """Host, pid and time: the worker of its rows, the session of its money."""
    resolved: Resolved
    options: RunOptions
    manifest: Manifest
    store: Store
    stop: Stop
    holdings: Holdings
    accounts: dict[str, Account]
    began: float
    """In the loop's time."""
    jobs: list[LaneJob]
    desk: Desk | None = None

    @property
    def spent_before(self) -> PicoUsd:
        """What all earlier sessions have spent: steps and charges, crash charges included."""
        return spent(self.holdings.cost, self.accounts.values())


async def run_sweep(resolved: Resolved, options: RunOptions, show: Callable[[View], None]) -> Outcome:
    """Play what the spec asks for and the run lacks; returns how it ended.

    Raises UsageError or RunError, before anything is written, for what cannot be run as asked; CorruptLogError for a
    damaged log, StorageError where the disk refuses.
    """
    directory = options.directory
    check_keys(resolved, options.choice)
    old = _existing(directory)
    manifest = resolved.manifest if old is None else merge(old, resolved.manifest, str(directory))
    loop = asyncio.get_running_loop()
    name = f"{worker_name()}:{time.time():.3f}"
    repaired = _repair(options) if options.repair and old is not None else ()
    with open_store(directory, session=name) as store:
        for line in repaired:
            store.event("repaired", detail=line)
        read_through(directory)
        holdings = read_holdings(directory, options.retry)
        if old is None or manifest != old:
            write_manifest(directory, manifest)
        ledger = accounts(holdings.ledger, holdings.cost_by_worker)
        session = Session(
            name=name,
            resolved=resolved,
            options=options,
            manifest=manifest,
            store=store,
            stop=Stop(),
            holdings=holdings,
            accounts=ledger,
            began=loop.time(),
            jobs=[],
        )
        _log_start(session)
        try:
            await _play(session, show)
        except asyncio.CancelledError:
            if session.stop.reason != "interrupt":
                raise
        outcome = _outcome(session)
        store.event("ended", **outcome.to_json())
    return outcome


async def _play(session: Session, show: Callable[[View], None]) -> None:
    with _interruptible(session.stop):
        async with _desk(session) as desk:
            session.desk = desk
            session.jobs = _jobs(session, desk)
            async with _watched(session, show):
                await play_lanes(session.jobs)


def _existing(directory: Path) -> Manifest | None:
    """The manifest of the run that lies there, or None for a new run. Raises RunError for a foreign directory."""
    if (directory / FILE).exists():
        return read_manifest(directory)
    # A run that was killed before its manifest was written has its lock and empty folders.
    own = {"lock", "tail", "steps", "ledger", "events.jsonl"}
    if directory.is_dir() and any(
        entry.name not in own and not entry.name.startswith(".") for entry in directory.iterdir()
    ):
        raise RunError(
            f"{directory} is no run directory, and it is not empty. Nothing was written. Choose another with --dir."
        )
    if directory.exists() and not directory.is_dir():
        raise RunError(f"{directory} is a file. Choose another place with --dir.")
    return None


def _repair(options: RunOptions) -> tuple[str, ...]:
    """Mend the log; what was given up, in sentences. Raises RunError if another process writes the run."""
    from evalkit.store.repair import Repair, repair

    def announce(found: Repair) -> None:
        if options.announce is not None:
            options.announce(found.lines())

    found = repair(options.directory, announce)
    return tuple(found.lines()) if found.flaws else ()


def _in_vain(session: Session) -> Iterator[str]:
    """What was asked for and is not there: endings to be retried that no episode has."""
    held = session.holdings
    endings = {one.ending for one in held.episodes.values() if one.ending}
    endings |= {"internal_error"} if held.broken else set()
    for word in sorted(session.options.retry - endings):
        yield f"--retry {word}: no episode of this run had ended so.{nearest(word, endings)}"


def _log_start(session: Session) -> None:
    sweep = session.resolved.sweep
    session.store.event(
        "started",
        evalkit=session.manifest.evalkit,
        spec=sweep.source,
        pid=os.getpid(),
        width=sweep.width,
        budget_pico_usd=sweep.budget,
        deadline_s=sweep.deadline_s,
        only_agents=sorted(session.options.choice.agents),
        only_suites=sorted(session.options.choice.suites),
        retry=sorted(session.options.retry),
    )


@asynccontextmanager
async def _desk(session: Session) -> AsyncIterator[Desk]:
    """Everything that asks, with the money of earlier sessions settled and this session's on the books."""
    options, store = session.options, session.store
    async with AsyncExitStack() as stack:
        desk = await open_desk(
            session.resolved,
            session.manifest,
            options.choice,
            stack,
            launch=options.launch,
            directory=options.directory,
        )
        if desk.lanes:
            for row in settle_crashes(session.accounts, _worst_cases(session, desk), all_known=not _strangers(session)):
                store.enter(row)
            sweep, choice = session.resolved.sweep, options.choice
            store.enter(
                open_row(
                    session.name,
                    sweep.width * len(desk.lanes),
                    budgeted=sweep.budget is not None,
                    partial=bool(choice.agents or choice.suites or options.retry),
                )
            )
            await store.durable()
            desk.budget = Budget(budget=sweep.budget, spent=session.spent_before, ledger=store, session=session.name)
        session.stop.wake = lambda: _wake(session, desk)
        yield desk
        if desk.budget is not None:
            desk.budget.close()


def _wake(session: Session, desk: Desk) -> None:
    """The run stops: whoever waits for a limit or for money leaves; what is in flight comes back."""
    error = LaneClosed(session.stop.message or f"The run stops ({session.stop.reason}).")
    for lane in desk.lanes.values():
        lane.end(error)
    if desk.budget is not None:
        desk.budget.end(error)


def _worst_cases(session: Session, desk: Desk) -> Iterator[int]:
    """Of the next request of each episode that a crashed session had begun, or may have begun; lazily.

    Episodes with rows are known. Of those without, a session had at most its width in flight, the next in order.
    All of the run counts, whatever this call was asked to play: money is the run's.
    """
    width = max((one.width for one in session.accounts.values() if not one.closed), default=0)
    unfunded = Budget(budget=None, spent=PicoUsd(0), ledger=session.store, session=session.name)
    manifest, everything = session.manifest, Choice()
    for agents in lanes(manifest, everything).values():
        known = [agent for agent in agents if agent.name in session.resolved.endpoints]
        for started in (True, False):
            some = order(episodes(manifest, known, everything), session.holdings, frozenset(), started=started)
            for episode in some if started else islice(some, width):
                yield desk.worst_case(session.holdings.seat(episode), unfunded)


def _strangers(session: Session) -> bool:
    """Whether the run has models that the spec no longer names, so that nobody knows what their requests cost."""
    agents = session.manifest.agents.values()
    return any(agent.provider and agent.name not in session.resolved.endpoints for agent in agents)


def _jobs(session: Session, desk: Desk) -> list[LaneJob]:
    sweep = session.resolved.sweep
    models = max(1, len(desk.lanes))
    room = make_room(sweep.width * models) // models
    if room < sweep.width:
        session.store.event("narrowed", width=sweep.width, room=room, why="the limit on open files")
    by_lane = lanes(session.resolved.manifest, session.options.choice)
    return [_job(session, desk, name, agents, min(room, sweep.width)) for name, agents in by_lane.items()]


def _job(session: Session, desk: Desk, name: str, agents: list[ManifestAgent], width: int) -> LaneJob:
    sweep, options, holdings = session.resolved.sweep, session.options, session.holdings
    playing = ended = total = 0
    for one in episodes(session.resolved.manifest, agents, options.choice):
        to_play = holdings.to_play(one, options.retry)
        total += 1
        playing += to_play
        ended += not to_play and holdings.ended(one)
    now = asyncio.get_running_loop().time()
    return LaneJob(
        name=name,
        width=max(1, min(width, playing)),
        episodes=total,
        done_before=ended,
        broken_before=total - playing - ended,
        todo=_todo(session, agents),
        sit=holdings.seat,
        asker=desk.asker,
        table=Table(
            log=session.store,
            worker=session.name,
            stop=session.stop,
            lane_stop=Stop(),
            deadline=None if sweep.deadline_s is None else now + sweep.deadline_s,
        ),
        lane=desk.lanes.get(name),
        limit=options.limit,
    )


def _todo(session: Session, agents: list[ManifestAgent]) -> Iterator[Episode]:
    """What a lane has to play: started episodes first, each kind in admission order."""
    options = session.options
    for started in (True, False):
        everything = episodes(session.resolved.manifest, agents, options.choice)
        yield from order(everything, session.holdings, options.retry, started=started)


@contextmanager
def _interruptible(stop: Stop) -> Iterator[None]:
    """Ctrl-C or SIGTERM: the first asks players to end after their durable step, a second one stops at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def heard() -> None:
        if stop.reason == "interrupt" and task is not None:
            task.cancel()
        stop.set("interrupt", "Interrupted.")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, heard)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _watched(session: Session, show: Callable[[View], None]) -> AsyncIterator[None]:
    """While the lanes play: show the run now and then, and set the log's pace by the replies' time."""
    pace = Pace()

    async def watch() -> None:
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            _keep_pace(session)
            show(view_of(session.jobs, session.desk, session.resolved.sweep, pace, session.spent_before))

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


def _keep_pace(session: Session) -> None:
    """A row may wait for company a tenth of the time that the fastest lane's replies take."""
    assert session.desk is not None
    medians = [lane.stats().median_latency_s for lane in session.desk.lanes.values()]
    known = [median for median in medians if median > 0]
    if known:
        session.store.pace(min(known))


def _outcome(session: Session) -> Outcome:
    jobs, stop = session.jobs, session.stop
    left = [ending for job in jobs for ending, count in job.table.ended.items() for _ in range(count)]
    ended = sum(job.done_before for job in jobs) + sum(ending not in LEFT_OWED for ending in left)
    total = sum(job.episodes for job in jobs)
    ended_lanes = [job.table.lane_stop.message for job in jobs if job.table.lane_stop.message]
    # A lane may have sent all its episodes away before one of them could hear that it has ended.
    lane_words = ended_lanes + [
        job.table.unavailable for job in jobs if job.table.unavailable and not job.table.lane_stop.message
    ]
    budget = session.desk.budget if session.desk is not None else None
    owed = total - ended
    return Outcome(
        directory=session.options.directory,
        reason=_reason(session, owed, bool(ended_lanes)),
        messages=(
            *_in_vain(session),
            *([stop.message] if stop.reason not in ("", "interrupt") else []),
            *lane_words,
        ),
        episodes=total,
        ended=ended,
        owed=owed,
        broken=left.count("internal_error") + sum(job.broken_before for job in jobs),
        steps=sum(job.table.steps for job in jobs),
        elapsed_s=asyncio.get_running_loop().time() - session.began,
        spent=session.spent_before if budget is None else budget.stats().spent,
        unconfirmed=sum(one.crashed - one.released for one in session.accounts.values()),
        budget=session.resolved.sweep.budget,
        example=_example(session),
    )


def _reason(session: Session, owed: int, lane_ended: bool) -> str:
    if session.stop.reason:
        return session.stop.reason
    if not owed:
        return "complete"
    if lane_ended:
        return "lane"
    return "limit" if session.options.limit is not None else "parked"


def _example(session: Session) -> str:
    """An episode that is worth a look, as `show` takes it."""
    choice = session.options.choice
    for suite in filter(choice.takes_suite, session.resolved.manifest.suites.values()):
        for agent in session.resolved.manifest.agents.values():
            if choice.agents and agent.name not in choice.agents:
                continue
            return f"{agent.name}:{suite.name}:{suite.instances[0].id}:0"
    return ""
