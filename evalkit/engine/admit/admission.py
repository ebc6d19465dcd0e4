"""Which episodes may start, decided by their predicted cost and time, so that a run that is cut contains complete and
balanced episodes.

An episode may start if these fit in the budget together: what is spent, what is predicted to finish all that have
started and this one, what the other lanes need to come as far as this one, and room for the bounds of the requests in
flight and of one more. Where all that remains is predicted to fit, nobody waits. Under a deadline, an episode may start
if the rest of the time is enough for one as long as the longest of its cell so far. Each cell (agent x suite) starts
its episodes in the order that was fixed before: one that may not start is waited for, and only other cells go on.
Outcomes have an effect through costs alone.

Chosen: margins, since an episode that the money cannot finish is worse than one that does not start. `MARGIN` is a part
of what is in flight, so it shrinks towards the end; the next episode may be a standard deviation dearer than its
forecast, and so may the mean of another lane's, which is what lets a fast lane wait for what slow ones show. Nothing
here can break the ceiling: each request is reserved at its bound (`client/budget.py`). What is too little for the
dearest lane goes to the others (`stuck`). Failed attempts are assumed to cost the same proportion as before. A decision
costs O(lanes), and nothing per step: at each, `LOOKS` of the episodes in flight are predicted again, in turn.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from evalkit.client.budget import BudgetStats
from evalkit.client.budget_state import Ceiling
from evalkit.engine.admit.backlogs import Came, Flight, LaneBacklog, LearningQueue, Place, ToldProgress
from evalkit.engine.episode import NOT_ENDED, TOO_LARGE
from evalkit.engine.forecast import SPREAD, Forecast
from evalkit.engine.universe import PlannedEpisode

MARGIN = 0.25
"""More than predicted that the episodes in flight may take."""
LOOKS = 16


class Admission:
    """Decides who starts next. Knows no loop; `admission_queue.py` waits."""

    def __init__(
        self,
        forecast: Forecast,
        backlogs: Sequence[LaneBacklog],
        *,
        stats: Callable[[], BudgetStats],
        clock: Callable[[], float],
        deadline: float | None = None,
        first_bound: Callable[[PlannedEpisode], int] = lambda _: 0,
        ceilings: Mapping[tuple[str, str], Ceiling] | None = None,
    ) -> None:
        """`deadline` in the clock's time; `first_bound`: what must be left for an episode's next request; `ceilings`:
        by (`agent`, its name), what single agents may spend."""
        self.forecast = forecast
        self.backlogs: Mapping[str, LaneBacklog] = {backlog.name: backlog for backlog in backlogs}
        self._ceilings = {name: ceiling for (_, name), ceiling in (ceilings or {}).items()}
        self._stats, self._clock, self._deadline, self._first_bound = stats, clock, deadline, first_bound
        self._bounds: dict[tuple[str, str, str], int] = {}
        self._flights: dict[str, Flight] = {}
        self._round: deque[str] = deque()
        self._cells: dict[Place, LearningQueue] = {}
        self._rest = defaultdict[str, float](float)
        """By agent: predicted pico-dollars to finish its episodes in flight."""
        self._flying = 0.0
        """The same of all."""
        self._unproven: set[Place] = set()
        """Cells that have started episodes and ended none, and whose stand-in is not the agent itself."""
        self._deferred = 0.0
        """The same of those that this call had to leave."""
        self._news = 0
        """Episodes learned of since the lanes were last predicted."""
        self.used_up: set[str] = set()
        """Agents of which no episode will start, since their own budget has no room for one."""
        self._dismissed: set[Place] = set()
        self.given_up = False
        """Whether a lane was closed because its next episode costs more than there is."""
        self._predict_lanes()

    @property
    def in_flight(self) -> int:
        """Episodes that have started, and have neither ended nor been deferred."""
        return len(self._flights)

    def flying(self, name: str) -> list[tuple[Place, int]]:
        """Of the episodes in flight of a lane: agent and suite, and requests made."""
        return [(one.cell_key, one.progress()[1]) for one in self._flights.values() if one.backlog.name == name]

    def next(self, name: str, most: int = 1) -> list[PlannedEpisode]:
        """The lane's next episodes, `most` of them, which start with this call; fewer if one must wait (`why`) or if
        none remains."""
        self._look()
        backlog, started, now = self.backlogs[name], list[PlannedEpisode](), self._clock()
        stats = self._stats()
        while len(started) < most and (episode := self._free(backlog, stats)) is not None:
            backlog.head = None
            self._start(backlog, episode, now)
            started.append(episode)
        return started

    def free(self, backlog: LaneBacklog) -> bool:
        """Whether the lane's next episode may start now. Closes a lane in which none remains."""
        return self._free(backlog, self._stats()) is not None

    def _free(self, backlog: LaneBacklog, stats: BudgetStats) -> PlannedEpisode | None:
        if backlog.open:
            self._find(backlog)
            backlog.open = backlog.head is not None or bool(backlog.held_back)
        head, backlog.why = backlog.head, ""
        if not backlog.open:
            return None
        if head is None:
            late = any(self._late(backlog, waiting[0][1]) for waiting in backlog.held_back.values())
            backlog.why = "deadline" if late else "budget"
        elif stats.budget is not None and not self._plenty(stats) and not self._fits(backlog, head, stats):
            backlog.why = "budget"
        return None if backlog.why else head

    def _find(self, backlog: LaneBacklog) -> None:
        """The lane's head: the first in order that neither the deadline nor its agent's own budget bars. Those before
        it are set aside, and so is all that follows them in their cells."""
        if self._deadline is None and not self._ceilings:
            backlog.head = backlog.head or backlog.draw()
            return
        head, poor = backlog.head, set[str]()
        if head is not None:
            backlog.held_back.setdefault(head.cell_key, deque()).appendleft((backlog.number, head))
            backlog.head = None
        for place in sorted(backlog.held_back, key=lambda place: backlog.held_back[place][0][0]):
            waiting = backlog.held_back.get(place)
            if waiting and not self._barred(backlog, waiting[0][1], poor):
                backlog.number, backlog.head = waiting.popleft()
                if not waiting:
                    del backlog.held_back[place]
                return
        while any(count > 0 and place not in backlog.held_back for place, count in backlog.undrawn.items()):
            episode = backlog.draw()
            if episode is None:
                return
            place = episode.cell_key
            if place[0] in self.used_up or place in self._dismissed:
                continue
            backlog.held_back.setdefault(place, deque()).append((backlog.drawn, episode))
            if len(backlog.held_back[place]) == 1 and not self._barred(backlog, episode, poor):
                backlog.head = episode
                backlog.held_back.pop(place, None)
                return

    def _barred(self, backlog: LaneBacklog, episode: PlannedEpisode, poor: set[str]) -> bool:
        """Whether time or its agent's own budget keeps an episode from starting. `poor`: agents whose budget had no
        room for an earlier one."""
        agent = episode.cell_key[0]
        ceiling = self._ceilings.get(agent)
        if ceiling is not None and agent not in poor:
            needed = (1 + MARGIN) * self._rest[agent] + (1 + SPREAD) * self._whole(backlog, episode)
            if ceiling.before + ceiling.spent + needed + self._request(backlog, episode) > ceiling.budget:
                poor.add(agent)
                if not any(flight.cell_key[0] == agent for flight in self._flights.values()):
                    self.used_up.add(agent)
                    backlog.strike(agent)
                    self._predict_lanes()
        return agent in poor or self._late(backlog, episode)

    def _late(self, backlog: LaneBacklog, episode: PlannedEpisode) -> bool:
        return self._deadline is not None and self._clock() + self._seconds(backlog, episode) > self._deadline

    def _seconds(self, backlog: LaneBacklog, episode: PlannedEpisode) -> float:
        """How long an episode may take: as many requests as the longest of its cell."""
        begun = backlog.begun.get(episode.id)
        requests = self.forecast.longest(*episode.cell_key) - (0 if begun is None else begun[2])
        return max(1.0, requests) * backlog.step_s

    def _plenty(self, stats: BudgetStats) -> bool:
        """Whether all that remains is predicted to fit."""
        assert stats.budget is not None
        if self._unproven:
            return False
        remaining = sum([backlog.asked for backlog in self.backlogs.values()])
        return stats.spent + (self._flying + self._deferred + remaining) * _with_failures(stats) <= stats.budget

    def _fits(self, backlog: LaneBacklog, episode: PlannedEpisode, stats: BudgetStats) -> bool:
        assert stats.budget is not None
        needed = ((1 + MARGIN) * self._flying + (1 + SPREAD) * self._whole(backlog, episode)) * _with_failures(stats)
        others = self._deferred + self._others(backlog)
        bound = self._request(backlog, episode)
        bounds = bound + sum([one.flights * (one.bound() or bound) for one in self.backlogs.values()])
        return stats.spent + needed + others + bounds <= stats.budget

    def _others(self, backlog: LaneBacklog) -> float:
        """Predicted cost of bringing every other lane to the progress that this one will have with one more."""
        reach, cost = (backlog.done + 1) / max(1, backlog.planned), 0.0
        for other in self.backlogs.values():
            if other is not backlog and other.open and other.left and other.why != "deadline":
                due = reach * other.planned - other.done
                cost += (other.owing + other.unsure) * min(1.0, max(0.0, due / other.left))
        return cost

    def _request(self, backlog: LaneBacklog, episode: PlannedEpisode) -> int:
        """Room for one more request of any lane that is playing: it is bounded far above what it will cost."""
        kind = backlog.name, episode.cell_key[0], episode.cell.env.name
        if kind not in self._bounds:
            self._bounds[kind] = self._first_bound(episode)
        playing = [other.bound() for other in self.backlogs.values() if other.flights or other is backlog]
        return max(self._bounds[kind], *playing)

    def _whole(self, backlog: LaneBacklog, episode: PlannedEpisode) -> float:
        """Predicted pico-dollars of what an episode has before it."""
        _, cost, requests = backlog.begun.get(episode.id, (episode.cell_key, 0, 0))
        return self.forecast.rest(*episode.cell_key, cost=cost, requests=requests)

    def _start(self, backlog: LaneBacklog, episode: PlannedEpisode, now: float) -> None:
        cell_key, rest = episode.cell_key, self._whole(backlog, episode)
        begun = backlog.begun.pop(episode.id, None)
        _, cost, requests = begun or (cell_key, 0, 0)
        learning = self._cells.setdefault(cell_key, LearningQueue())
        if not self.forecast.proven(*cell_key):
            self._unproven.add(cell_key)
        flight = self._flights[episode.id] = Flight(
            backlog=backlog,
            cell_key=cell_key,
            cost=cost,
            requests=requests,
            heard=(cost, requests),
            heard_at=now,
            number=learning.admitted,
        )
        learning.admitted += 1
        self._round.append(episode.id)
        self._take(flight, rest)
        backlog.flights += 1
        backlog.taken += 1
        backlog.left -= 1
        backlog.owing = max(0.0, backlog.owing - rest)
        if begun is None:
            backlog.fresh[cell_key] -= 1

    def _take(self, flight: Flight, rest: float) -> None:
        """One episode in flight needs so much from now on."""
        change, flight.rest = rest - flight.rest, rest
        self._flying += change
        self._rest[flight.cell_key[0]] += change

    def _look(self) -> None:
        """Predict some episodes in flight again, in turn; and the lanes, once as many episodes have ended as there are
        cells."""
        for _ in range(min(LOOKS, len(self._round))):
            name = self._round.popleft()
            flight = self._flights.get(name)
            if flight is not None:
                cost, requests = self._hear(flight, flight.progress())
                self._take(flight, self.forecast.rest(*flight.cell_key, cost=cost, requests=requests))
                self._round.append(name)
        if self._news >= sum([len(backlog.fresh) for backlog in self.backlogs.values()]) > 0:
            self._predict_lanes()

    def _hear(self, flight: Flight, progress: tuple[int, int]) -> tuple[int, int]:
        """Learn what an episode's replies have cost since the last time, and how long they took."""
        (cost, requests), (before, asked), now = progress, flight.heard, self._clock()
        if requests > asked:
            self.forecast.hear(*flight.cell_key, cost=cost - before, requests=requests - asked, reached=requests)
            flight.backlog.hear(now - flight.heard_at, requests - asked)
            flight.heard, flight.heard_at = progress, now
            self._news += not self.forecast.ended(*flight.cell_key)
        return progress

    def _predict_lanes(self) -> None:
        self._news = 0
        for backlog in self.backlogs.values():
            fresh = {place: count * self.forecast.whole(*place).cost for place, count in backlog.fresh.items()}
            begun = [self.forecast.rest(*place, cost=cost, requests=n) for place, cost, n in backlog.begun.values()]
            backlog.owing = sum(fresh.values()) + sum(begun)
            backlog.unsure = sum(cost * self.forecast.uncertainty(*place) for place, cost in fresh.items())

    def dismiss(self, places: Collection[Place]) -> None:
        """No question needs these agents on these suites any more: none of their episodes starts."""
        for backlog in self.backlogs.values():
            for place in places:
                backlog.strike(*place)
        self._dismissed.update(places)
        self._predict_lanes()

    def close(self, name: str) -> None:
        """No episode of this lane will start any more: no money is reserved for its remaining ones."""
        self.backlogs[name].open = False

    def came(self, episode: str) -> tuple[int, int]:
        """The progress of an admitted episode: (pico-dollars, requests)."""
        return self._flights[episode].progress()

    def seated(self, episode: str, came: Came) -> None:
        """The progress of an admitted episode can be read."""
        self._flights[episode].came = came

    def reported(self, progress: Iterable[ToldProgress]) -> None:
        """Another process says how far admitted episodes have come."""
        for one in progress:
            flight = self._flights.get(one.episode)
            if flight is not None:
                flight.cost, flight.requests = one.cost, one.requests

    def left(self, episode: str, how: str) -> None:
        """An episode has ended, or was deferred (`NOT_ENDED`)."""
        self.left_all([(episode, how, self._flights[episode].progress())])

    def left_all(self, episodes: Iterable[tuple[str, str, tuple[int, int]]]) -> None:
        """Several have: each with how it was left, and its pico-dollars and requests."""
        for episode, how, (cost, requests) in episodes:
            flight = self._flights.pop(episode)
            self._hear(flight, (cost, requests))
            self._take(flight, 0.0)
            backlog, remaining, learning = flight.backlog, how in NOT_ENDED, self._cells[flight.cell_key]
            backlog.flights -= 1
            if how in ("unavailable", TOO_LARGE):
                self._deferred += self.forecast.rest(*flight.cell_key, cost=cost, requests=requests)
            learning.ended[flight.number] = None if remaining else (cost, requests)
            for paid, asked in learning.news():
                self.forecast.learn(*flight.cell_key, cost=paid, requests=asked)
                self._news += 1
                self._unproven.discard(flight.cell_key)
        if not self._flights:
            self._flying = 0.0  # whatever rounding has left

    def stuck(self) -> bool:
        """Whether nothing is in flight and nothing may start, so that nothing will ever change.

        Where the money is too little for a lane's next episode, it may do for a cheaper lane's: the dearest lane that
        waits for it is given up, nothing is kept back for it any more, and the others are asked again.
        """
        while not self._flights and not any(self.free(backlog) for backlog in self.backlogs.values()):
            waiting = [(self._whole(one, one.head), one) for one in self.backlogs.values() if one.open and one.head]
            if len(waiting) < 2:
                return True
            max(waiting, key=lambda one: one[0])[1].open = False
            self.given_up = True
        return False

    def why(self) -> str:
        """What holds the lanes back: `budget` before `deadline`; empty if nothing does."""
        words = {backlog.why for backlog in self.backlogs.values()}
        words |= {"budget"} if self.used_up or self.given_up else set()
        return next((word for word in ("budget", "deadline") if word in words), "")

    def ceilings(self) -> Iterator[tuple[str, int]]:
        """Agents whose own budget is used up, and that budget in pico-dollars."""
        for agent in sorted(self.used_up & self._ceilings.keys()):
            yield agent, self._ceilings[agent].budget

    def next_cost(self) -> float:
        """Pico-dollars that the cheapest of the episodes that wait for money may need, with room for one more
        request."""
        heads = [(one, one.head) for one in self.backlogs.values() if one.head is not None]
        needed = ((1 + SPREAD) * self._whole(one, head) + self._request(one, head) for one, head in heads)
        return min(needed, default=0.0)

    def next_s(self) -> float:
        """Seconds that the shortest of the episodes that wait for time may take."""
        late = [(one, waiting[0][1]) for one in self.backlogs.values() for waiting in one.held_back.values()]
        return min((self._seconds(one, episode) for one, episode in late), default=0.0)

    def remaining(self) -> int:
        """Predicted pico-dollars to end everything that has not ended."""
        self._predict_lanes()
        flying = [
            self.forecast.rest(*one.cell_key, cost=one.progress()[0], requests=one.progress()[1])
            for one in self._flights.values()
        ]
        return round(sum(backlog.owing for backlog in self.backlogs.values()) + sum(flying) + self._deferred)


def _with_failures(stats: BudgetStats) -> float:
    """What is spent in total per dollar of replies, including charges for failed attempts."""
    settled = stats.session - stats.charged
    return stats.session / settled if settled > 0 else 1.0
