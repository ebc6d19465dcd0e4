"""How much of the run's money single agents may spend, for admission.

`client/budget.py` enforces the hard ceilings: no request can exceed them. Here they are compared with the predicted
cost of the started episodes, so that an agent's money ends between episodes and not within them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from evalkit.client.budget_state import Ceiling

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
