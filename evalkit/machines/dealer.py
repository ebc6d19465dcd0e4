"""What the coordinator deals: the episodes of a session's jobs, in admission order, as money and time allow."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from evalkit.engine.episode import ERRORS_THAT_STOP, NOT_ENDED
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.session import Schedule
from evalkit.engine.universe import PlannedEpisode
from evalkit.machines.allocator import Dealt
from evalkit.machines.messages import FlightReport, Left


class JobDealer:
    """Deals jobs' episodes to workers, and keeps the jobs' counts as if they were played here."""

    def __init__(self, schedule: Schedule) -> None:
        self._jobs: Mapping[str, LaneJob] = {job.name: job for job in schedule.jobs}
        self._queue, self._forecast, self._question = schedule.admitter, schedule.forecast, schedule.question
        self._dealt: dict[str, PlannedEpisode] = {}
        self._exhausted: set[str] = set()
        for job in schedule.jobs:
            if job.admitter is not None:
                job.admitter.enter(job.name)

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
        queue = self._queue if job.admitter is not None else None
        episodes = list(islice(job.todo, room)) if queue is None else queue.several(lane, room)
        if (queue is None and len(episodes) < room) or len(episodes) == asked < most:  # none remains, or is asked for
            self._exhausted.add(lane)
            if job.admitter is not None:
                job.admitter.leave(lane)
        job.taken += len(episodes)
        for episode in episodes:
            self._dealt[episode.id] = episode
            job.dealt[episode.cell_key] += 1
            if job.pace is not None:
                job.pace.started(episode)
        return [
            Dealt(id=episode.id, place=(*episode.cell_key, episode.index, episode.replicate)) for episode in episodes
        ]

    def remaining(self, lane: str) -> int:
        """Episodes of a lane that may still be dealt."""
        job = self._jobs[lane]
        over = lane in self._exhausted or job.context.stopping or (job.admitter is not None and job.admitter.over(lane))
        return 0 if over else max(0, job.planned - job.done_before - job.broken_before - job.taken)

    def turns(self, lane: str) -> float:
        """Requests in a row before a lane has ended that mixes tiers; of another 0."""
        own = self._jobs[lane].lane
        return 0.0 if own is None or own.pace is None else own.pace.turns(asyncio.get_running_loop().time())

    def progress(self, came: Sequence[FlightReport]) -> None:
        """How far episodes in flight have come."""
        if self._queue is not None:
            self._queue.admission.reported(came)

    def left(self, episodes: Sequence[Left]) -> None:
        """A worker has left episodes, durably."""
        dealt = [(self._dealt.pop(left.episode), left) for left in episodes]
        if self._queue is not None and dealt:
            self._queue.admission.left_all(
                [
                    (left.episode, left.how, (left.cost, left.requests))
                    for episode, left in dealt
                    if self._job(episode).admitter is not None
                ]
            )
        for episode, left in dealt:
            self._left(self._job(episode), episode, left)
        if self._queue is not None and dealt:
            self._queue.look()

    def _left(self, job: LaneJob, episode: PlannedEpisode, left: Left) -> None:
        context, cell_key, how = job.context, episode.cell_key, left.how
        job.dealt[cell_key] -= 1
        context.ended[how] = context.ended.get(how, 0) + 1
        # As one process counts errors: so many in a row stop the run, whichever workers they were in.
        context.errors_in_a_row = context.errors_in_a_row + 1 if how == "internal_error" else 0
        if context.errors_in_a_row >= ERRORS_THAT_STOP:
            context.stop.set(
                "errors",
                f"{ERRORS_THAT_STOP} episodes in a row ended in an internal error: see `deferred` in events.jsonl.",
            )
        remaining = how in NOT_ENDED
        if not remaining and cell_key in job.cells:
            job.cells[cell_key].ended += 1
        if job.pace is not None:
            job.pace.left(episode, how)
        if remaining:
            return
        if job.admitter is None:
            self._forecast.learn(*cell_key, cost=left.cost, requests=left.requests)
        if self._question is not None:
            self._question.ended(episode, left.score)

    def unplayed(self, episode: str) -> None:
        """An episode was dealt, and will not be played in this call."""
        planned = self._dealt.pop(episode)
        job = self._job(planned)
        job.taken -= 1
        job.dealt[planned.cell_key] -= 1
        if job.pace is not None:
            job.pace.left(planned, "stopped")
        if job.admitter is not None:
            job.admitter.left(planned, "stopped")

    def look(self) -> None:
        """While nothing is in flight: see whether anything may start at all; if not, the queue says why."""
        if self._queue is not None and not self._queue.admission.in_flight:
            self._queue.look()

    def _job(self, episode: PlannedEpisode) -> LaneJob:
        return self._jobs[episode.cell.agent.lane]
