"""What the episodes in flight and those that are to start need of the budget, as `admission.py` predicts it, and what
it must be told for that."""

import math
from typing import NamedTuple, Protocol

from evalkit.client.budget import BudgetStats
from evalkit.engine.forecast import Expected

SURE = 2.0
"""Standard deviations that are kept in reserve, because started episodes may need more than predicted."""
SPREAD = 0.5
"""The standard deviation of an episode's cost, relative to its mean, as admission assumes it."""

Figures = tuple[int, float, float]
"""Of a cell: pico-dollars of a whole episode, `doubt` and `_blind`."""
NOTHING: tuple[Figures, float] = (0, 0.0, 0.0), 0.0
"""Figures, and room for a request, below all others."""


class Predicts(Protocol):
    """What admission needs of a forecast."""

    def whole(self, agent: str, suite: str) -> Expected:
        """What a whole episode is expected to take."""

    def rest(self, agent: str, suite: str, *, cost: int, requests: int) -> float:
        """Pico-dollars to finish an episode from its present position."""

    def learn_many(self, agent: str, suite: str, count: int, cost: int, squares: float, requests: int) -> None:
        """`count` episodes have ended, with these totals; `squares`: sum of their squared costs."""

    def ended(self, agent: str, suite: str) -> int:
        """How many it has learned of."""


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


class InFlight(NamedTuple):
    """Sums over the episodes that have started: of what each needs, of the part of it that is kept back because the
    cell's mean may be wrong, and of what is predicted, squared."""

    need: int
    doubts: int
    squares: int


def needed_with(flying: InFlight, own: Figures, *, before: int, alone: bool, stats: BudgetStats) -> float:
    """Pico-dollars to finish the episodes in flight, `before` others with these figures, and one more; `alone`: whether
    nothing is in flight."""
    cost, doubt, blind = own
    more, more_doubt = round(cost * (1 + blind)), round(cost * doubt)
    need, doubts = flying.need + before * (more + more_doubt), flying.doubts + before * more_doubt
    blind = 0.0 if alone and not before else blind
    all_doubts = doubts + cost * doubt
    scatter = SURE * SPREAD * math.sqrt(flying.squares + before * cost**2 + cost**2)
    # Charges scatter too, each by the bound of a request. Without them, a mean that is wrong and episodes that scatter
    # around it are two causes, so their squares add up.
    sure = all_doubts + scatter if stats.charged else math.hypot(all_doubts, scatter)
    return (need - doubts + cost * (1 + blind) + sure) * _with_failures(stats)


def _with_failures(stats: BudgetStats) -> float:
    """What is spent in total per dollar of replies, including charges for failed attempts."""
    settled = stats.session - stats.charged
    return stats.session / settled if settled > 0 else 1.0
