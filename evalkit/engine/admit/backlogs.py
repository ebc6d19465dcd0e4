"""What each lane still has to start and what has started, for `admission.py`."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from evalkit.engine.universe import PlannedEpisode

Place = tuple[str, str]
"""Agent and suite."""
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
    bound: Callable[[], int] = lambda: 0
    """The most that one of its requests was bounded by, in pico-dollars."""
    head: PlannedEpisode | None = None
    deferred: dict[str, deque[PlannedEpisode]] = field(default_factory=dict)
    """By agent: episodes that its own budget has no room for yet."""
    undrawn: Counter[str] = field(default_factory=Counter)
    """By agent: episodes that are still in `todo`."""
    left: int = 0
    """Episodes that have not been admitted, and may be."""
    open: bool = True
    why: str = ""
    """What the head waits for: `budget` or `deadline`; empty if it need not wait."""
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

    def draw(self) -> PlannedEpisode | None:
        """The next episode in order, from now on drawn."""
        episode = next(self.todo, None) if max(self.undrawn.values(), default=0) > 0 else None
        if episode is None:
            self.undrawn.clear()
        else:
            self.undrawn[episode.cell_key[0]] -= 1
        return episode

    @property
    def done(self) -> int:
        """Episodes that need not be admitted any more."""
        return self.ended + self.broken + self.taken

    def __post_init__(self) -> None:
        """Count what there is to play."""
        for cell_key, count in self.fresh.items():
            self.undrawn[cell_key[0]] += count
        self.undrawn.update(cell_key[0] for cell_key, _, _ in self.begun.values())
        self.left = self.undrawn.total()

    @property
    def step_s(self) -> float:
        """Seconds from one request of an episode to its next, queues included; 0: not known."""
        return self.seconds / self.requests if self.requests else self.reply_s()


@dataclass(slots=True)
class Learning:
    """A cell's ended episodes that wait for one that was admitted before them."""

    admitted: int = 0
    learned: int = 0
    ended: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """By number; None: it was left without an ending."""

    def news(self) -> tuple[int, int, float, int]:
        """Of those that wait for none any more: how many there are, and the sums of their pico-dollars, of these
        squared, and of their requests."""
        count = cost = requests = 0
        squares = 0.0
        while self.learned in self.ended:
            seen = self.ended.pop(self.learned)
            self.learned += 1
            if seen is not None:
                count += 1
                cost += seen[0]
                squares += float(seen[0]) ** 2
                requests += seen[1]
        return count, cost, squares, requests


class Flight(Struct, kw_only=True):
    """An episode that has started."""

    backlog: LaneBacklog
    cell_key: Place
    since: float
    before: int
    """Requests of earlier calls."""
    learning: Learning
    """Of its cell."""
    number: int
    """Its place among those that its cell has admitted."""
    cost: int
    requests: int
    """Its progress as far as it was told, earlier sessions included; `cost` in pico-dollars."""
    came: Came | None = None
    """Reads its progress, where this process plays it."""
    rest: int = 0
    need: int = 0
    """`rest` and what is kept back because the prediction is doubted."""
    doubt: int = 0
    """The part of `need` that is kept back because the cell's mean may be wrong."""

    def progress(self) -> tuple[int, int]:
        """(pico-dollars, requests)."""
        return (self.cost, self.requests) if self.came is None else self.came()
