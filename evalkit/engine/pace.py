"""Who waits for whom while a question is played: no agent runs further ahead of those that it is compared with than the
question has frozen, and one whose open questions cannot be answered any more starts nothing.

Evidence is of draws that both sides of a pair have, so what a fast agent plays in advance is paid in vain if the answer
comes first; and its slow partner ends no sooner. All agents start their episodes in the same order, so counting them is
enough. A lane whose next episode has to wait holds up what follows it in the lane: its agents take turns, so none of
them is far from the others.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.episode import NOT_ENDED
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.universe import PlannedEpisode
from evalkit.waiting import WaitQueue

AgentT = TypeVar("AgentT")


def may_begin(
    partners: Iterable[AgentT], begun: Callable[[AgentT], int], gone: Callable[[AgentT], int | None], ahead: int
) -> tuple[float, bool]:
    """(how many draws of an agent may have begun, whether more would be in vain).

    partners  those with which it has open questions
    begun     how many draws of an agent have begun
    gone      how many draws an agent has that starts none any more; None: it goes on
    """
    slowest, most = math.inf, -1
    for partner in partners:
        has = gone(partner)
        if has is None:
            slowest = min(slowest, begun(partner))
        else:
            most = max(most, has)
    return (slowest + ahead, False) if slowest < math.inf else (most, True)


class Pacer:
    """Holds lanes up while a question is played."""

    def __init__(
        self,
        jobs: Sequence[LaneJob],
        admitter: AdmissionQueue | None,
        suites: Collection[str],
        ahead: int,
        tell: Callable[[], None],
    ) -> None:
        """`suites`: those whose episodes are draws; `tell`: called when an agent can find out nothing any more."""
        self._admitter, self._suites, self._ahead, self._tell = admitter, suites, ahead, tell
        self._jobs: dict[str, LaneJob] = {}
        """By agent: that of its lane."""
        self._begun, self._ended, self._left, self._flying = (Counter[str]() for _ in range(4))
        self._unbegun = Counter[tuple[str, str]]()
        """What `_left` is of, by agent and suite."""
        self._partners: Mapping[str, Collection[str]] = {}
        self._waiting: dict[str, WaitQueue[None, None]] = {job.name: WaitQueue() for job in jobs}
        for job in jobs:
            job.pace = self
            for (agent, suite), cell in job.cells.items():
                self._jobs[agent] = job
                self._unbegun[agent, suite] = cell.planned - cell.ended
                self._left[agent] += cell.planned - cell.ended
                if suite in suites:
                    self._begun[agent] += cell.ended
                    self._ended[agent] += cell.ended
        self._lanes = {job.name: [agent for agent, its in self._jobs.items() if its is job] for job in jobs}
        for job in jobs:
            job.context.lane_stop.listen(self.look)

    def ask(self, pairs: Iterable[tuple[str, str]], alone: Collection[str]) -> None:
        """What is open: pairs of agents, and agents whose own means are wanted. These wait for nobody, nor does an
        agent whose partner is not played in this call."""
        partners = defaultdict[str, set[str]](set)
        for first, second in pairs:
            partners[first].add(second)
            partners[second].add(first)
        here = self._jobs.keys()
        self._partners = {
            agent: others
            for agent, others in partners.items()
            if agent in here and agent not in alone and others <= here
        }
        self.look()

    def vain(self) -> frozenset[str]:
        """The agents whose open questions cannot be answered in this session, since their partners start no more."""
        return frozenset(agent for agent in self._partners if self._left[agent] > 0 and self._rest(agent) == (0, True))

    def drop(self, places: Collection[tuple[str, str]]) -> None:
        """No further episode of these agents on these suites starts."""
        for place in self._unbegun.keys() & places:
            self._left[place[0]] -= self._unbegun.pop(place)
        self.look()

    def room(self, lane: str) -> int:
        """How many episodes of a lane may start now."""
        rests = self._rests(lane)
        if not rests:
            return 1 << 30
        room = min(rest for rest, _ in rests)
        if room or self._flying.total() or (0, True) in rests:
            return room
        # Lanes that all wait for each other, by whatever order an earlier session has left, would wait for ever.
        others = (job for job in self._jobs.values() if not _is_over(job))
        return int(all(any(not rest for rest, _ in self._rests(job.name)) for job in others if self._rests(job.name)))

    def _rests(self, lane: str) -> list[tuple[int, bool]]:
        return [self._rest(agent) for agent in self._lanes[lane] if self._left[agent] > 0]

    async def wait(self, lane: str) -> None:
        """Wait until an episode of the lane may start, or none will."""
        await self._waiting[lane].wait(None)

    def started(self, episode: PlannedEpisode) -> None:
        """An episode has started."""
        agent = episode.cell_key[0]
        if episode.cell_key in self._unbegun:
            self._unbegun[episode.cell_key] -= 1
            self._left[agent] -= 1
        self._flying[agent] += 1
        self._begun[agent] += episode.cell_key[1] in self._suites
        self.look()

    def left(self, episode: PlannedEpisode, how: str) -> None:
        """It has ended, or was deferred."""
        agent = episode.cell_key[0]
        self._flying[agent] -= 1
        self._ended[agent] += episode.cell_key[1] in self._suites and how not in NOT_ENDED
        self.look()

    def look(self) -> None:
        """Something has changed: wake as many players of each lane as may go on."""
        held = False
        for lane, waiting in self._waiting.items():
            if waiting and _is_over(self._jobs[self._lanes[lane][0]]):
                waiting.grant_all(None)
            elif waiting:
                room = self.room(lane)
                held = held or not room
                while room and (first := waiting.head()) is not None:
                    waiting.grant(first, None)
                    room -= 1
        if held and self.vain():
            self._tell()

    def _rest(self, agent: str) -> tuple[int, bool]:
        """(how many of an agent's draws may begin now, whether none will beyond these)."""
        partners = self._partners.get(agent)
        if partners is None or agent in self._jobs[agent].context.stopped:  # of the latter, episodes start and leave
            return 1 << 30, False
        most, in_vain = may_begin(partners, self._begun.__getitem__, self._gone, self._ahead)
        return max(0, int(min(most, 1 << 30)) - self._begun[agent]), in_vain

    def _gone(self, agent: str) -> int | None:
        job = self._jobs[agent]
        if job.context.stopping or agent in job.context.stopped:
            return self._ended[agent] + self._flying[agent]
        admitter = None if job.admitter is None else self._admitter
        shut = admitter is not None and (admitter.over(job.name) or admitter.poor(agent))
        waits = admitter is not None and not self._flying.total() and admitter.held_by(job.name)
        return self._begun[agent] if self._left[agent] <= 0 or _is_over(job) or shut or waits else None


def _is_over(job: LaneJob) -> bool:
    return job.context.stopping or (job.limit is not None and job.taken >= job.limit)
