"""Pricing in numbers: prices in, on a scale that the first hint gives; what was sold out."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from evalkit.dialogue import ToolCall
from evalkit.envs.environment import Score
from evalkit.envs.pricing.instance import market_of, optimum_of
from evalkit.envs.pricing.optimum import hint
from evalkit.envs.pricing.pricing import RULES
from evalkit.envs.replay import Turn
from evalkit.integrations.gym.episode import PeriodsEnv

MOST = 1e12
"""The bound of the figures in observations, which they do not reach."""

_STEEP = 4.0
"""Logarithm of the highest price over the scale."""
_COSTS = 10.0
"""The scale without a hint, over the highest cost."""


class PricingEnv(PeriodsEnv):
    """A suite of pricing; a step is a period.

    An action is an array (products,) from -1 to 1: the price is scale * exp(4 x). The scale is the hint of the first
    period, or else ten times the highest cost; it is in `info` after `reset`.

    Observations: `period`, that comes next; its `hint` (0: there is none); and by product `prices`, `quantities`,
    `profits` and `costs` of the last period, with two decimals, as the history shows them. Before the first period,
    they are 0.

    Of the rewards, `dense` is the period's profit over the best profit of all periods: they add up to the mean share of
    the best profit in all periods, and not to the score, which counts the last ones only.
    """

    environment = "pricing"
    rules = RULES
    rewards: ClassVar[tuple[str, ...]] = ("score", "terminal", "dense")

    def __init__(self, suite: str = "pricing/basic", **others: Any) -> None:
        """As `GameEnv`."""
        super().__init__(suite, **others)
        self._products, self._periods = self.same("products or periods", lambda one: (one.products, one.periods))
        figures = Box(-MOST, MOST, (self._products,), np.float64)
        self.action_space = Box(-1.0, 1.0, (self._products,), np.float32)
        self.observation_space = Dict(
            period=Discrete(self._periods + 1),
            hint=Box(0.0, MOST, (1,), np.float64),
            prices=figures,
            quantities=figures,
            profits=figures,
            costs=figures,
        )
        self._scale = 0.0

    def begun(self) -> None:
        """The market and the scale of its prices."""
        instance = self.loaded()
        self._market, self._hinted = market_of(instance), instance.hint
        self._best = optimum_of(instance).profit
        self._scale = (self._hint(0) if self._hinted else 0.0) or _COSTS * max(self._market.costs) or 1.0

    def answer(self, action: Any) -> Sequence[ToolCall]:
        """The reply that sets the prices."""
        places = np.clip(np.asarray(action, np.float64).reshape(self._products), -1.0, 1.0)
        prices = (self._scale * math.exp(_STEEP * float(place)) for place in places)
        return self.submitting(dict(zip(self._market.products, prices, strict=True)))

    def observed(self, turn: Turn | None) -> dict[str, Any]:
        """What was sold in the last period."""
        action = turn.facts.get("action") if turn else None
        figures = {
            name: np.round(action[name], 2) if action else np.zeros(self._products)
            for name in ("prices", "quantities", "profits")
        }
        costs = np.round(self._market.costs, 2) if action else np.zeros(self._products)
        period = self.period(turn)
        most = self._hint(int(period)) if self._hinted and period < self._periods else 0.0
        return {"period": period, "hint": np.array([most]), **figures, "costs": costs}

    def told(self, turn: Turn | None) -> dict[str, Any]:
        """The scale of prices, at the beginning."""
        return {} if turn else {"scale": self._scale}

    def earned(self, turn: Turn, score: Score | None) -> float:
        """A share of the best profit, where that is asked for."""
        if self.reward != "dense":
            return super().earned(turn, score)
        profits = turn.facts.get("action", {}).get("profits", ())
        return float(math.fsum(profits) / (self._periods * self._best))

    def _hint(self, period: int) -> float:
        return float(hint(self._market, period, self._periods))
