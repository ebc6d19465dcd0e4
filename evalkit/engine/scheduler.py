"""Play many episodes at once: each lane has players of its own, which pull episodes lazily. It knows neither models nor
disks.

A paused lane never blocks another lane's players, and only the episodes in flight are in memory.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from evalkit.client.ask import Asker
from evalkit.client.lanes.lane import Lane
from evalkit.client.outside import OutsideAsker
from evalkit.engine.episode import NOT_ENDED, ActiveEpisode, LaneContext, Player, play
from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.universe import PlannedEpisode


class Admitter(Protocol):
    """Lets episodes start in their order, as money and time allow or as another process deals them."""

    def next(self, lane: str) -> PlannedEpisode | None:
        """The lane's next episode if it may start now."""

    def over(self, lane: str) -> bool:
        """Whether none of the lane's episodes will start any more."""

    async def wait(self, lane: str) -> None:
        """Wait until the lane's next episode may start, or none will."""

    def activate(self, episode: PlannedEpisode, active: ActiveEpisode) -> None:
        """An episode was restored to its position in the log."""

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """An episode has ended, or was deferred."""

    def enter(self, lane: str) -> None:
        """A player starts."""

    def leave(self, lane: str) -> None:
        """A player has ended."""

    def held_by(self, lane: str) -> str:
        """What keeps the lane's next episode from starting, in a word."""


class PaceSetter(Protocol):
    """Holds lanes up whose agents would run ahead of those that they are compared with."""

    def room(self, lane: str) -> int:
        """How many episodes of a lane may start now."""

    async def wait(self, lane: str) -> None:
        """Wait until an episode of the lane may start, or none will."""

    def started(self, episode: PlannedEpisode) -> None:
        """An episode has started."""

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """It has ended, or was deferred."""


@dataclass(slots=True)
class CellCount:
    """The progress of one agent on one suite."""

    planned: int
    ended: int
    """Including earlier calls."""


@dataclass(slots=True, kw_only=True)
class LaneJob:
    """What one lane has to do."""

    name: str
    width: int
    """Episodes in flight at once."""
    episodes: int = 0
    """All that the sweep plans for the lane."""
    planned: int = 0
    """Of them, those that will have ended when this call has done what it is asked to (`--limit`)."""
    done_before: int = 0
    """Of them, those that have ended and are not to be played again."""
    todo: Iterator[PlannedEpisode] = field(default_factory=lambda: iter(()))
    """Shared by the lane's players: one loop, and next() does not await."""
    activate: Callable[[PlannedEpisode], ActiveEpisode]
    asker: Callable[[PlannedEpisode], Asker | Player]
    context: LaneContext
    lane: Lane | None = None
    """Admits episodes as its window opens; None: no restriction."""
    limit: int | None = None
    """End after so many episodes; None: play all."""
    admitter: Admitter | None = None
    """Lets episodes start as money and time allow, in the order of `todo`; None: no restriction."""
    pace: PaceSetter | None = None
    """None: nothing is asked."""
    cells: dict[tuple[str, str], CellCount] = field(default_factory=dict)
    """By agent and suite."""
    spared: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By agent and suite: episodes that will not be played, since all questions about them are answered."""
    dealt: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By agent and suite: episodes that other processes have and have not left."""
    taken: int = 0
    broken_before: int = 0
    """Of them, those that an internal error has stopped and that are not to be tried again."""

    @property
    def done(self) -> int:
        """Episodes that have ended, earlier calls included."""
        ended = self.context.ended
        return self.done_before + sum(count for ending, count in ended.items() if ending not in NOT_ENDED)

    @property
    def held_by(self) -> str:
        """What keeps its next episode from starting: `budget`, `deadline` or `partners`; empty: nothing that lanes
        share."""
        held = "" if self.admitter is None else self.admitter.held_by(self.name)
        return held or "partners" * (self.pace is not None and not self.pace.room(self.name))

    def dismiss(self, places: Collection[tuple[str, str]], playing: Mapping[tuple[str, str], int]) -> None:
        """The episodes of these agents on these suites will not be played, but for those in flight: `playing`."""
        for place, cell in self.cells.items():
            if place in places:
                rest = max(0, cell.planned - cell.ended - playing.get(place, 0))
                cell.planned -= rest
                self.planned = max(0, self.planned - rest)
                self.spared[place] += rest


async def play_lanes(jobs: Sequence[LaneJob]) -> None:
    """Play all lanes; return when every player has ended.

    A player ends when its lane has no more episodes or must stop. If we are cancelled, so are the players; the
    caller's `with store:` then drains.
    """
    with seldom_collected():
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                for number in range(job.width):
                    group.create_task(_player(job), name=f"{job.name} {number}")


async def _player(job: LaneJob) -> None:
    if job.admitter is not None:
        job.admitter.enter(job.name)
    try:
        while not _over(job):
            if not await _play_next(job):
                if job.pace is not None and not job.pace.room(job.name):
                    await job.pace.wait(job.name)
                elif job.admitter is None or job.admitter.over(job.name):
                    return
                else:
                    await job.admitter.wait(job.name)
    finally:
        if job.admitter is not None:
            job.admitter.leave(job.name)


def _over(job: LaneJob) -> bool:
    return job.context.stopping or (job.limit is not None and job.taken >= job.limit)


async def _play_next(job: LaneJob) -> bool:
    """Whether there was an episode that could be played now."""
    if job.lane is None:
        return await _play_one(job)
    try:
        await job.lane.join()
        return not _over(job) and await _play_one(job)
    finally:
        job.lane.part()


async def _play_one(job: LaneJob) -> bool:
    admitter, pace = job.admitter, job.pace
    if pace is not None and not pace.room(job.name):
        return False
    episode = next(job.todo, None) if admitter is None else admitter.next(job.name)
    if episode is None:
        return False
    job.taken += 1
    if pace is not None:
        pace.started(episode)
    asker = job.asker(episode)
    left = await play(
        episode, job.activate if admitter is None else partial(_activate, job, admitter), asker, job.context
    )
    if isinstance(asker, OutsideAsker):
        asker.left(episode.id)
    if admitter is not None:
        admitter.left(episode, left)
    cell = job.cells.get((episode.cell.agent.name, episode.suite.name))
    if cell is not None and left not in NOT_ENDED:
        cell.ended += 1
    if pace is not None:
        pace.left(episode, left)
    return True


def _activate(job: LaneJob, admitter: Admitter, episode: PlannedEpisode) -> ActiveEpisode:
    active = job.activate(episode)
    admitter.activate(episode, active)
    return active
