"""What each lane still has to start and what has started, for `admission.py`."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from evalkit.engine.universe import PlannedEpisode

Place = tuple[str, str]
"""Agent and suite."""
RECENT, LEAST_FLIGHTS = 8, 8
"""Requests of each episode in flight, of so many episodes at least, over which a lane's pace is averaged."""
Came = Callable[[], tuple[int, int]]
"""The progress of an episode: (pico-dollars, requests), earlier sessions included."""


@dataclass(slots=True, kw_only=True)
class LaneBacklog:
    """The episodes of one lane in this call."""

    name: str
    todo: Iterator[PlannedEpisode]
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
    """Episodes to play that have not started."""
    begun: dict[str, tuple[Place, int, int]] = field(default_factory=dict)
    """Those that earlier calls have started and that wait to be continued, by id: place, pico-dollars, requests."""
    reply_s: Callable[[], float] = lambda: 0.0
    """Seconds a reply takes, as far as the lane knows; 0: not yet."""
    quick_s: Callable[[], float] = lambda: 0.0
    """Of a lane that may go by a slow tier: seconds that a request takes by the quick one; 0: not known."""
    bound: Callable[[], int] = lambda: 0
    """The most that one of its requests was bounded by, in pico-dollars."""
    head: PlannedEpisode | None = None
    """The one that is next."""
    number: int = 0
    """Its place in the order in which they were drawn."""
    held_back: dict[Place, deque[tuple[int, PlannedEpisode]]] = field(default_factory=dict)
    """Drawn before `head`, and barred by the deadline or by their agent's own budget: numbers and episodes."""
    undrawn: Counter[Place] = field(default_factory=Counter)
    """Episodes that are still in `todo`."""
    drawn: int = 0
    left: int = 0
    """Episodes that have not been admitted, and may be."""
    open: bool = True
    why: str = ""
    """What the next one waits for: `budget` or `deadline`; empty if it need not wait."""
    flights: int = 0
    taken: int = 0
    """Episodes that this call has admitted."""
    owing: float = 0.0
    """Predicted pico-dollars of all that it has not admitted."""
    unsure: float = 0.0
    """How much more that may be, since of some cells nothing but a stand-in is known."""
    seconds: float = 0.0
    requests: float = 0.0
    """What episodes have taken lately, for `step_s`."""

    def __post_init__(self) -> None:
        """Count what there is to play."""
        self.undrawn = self.fresh + Counter(place for place, _, _ in self.begun.values())
        self.left = self.undrawn.total()

    def draw(self) -> PlannedEpisode | None:
        """The next episode in order, from now on drawn."""
        episode = next(self.todo, None) if max(self.undrawn.values(), default=0) > 0 else None
        if episode is None:
            self.undrawn.clear()
        else:
            self.undrawn[episode.cell_key] -= 1
            self.drawn = self.number = self.drawn + 1
        return episode

    def strike(self, agent: str, suite: str | None = None) -> None:
        """No further episode of an agent starts, on a suite or on any."""

        def struck(place: Place) -> bool:
            return place[0] == agent and suite in (None, place[1])

        if self.head is not None and struck(self.head.cell_key):
            self.head, self.left, self.planned = None, self.left - 1, self.planned - 1
        for place in [place for place in {*self.held_back, *self.undrawn} if struck(place)]:
            gone = len(self.held_back.pop(place, ())) + self.undrawn.pop(place, 0)
            self.left, self.planned = self.left - gone, self.planned - gone
        self.fresh = Counter({place: count for place, count in self.fresh.items() if not struck(place)})
        self.begun = {name: begun for name, begun in self.begun.items() if not struck(begun[0])}

    def hear(self, seconds: float, requests: int) -> None:
        """An episode has made requests in this time. What is older than some requests of each episode in flight counts
        for less and less: windows open and providers slow down."""
        self.seconds, self.requests = self.seconds + seconds, self.requests + requests
        if self.requests > RECENT * max(LEAST_FLIGHTS, self.flights):
            self.seconds, self.requests = self.seconds / 2, self.requests / 2

    @property
    def done(self) -> int:
        """Episodes that need not be admitted any more."""
        return self.ended + self.broken + self.taken

    @property
    def asked(self) -> float:
        """Predicted pico-dollars of those that this call is still to admit."""
        return self.owing * min(1.0, max(0, self.planned - self.done) / self.left) if self.open and self.left else 0.0

    @property
    def step_s(self) -> float:
        """Seconds from one request of an episode to its next, queues included; 0: not known. Of a lane with a slow tier
        those of the quick one, by which it goes where time is short."""
        quick_s = self.quick_s()
        if quick_s:
            return quick_s
        return self.seconds / self.requests if self.requests else self.reply_s()


@dataclass(slots=True)
class LearningQueue:
    """A cell's ended episodes that wait for one that was admitted before them: short ones end first, and would make the
    others look cheaper than they are."""

    admitted: int = 0
    learned: int = 0
    ended: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """By number; None: it was left without an ending."""

    def news(self) -> list[tuple[int, int]]:
        """Those that wait for none any more: pico-dollars and requests of each."""
        news = []
        while self.learned in self.ended:
            seen = self.ended.pop(self.learned)
            self.learned += 1
            if seen is not None:
                news.append(seen)
        return news


class Flight(Struct, kw_only=True):
    """An episode that has started."""

    backlog: LaneBacklog
    cell_key: Place
    number: int
    """Its place among those that its cell has admitted."""
    cost: int
    requests: int
    """Its progress as far as it was told, earlier sessions included; `cost` in pico-dollars."""
    heard: tuple[int, int]
    """The progress that the forecast has heard of, ..."""
    heard_at: float
    """... and when it was."""
    came: Came | None = None
    """Reads its progress, where this process plays it."""
    rest: float = 0.0
    """Predicted pico-dollars to finish it."""

    def progress(self) -> tuple[int, int]:
        """(pico-dollars, requests)."""
        return (self.cost, self.requests) if self.came is None else self.came()


class ToldProgress(Protocol):
    """How far an episode has come that another process plays."""

    @property
    def episode(self) -> str:
        """Its id."""

    @property
    def cost(self) -> int:
        """Pico-dollars, earlier sessions included, as are its requests."""

    @property
    def requests(self) -> int:
        """How many."""
