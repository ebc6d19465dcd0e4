"""Whether a new agent is worse than an old one by more than a margin: tests of a gate, which ends at the first answer.

D is the difference of an instance's scores, the new agent's less the old one's; its evidence is that of `evidence.py`.
With a margin m above 0 and k tests of one gate

    not worse   "the mean is at most -m" is refuted with evidence of 1 / alpha
    worse       "the mean is at least 0" is refuted with evidence of k / alpha

whichever comes first; both at one look say `not worse`. A gate passes if all its tests say `not worse`, and fails as
soon as one says `worse`.

**What is promised.** If no mean is below 0, the gate fails in at most alpha of all runs: the k tests share alpha. If
some mean is -m or less, it passes in at most alpha: to pass it needs that very test, which says `not worse` in at most
alpha (a test of a union against an intersection; Berger 1982). No division by k is needed there. Between -m and 0 both
answers are true: the new agent is worse, by less than the margin. The one that is easier to show comes first, which
is `not worse` above -m / 2.

A share that must not pass a limit, from draws between 0 and 1, is refuted likewise, one of the k.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from evalkit.stats.evidence import DIFFERENCES, Evidence
from evalkit.stats.sequential import capital, log_gains, mixed

GateWord = Literal["not worse", "worse", "undecided"]

MOST_DRAWS = 1_000_000
"""Beyond which nothing is forecast."""


class MarginTest:
    """One test of a gate; grows draw by draw, in the frozen order."""

    __slots__ = ("_margin", "_not_worse", "_worse", "alpha", "tests")

    def __init__(self, *, margin: float, alpha: float, tests: int, turn: int = 1, centred: bool = False) -> None:
        """`tests`: k. Raises ValueError for a margin that is not above 0 and below 1."""
        self._margin, self.alpha, self.tests = margin, alpha, tests
        # An evidence splits its alpha over both sides, of which one is used of each.
        self._not_worse, self._worse = (
            Evidence(bounds=DIFFERENCES, margin=margin, turn=turn, alpha=2 * part, centred=centred)
            for part in (alpha, alpha / tests)
        )

    @property
    def turn(self) -> int:
        """Draws between two looks."""
        return self._worse.turn

    @property
    def seen(self) -> int:
        """Draws so far, those of a turn that is not whole among them."""
        return self._worse.seen

    @property
    def draws(self) -> int:
        """Those that count."""
        return self._worse.draws

    @property
    def mean(self) -> float:
        """Of them; nan before the first turn."""
        return self._worse.mean

    def add(self, draws: Sequence[float]) -> None:
        """Take the next differences, from -1 to 1. Raises ValueError."""
        self._not_worse.add(draws)
        self._worse.add(draws)

    @property
    def answered(self) -> tuple[int, GateWord]:
        """(draws, answer) of the first look that gave one; (0, `undecided`) before."""
        passed = self._not_worse.refuted_at(-self._margin, up=True)
        failed = self._worse.refuted_at(0.0, up=False)
        if passed and (not failed or passed <= failed):
            return passed, "not worse"
        return (failed, "worse") if failed else (0, "undecided")

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high): below `low` is the mean in at most alpha of all runs, above `high` in alpha / k."""
        low = self._not_worse.interval(2 * self.alpha)[0]
        high = self._worse.interval(2 * self.alpha / self.tests)[1]
        return min(low, high), max(low, high)


def exceeded(shares: Sequence[float], limit: float, *, alpha: float, tests: int, turn: int = 1) -> bool:
    """Whether the mean of draws from 0 to 1, in the frozen order, is shown to be above a limit."""
    if len(shares) < turn:
        return False
    return bool(capital(np.asarray(shares, np.float64), limit, up=True, turn=turn)[-1] >= math.log(tests / alpha))


def draws_to_answer(draws: Sequence[float], *, margin: float, alpha: float, tests: int) -> float:
    """How many draws like these an answer would take, on average; inf if more than `MOST_DRAWS`, or without any."""
    if not draws:
        return math.inf
    shares = (np.asarray(draws, np.float64) + 1) / 2
    ways = (((1 - margin) / 2, True, math.log(1 / alpha)), (0.5, False, math.log(tests / alpha)))
    return min(_enough(log_gains(shares, guess, up=up).mean(axis=-1), wanted) for guess, up, wanted in ways)


def _enough(gain: "np.typing.NDArray[np.float64]", wanted: float) -> float:
    """Draws until bets that gain so much a draw have it; `gain`: shape (bets,)."""
    most = 1
    while mixed(most * gain) < wanted:
        most *= 2
        if most > MOST_DRAWS:
            return math.inf
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if mixed(middle * gain) >= wanted else (middle, most)
    return float(most)
