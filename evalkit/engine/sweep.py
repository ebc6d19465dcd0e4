"""What one session of a run does, from the open log to its outcome.

What crashed sessions had leased is charged, then the lanes play. Nothing is sent before all of that is durable.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from evalkit.client.budget import Budget
from evalkit.client.budget_state import Ceiling
from evalkit.engine.ending import outcome_of
from evalkit.engine.endpoints import Endpoints, WindowNotes, open_endpoints
from evalkit.engine.forecast import Forecast, learn_all
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.freezing.keeping import kept
from evalkit.engine.loop import interruptible
from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.resume import read_holdings
from evalkit.engine.scheduler import play_lanes
from evalkit.engine.session import Resources, Schedule, Session, make_schedule
from evalkit.engine.spending.money import open_row, spent_below
from evalkit.engine.stand_in import forecast_run, tier_times
from evalkit.engine.time_left import TimeLeft
from evalkit.engine.view import Pace, View, view_of
from evalkit.errors import UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import keep_spec, write_manifest
from evalkit.frozen.question_files import write_frozen
from evalkit.store.bucket import is_bucket
from evalkit.store.files.journal import new_writer
from evalkit.store.files.layout import journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.live import publish, withdraw
from evalkit.store.reading.accounts import accounts, charge_crashes, unaccounted
from evalkit.store.recovery.repair import Repair, repair
from evalkit.store.writing.writer import open_store
from evalkit.text import span

if TYPE_CHECKING:
    from evalkit.engine.question import SweepQuestion


Machines = Callable[[Resources, Schedule], AbstractAsyncContextManager[Callable[[], Awaitable[None]]]]
"""What plays a schedule in other processes: its context lasts while they can come."""
SHOW_EVERY_S = 0.25
"""How often a run is looked at while it is played."""
PUBLISH_EVERY, PUT_EVERY = 2, 20
"""Looks at the run for each that other processes are shown: on a disk, and in a bucket, where each is a request."""


async def play_sweep(
    resolved: ResolvedSweep,
    options: RunOptions,
    show: Callable[[View], None],
    *,
    old: Manifest | None,
    manifest: Manifest,
    asking: "SweepQuestion | None",
    machines: Machines | None,
) -> RunOutcome:
    """Play what a run lacks. Returns how it ended.

    old       the run's manifest as it is on disk; None: the run is new
    manifest  the same with what the sweep adds
    asking    what the sweep asks; None: nothing
    machines  None: this process plays

    Raises RunError, before anything is written, if it cannot be run as asked; CorruptLogError for a damaged log;
    StorageError if the disk refuses to write.
    """
    directory, place = options.directory, options.place
    loop = asyncio.get_running_loop()
    name = new_writer(list(journals(directory)))
    repaired = _repair(options) if options.repair and old is not None else ()
    stop = options.stop or Stop()
    with open_store(place, session=name) as store:
        for line in repaired:
            store.event("repaired", detail=line)
        coded = any(agent.code for agent in (old or resolved.manifest).agents.values())
        holdings = read_holdings(place, options.retry, store.found, coded=coded, keep_facts=asking is not None)
        asked = None if asking is None else asking.settled(directory, ended=holdings.ended_in_all)
        if old is None or manifest != old:
            manifest = write_manifest(directory, manifest)
            resolved = replace(resolved, manifest=kept(manifest, resolved.manifest))
        if asked is not None and asked[1]:
            write_frozen(directory, asked[0])
        if resolved.sweep.written:
            sweep = resolved.sweep
            keep_spec(directory, sweep.written, sweep.source, sweep.settings)
        session = Session(
            name=name,
            resolved=resolved,
            options=options,
            manifest=manifest,
            store=store,
            stop=stop,
            holdings=holdings,
            accounts=accounts(holdings.ledger, holdings.cost_by_worker),
            began=loop.time(),
            question=None
            if asking is None or asked is None
            else asking.opened(manifest, asked[0], place, store, stop, play_all=options.play_all),
        )
        _log_start(session)
        outcome = outcome_of(await _play(session, show, machines))
        store.event("ended", **outcome.to_json())
    return outcome


async def _play(session: Session, show: Callable[[View], None], machines: Machines | None) -> Schedule:
    """Returns what was to be played, once it has been or nothing may be any more."""
    schedule = Schedule(session=session, budget=None, forecast=Forecast(), jobs=(), admitter=None)
    try:
        with interruptible(session.stop) if session.options.stop is None else nullcontext():
            session.options.tell("opening connections, and starting simulated providers")
            async with _endpoints(session) as endpoints:
                session.options.tell("forecasting what episodes take")
                ready = Resources(session=session, endpoints=endpoints, forecast=await _forecast(session, endpoints))
                schedule = make_schedule(ready)
                here = nullcontext(partial(play_lanes, schedule.jobs))
                async with here if machines is None else machines(ready, schedule) as play:
                    with _stoppable(ready, schedule), _timed(session):
                        async with _watched(ready, schedule, show), _asked(schedule):
                            await play()
    except asyncio.CancelledError:
        if session.stop.reason != "interrupt":
            raise
    return schedule


async def _forecast(session: Session, endpoints: Endpoints) -> Forecast:
    """What its episodes are expected to take. Raises CorruptLogError."""
    sweep, options, cells = session.resolved.sweep, session.options, session.holdings.cells
    if endpoints.budget is not None and (sweep.bounded or sweep.deadline_s is not None):
        forecast = await forecast_run(session.manifest, cells, options.place, options.choice)
        _price_by_tiers(session, forecast)
        return forecast
    forecast = Forecast()
    learn_all(forecast, session.manifest, cells)
    return forecast


def _price_by_tiers(session: Session, forecast: Forecast) -> None:
    """Until episodes have ended, each is expected to cost what it does by its first tier; under a deadline by the last
    one, which time may need."""
    agents, endpoints = session.manifest.agents, session.resolved.endpoints
    for name, suite in list(forecast.priors):
        prior, endpoint = forecast.priors[name, suite], endpoints.get(name)
        if endpoint is not None:
            tier = endpoint.tiers[0 if session.resolved.sweep.deadline_s is None else -1]
            forecast.scale(name, suite, price=tier_times(agents[name], tier, prior.tokens_in, prior.tokens_out))


@asynccontextmanager
async def _asked(schedule: Schedule) -> AsyncIterator[None]:
    """While the lanes play: look at what the run is to find out."""
    session, question = schedule.session, schedule.question
    if question is None:
        yield
        return
    if not session.is_spread:
        for job in schedule.jobs:
            job.context.judge = question.judge
    await question.begin(known=bool(session.holdings.episodes))
    watching = asyncio.get_running_loop().create_task(question.watch())
    try:
        yield
    finally:
        question.end()
        await watching


def _repair(options: RunOptions) -> tuple[str, ...]:
    """Repair the log. Returns what was dropped, in sentences. Raises RunError if another process writes the run."""
    if is_bucket(options.directory):
        raise UsageError(
            "--repair: a run in a bucket is repaired on a disk: bring it there, then `--dir` with the copy."
        )

    def announce(repaired: Repair) -> None:
        if options.announce is not None:
            options.announce(repaired.lines())

    from evalkit.results.verify import check_rows  # it replays episodes: only a repair does

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
        budget = None
        if endpoints.lanes:
            crashes = list(charge_crashes(session.accounts))
            # What a damaged log, or a bug, has lost of what was paid for: closed sessions know the sum.
            crashes += unaccounted(session.accounts)
            for row in crashes:
                store.enter(row)
            if not session.is_spread:  # else each worker is a session, and this one spends nothing
                store.enter(open_row(session.name))
            await store.durable()
            budget = Budget(
                budget=session.resolved.sweep.budget,
                spent=session.spent_before,
                ledger=store,
                session=session.name,
                ceilings=_ceilings(session, crashes),
            )
        try:
            yield replace(endpoints, budget=budget, outside=options.outside, permission=store.lead)
        except asyncio.CancelledError:
            # All players have ended, and each attempt that they left has its charge: nothing is in flight.
            _close(session, budget)
            raise
        _close(session, budget)


def _close(session: Session, budget: Budget | None) -> None:
    if budget is not None and not session.is_spread:
        budget.close()


def _ceilings(session: Session, crashes: Sequence[LedgerRecord]) -> dict[tuple[str, str], Ceiling]:
    """What single agents may spend, and what they have spent; `crashes` have just been charged."""
    sweep, holdings = session.resolved.sweep, session.holdings
    budgets = {("agent", agent.name): agent.budget for agent in sweep.agents if agent.budget is not None}
    if not budgets:
        return {}
    before = spent_below([*holdings.ledger, *crashes], holdings.cost_by_agent, session.manifest.agents)
    return {scope: Ceiling(budget=budget, before=before[scope]) for scope, budget in budgets.items()}


@contextmanager
def _stoppable(ready: Resources, schedule: Schedule) -> Iterator[None]:
    """When the run is to stop, players that wait for a limit or for money leave; replies in flight are awaited."""
    stop = schedule.session.stop

    def wake() -> None:
        ready.endpoints.end(stop)
        if schedule.admitter is not None:
            schedule.admitter.end()

    leave = stop.listen(wake)
    try:
        yield
    finally:
        leave()


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
async def _watched(ready: Resources, schedule: Schedule, show: Callable[[View], None]) -> AsyncIterator[None]:
    """While the lanes play: show the run regularly, to other processes too, and set the log's pace by the replies."""
    session, endpoints = schedule.session, ready.endpoints
    pace, directory = Pace(), session.options.place
    in_bucket = is_bucket(directory)
    time_left = TimeLeft(schedule.jobs, schedule.forecast, pace.began)

    loop = asyncio.get_running_loop()

    def look() -> View:
        return view_of(
            schedule.jobs,
            endpoints,
            session.resolved,
            pace,
            time_left=time_left,
            spent_before=session.spent_before,
            unmetered_before=session.holdings.unmetered,
            workers=schedule.workers,
            question=None if schedule.question is None else schedule.question.asked.to_json(),
        )

    windows = WindowNotes(lanes=endpoints.lanes, event=session.store.event)

    async def watch() -> None:
        for number in count(1):
            due = loop.time() + SHOW_EVERY_S
            await asyncio.sleep(SHOW_EVERY_S)
            if not session.is_spread:
                _keep_pace(ready, loop.time() - due)
            windows.look()
            view = look()
            show(view)
            if in_bucket and number % PUT_EVERY == 0:
                await asyncio.to_thread(publish, directory, view.published())
            elif not in_bucket and number % PUBLISH_EVERY == 0:
                publish(directory, view.published())

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        try:
            yield
            show(look())
        finally:
            watching.cancel()
            windows.look(last=True)
            withdraw(directory)


def _keep_pace(ready: Resources, late_s: float) -> None:
    """The log is told how soon the fastest replies come, lanes the loop's delay."""
    lanes = ready.endpoints.lanes.values()
    for lane in lanes:
        lane.late(late_s)
    known = [lane.median_s for lane in lanes if lane.median_s > 0]
    if known:
        ready.session.store.pace(min(known))
