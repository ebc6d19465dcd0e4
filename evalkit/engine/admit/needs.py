"""What the episodes in flight and those that are to start need of the budget, as `admission.py` predicts it, and what
it must be told for that."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from evalkit.client.budget import BudgetStats
from evalkit.client.budget_state import Ceiling
from evalkit.engine.forecast import Expected

# How much of the run's money single agents may spend, for admission.
#
# `client/budget.py` enforces the hard ceilings: no request can exceed them. Here they are compared with the predicted
# cost of the started episodes, so that an agent's money ends between episodes and not within them.

Scope = tuple[str, str]
"""(`agent`, its name)."""


class Ceilings:
    """The ceilings of a sweep, with what the episodes in flight below each are predicted to need."""

    def __init__(self, ceilings: Mapping[Scope, Ceiling]) -> None:
        self._ceilings = ceilings
        self.scopes = frozenset(ceilings)
        """Those that have one."""
        self._need = Counter[Scope]()
        self._flights = Counter[Scope]()
        self.used_up: set[Scope] = set()
        """Those under which no episode will start any more."""

    def start(self, agent: str) -> None:
        """An episode has started; its need follows."""
        self._flights["agent", agent] += 1

    def end(self, agent: str) -> None:
        """An episode has ended or was left; its need has been taken back."""
        self._flights["agent", agent] -= 1

    def need(self, agent: str, change: int) -> None:
        """The predicted need of a started episode has changed by so many pico-dollars."""
        self._need["agent", agent] += change

    def bound(self, scope: Scope) -> bool:
        """Whether there is a ceiling."""
        return scope in self.scopes

    def fits(self, scope: Scope, more: float) -> bool:
        """Whether `more` pico-dollars fit below a ceiling, together with what it has spent and needs."""
        ceiling = self._ceilings[scope]
        return ceiling.before + ceiling.spent + self._need[scope] + more <= ceiling.budget

    def over(self, scope: Scope) -> bool:
        """Whether a ceiling that has no room for the next episode will stay so."""
        if not self._flights[scope]:
            self.used_up.add(scope)
        return scope in self.used_up

    def words(self) -> Iterator[tuple[str, str, int]]:
        """(`agent`, name, budget in pico-dollars) of those that are used up."""
        for scope in sorted(self.used_up):
            yield *scope, self._ceilings[scope].budget


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
