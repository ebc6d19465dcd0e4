"""Shows in a session's own lanes, jobs and budget what its workers report, so that displays and limits of the whole run
see one run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from evalkit.client.budget import RUN as RUN_SCOPE
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.stats import LaneStats, SeenElsewhere, together
from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.episode import ERRORS_THAT_STOP, LEFT_OWED, LaneContext
from evalkit.engine.forecast import Forecast
from evalkit.engine.machines.assigned import place_of
from evalkit.engine.machines.coordinator import Coordinator
from evalkit.engine.machines.dealt import Dealt
from evalkit.engine.machines.messages import RUN, FlightReport, LaneReport, Left, Renew
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.session import Session
from evalkit.engine.universe import PlannedEpisode
from evalkit.store.reading.unmetered import Unmetered

# What the coordinator deals: the episodes of a session's jobs, in admission order, as money and time allow.


class JobDealer:
    """Deals jobs' episodes to workers, and keeps the jobs' counts as if they were played here."""

    def __init__(
        self,
        jobs: Sequence[LaneJob],
        queue: AdmissionQueue | None,
        forecast: Forecast,
        judge: Callable[[PlannedEpisode, float | None], None] | None = None,
    ) -> None:
        """`judge`: told of each episode that has ended and its score, or None where nobody has made it yet."""
        self._jobs: Mapping[str, LaneJob] = {job.name: job for job in jobs}
        self._queue, self._forecast, self._judge = queue, forecast, judge
        self._dealt: dict[str, PlannedEpisode] = {}
        self._exhausted: set[str] = set()
        for job in jobs:
            if job.gate is not None:
                job.gate.enter(job.name)

    def episode(self, name: str) -> PlannedEpisode:
        """An episode that was dealt and not left, by its id."""
        return self._dealt[name]

    def deal(self, lane: str, most: int) -> list[Dealt]:
        """The lane's next episodes that may start now."""
        job = self._jobs[lane]
        if most <= 0 or lane in self._exhausted or job.context.stopping:
            return []
        asked = most if job.limit is None else min(most, job.limit - job.taken)
        room = asked if job.pace is None else min(asked, job.pace.room(lane))
        queue = self._queue if job.gate is not None else None
        episodes = list(islice(job.todo, room)) if queue is None else queue.several(lane, room)
        if (queue is None and len(episodes) < room) or len(episodes) == asked < most:  # none remains, or is asked for
            self._exhaust(job)
        job.taken += len(episodes)
        for episode in episodes:
            self._dealt[episode.id] = episode
            job.dealt[episode.cell_key] += 1
            if job.pace is not None:
                job.pace.started(episode)
        return [Dealt(id=episode.id, lane=lane, place=place_of(episode)) for episode in episodes]

    def remaining(self, lane: str) -> int:
        """Episodes of a lane that have not been dealt."""
        job = self._jobs[lane]
        if lane in self._exhausted:
            return 0
        return max(0, job.planned - job.done_before - job.broken_before - job.taken)

    def over(self, lane: str) -> bool:
        """Whether none of the lane's episodes will start any more."""
        job = self._jobs[lane]
        return (
            lane in self._exhausted
            or job.context.stopping
            or not self.remaining(lane)
            or (job.gate is not None and job.gate.over(lane))
        )

    def progress(self, came: Sequence[FlightReport]) -> None:
        """How far episodes in flight have come."""
        if self._queue is not None:
            self._queue.admission.reported(came)

    def left(self, episodes: Sequence[tuple[Dealt, Left]]) -> None:
        """A worker has left episodes, durably."""
        if self._queue is not None:
            self._queue.admission.left_all(
                [
                    (left.episode, left.how, (left.cost, left.requests))
                    for dealt, left in episodes
                    if self._jobs[dealt.lane].gate is not None
                ]
            )
        for dealt, left in episodes:
            self._left(self._jobs[dealt.lane], self._dealt.pop(left.episode), left)
        if self._queue is not None and episodes:
            self._queue.look()

    def _left(self, job: LaneJob, episode: PlannedEpisode, left: Left) -> None:
        context, cell_key, how = job.context, episode.cell_key, left.how
        owed = how in LEFT_OWED
        job.dealt[cell_key] -= 1
        if job.gate is None and not owed:
            self._forecast.learn(*cell_key, cost=left.cost, requests=left.requests)
        context.ended[how] = context.ended.get(how, 0) + 1
        if how == "internal_error":
            self._count_error(context)
        else:
            context.errors_in_a_row = 0
        if not owed and cell_key in job.cells:
            job.cells[cell_key].ended += 1
        if job.pace is not None:
            job.pace.left(episode, how)
        if owed:
            return
        if self._judge is not None:
            self._judge(episode, left.score)

    def _count_error(self, context: LaneContext) -> None:
        """As one process counts them: so many in a row stop the run, whichever workers they were in."""
        context.errors_in_a_row += 1
        if context.errors_in_a_row >= ERRORS_THAT_STOP:
            context.stop.set(
                "errors",
                f"{ERRORS_THAT_STOP} episodes in a row ended in an internal error: see `parked` in events.jsonl.",
            )

    def unplayed(self, dealt: Dealt) -> None:
        """An episode was dealt, and will not be played in this call."""
        job, episode = self._jobs[dealt.lane], self._dealt.pop(dealt.id)
        job.taken -= 1
        job.dealt[episode.cell_key] -= 1
        if job.pace is not None:
            job.pace.left(episode, "stopped")
        if job.gate is not None:
            job.gate.left(episode, "stopped")

    def look(self) -> None:
        """While nothing is in flight: see whether anything may start at all; if not, the queue says why."""
        if self._queue is not None and not self._queue.admission.in_flight:
            self._queue.look()

    def _exhaust(self, job: LaneJob) -> None:
        self._exhausted.add(job.name)
        if job.gate is not None:
            job.gate.leave(job.name)


@dataclass(slots=True)
class _Ended:
    """Sums of workers that have ended."""

    steps: Counter[str] = field(default_factory=Counter)
    charged: int = 0
    unmetered: Unmetered = field(default_factory=Unmetered)


class Mirror:
    """What the workers of a session report, in the session's objects."""

    def __init__(self, session: Session, endpoints: Endpoints, coordinator: Coordinator) -> None:
        self._session, self._endpoints, self._coordinator = session, endpoints, coordinator
        self._spent_before = {name: spent for name, spent, _ in coordinator.leases.spent()}
        self._ended = _Ended()

    def retire(self, writer: str) -> None:
        """Keep the sums of a worker that ends."""
        report = self._coordinator.members[writer].report
        if report is not None:
            self._ended.steps.update({name: lane.steps for name, lane in report.lanes.items()})
            self._ended.charged += report.charged
            self._ended.unmetered += report.unmetered

    def show(self, workers: str) -> None:
        """Show it now; `workers`: in words, how many there are."""
        reports = [member.report for member in self._coordinator.members.values() if member.report is not None]
        largest: dict[str, int] = {}
        for job in self._session.jobs:
            own = [report.lanes[job.name] for report in reports if job.name in report.lanes]
            context = job.context
            context.steps, context.playing = self._ended.steps[job.name], 0
            for lane in own:
                context.steps += lane.steps
                context.playing += lane.playing
            context.unavailable = _first([lane.unavailable for lane in own]) or context.unavailable
            context.refused = _first([lane.refused for lane in own]) or context.refused
            context.too_large = _first([lane.too_large for lane in own]) or context.too_large
            context.stopped = self._coordinator.agents_stopped.get(job.name, context.stopped)
            if job.lane is not None and own:
                largest[job.name] = max([lane.largest for lane in own])
                self._show_lane(job.lane, own, context.steps)
        self._show_money(reports, largest)
        self._session.workers = workers

    def _show_lane(self, lane: Lane, own: list[LaneReport], steps: int) -> None:
        if any(one.acted for one in own):
            lane.acted()
        lane.notice = _first([one.notice for one in own]) or lane.notice
        failures = Counter[str]()
        for one in own:
            if one.failures:
                failures.update(one.failures)
        lane.elsewhere = SeenElsewhere(
            proven=sum([one.proven for one in own]),
            stats=LaneStats(
                lane=lane.name,
                in_flight=sum([one.in_flight for one in own]),
                window=sum([one.window for one in own]),
                waiting=sum([one.waiting for one in own]),
                waits_for=_first([one.waits_for for one in own]),
                paused_s=max([one.paused_s for one in own]),
                trouble=_first([one.trouble for one in own]),
                ended=_first([one.ended for one in own]),
                requests=steps,
                input_tokens=0,
                output_tokens=0,
                requests_per_min=sum([one.requests_per_min for one in own]),
                input_tokens_per_min=sum([one.input_per_min for one in own]),
                output_tokens_per_min=sum([one.output_per_min for one in own]),
                median_latency_s=max([one.latency_s for one in own]),
                failures=failures,
                servers=together([one.servers for one in own]),
            ),
        )

    def _show_money(self, reports: list[Renew], largest: dict[str, int]) -> None:
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


def _first(words: list[str]) -> str:
    """The first that says something."""
    return next(filter(None, words), "")
