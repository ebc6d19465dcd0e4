"""The episodes that a worker was assigned, as the queue that its players draw from."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from evalkit.engine.episode import NOT_ENDED, ActiveEpisode, final_score
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import PlannedEpisode, cells
from evalkit.frozen.manifest import Manifest
from evalkit.machines.messages import EpisodePlace, FlightReport, Left
from evalkit.spec.identity import episode_id
from evalkit.waiting import WaitQueue


@dataclass(slots=True)
class _AssignedLane:
    waiting: deque[PlannedEpisode] = field(default_factory=deque)
    players: WaitQueue[None, None] = field(default_factory=WaitQueue[None, None])


class AssignedEpisodes:
    """A worker's admitter (`engine/scheduler.py`): the coordinator deals, and hears what became of each."""

    def __init__(
        self, manifest: Manifest, holdings: Holdings, lanes: Iterable[str], *, low: Callable[[], None]
    ) -> None:
        """`low`: called when a lane has a player and no episode for it."""
        self._manifest, self._holdings, self._low = manifest, holdings, low
        self._cells = cells(manifest)
        self._lanes = {lane: _AssignedLane() for lane in lanes}
        self._playing: dict[str, ActiveEpisode] = {}
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

    def give_back(self, lane: str) -> list[str]:
        """The episodes of a lane that no player has taken: they are not this worker's any more."""
        waiting = self._lanes[lane].waiting
        names = [episode.id for episode in waiting]
        waiting.clear()
        return names

    def queued(self, lane: str) -> int:
        """Episodes of a lane that no player has taken."""
        return len(self._lanes[lane].waiting)

    def reports(self) -> list[Left]:
        """The episodes that were left since the last call."""
        left, self._left = self._left, []
        return left

    def flying(self) -> list[FlightReport]:
        """How far the episodes in flight have come."""
        return [FlightReport(name, active.cost, active.position.step) for name, active in self._playing.items()]

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
        return waiting.popleft()

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
        active.cost, self._playing[episode.id] = self._before(episode)[0], active

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """An episode has ended, or was deferred."""
        active, score = self._playing.pop(episode.id, None), None
        cost, requests = self._before(episode) if active is None else (active.cost, active.position.step)
        if active is not None and how not in NOT_ENDED:
            score = final_score(active)
        self._left.append(Left(episode.id, how, cost, requests, score))

    def enter(self, lane: str) -> None:
        """A player starts."""

    def leave(self, lane: str) -> None:
        """A player has ended."""

    def held_by(self, lane: str) -> str:
        """Nothing: whoever deals has decided that it may start."""
        del lane
        return ""

    def _before(self, episode: PlannedEpisode) -> tuple[int, int]:
        """Pico-dollars and requests of earlier sessions."""
        logged = self._holdings.episodes.get(episode.id)
        return (0, 0) if logged is None or logged.ended else (logged.cost, logged.steps)

    def _episode(self, place: EpisodePlace) -> PlannedEpisode:
        agent, suite_name, index, replicate = place
        suite = self._manifest.suites[suite_name]
        cell, target = self._cells[agent, suite.environment], suite.instances[index]
        return PlannedEpisode(
            id=episode_id(cell.key, target.digest, replicate),
            cell=cell,
            suite=suite,
            target=target,
            replicate=replicate,
            index=index,
            cell_key=(agent, suite_name),
        )
