"""One call of `run` in three values, each complete when it is made: what was opened, what it plays with, and what it
has to play."""

import asyncio
import math
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from evalkit.client.budget import Budget
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.tier_pace import TierPace
from evalkit.engine.admit.admission import Admission
from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.admit.backlogs import LaneBacklog, Place
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.episode import ActiveEpisode, LaneContext
from evalkit.engine.forecast import Forecast
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.resume import KINDS, Holdings, order
from evalkit.engine.scheduler import CellCount, LaneJob
from evalkit.engine.time_left import remaining_of, rest_of
from evalkit.engine.universe import PlannedEpisode, RunPart, lanes
from evalkit.frozen.manifest import Manifest, ManifestAgent
from evalkit.money import PicoUsd
from evalkit.store.reading.accounts import Account, spent
from evalkit.store.reading.unmetered import UnmeteredReplies
from evalkit.store.writing.writer import Store

if TYPE_CHECKING:  # statistics come with it
    from evalkit.engine.question import LiveQuestion, OpenQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a run, opened: its log is this process's to write, and what it holds is known."""

    name: str
    """Host, pid and time: the worker of its rows, the session of its money."""
    resolved: ResolvedSweep
    options: RunOptions
    manifest: Manifest
    store: Store
    stop: Stop
    holdings: Holdings
    accounts: dict[str, Account]
    began: float
    """In the loop's time."""
    question: "OpenQuestion | None" = None
    """What the run is to find out; None: it plays all that it plans."""

    @property
    def is_spread(self) -> bool:
        """Whether other processes than this one play it."""
        return self.resolved.sweep.is_spread

    @property
    def spent_before(self) -> PicoUsd:
        """What all earlier sessions have spent: steps and charges, crash charges included."""
        return spent(self.holdings.cost, self.accounts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a session plays with, once it is ready: everything that answers, and the money on its books."""

    session: Session
    endpoints: Endpoints
    forecast: Forecast
    """What its episodes are expected to take; without a budget or a deadline, what ended ones took."""


@dataclass(slots=True, kw_only=True)
class Schedule:
    """What a session has to play."""

    session: Session
    budget: Budget | None
    """None: it has no model to pay for."""
    forecast: Forecast
    jobs: Sequence[LaneJob]
    admitter: AdmissionQueue | None
    """Where lanes of models wait for money and time; None: there is no budget and no deadline."""
    workers: str = ""
    """In words, how many processes play it now; empty: this one alone."""
    question: "LiveQuestion | None" = field(init=False)
    """What is found out meanwhile."""

    def __post_init__(self) -> None:
        asked = self.session.question
        self.question = (
            None if asked is None else asked.live(self.jobs, self.admitter, self.forecast, lambda: self.spent)
        )

    @property
    def spent(self) -> PicoUsd:
        """What all sessions have spent, with what this one has."""
        return self.session.spent_before if self.budget is None else PicoUsd(self.budget.stats().spent)

    @property
    def unmetered(self) -> UnmeteredReplies:
        """Replies without usage of all sessions, with this one's."""
        own = UnmeteredReplies() if self.budget is None else self.budget.stats().unmetered
        return self.session.holdings.unmetered + own


# The jobs of each lane of a session, and the admission queue for episodes that cost money or time. First, room for
# connections: the file-descriptor limit, raised towards what a run's width needs.

OPENS_WITHIN = 4
"""Replies for each place of a lane's width, within which its window opens, roughly."""
KEPT = 64
"""Descriptors for everything except connections: log, libraries, terminal."""


def make_room(in_flight: int) -> int:
    """Raise the soft limit for `in_flight` requests; returns how many there is room for, at most `in_flight`.

    Two descriptors per request: a connection may be closing while its successor opens.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * in_flight + KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        except (ValueError, OSError):  # macOS refuses more than its kernel's own limit, whatever `hard` says
            raised = soft
        soft = max(soft, raised)
    if soft == resource.RLIM_INFINITY:
        return in_flight
    return max(1, min(in_flight, (soft - KEPT) // 2))


def make_schedule(ready: Resources) -> Schedule:
    """The jobs of all chosen lanes, and what holds them back where there is a budget or a deadline."""
    session, endpoints, forecast = ready.session, ready.endpoints, ready.forecast
    sweep = session.resolved.sweep
    # An episode of an agent that is code may have several requests in flight.
    parallel = max(
        (agent.code.parallel for agent in session.resolved.manifest.agents.values() if agent.code), default=1
    )
    models = max(1, len(endpoints.lanes)) * parallel
    room = max(1, make_room(sweep.width * models) // models)
    if room < sweep.width:
        session.store.event("narrowed", width=sweep.width, room=room, why="the limit on open files")
    by_lane = lanes(session.resolved.manifest, session.options.choice)
    backlogs = {name: _backlog(session, name, agents) for name, agents in by_lane.items()}
    jobs = [_job(session, endpoints, backlog, min(room, sweep.width)) for backlog in backlogs.values()]
    admitted, admitter = [job for job in jobs if job.lane is not None], None
    if admitted and endpoints.budget is not None and (sweep.bounded or sweep.deadline_s is not None):
        admitter = _admitter(ready, endpoints.budget, [backlogs[job.name] for job in admitted])
        for job in admitted:
            job.admitter = admitter
    for job in jobs:
        if job.admitter is None:  # else the admitter learns
            job.context.learn = partial(_learn, forecast)
    if admitter is not None:
        for job in admitted:
            _set_pace(ready, job, backlogs[job.name], admitter.admission)
    return Schedule(session=session, budget=endpoints.budget, forecast=forecast, jobs=jobs, admitter=admitter)


def _set_pace(ready: Resources, job: LaneJob, backlog: LaneBacklog, admission: Admission) -> None:
    """Under a deadline, have a lane choose between a slow tier and the next one of a list, by all of its episodes,
    whichever process plays them."""
    lane, flying = job.lane, job.context.flying
    if lane is None or not ready.session.resolved.mixes(job.name):
        return

    def remaining() -> tuple[float, float, int]:
        requests, longest = remaining_of(job, ready.forecast, admission.flying(job.name))
        doubt = max((ready.forecast.uncertainty(*place) for place in job.cells), default=0.0)
        # Until its window has opened, the lane plays less than its width: that is assumed first, then what is seen.
        most, seen = min(job.width, max(1, job.planned - job.done)), job.context.playing
        width = seen + max(0, most - seen) * math.exp(-job.context.steps / (OPENS_WITHIN * most))
        return requests * (1 + doubt), longest, round(width)

    def rest(episode: str) -> float:
        active = flying.get(episode)
        return 1.0 if active is None else rest_of(active, ready.forecast)

    lane.pace = TierPace(lane.deadline, remaining, rest)
    backlog.quick_s = partial(getattr, lane.pace.quick, "mean_s")


def _learn(forecast: Forecast, active: ActiveEpisode) -> None:
    episode = active.episode
    forecast.learn(episode.cell.agent.name, episode.suite.name, cost=active.cost, requests=active.position.step)


def _backlog(session: Session, name: str, agents: list[ManifestAgent]) -> LaneBacklog:
    """What a lane has to start: counted from sizes and from what the log holds, not from what is still to be played."""
    options, holdings = session.options, session.holdings
    share = RunPart(manifest=session.resolved.manifest, agents=agents, choice=options.choice)
    retried = holdings.begun(share, options.retry)
    begun = {
        name: ((progress.agent, progress.suite), 0, 0)
        if progress.ended
        else ((progress.agent, progress.suite), progress.cost, progress.steps)
        for name, progress in retried.items()
    }
    known, ended = _known(session, share)
    fresh, total = Counter[Place](), 0
    for agent, suite in share.places:
        cell_key, planned = (agent.name, suite.name), len(suite.instances) * len(share.replicates)
        total += planned
        fresh[cell_key] = max(0, planned - known[cell_key])
    fresh -= Counter(_given_up(session, share))
    playing = fresh.total() + len(begun)
    ended -= sum(progress.ended for progress in retried.values())
    return LaneBacklog(
        name=name,
        todo=_todo(session, share, fresh.total()),
        total=total,
        planned=total - playing + (playing if options.limit is None else min(playing, options.limit)),
        ended=ended,
        broken=total - playing - ended,
        fresh=fresh,
        begun=begun,
    )


def _known(session: Session, share: RunPart) -> tuple[Counter[Place], int]:
    """(by agent and suite, episodes that the log knows; how many of all have ended)."""
    holdings = session.holdings
    if len(share.replicates) < session.manifest.replicates:  # less is asked for than the run has
        in_share = [
            progress
            for progress in holdings.episodes.values()
            if share.holds(progress.agent, progress.suite, progress.replicate)
        ]
        return Counter((progress.agent, progress.suite) for progress in in_share), sum(
            progress.ended for progress in in_share
        )
    cells = {cell_key: holdings.cells.get(cell_key) for cell_key in ((a.name, s.name) for a, s in share.places)}
    begun = Counter({cell_key: cell.begun for cell_key, cell in cells.items() if cell is not None})
    return begun, sum(cell.ended for cell in cells.values() if cell is not None)


def _given_up(session: Session, share: RunPart) -> Iterator[Place]:
    """Of episodes without a row in the log, where those are that an internal error has stopped."""
    holdings, places = session.holdings, {(agent.name, suite.name) for agent, suite in share.places}
    for name, (agent, suite, replicate) in holdings.broken.items():
        in_share = (agent, suite) in places and replicate in share.replicates
        if in_share and name not in holdings.episodes and not holdings.to_play(name, session.options.retry):
            yield agent, suite


def _job(session: Session, endpoints: Endpoints, backlog: LaneBacklog, width: int) -> LaneJob:
    lane = endpoints.lanes.get(backlog.name)
    if lane is not None and (backlog.ended or backlog.begun):
        lane.acted()  # earlier calls have had its replies: no trial is needed
    return LaneJob(
        name=backlog.name,
        width=max(1, min(width, backlog.left)),
        episodes=backlog.total,
        planned=backlog.planned,
        done_before=backlog.ended,
        broken_before=backlog.broken,
        todo=backlog.todo,
        activate=session.holdings.activate,
        asker=endpoints.asker,
        context=LaneContext(
            log=session.store,
            worker=session.name,
            stop=session.stop,
            lane=lane,
        ),
        lane=lane,
        limit=session.options.limit,
        cells=_cells(session, backlog),
    )


def _cells(session: Session, backlog: LaneBacklog) -> dict[Place, CellCount]:
    """How far each agent of the lane is on each suite, before anything is played."""
    manifest, choice = session.resolved.manifest, session.options.choice
    remaining = backlog.fresh + Counter(cell_key for cell_key, *_ in backlog.begun.values())
    counts = {}
    for suite in manifest.suites.values():
        planned = len(suite.instances) * len(choice.replicates(manifest))
        for agent in lanes(manifest, choice)[backlog.name] if choice.takes_suite(suite) else ():
            if suite.environment in agent.packs:
                cell_key = agent.name, suite.name
                counts[cell_key] = CellCount(planned=planned, ended=planned - remaining[cell_key])
    return counts


def _admitter(ready: Resources, budget: Budget, backlogs: list[LaneBacklog]) -> AdmissionQueue:
    session, endpoints = ready.session, ready.endpoints
    clock, deadline_s = asyncio.get_running_loop().time, session.resolved.sweep.deadline_s
    most = session.resolved.sweep.budget

    def first_bound(episode: PlannedEpisode) -> int:
        return endpoints.expected_bound(session.holdings.activate(episode), most)

    for backlog in backlogs:
        backlog.reply_s = partial(_median_s, endpoints.lanes[backlog.name])
        backlog.bound = partial(budget.largest, backlog.name)
    return AdmissionQueue(
        Admission(
            ready.forecast,
            backlogs,
            stats=budget.stats,
            clock=clock,
            deadline=None if deadline_s is None else clock() + deadline_s,
            first_bound=first_bound,
            ceilings=budget.ceilings(),
        )
    )


def _median_s(lane: Lane) -> float:
    return lane.stats().median_latency_s


def _todo(session: Session, share: RunPart, fresh: int) -> Iterator[PlannedEpisode]:
    """What a lane has to play: kind by kind, each in admission order; no look beyond the last."""
    holdings, retry, question = session.holdings, session.options.retry, session.question
    for kind in KINDS:
        if kind != "fresh" or fresh:  # of a lane that is complete nothing is looked at
            remaining = order(share, holdings, retry, kind)
            if question is not None:
                remaining = (episode for episode in remaining if episode.cell_key not in question.dismissed)
            yield from remaining
