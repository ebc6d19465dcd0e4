"""What the coordinator keeps of episodes on their way, of lanes, and of workers; and what it wants of whoever deals."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from evalkit.engine.machines.messages import Directive, EpisodePlace, Left, Renew


class Dealt(Struct, frozen=True, kw_only=True):
    """An episode on its way to a worker."""

    id: str
    lane: str
    place: EpisodePlace
    since: int = -1
    """The first worker that may play it: those before it do not know all its rows. -1: any."""


class Dealer(Protocol):
    """Where episodes come from, and who wants to know how they ended."""

    def deal(self, lane: str, most: int) -> list[Dealt]:
        """The lane's next episodes that may start now."""

    def remaining(self, lane: str) -> int:
        """Episodes of a lane that have not been dealt."""

    def over(self, lane: str) -> bool:
        """Whether none of the lane's episodes will start any more."""

    def left(self, episodes: Sequence[tuple[Dealt, Left]]) -> None:
        """A worker has left episodes, durably."""

    def unplayed(self, dealt: Dealt) -> None:
        """An episode was dealt, and will not be played in this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtLane:
    """One lane."""

    name: str
    width: int
    """Episodes in flight at once, at all workers together."""
    model: bool
    canary: bool = False
    """Whether few episodes play until one has made a valid action."""
    seats: int = 1 << 30
    """Workers that play it at once: where a limit is so low that more would have nothing of it."""


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """A worker that has said hello."""

    writer: str
    order: int
    """Workers are numbered as they begin."""
    widths: dict[str, int]
    heard: float
    outstanding: dict[str, Dealt] = field(default_factory=dict)
    _held: Counter[str] = field(default_factory=Counter)
    report: Renew | None = None
    _ended: Counter[str] = field(default_factory=Counter)
    """By lane: the episodes that it has left."""
    _lately: deque[tuple[float, int, dict[str, int]]] = field(default_factory=deque)
    """(when it was reported, what was spent then, and what `_ended` was)."""
    leaving: bool = False
    """Whether it was told that it is to end, or said so."""
    anew: bool = False
    """Whether it is to end and to begin again, so that it may go on with what others have left."""

    def remember(self, now: float, spent: int, over_s: float) -> None:
        """What it has reported; of earlier reports, those of the last `over_s` count."""
        lately = self._lately
        lately.append((now, spent, dict(self._ended)))
        while len(lately) > 2 and lately[1][0] <= now - over_s:
            lately.popleft()

    def spending(self) -> float:
        """Pico-dollars a second over the last reports."""
        (since, before, _), (now, spent, _) = self._lately[0], self._lately[-1]
        return (spent - before) / (now - since) if now > since else 0.0

    def ending(self, lane: str) -> float:
        """Episodes of a lane that it leaves a second, over the last reports."""
        (since, _, before), (now, _, ended) = self._lately[0], self._lately[-1]
        return (ended.get(lane, 0) - before.get(lane, 0)) / (now - since) if now > since else 0.0

    def of_lane(self, lane: str) -> int:
        """Episodes of a lane that it has."""
        return self._held[lane]

    def take(self, lane: str, episodes: Sequence[Dealt]) -> None:
        """It has these episodes of a lane now."""
        self.outstanding.update({dealt.id: dealt for dealt in episodes})
        self._held[lane] += len(episodes)

    def drop(self, episode: str) -> Dealt | None:
        """It has one no more; None if it had it not."""
        dealt = self.outstanding.pop(episode, None)
        if dealt is not None:
            self._held[dealt.lane] -= 1
        return dealt

    def drop_all(self, left: Iterable[Left]) -> list[tuple[Dealt, Left]]:
        """It has left these; those that it had."""
        dropped = [(dealt, one) for one in left if (dealt := self.outstanding.pop(one.episode, None)) is not None]
        for dealt, _ in dropped:
            self._held[dealt.lane] -= 1
            self._ended[dealt.lane] += 1
        return dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDecision:
    """An answer, and what must be durable before it is sent."""

    answer: Directive
    lent: int = 0
    returned: int = 0
    """Given back by the worker: lent anew only after this is durable (`settled`)."""
