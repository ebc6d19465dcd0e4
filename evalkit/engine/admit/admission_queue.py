"""Where players wait until their lane's next episode may start: `admission.py` decides, this wakes them.

One player of a lane is woken when its lane's next episode may start, and wakes the next player when it has taken the
episode; so the cost of a decision does not depend on the number of waiters. When nothing is in flight and nothing may
start, all players end.
"""

from collections.abc import Collection

from evalkit.engine.admit.admission import Admission
from evalkit.engine.admit.backlogs import Place
from evalkit.engine.episode import ActiveEpisode
from evalkit.engine.universe import PlannedEpisode
from evalkit.waiting import WaitQueue


class AdmissionQueue:
    """The queue that all lanes of a run share."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.cut = ""
        """Why no further episode may start although some remain: `budget` or `deadline`."""
        self._waiting = {name: WaitQueue[None, None]() for name in admission.backlogs}
        self._players = dict.fromkeys(admission.backlogs, 0)
        self._shut = False

    def next(self, lane: str) -> PlannedEpisode | None:
        """The lane's next episode if it may start now."""
        return next(iter(self.several(lane, 1)), None)

    def several(self, lane: str, most: int) -> list[PlannedEpisode]:
        """The lane's next episodes, at most so many, that may start now."""
        episodes = self.admission.next(lane, most) if most and not self._shut else []
        if episodes and self._waiting[lane] and self.admission.free(self.admission.backlogs[lane]):
            _wake_first(self._waiting[lane])
        return episodes

    def over(self, lane: str) -> bool:
        """Whether none of the lane's episodes will start any more."""
        return self._shut or not self.admission.backlogs[lane].open

    async def wait(self, lane: str) -> None:
        """Wait until the lane's next episode may start, or none will."""
        with self._waiting[lane].hold(None) as waiter:
            self._tell()
            await waiter.turn()

    def activate(self, episode: PlannedEpisode, active: ActiveEpisode) -> None:
        """An admitted episode was restored to its position in the log."""
        active.cost = self.admission.came(episode.id)[0]
        self.admission.seated(episode.id, lambda: (active.cost, active.position.step))

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """An episode has ended, or was deferred."""
        self.admission.left(episode.id, how)
        self._tell()

    def enter(self, lane: str) -> None:
        """A player starts."""
        self._players[lane] += 1

    def leave(self, lane: str) -> None:
        """A player has ended; with the last one the lane's reservations end. It may have been woken for an episode that
        it has not taken, since the lane was closed meanwhile: then another player is next."""
        self._players[lane] -= 1
        if not self._players[lane]:
            self.admission.close(lane)
        self._tell()

    def held_by(self, lane: str) -> str:
        """What keeps the lane's next episode from starting: `budget` or `deadline`; empty if nothing does."""
        return self.admission.backlogs[lane].why

    def poor(self, agent: str) -> bool:
        """Whether an agent's own budget has no room for another episode."""
        return agent in self.admission.used_up

    def dismiss(self, places: Collection[Place]) -> None:
        """No episode of these agents on these suites starts any more; what they would have cost may go to others."""
        self.admission.dismiss(places)
        self._tell()

    def look(self) -> None:
        """See whether anything may start; where nothing is in flight and nothing may, all players end."""
        self._tell()

    def end(self) -> None:
        """The run stops: all players end."""
        self._shut = True
        for waiting in self._waiting.values():
            waiting.grant_all(None)

    def _tell(self) -> None:
        """Something has changed: wake the player that is next."""
        if self._shut:
            return
        if self.admission.stuck():
            self.cut = self.admission.why()
            self.end()
            return
        for lane, waiting in self._waiting.items():
            backlog = self.admission.backlogs[lane]
            if waiting and (self.admission.free(backlog) or not backlog.open):
                _wake_first(waiting)


def _wake_first(waiting: WaitQueue[None, None]) -> None:
    first = waiting.head()
    if first is not None:
        waiting.grant(first, None)
