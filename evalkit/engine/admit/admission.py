"""Which episodes may start, decided by their predicted cost and time. A run that is cut contains complete, balanced
episodes.

Under a budget, an episode starts only if these fit together: the money spent, the predicted cost to finish all started
episodes, its own predicted cost, and what the other lanes need to reach the same progress. Under a deadline, its
predicted requests at the lane's time per request must fit. The order is fixed before: an episode that may not start yet
is waited for, never skipped. Outcomes have an effect through costs alone. An ended episode is used for predictions only
when all episodes that its cell admitted before it have ended: short ones end first, and would make the others look
cheaper than they are.

Chosen: predictions have a margin (`doubt`, `SURE`), since an episode that cannot be finished is worse than one that
does not start. The margin shrinks as episodes end, so that little money remains unused; what is too little for the
dearest lane goes to the others (`stuck`). Nothing here can break the ceiling: each request is still bounded by a token
per byte and its `max_tokens`. These bounds are not tightened, since a request that waits for money costs time alone;
only the last one's remains unused. Failed attempts are assumed to
cost the same proportion as before. The cost is O(1) per episode, and nothing per step: at each decision, `LOOKS` of the
episodes in flight are predicted again, in turn. Where several may start at one moment, it is first tried whether all of
them fit; only if not is each decided on its own.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from evalkit.client.budget import BudgetStats
from evalkit.engine.admit.backlogs import Came, Flight, LaneBacklog, Learning, Place
from evalkit.engine.admit.needs import (
    NOTHING,
    SPREAD,
    SURE,
    Ceilings,
    Figures,
    InFlight,
    Predicts,
    ToldProgress,
    needed_with,
)
from evalkit.engine.episode import LEFT_OWED, TOO_LARGE
from evalkit.engine.universe import PlannedEpisode

BLIND = 7.0
"""By how much more than predicted a cell's episodes may cost, relatively, before the first has ended: a model that
reasons writes several times what its stand-in writes. Chosen."""
LOOKS = 8


class Admission:
    """Decides who starts next. Knows no loop; `admission_queue.py` waits."""

    def __init__(
        self,
        forecast: Predicts,
        backlogs: Sequence[LaneBacklog],
        *,
        stats: Callable[[], BudgetStats],
        clock: Callable[[], float],
        deadline: float | None = None,
        first_bound: Callable[[PlannedEpisode], int] = lambda _: 0,
        ceilings: Ceilings | None = None,
    ) -> None:
        """`deadline` in the clock's time; `first_bound`: what must be left for an episode's next
        request."""
        self.ceilings = ceilings if ceilings is not None else Ceilings({})
        self.forecast = forecast
        self.backlogs: Mapping[str, LaneBacklog] = {backlog.name: backlog for backlog in backlogs}
        self._stats, self._clock, self._deadline, self._first_bound = stats, clock, deadline, first_bound
        self._bounds: dict[tuple[str, str, str], int] = {}
        self._flights: dict[str, Flight] = {}
        self._round: deque[str] = deque()
        self._cells: dict[Place, Learning] = {}
        self._need = self._doubts = self._squares = 0
        """Sums over the episodes in flight: of `need`, of `doubt`, and of `rest` squared."""
        self._parked = 0
        """Predicted pico-dollars to finish those that this call had to leave."""
        self._news = 0
        """Episodes learned of since the lanes were last predicted."""
        self._now: BudgetStats | None = None
        self._predicted: dict[Place, Figures] = {}
        """What several decisions of one moment share: the state of the money, and the figures of cells."""
        self._cleared: set[Place] = set()
        """Cells whose fresh episodes may all start at this moment, as many as were asked for."""
        self._dearest: tuple[Figures, float] | None = NOTHING
        """The highest figures of these cells, and room for a request; None: not all that were asked for may start."""
        self.given_up = False
        """Whether a lane was closed because its next episode costs more than there is."""
        self._predict_lanes()

    @property
    def in_flight(self) -> int:
        """Episodes that have started, and have neither ended nor been parked."""
        return len(self._flights)

    def next(self, name: str, most: int = 1) -> list[PlannedEpisode]:
        """The lane's next episodes, `most` of them, which start with this call; fewer if one must wait (`why`) or if
        none remains."""
        self._forget()
        self._look()
        backlog, started, now = self.backlogs[name], list[PlannedEpisode](), self._clock()
        while len(started) < most and self._free(backlog, most - len(started)):
            episode, backlog.head = _head(backlog), None
            self._start(backlog, episode, now)
            started.append(episode)
        return started

    def free(self, backlog: LaneBacklog) -> bool:
        """Whether the lane's next episode may start now. Closes a lane in which none remains."""
        self._forget()
        return self._free(backlog)

    def _forget(self) -> None:
        """Time has passed since the last decision."""
        self._now, self._dearest = None, NOTHING
        self._predicted.clear()
        self._cleared.clear()

    def _free(self, backlog: LaneBacklog, most: int = 1) -> bool:
        if backlog.head is None and backlog.open:
            if self.ceilings.scopes:
                self._draw(backlog)
            else:
                backlog.head = backlog.draw()
            backlog.open = backlog.head is not None or bool(backlog.deferred)
        if not backlog.open:
            backlog.why = ""
        elif backlog.head is None:
            backlog.why = "budget"
        else:
            why = self._why_not(backlog, backlog.head, most)
            backlog.why = why if backlog.open else ""
        return backlog.open and not backlog.why

    def _draw(self, backlog: LaneBacklog) -> None:
        """Find the next episode in order; an agent whose own budget has no room for its next one does not block
        others."""
        for agent in list(backlog.deferred):
            waiting = backlog.deferred[agent]
            if self._affords(backlog, waiting[0]):
                backlog.head = waiting.popleft()
                if not waiting:
                    del backlog.deferred[agent]
                return
            if self.ceilings.over(("agent", agent)):
                self._strike(backlog, agent)
        while any(count > 0 and agent not in backlog.deferred for agent, count in backlog.undrawn.items()):
            episode = backlog.draw()
            if episode is None:
                return
            agent = episode.cell_key[0]
            if ("agent", agent) in self.ceilings.used_up:
                continue
            if agent not in backlog.deferred and self._affords(backlog, episode):
                backlog.head = episode
                return
            if agent not in backlog.deferred and self.ceilings.over(("agent", agent)):
                self._strike(backlog, agent, 1)
            else:
                backlog.deferred.setdefault(agent, deque()).append(episode)

    def _strike(self, backlog: LaneBacklog, agent: str, more: int = 0) -> None:
        """An agent's own budget is used up: its episodes will not start."""
        gone = len(backlog.deferred.pop(agent, ())) + backlog.undrawn[agent] + more
        backlog.left -= gone
        backlog.planned -= gone
        self._predict_lanes()

    def dismiss(self, agents: Collection[str]) -> None:
        """No question needs these agents any more: none of their episodes starts."""
        self._forget()
        for backlog in self.backlogs.values():
            head = backlog.head
            drawn = head.cell_key[0] if head is not None and head.cell_key[0] in agents else ""
            backlog.head = None if drawn else head
            for agent in agents:
                self._strike(backlog, agent, int(agent == drawn))
                backlog.undrawn[agent] = 0
            for cell_key in [cell_key for cell_key in backlog.fresh if cell_key[0] in agents]:
                del backlog.fresh[cell_key]
            backlog.begun = {name: begun for name, begun in backlog.begun.items() if begun[0][0] not in agents}
        self._predict_lanes()

    def _affords(self, backlog: LaneBacklog, episode: PlannedEpisode) -> bool:
        """Whether an agent's own budget has room for its next episode."""
        scope = "agent", episode.cell_key[0]
        return not self.ceilings.bound(scope) or self.ceilings.fits(scope, self._alone(backlog, episode))

    def _alone(self, backlog: LaneBacklog, episode: PlannedEpisode) -> float:
        """What an episode may need at most, as far as can be predicted, with room for one more request."""
        cell_key = episode.cell_key
        own = self._whole(cell_key, backlog.begun.get(episode.id))
        kept = math.hypot(self.doubt(cell_key), SURE * SPREAD)
        return own * (1 + kept) + self._last_request(backlog, episode, own)

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
        """An episode has ended, or was parked (`LEFT_OWED`)."""
        self.left_all([(episode, how, self._flights[episode].progress())])

    def left_all(self, episodes: Iterable[tuple[str, str, tuple[int, int]]]) -> None:
        """Several have: each with how it was left, and its pico-dollars and requests."""
        now, heard = self._clock(), dict[Place, Learning]()
        for episode, how, (cost, requests) in episodes:
            flight = self._flights.pop(episode)
            self._need -= flight.need
            self._doubts -= flight.doubt
            self._squares -= flight.rest**2
            backlog, cell_key, owed = flight.backlog, flight.cell_key, how in LEFT_OWED
            if self.ceilings.scopes:
                self.ceilings.need(cell_key[0], -flight.need)
                self.ceilings.end(cell_key[0])
            backlog.flights -= 1
            if not owed:
                backlog.seconds += now - flight.since
                backlog.requests += max(1, requests - flight.before)
            elif how in ("unavailable", TOO_LARGE):
                self._parked += round(self.forecast.rest(*cell_key, cost=cost, requests=requests))
            flight.learning.ended[flight.number] = None if owed else (cost, requests)
            heard[cell_key] = flight.learning
        for cell_key, learning in heard.items():
            count, cost, squares, requests = learning.news()
            self.forecast.learn_many(*cell_key, count, cost, squares, requests)
            self._news += count

    def stuck(self) -> bool:
        """Whether nothing is in flight and nothing may start, so that nothing will ever change.

        Where the money is too little for a lane's next episode, it may do for a cheaper lane's: the dearest lane that
        waits for it is given up, nothing is kept back for it any more, and the others are asked again.
        """
        while not self._flights and not any(self.free(backlog) for backlog in self.backlogs.values()):
            waiting = [backlog for backlog in self.backlogs.values() if backlog.why == "budget" and backlog.head]
            if len(waiting) < 2:
                return True
            dearest = max(waiting, key=lambda backlog: self._alone(backlog, _head(backlog)))
            dearest.open = False
            self.given_up = True
        return False

    def why(self) -> str:
        """What holds the lanes back: `budget` before `deadline`; empty if nothing does."""
        words = {backlog.why for backlog in self.backlogs.values()}
        words |= {"budget"} if self.ceilings.used_up or self.given_up else set()
        return next((word for word in ("budget", "deadline") if word in words), "")

    def next_cost(self) -> float:
        """Pico-dollars that the cheapest of the episodes that wait for money may need, with room for one more
        request."""
        heads = [(backlog, backlog.head) for backlog in self.backlogs.values() if backlog.head is not None]
        return min((self._alone(backlog, head) for backlog, head in heads if backlog.why != "deadline"), default=0.0)

    def next_s(self) -> float:
        """Seconds that the shortest of the episodes that wait for time may take."""
        waiting = [(one, one.head.cell_key) for one in self.backlogs.values() if one.head and one.why == "deadline"]
        margin = 1 + SURE * SPREAD
        return min((margin * self.forecast.whole(*key).requests * one.step_s for one, key in waiting), default=0.0)

    def owed(self) -> int:
        """Predicted pico-dollars to end everything that has not ended."""
        self._forget()
        self._predict_lanes()
        flying = sum(self._rest(flight) for flight in self._flights.values())
        return round(sum(backlog.owing for backlog in self.backlogs.values())) + flying + self._parked

    def doubt(self, cell_key: Place) -> float:
        """How far a cell's prediction may be off, relatively: as far as itself before anything has ended."""
        return 1 / math.sqrt(1 + self.forecast.ended(*cell_key))

    def _blind(self, cell_key: Place) -> float:
        """What is kept back besides `doubt` while other episodes are in flight, so that a budget is not promised to
        more of them than it pays for if the stand-in was far too cheap. It falls as episodes end; an episode alone
        starts without it, since nothing else would tell what it costs."""
        return BLIND / (1 + self.forecast.ended(*cell_key))

    def _why_not(self, backlog: LaneBacklog, episode: PlannedEpisode, most: int) -> str:
        """Why a lane's next episode must wait. `most`: how many are to start at this moment, this one included."""
        cell_key, begun = episode.cell_key, backlog.begun.get(episode.id)
        if begun is not None:
            self._cleared.clear()  # it may need more than those that were counted with
        elif cell_key in self._cleared:
            return ""
        if self._deadline is not None:
            requests = max(1.0, self.forecast.whole(*cell_key).requests - (0 if begun is None else begun[2]))
            if self._clock() + requests * (1 + SURE * SPREAD) * backlog.step_s > self._deadline:
                return "deadline"
        stats = self._now = self._now or self._stats()
        if stats.budget is None:
            return ""
        room: float = self._request(backlog, episode)
        if begun is None and most > 1 and self._clear(backlog, cell_key, room, before=most - 1):
            return ""
        own = self._whole(cell_key, begun), *self._prediction(cell_key)[1:]
        if not self._flights and not stats.charged:
            room = self._last_request(backlog, episode, own[0])
        return "" if self._fits(backlog, own, room, fresh=begun is None) else "budget"

    def _clear(self, backlog: LaneBacklog, cell_key: Place, room: float, *, before: int) -> bool:
        """Whether a cell's fresh episodes may all start at this moment: whether there is room for one after `before`
        others, all of them like the dearest of the cells that were tried. Then none needs a decision of its own, since
        what counts against an episode only grows as others start."""
        if self._dearest is None:
            return False
        cost, doubt, blind = self._prediction(cell_key)
        (most, most_doubt, most_blind), most_room = self._dearest
        dearest = max(cost, most), max(doubt, most_doubt), max(blind, most_blind)
        room = max(room, most_room)
        if self._fits(backlog, dearest, room, fresh=True, before=before):
            self._dearest = dearest, room
            self._cleared.add(cell_key)
            return True
        self._dearest = None
        self._cleared.clear()
        return False

    def _fits(self, backlog: LaneBacklog, own: Figures, room: float, *, fresh: bool, before: int = 0) -> bool:
        """Whether the budget has room for an episode of a lane; `before`: after so many others like it."""
        stats = self._now
        assert stats is not None
        assert stats.budget is not None
        flying = InFlight(self._need, self._doubts, self._squares)
        needed = needed_with(flying, own, before=before, alone=not self._flights, stats=stats)
        others = self._others(backlog, fresh=fresh, before=before)
        return stats.spent + needed + others + room <= stats.budget

    def _others(self, backlog: LaneBacklog, *, fresh: bool, before: int) -> float:
        """Predicted cost of bringing every other lane to the same progress as this one will have after `before`
        episodes and one more, including the episodes that they have started."""
        reach = (backlog.done + before + 1) / backlog.planned
        cost = float(self._parked)
        for other in self.backlogs.values():
            if other is backlog or not other.open or not other.left:
                continue
            due = reach * other.planned - other.done
            share = other.doubted * min(1.0, max(0.0, due / other.left))
            cost += max(share, other.owing_begun) if fresh else share
        return cost

    def _request(self, backlog: LaneBacklog, episode: PlannedEpisode) -> int:
        """Room for one more request of any lane that is playing: it is bounded far above what it will cost."""
        kind = backlog.name, episode.cell_key[0], episode.cell.env.name
        if kind not in self._bounds:
            self._bounds[kind] = self._first_bound(episode)
        most = self._bounds[kind]
        for other in self.backlogs.values():
            if other.flights or other is backlog:
                most = max(most, other.bound())
        return most

    def _last_request(self, backlog: LaneBacklog, episode: PlannedEpisode, own: int) -> float:
        """Room for the last request of an episode alone, beyond what is predicted for it. `own`: pico-dollars that are
        predicted for all its requests."""
        expected = self.forecast.whole(*episode.cell_key)
        return max(0.0, self._request(backlog, episode) - min(own, expected.cost / max(1.0, expected.requests)))

    def _start(self, backlog: LaneBacklog, episode: PlannedEpisode, now: float) -> None:
        cell_key = episode.cell_key
        begun = backlog.begun.pop(episode.id, None)
        cost, requests = (0, 0) if begun is None else begun[1:]
        learning = self._cells.get(cell_key)
        if learning is None:
            learning = self._cells[cell_key] = Learning()
        flight = self._flights[episode.id] = Flight(
            backlog=backlog,
            cell_key=cell_key,
            cost=cost,
            requests=requests,
            since=now,
            before=requests,
            learning=learning,
            number=learning.admitted,
        )
        learning.admitted += 1
        if self.ceilings.scopes:
            self.ceilings.start(cell_key[0])
        self._round.append(episode.id)
        own = self._whole(cell_key, begun)
        self._take(flight, own)
        backlog.flights += 1
        backlog.taken += 1
        backlog.left -= 1
        owing, doubted = backlog.owing - own, backlog.doubted - flight.need
        backlog.owing = owing if owing > 0.0 else 0.0
        backlog.doubted = doubted if doubted > 0.0 else 0.0
        if begun is None:
            backlog.fresh[cell_key] -= 1
        else:
            backlog.owing_begun = max(0, backlog.owing_begun - own)

    def _whole(self, cell_key: Place, begun: tuple[Place, int, int] | None) -> int:
        if begun is None or not begun[2]:
            return self._prediction(cell_key)[0]
        return round(self.forecast.rest(*cell_key, cost=begun[1], requests=begun[2]))

    def _prediction(self, cell_key: Place) -> Figures:
        """A cell's figures."""
        known = self._predicted.get(cell_key)
        if known is None:
            cost = round(self.forecast.whole(*cell_key).cost)
            known = self._predicted[cell_key] = cost, self.doubt(cell_key), self._blind(cell_key)
        return known

    def _rest(self, flight: Flight) -> int:
        return self._whole(flight.cell_key, (flight.cell_key, *flight.progress()))

    def _take(self, flight: Flight, rest: int) -> None:
        """Predict one episode in flight again."""
        _, doubted, blind = self._prediction(flight.cell_key)
        doubt = round(rest * doubted)
        need = round(rest * (1 + blind)) + doubt
        self._need += need - flight.need
        self._doubts += doubt - flight.doubt
        self._squares += rest**2 - flight.rest**2
        if self.ceilings.scopes:
            self.ceilings.need(flight.cell_key[0], need - flight.need)
        flight.rest, flight.need, flight.doubt = rest, need, doubt

    def _look(self) -> None:
        """Predict some episodes in flight again, in turn; and the lanes, once as many episodes have ended as there are
        cells."""
        for _ in range(min(LOOKS, len(self._round))):
            name = self._round.popleft()
            flight = self._flights.get(name)
            if flight is not None:
                self._take(flight, self._rest(flight))
                self._round.append(name)
        if self._news >= sum([len(backlog.fresh) for backlog in self.backlogs.values()]) > 0:
            self._predict_lanes()

    def _predict_lanes(self) -> None:
        self._news = 0
        self._cleared.clear()
        used_up = self.ceilings.used_up
        for backlog in self.backlogs.values():
            owing = {cell_key: count * self.forecast.whole(*cell_key).cost for cell_key, count in backlog.fresh.items()}
            backlog.owing_begun = sum([self._whole(begun[0], begun) for begun in backlog.begun.values()])
            backlog.owing = sum(owing.values()) + backlog.owing_begun
            backlog.doubted = backlog.owing_begun + sum(
                [
                    cost * (1 + self.doubt(cell_key))
                    for cell_key, cost in owing.items()
                    if not used_up or ("agent", cell_key[0]) not in used_up
                ]
            )


def _head(backlog: LaneBacklog) -> PlannedEpisode:
    assert backlog.head is not None
    return backlog.head
