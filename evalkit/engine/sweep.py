"""`evalkit run`: one command to start, to resume and to extend. A spec is a desired state; what is missing is played.

The order of events: everything that the spec names is checked, the run is locked, the manifest is extended, and what
crashed sessions had leased is charged. Then the lanes play. Nothing is sent before all of that is
durable.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path

from evalkit.client.budget import Budget
from evalkit.client.budget_state import Ceiling
from evalkit.engine.ending import existing_manifest, nothing_to_do, outcome_of
from evalkit.engine.endpoints import Endpoints, WindowNotes, check_keys, check_outside, open_endpoints
from evalkit.engine.episode import Stop
from evalkit.engine.freezing.brought import changed, recoded
from evalkit.engine.freezing.freeze import Resolved, merge
from evalkit.engine.freezing.keeping import kept, reworded
from evalkit.engine.loop import interruptible
from evalkit.engine.machines.children import play_here
from evalkit.engine.machines.on_ray import check_ray, on_cluster, play_on_ray
from evalkit.engine.machines.spread import Spread
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.publishing import SHOW_EVERY_S, noted, tell_others
from evalkit.engine.question import LiveQuestion, PlayedLanes, question_of
from evalkit.engine.resume import read_holdings
from evalkit.engine.scheduler import play_lanes
from evalkit.engine.session import RunOptions, Session, make_jobs
from evalkit.engine.spending.money import open_row, spent_below
from evalkit.engine.time_left import TimeLeft
from evalkit.engine.view import Pace, View, view_of
from evalkit.errors import LaneClosed, RunError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import keep_spec, read_spec, write_manifest
from evalkit.frozen.question_files import write_frozen
from evalkit.results.answers import RunQuestion
from evalkit.results.question import freeze_question
from evalkit.results.verify import check_rows
from evalkit.store.bucket import is_bucket
from evalkit.store.files.journal import new_writer
from evalkit.store.files.layout import journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.live import withdraw
from evalkit.store.reading.accounts import accounts, charge_crashes, unaccounted
from evalkit.store.recovery.repair import Repair, repair
from evalkit.store.writing.writer import open_store
from evalkit.text import span


async def run_sweep(resolved: Resolved, options: RunOptions, show: Callable[[View], None]) -> RunOutcome:
    """Play what the spec asks for and the run lacks. Returns how it ended.

    Raises UsageError or RunError, before anything is written, if it cannot be run as asked; CorruptLogError for a
    damaged log; StorageError if the disk refuses to write.
    """
    directory = options.directory
    check_keys(resolved, options.choice)
    _check_workers(resolved, options)
    if options.outside is None:
        check_outside(resolved, options.choice)
    old = existing_manifest(directory)
    _tell(options, "opening the run" if old is None else "reading the run")
    manifest = resolved.manifest if old is None else _extended(old, resolved, directory)
    if old is not None:
        newer = [*changed(old, resolved.manifest), *recoded(old, resolved.manifest)]
        resolved = replace(resolved, manifest=kept(old, resolved.manifest))
        if options.announce is not None:
            options.announce([*reworded(manifest), *newer])
    idle = nothing_to_do(resolved, options) if manifest == old else None
    if idle is not None:
        return idle
    decide = resolved.sweep.decide
    frozen = None if decide is None else freeze_question(manifest, decide)
    loop = asyncio.get_running_loop()
    name = new_writer(list(journals(directory)))
    repaired = _repair(options) if options.repair and old is not None else ()
    place = options.place
    with open_store(place, session=name) as store:
        for line in repaired:
            store.event("repaired", detail=line)
        coded = any(agent.code for agent in (old or resolved.manifest).agents.values())
        holdings = read_holdings(place, options.retry, store.found, coded=coded, keep_facts=frozen is not None)
        asked = None if frozen is None else question_of(directory, frozen, ended=holdings.ended_in_all)
        if old is None or manifest != old:
            manifest = write_manifest(directory, manifest)
            resolved = replace(resolved, manifest=kept(manifest, resolved.manifest))
        if asked is not None and asked[1]:
            write_frozen(directory, asked[0])
        if resolved.sweep.written:
            sweep = resolved.sweep
            keep_spec(directory, sweep.written, sweep.source, sweep.settings)
        ledger = accounts(holdings.ledger, holdings.cost_by_worker)
        session = Session(
            name=name,
            resolved=resolved,
            options=options,
            manifest=manifest,
            store=store,
            stop=options.stop or Stop(),
            holdings=holdings,
            accounts=ledger,
            began=loop.time(),
            jobs=[],
        )
        if asked is not None:
            session.question = LiveQuestion(RunQuestion(manifest, asked[0]), place, store, play_all=options.play_all)
        _log_start(session)
        try:
            await _play(session, show)
        except asyncio.CancelledError:
            if session.stop.reason != "interrupt":
                raise
        outcome = outcome_of(session)
        store.event("ended", **outcome.to_json())
    return outcome


async def _play(session: Session, show: Callable[[View], None]) -> None:
    with interruptible(session.stop) if session.options.stop is None else nullcontext():
        _tell(session.options, "opening connections, and starting simulated providers")
        async with _endpoints(session) as endpoints:
            session.endpoints = endpoints
            _tell(session.options, "forecasting what episodes take")
            session.jobs = await make_jobs(session, endpoints)
            async with _machines(session) as play:
                with noted(session), _timed(session):
                    async with _watched(session, show), _asked(session):
                        if is_spread(session.resolved):
                            await play(Spread(session, endpoints, elastic=session.resolved.sweep.on != "here"))
                        else:
                            await play_lanes(session.jobs)


@asynccontextmanager
async def _machines(session: Session) -> AsyncIterator[Callable[[Spread], Awaitable[None]]]:
    """What plays a session in other processes, once they can come. Raises UsageError where they cannot."""
    sweep = session.resolved.sweep
    if sweep.on == "ray":
        _tell(session.options, "connecting to the Ray cluster")
        async with on_cluster(sweep.workers):
            yield play_on_ray
    else:
        yield play_here


@asynccontextmanager
async def _asked(session: Session) -> AsyncIterator[None]:
    """While the lanes play: look at what the run is to find out."""
    question = session.question
    if question is None:
        yield
        return
    if not is_spread(session.resolved):
        for job in session.jobs:
            job.context.judge = question.judge
    lanes = PlayedLanes(
        jobs=session.jobs,
        gate=session.gate,
        forecast=session.forecast,
        stop=session.stop,
        spent=lambda: session.spent,
    )
    await question.begin(lanes, known=bool(session.holdings.episodes))
    watching = asyncio.get_running_loop().create_task(question.watch())
    try:
        yield
    finally:
        question.end()
        await watching


def _extended(old: Manifest, resolved: Resolved, directory: Path) -> Manifest:
    """The run's manifest with what the spec adds. Raises RunError, which names the settings that the run had before."""
    try:
        return merge(old, resolved.manifest, str(directory))
    except RunError as conflict:
        before = read_spec(directory)
        if before is None or before.settings == resolved.sweep.settings or not before.settings:
            raise
        words = " ".join(f"--set {shlex.quote(setting)}" for setting in before.settings)
        raise RunError(f"{conflict} The run was last played with {words}.") from None


def is_spread(resolved: Resolved) -> bool:
    """Whether other processes than this one play the run."""
    return resolved.sweep.workers > 1 or resolved.sweep.on != "here"


def _tell(options: RunOptions, phase: str) -> None:
    if options.phase is not None:
        options.phase(phase)


def _check_workers(resolved: Resolved, options: RunOptions) -> None:
    """Raises UsageError if several processes cannot play what is chosen."""
    if not is_spread(resolved):
        return
    if resolved.sweep.on == "ray":
        check_ray()
    coded = [name for name, agent in resolved.manifest.agents.items() if agent.code is not None]
    if any(not options.choice.agents or name in options.choice.agents for name in coded) or options.outside is not None:
        raise UsageError(
            f"Agents that are code, or that are played from outside, are played by one process alone"
            f"{': ' + ', '.join(coded) if coded else ''}. Leave out `--workers` (and `[machines]` in the sweep), or "
            "choose others with `--only agent=NAME`."
        )


def _repair(options: RunOptions) -> tuple[str, ...]:
    """Repair the log. Returns what was dropped, in sentences. Raises RunError if another process writes the run."""
    if is_bucket(options.directory):
        raise UsageError(
            "--repair: a run in a bucket is repaired on a disk: bring it there, then `--dir` with the copy."
        )

    def announce(repaired: Repair) -> None:
        if options.announce is not None:
            options.announce(repaired.lines())

    repaired = repair(options.directory, announce, check_rows)
    return tuple(repaired.lines()) if repaired.flaws else ()


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
        **({"set": list(sweep.settings)} if sweep.settings else {}),
    )


@asynccontextmanager
async def _endpoints(session: Session) -> AsyncIterator[Endpoints]:
    """Everything that asks, with the money of earlier sessions settled and this session's on the books."""
    options, store = session.options, session.store
    async with AsyncExitStack() as stack:
        endpoints = await open_endpoints(
            session.resolved,
            session.manifest,
            options.choice,
            stack,
            launch=options.launch,
            directory=options.place,
        )
        endpoints.outside, endpoints.right = options.outside, store.lead
        if endpoints.lanes:
            crashes = list(charge_crashes(session.accounts))
            # What a damaged log, or a bug, has lost of what was paid for: closed sessions know the sum.
            crashes += unaccounted(session.accounts)
            for row in crashes:
                store.enter(row)
            if not is_spread(session.resolved):  # else each worker is a session, and this one spends nothing
                store.enter(open_row(session.name))
            await store.durable()
            endpoints.budget = Budget(
                budget=session.resolved.sweep.budget,
                spent=session.spent_before,
                ledger=store,
                session=session.name,
                ceilings=_ceilings(session, crashes),
            )
        session.stop.wakes[session.name] = lambda: _wake(session, endpoints)
        try:
            yield endpoints
        except asyncio.CancelledError:
            # All players have ended, and each attempt that they left has its charge: nothing is in flight.
            _close(session, endpoints)
            raise
        _close(session, endpoints)


def _close(session: Session, endpoints: Endpoints) -> None:
    if endpoints.budget is not None and not is_spread(session.resolved):
        endpoints.budget.close()


def _ceilings(session: Session, crashes: Sequence[LedgerRecord]) -> dict[tuple[str, str], Ceiling]:
    """What single agents may spend, and what they have spent; `crashes` have just been charged."""
    sweep, holdings = session.resolved.sweep, session.holdings
    budgets = {("agent", agent.name): agent.budget for agent in sweep.agents if agent.budget is not None}
    if not budgets:
        return {}
    before = spent_below([*holdings.ledger, *crashes], holdings.cost_by_agent, session.manifest.agents)
    return {scope: Ceiling(budget=budget, before=before[scope]) for scope, budget in budgets.items()}


def _wake(session: Session, endpoints: Endpoints) -> None:
    """Stop the run: players that wait for a limit or for money leave; replies in flight are awaited."""
    error = LaneClosed(session.stop.message or f"The run stops ({session.stop.reason}).")
    for lane in endpoints.lanes.values():
        lane.end(error)
    if session.gate is not None:
        session.gate.end()
    if endpoints.budget is not None:
        endpoints.budget.end(error)


@contextmanager
def _timed(session: Session) -> Iterator[None]:
    """At the deadline players end after their durable step, and players that wait for a limit or for money leave."""
    deadline_s = session.resolved.sweep.deadline_s
    if deadline_s is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(
        deadline_s, session.stop.set, "deadline", f"The deadline of {span(deadline_s)} has passed."
    )
    try:
        yield
    finally:
        timer.cancel()


@asynccontextmanager
async def _watched(session: Session, show: Callable[[View], None]) -> AsyncIterator[None]:
    """While the lanes play: show the run regularly, to other processes too, and set the log's pace by the replies."""
    pace, directory = Pace(), session.options.place
    unmetered_before = session.unmetered_before
    time_left = TimeLeft(session.jobs, session.forecast, pace.began)

    loop = asyncio.get_running_loop()

    def look() -> View:
        return view_of(
            session.jobs,
            session.endpoints,
            session.resolved,
            pace,
            time_left=time_left,
            spent_before=session.spent_before,
            unmetered_before=unmetered_before,
            workers=session.workers,
            question=None if session.question is None else session.question.asked.to_json(),
        )

    assert session.endpoints is not None
    windows = WindowNotes(lanes=session.endpoints.lanes, event=session.store.event)

    async def watch() -> None:
        for number in count(1):
            due = loop.time() + SHOW_EVERY_S
            await asyncio.sleep(SHOW_EVERY_S)
            if not is_spread(session.resolved):
                _keep_pace(session, loop.time() - due)
            windows.look()
            view = look()
            show(view)
            await tell_others(directory, number, view)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        try:
            yield
            show(look())
        finally:
            watching.cancel()
            windows.look(last=True)
            withdraw(directory)


def _keep_pace(session: Session, late_s: float) -> None:
    """The log is told how soon the fastest replies come, lanes the loop's delay."""
    assert session.endpoints is not None
    for lane in session.endpoints.lanes.values():
        lane.late(late_s)
    medians = [lane.median_s for lane in session.endpoints.lanes.values()]
    known = [median for median in medians if median > 0]
    if known:
        session.store.pace(min(known))
