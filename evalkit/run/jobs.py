"""What each lane of a session has to do, and the admission queue in front of those that cost money or time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from evalkit.client.budget import Budget
from evalkit.client.file_limit import make_room
from evalkit.client.lane import Lane
from evalkit.run.admission import Admission
from evalkit.run.admission_queue import AdmissionQueue
from evalkit.run.ceilings import Ceilings
from evalkit.run.endpoints import Endpoints
from evalkit.run.episode import LaneContext, Stop
from evalkit.run.forecast import forecast_run
from evalkit.run.lines import Line, Place
from evalkit.run.resume import order
from evalkit.run.scheduler import CellCount, LaneJob
from evalkit.run.session import Session
from evalkit.run.universe import Episode, episodes, lanes
from evalkit.store.manifest import ManifestAgent


async def make_jobs(session: Session, desk: Endpoints) -> list[LaneJob]:
    """The jobs of all chosen lanes; `session.gate` is set where a budget or a deadline holds them back."""
    sweep = session.resolved.sweep
    models = max(1, len(desk.lanes))
    room = make_room(sweep.width * models) // models
    if room < sweep.width:
        session.store.event("narrowed", width=sweep.width, room=room, why="the limit on open files")
    by_lane = lanes(session.resolved.manifest, session.options.choice)
    lines = {name: _line(session, name, agents) for name, agents in by_lane.items()}
    jobs = [_job(session, desk, line, min(room, sweep.width)) for line in lines.values()]
    gated = [job for job in jobs if job.lane is not None]
    bounded = sweep.bounded or sweep.deadline_s is not None
    if gated and desk.budget is not None and bounded:
        session.gate = await _gate(session, desk, desk.budget, [lines[job.name] for job in gated])
        for job in gated:
            job.gate = session.gate
    return jobs


def _line(session: Session, name: str, agents: list[ManifestAgent]) -> Line:
    options, holdings = session.options, session.holdings
    fresh, total, ended = Counter[Place](), 0, 0
    begun: dict[str, tuple[Place, int, int]] = {}
    for one in episodes(session.resolved.manifest, agents, options.choice):
        place = one.cell.agent.name, one.suite.name
        total += 1
        if not holdings.to_play(one, options.retry):
            ended += holdings.ended(one)
        elif holdings.started(one):
            held = holdings.episodes[one.id]
            begun[one.id] = (place, 0, 0) if held.ending else (place, held.cost, held.steps)
        else:
            fresh[place] += 1
    playing = fresh.total() + len(begun)
    return Line(
        name=name,
        todo=_todo(session, agents),
        total=total,
        planned=total - playing + (playing if options.limit is None else min(playing, options.limit)),
        ended=ended,
        broken=total - playing - ended,
        fresh=fresh,
        begun=begun,
    )


def _job(session: Session, desk: Endpoints, line: Line, width: int) -> LaneJob:
    lane = desk.lanes.get(line.name)
    if lane is not None and (line.ended or line.begun):
        lane.acted()  # earlier calls have had its replies: no canary is needed
    return LaneJob(
        name=line.name,
        width=max(1, min(width, line.left)),
        episodes=line.total,
        done_before=line.ended,
        broken_before=line.broken,
        todo=line.todo,
        sit=session.holdings.seat,
        asker=desk.asker,
        context=LaneContext(
            log=session.store,
            worker=session.name,
            stop=session.stop,
            lane_stop=Stop(),
            lane=lane,
        ),
        lane=lane,
        limit=session.options.limit,
        cells=_cells(session, line),
    )


def _cells(session: Session, line: Line) -> dict[Place, CellCount]:
    """How far each agent of the lane is on each suite, before anything is played."""
    manifest, choice = session.resolved.manifest, session.options.choice
    owed = line.fresh + Counter(place for place, *_ in line.begun.values())
    found = {}
    for suite in manifest.suites.values():
        planned = len(suite.instances) * manifest.replicates
        for agent in lanes(manifest, choice)[line.name] if choice.takes_suite(suite) else ():
            if suite.environment in agent.packs:
                place = agent.name, suite.name
                found[place] = CellCount(planned=planned, ended=planned - owed[place])
    return found


async def _gate(session: Session, desk: Endpoints, budget: Budget, lines: list[Line]) -> AdmissionQueue:
    clock, deadline_s = asyncio.get_running_loop().time, session.resolved.sweep.deadline_s
    held, directory = session.holdings, session.options.directory
    began = clock()
    forecast = await forecast_run(session.manifest, held.cells, directory, session.options.choice)

    def first_bound(episode: Episode) -> int:
        return 0 if episode.target.flaw else desk.worst_case(held.seat(episode))

    for line in lines:
        line.reply_s, line.bound = _median_s(desk.lanes[line.name]), _largest(budget, line.name)
    admission = Admission(
        forecast,
        lines,
        stats=budget.stats,
        clock=clock,
        deadline=None if deadline_s is None else began + deadline_s,
        first_bound=first_bound,
        ceilings=Ceilings(budget.ceilings()),
    )

    def over(why: str) -> None:
        session.cut = why

    return AdmissionQueue(admission, over=over)


def _median_s(lane: Lane) -> Callable[[], float]:
    return lambda: lane.stats().median_latency_s


def _largest(budget: Budget, lane: str) -> Callable[[], int]:
    return lambda: budget.largest(lane)


def _todo(session: Session, agents: list[ManifestAgent]) -> Iterator[Episode]:
    """What a lane has to play: started episodes first, each kind in admission order."""
    options = session.options
    for started in (True, False):
        everything = episodes(session.resolved.manifest, agents, options.choice)
        yield from order(everything, session.holdings, options.retry, started=started)
