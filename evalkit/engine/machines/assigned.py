"""The episodes that a worker was assigned, as the queue that its players draw from."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from evalkit.engine.episode import LEFT_OWED, ActiveEpisode, final_score
from evalkit.engine.machines.messages import EpisodePlace, FlightReport, Left
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import AgentSetup, PlannedEpisode, cells
from evalkit.frozen.manifest import Manifest
from evalkit.spec.identity import episode_id
from evalkit.waiting import WaitQueue


@dataclass(slots=True)
class _Playing:
    """An episode that a player has taken."""

    before: tuple[int, int]
    active: ActiveEpisode | None = None

    def came(self) -> tuple[int, int]:
        """Pico-dollars and requests."""
        return self.before if self.active is None else (self.active.cost, self.active.position.step)


@dataclass(slots=True)
class _AssignedLane:
    waiting: deque[PlannedEpisode] = field(default_factory=deque)
    players: WaitQueue[None, None] = field(default_factory=WaitQueue[None, None])


class AssignedEpisodes:
    """A worker's gate (`engine/scheduler.py`): the coordinator deals, and hears what became of each."""

    def __init__(
        self, manifest: Manifest, holdings: Holdings, lanes: Iterable[str], *, low: Callable[[], None]
    ) -> None:
        """`low`: called when a lane has a player and no episode for it."""
        self._manifest, self._holdings, self._low = manifest, holdings, low
        self._cells: Mapping[tuple[str, str], AgentSetup] = cells(manifest)
        self._lanes = {lane: _AssignedLane() for lane in lanes}
        self._playing: dict[str, _Playing] = {}
        self._left: list[Left] = []
        self._closed = False

    def take(self, lane: str, places: Iterable[EpisodePlace]) -> None:
        """Further episodes of a lane."""
        queue = self._lanes[lane]
        queue.waiting.extend(map(self._episode, places))
        for _ in range(len(queue.waiting)):
            first = queue.players.head()
            if first is None:
                return
            queue.players.grant(first, None)

    def give_back(self, lane: str, most: int | None = None) -> list[str]:
        """Episodes of a lane that no player has taken, the last ones first; they are not this worker's any more."""
        waiting = self._lanes[lane].waiting
        count = len(waiting) if most is None else min(most, len(waiting))
        return [waiting.pop().id for _ in range(count)]

    def queued(self, lane: str) -> int:
        """Episodes of a lane that no player has taken."""
        return len(self._lanes[lane].waiting)

    def reports(self) -> list[Left]:
        """The episodes that were left since the last call."""
        left, self._left = self._left, []
        return left

    def progress(self) -> list[FlightReport]:
        """Of the episodes in flight."""
        return [FlightReport(name, *playing.came()) for name, playing in self._playing.items()]

    def end(self) -> None:
        """Nothing will come any more: players end when their lane's queue is empty."""
        self._closed = True
        for queue in self._lanes.values():
            queue.players.grant_all(None)

    # What players use.

    def next(self, lane: str) -> PlannedEpisode | None:
        """The lane's next episode."""
        waiting = self._lanes[lane].waiting
        if not waiting:
            self._low()
            return None
        episode = waiting.popleft()
        logged = self._holdings.episodes.get(episode.id)
        begun = logged is not None and not logged.ended
        self._playing[episode.id] = _Playing((logged.cost, logged.steps) if logged is not None and begun else (0, 0))
        return episode

    def over(self, lane: str) -> bool:
        """Whether none of the lane's episodes will start any more."""
        return self._closed and not self._lanes[lane].waiting

    async def wait(self, lane: str) -> None:
        """Wait for an episode, or for the end."""
        queue = self._lanes[lane]
        if not queue.waiting and not self._closed:
            await queue.players.wait(None)

    def activate(self, episode: PlannedEpisode, active: ActiveEpisode) -> None:
        """An episode was restored to its position in the log."""
        playing = self._playing[episode.id]
        active.cost, playing.active = playing.before[0], active

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """An episode has ended, or was parked."""
        playing = self._playing.pop(episode.id)
        cost, requests = playing.came()
        score = final_score(playing.active) if playing.active is not None and how not in LEFT_OWED else None
        self._left.append(Left(episode.id, how, cost, requests, score))

    def enter(self, lane: str) -> None:
        """A player starts."""

    def leave(self, lane: str) -> None:
        """A player has ended."""

    def held_by(self, lane: str) -> str:
        """Nothing: whoever deals has decided that it may start."""
        del lane
        return ""

    def _episode(self, place: EpisodePlace) -> PlannedEpisode:
        suite = self._manifest.suites[place.suite]
        cell, target = self._cells[place.agent, suite.environment], suite.instances[place.index]
        name = episode_id(cell.key, target.digest, place.replicate)
        return PlannedEpisode(
            id=name,
            cell=cell,
            suite=suite,
            target=target,
            replicate=place.replicate,
            index=place.index,
            cell_key=(place.agent, place.suite),
        )


def place_of(episode: PlannedEpisode) -> EpisodePlace:
    """An episode by its position."""
    return EpisodePlace(*episode.cell_key, episode.index, episode.replicate)
