"""What the coordinator deals: the episodes of a session's jobs, in admission order, as money and time allow."""

from collections.abc import Callable, Mapping, Sequence

from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.admit.backlogs import Came
from evalkit.engine.episode import ERRORS_THAT_STOP, LEFT_OWED, LaneContext
from evalkit.engine.forecast import Forecast
from evalkit.engine.machines.assigned import place_of
from evalkit.engine.machines.dealt import Dealt
from evalkit.engine.machines.messages import FlightReport, Left
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.universe import PlannedEpisode


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
        self._came: dict[str, tuple[int, int]] = {}
        self._exhausted: set[str] = set()
        for job in jobs:
            if job.gate is not None:
                job.gate.enter(job.name)

    def episode(self, name: str) -> PlannedEpisode:
        """An episode that was dealt and not left, by its id."""
        return self._dealt[name]

    def deal(self, lane: str, most: int) -> list[Dealt]:
        """The lane's next episodes that may start now."""
        job, dealt = self._jobs[lane], list[Dealt]()
        while len(dealt) < most and lane not in self._exhausted and not job.context.stopping:
            if job.limit is not None and job.taken >= job.limit:
                self._exhaust(job)
                break
            # Nothing happens between two decisions of one block: predictions are looked at again before the first.
            queue = self._queue if job.gate is not None else None
            episode = next(job.todo, None) if queue is None else queue.next(lane, look=not dealt)
            if episode is None:
                if queue is None:
                    self._exhaust(job)
                break
            job.taken += 1
            self._dealt[episode.id] = episode
            job.dealt[episode.cell.agent.name, episode.suite.name] += 1
            if queue is not None:
                queue.admission.seated(episode.id, self._progress_of(episode.id, queue.admission.came(episode.id)))
            dealt.append(Dealt(id=episode.id, lane=lane, place=place_of(episode)))
        return dealt

    def _progress_of(self, name: str, began: tuple[int, int]) -> Came:
        return lambda: self._came.get(name, began)

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
        for one in came:
            self._came[one.episode] = one.cost, one.requests

    def left(self, dealt: Dealt, left: Left) -> None:
        """A worker has left an episode, durably."""
        job, episode = self._jobs[dealt.lane], self._dealt.pop(left.episode)
        context, place = job.context, (episode.cell.agent.name, episode.suite.name)
        job.dealt[place] -= 1
        self._came[left.episode] = left.cost, left.requests
        if job.gate is not None:
            job.gate.left(episode, left.how)
        elif left.how not in LEFT_OWED:
            self._forecast.learn(*place, cost=left.cost, requests=left.requests)
        del self._came[left.episode]
        context.ended[left.how] = context.ended.get(left.how, 0) + 1
        self._count_errors(context, left.how)
        if place in job.cells and left.how not in LEFT_OWED:
            job.cells[place].ended += 1
        if self._judge is not None and left.how not in LEFT_OWED:
            self._judge(episode, left.score)

    def _count_errors(self, context: LaneContext, how: str) -> None:
        """As one process counts them: so many in a row stop the run, whichever workers they were in."""
        context.errors_in_a_row = context.errors_in_a_row + 1 if how == "internal_error" else 0
        if context.errors_in_a_row >= ERRORS_THAT_STOP:
            context.stop.set(
                "errors",
                f"{ERRORS_THAT_STOP} episodes in a row ended in an internal error: see `parked` in events.jsonl.",
            )

    def unplayed(self, dealt: Dealt) -> None:
        """An episode was dealt, and will not be played in this call."""
        job, episode = self._jobs[dealt.lane], self._dealt.pop(dealt.id)
        job.taken -= 1
        job.dealt[episode.cell.agent.name, episode.suite.name] -= 1
        if job.gate is not None:
            job.gate.left(episode, "stopped")
        self._came.pop(dealt.id, None)

    def look(self) -> None:
        """While nothing is in flight: see whether anything may start at all; if not, the queue says why."""
        if self._queue is not None and not self._queue.admission.in_flight:
            self._queue.look()

    def _exhaust(self, job: LaneJob) -> None:
        self._exhausted.add(job.name)
        if job.gate is not None:
            job.gate.leave(job.name)
