"""Which episodes may start: decided by what they are predicted to take. A cut run holds whole, balanced episodes.

Under a budget an episode starts only if what is spent, the predicted cost to finish all that have started, its own, and
what the other lanes need to come as far as this one, fit. Under a deadline likewise: its predicted requests at the
time that the lane's requests take. The order is fixed before: whoever may not start yet is waited for, never passed
over. Outcomes enter through costs alone, and an ended episode is learned from only when all that its cell admitted
before it have ended: short ones end first, and would make the others look cheaper than they are.

Chosen: predictions are doubted (`doubt`, `SURE`), since an episode that money does not finish is worse than one that
does not start; the doubt shrinks as episodes end, so that little is left over. Costs of failed attempts are taken to go
on in the proportion that was seen. All of it is O(1) an episode, and nothing a step: of the episodes in flight, `LOOKS`
are predicted anew at each decision, in turn.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evalkit.client.budget import BudgetStats
from evalkit.run.episode import LEFT_OWED
from evalkit.run.forecast import Expected
from evalkit.run.universe import Episode

SURE = 2.0
"""Standard deviations that are kept back for what the started episodes may take beyond their prediction."""
SPREAD = 0.5
"""The standard deviation of an episode's cost, over its mean, as far as admission is concerned."""
LOOKS = 8

Place = tuple[str, str]
"""Agent and suite."""
Came = Callable[[], tuple[int, int]]
"""How far an episode has come: (pico-dollars, requests), earlier sessions included."""


class Predicts(Protocol):
    """What admission needs of a forecast."""

    def whole(self, agent: str, suite: str) -> Expected:
        """What a whole episode is expected to take."""

    def rest(self, agent: str, suite: str, *, cost: int, requests: int) -> float:
        """Pico-dollars to finish an episode that has come so far."""

    def learn(self, agent: str, suite: str, *, cost: int, requests: int) -> None:
        """An episode has ended."""

    def ended(self, agent: str, suite: str) -> int:
        """How many it has learned of."""


@dataclass(slots=True, kw_only=True)
class Line:
    """What one lane has to start in this call."""

    name: str
    todo: Iterator[Episode]
    """In order; started ones first."""
    total: int
    """All episodes of the lane that this call is about."""
    planned: int
    """Of them, those that will have ended when this call has done what it is asked to."""
    ended: int
    """Of all, those that have ended and are not to be played again."""
    broken: int = 0
    """Of all, those that an internal error has stopped and that are not to be tried again."""
    fresh: Counter[Place] = field(default_factory=Counter)
    """Episodes to play that nobody has begun."""
    begun: dict[str, tuple[Place, int, int]] = field(default_factory=dict)
    """Those that earlier calls have begun and that wait to be played on, by id: place, pico-dollars, requests."""
    reply_s: Callable[[], float] = lambda: 0.0
    """Seconds a reply takes, as far as the lane knows; 0: not yet."""
    bound: Callable[[], int] = lambda: 0
    """The most that one of its requests was bounded by, in pico-dollars."""
    head: Episode | None = None
    open: bool = True
    why: str = ""
    """What the head waits for: `budget` or `deadline`; empty if nothing holds it."""
    flights: int = 0
    taken: int = 0
    """Episodes that this call has admitted."""
    owing: float = 0.0
    """Predicted pico-dollars of all that it has not admitted."""
    doubted: float = 0.0
    """The same with what is kept back because the predictions are doubted."""
    owing_begun: int = 0
    """The part of it that is for those that were begun."""
    seconds: float = 0.0
    requests: int = 0
    """What the episodes that ended in this call took from their start, for `step_s`."""

    @property
    def left(self) -> int:
        """Episodes that have not been admitted."""
        return self.fresh.total() + len(self.begun)

    @property
    def done(self) -> int:
        """Episodes that need not be admitted any more."""
        return self.ended + self.broken + self.taken

    @property
    def step_s(self) -> float:
        """Seconds from one request of an episode to its next, queues included; 0: not known."""
        return self.seconds / self.requests if self.requests else self.reply_s()


@dataclass(slots=True, kw_only=True)
class _Flight:
    """An episode that has started."""

    line: Line
    place: Place
    came: Came
    since: float
    before: int
    """Requests of earlier calls."""
    number: int
    """Its place among those that its cell has admitted."""
    rest: int = 0
    need: int = 0
    """`rest` and what is kept back because the prediction is doubted."""


@dataclass(slots=True)
class _Learning:
    """A cell's ended episodes that wait for one that was admitted before them."""

    admitted: int = 0
    learned: int = 0
    ended: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """By number; None: it was left without an ending."""


class Admission:
    """Decides who starts next. Knows no loop; `gate.py` waits."""

    def __init__(
        self,
        forecast: Predicts,
        lines: Sequence[Line],
        *,
        stats: Callable[[], BudgetStats],
        clock: Callable[[], float],
        deadline: float | None = None,
        first_bound: Callable[[Episode], int] = lambda _: 0,
    ) -> None:
        """`deadline` in the clock's time; `first_bound`: the most that an episode's next request can cost."""
        self.forecast = forecast
        self.lines: Mapping[str, Line] = {line.name: line for line in lines}
        self._stats, self._clock, self._deadline, self._first_bound = stats, clock, deadline, first_bound
        self._bounds: dict[tuple[str, str, str], int] = {}
        self._flights: dict[str, _Flight] = {}
        self._round: deque[str] = deque()
        self._cells: dict[Place, _Learning] = {}
        self._need = self._squares = 0
        """Sums over the episodes in flight: of `need`, and of `rest` squared."""
        self._parked = 0
        """Predicted pico-dollars to finish those that this call had to leave."""
        self._news = 0
        """Episodes learned of since the lanes were last predicted."""
        self.unfinished = 0
        """Episodes that had started and for which the money did not last."""
        self._predict_lanes()

    @property
    def in_flight(self) -> int:
        """Episodes that have started and neither ended nor been left."""
        return len(self._flights)

    def next(self, name: str) -> Episode | None:
        """The lane's next episode, which thereby starts; None where it has to wait (`why`) or has none left."""
        self._look()
        line = self.lines[name]
        if not self.free(line):
            return None
        episode, line.head = line.head, None
        assert episode is not None
        self._start(line, episode)
        return episode

    def free(self, line: Line) -> bool:
        """Whether the lane's next episode may start now. Closes a lane that has none left."""
        if line.head is None and line.open:
            line.head = next(line.todo, None)
            line.open = line.head is not None
        line.why = "" if line.head is None or not line.open else self._why_not(line, line.head)
        return line.open and not line.why

    def close(self, name: str) -> None:
        """Nobody of this lane will start any more: what it owes is kept for nobody."""
        self.lines[name].open = False

    def came(self, episode: str) -> tuple[int, int]:
        """How far an admitted episode has come: (pico-dollars, requests)."""
        return self._flights[episode].came()

    def seated(self, episode: str, came: Came) -> None:
        """An admitted episode can be watched."""
        self._flights[episode].came = came

    def left(self, episode: str, how: str) -> None:
        """An episode has ended, or was left (`unavailable`, `internal_error`, `stopped`)."""
        flight = self._flights.pop(episode)
        self._need -= flight.need
        self._squares -= flight.rest**2
        cost, requests = flight.came()
        line, cell = flight.line, self._cells[flight.place]
        line.flights -= 1
        if how not in LEFT_OWED:
            line.seconds += self._clock() - flight.since
            line.requests += max(1, requests - flight.before)
        elif how == "unavailable":
            self._parked += round(self.forecast.rest(*flight.place, cost=cost, requests=requests))
        cell.ended[flight.number] = None if how in LEFT_OWED else (cost, requests)
        while cell.learned in cell.ended:
            seen = cell.ended.pop(cell.learned)
            cell.learned += 1
            if seen is not None:
                self.forecast.learn(*flight.place, cost=seen[0], requests=seen[1])
                self._news += 1

    def stuck(self) -> bool:
        """Whether nothing is in flight and nothing may start, so that nothing will ever change."""
        return not self._flights and not any(self.free(line) for line in self.lines.values())

    def why(self) -> str:
        """What holds the lanes back: `budget` before `deadline`; empty if nothing does."""
        words = {line.why for line in self.lines.values()}
        return next((word for word in ("budget", "deadline") if word in words), "")

    def owed(self) -> int:
        """Predicted pico-dollars to end everything that has not ended."""
        self._predict_lanes()
        flying = sum(self._rest(flight) for flight in self._flights.values())
        return round(sum(line.owing for line in self.lines.values())) + flying + self._parked

    def doubt(self, place: Place) -> float:
        """How far a cell's prediction may be off, relatively: as far as itself before anything has ended."""
        return 1 / math.sqrt(1 + self.forecast.ended(*place))

    def _why_not(self, line: Line, episode: Episode) -> str:
        place = (episode.cell.agent.name, episode.suite.name)
        begun = line.begun.get(episode.id)
        if self._deadline is not None:
            requests = max(1.0, self.forecast.whole(*place).requests - (0 if begun is None else begun[2]))
            if self._clock() + requests * (1 + SURE * SPREAD) * line.step_s > self._deadline:
                return "deadline"
        stats = self._stats()
        if stats.budget is None:
            return ""
        own = self._whole(place, begun)
        sure = SURE * SPREAD * math.sqrt(self._squares + own**2)
        need = (self._need + own * (1 + self.doubt(place)) + sure) * _with_failures(stats)
        others = self._others(line, fresh=begun is None)
        return "budget" if stats.spent + need + others + self._request(line, episode) > stats.budget else ""

    def _others(self, line: Line, *, fresh: bool) -> float:
        """Predicted cost of bringing every other lane as far as this one will be, and of what they have begun."""
        reach = (line.done + 1) / line.planned
        found = float(self._parked)
        for other in self.lines.values():
            left = other.left if other is not line and other.open else 0
            if not left:
                continue
            due = reach * other.planned - other.done
            share = other.doubted * min(1.0, max(0.0, due / left))
            found += max(share, other.owing_begun) if fresh else share
        return found

    def _request(self, line: Line, episode: Episode) -> int:
        """Room for one more request of any lane that is playing: it is bounded far above what it will cost."""
        cell = episode.cell
        kind = line.name, cell.agent.name, cell.env.name
        if kind not in self._bounds:
            self._bounds[kind] = self._first_bound(episode)
        playing = (one.bound() for one in self.lines.values() if one.flights or one is line)
        return max(self._bounds[kind], *playing)

    def _start(self, line: Line, episode: Episode) -> None:
        place = (episode.cell.agent.name, episode.suite.name)
        begun = line.begun.pop(episode.id, None)
        own = self._whole(place, begun)
        cost, requests = (0, 0) if begun is None else begun[1:]
        cell = self._cells.setdefault(place, _Learning())
        flight = _Flight(
            line=line,
            place=place,
            came=lambda: (cost, requests),
            since=self._clock(),
            before=requests,
            number=cell.admitted,
        )
        cell.admitted += 1
        self._flights[episode.id] = flight
        self._round.append(episode.id)
        self._take(flight, own)
        line.flights += 1
        line.taken += 1
        line.owing = max(0.0, line.owing - own)
        line.doubted = max(0.0, line.doubted - flight.need)
        if begun is None:
            line.fresh[place] -= 1
        else:
            line.owing_begun = max(0, line.owing_begun - own)

    def _whole(self, place: Place, begun: tuple[Place, int, int] | None) -> int:
        if begun is None or not begun[2]:
            return round(self.forecast.whole(*place).cost)
        return round(self.forecast.rest(*place, cost=begun[1], requests=begun[2]))

    def _rest(self, flight: _Flight) -> int:
        cost, requests = flight.came()
        return self._whole(flight.place, (flight.place, cost, requests))

    def _take(self, flight: _Flight, rest: int) -> None:
        """Predict one flight anew."""
        need = round(rest * (1 + self.doubt(flight.place)))
        self._need += need - flight.need
        self._squares += rest**2 - flight.rest**2
        flight.rest, flight.need = rest, need

    def _look(self) -> None:
        """Predict some flights anew, in turn; and the lanes, once as many episodes were learned as there are cells."""
        for _ in range(min(LOOKS, len(self._round))):
            name = self._round.popleft()
            flight = self._flights.get(name)
            if flight is not None:
                self._take(flight, self._rest(flight))
                self._round.append(name)
        if self._news >= sum(len(line.fresh) for line in self.lines.values()) > 0:
            self._predict_lanes()

    def _predict_lanes(self) -> None:
        self._news = 0
        for line in self.lines.values():
            owing = {place: count * self.forecast.whole(*place).cost for place, count in line.fresh.items()}
            line.owing_begun = sum(self._whole(one[0], one) for one in line.begun.values())
            line.owing = sum(owing.values()) + line.owing_begun
            line.doubted = line.owing + sum(cost * self.doubt(place) for place, cost in owing.items())


def _with_failures(stats: BudgetStats) -> float:
    """What is spent in all on a dollar of replies, charges for failed attempts included."""
    settled = stats.session - stats.charged
    return stats.session / settled if settled > 0 else 1.0
