"""Procurement in numbers: quantities of deals in; what the plan cost and how many workers it supports out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from evalkit.dialogue import ToolCall
from evalkit.envs.procurement.instance import market_of
from evalkit.envs.procurement.market import ProcurementMarket, workers_of
from evalkit.envs.procurement.plan import OVER
from evalkit.envs.procurement.procurement import RULES
from evalkit.envs.replay import Turn
from evalkit.integrations.gym.episode import PeriodsEnv

MOST = 1e12
"""The bound of the figures in observations, which they do not reach."""


class ProcurementEnv(PeriodsEnv):
    """A suite of procurement; a step is a period.

    An action is the quantity of each deal, from 0 to `most`.

    Observations: `period`, that comes next; of the last plan, `feasible`, its `workers` and its `cost`, as the history
    shows them (0: it does not); `budget`; by deal `price`, `fixed` cost and `least` quantity; and `contents`, units of
    each item in each deal. Amounts are in currency.
    """

    environment = "procurement"
    rules = RULES

    def __init__(self, suite: str = "procurement/basic", *, most: int = 200, **others: Any) -> None:
        """As `GameEnv`. `most`: the largest quantity of a deal; the best plans buy up to 497 of one."""
        super().__init__(suite, **others)
        deals, items, periods = self.same("deals, items or periods", lambda one: (*_size(one), one.periods))
        self.action_space = MultiDiscrete(np.full(deals, most + 1))
        amount, amounts = Box(0.0, MOST, (1,), np.float64), Box(0.0, MOST, (deals,), np.float64)
        self.observation_space = Dict(
            period=Discrete(periods + 1),
            workers=amount,
            cost=amount,
            feasible=Discrete(2),
            price=amounts,
            fixed=amounts,
            least=amounts,
            budget=amount,
            contents=Box(0.0, MOST, (deals, items), np.float64),
        )

    def begun(self) -> None:
        """The market, and what the menu says."""
        self._market = market_of(self.loaded()).market
        self._menu = _menu(self._market)

    def answer(self, action: Any) -> Sequence[ToolCall]:
        """The reply that submits the plan."""
        quantities = np.asarray(action, np.int64).reshape(len(self._market.deals)).tolist()
        deals = zip(self._market.deals, quantities, strict=True)
        return self.submitting({deal.id: quantity for deal, quantity in deals if quantity})

    def observed(self, turn: Turn | None) -> dict[str, Any]:
        """What the last plan cost and supports, and the menu."""
        action = (turn.facts.get("action") if turn else None) or {"feasible": False, "reasons": ()}
        shown = action["feasible"] or any(reason["reason"] == OVER for reason in action["reasons"])
        aggregate = self._market.aggregate
        workers = round(workers_of(action["totals"], aggregate), 2) if action["feasible"] else 0.0
        return {
            "period": self.period(turn),
            "workers": np.array([workers]),
            "cost": np.array([action["cost"] / 100 if shown else 0.0]),
            "feasible": np.int64(action["feasible"]),
            **{name: values.copy() for name, values in self._menu.items()},
        }


def _size(instance: Any) -> tuple[int, int]:
    market = market_of(instance).market
    return len(market.deals), len(market.items)


def _menu(market: ProcurementMarket) -> dict[str, Any]:
    """What the menu says, as arrays."""
    contents = np.zeros((len(market.deals), len(market.items)))
    for row, deal in zip(contents, market.deals, strict=True):
        for item, units in deal.contents:
            row[item] = units
    return {
        "price": np.array([deal.price / 100 for deal in market.deals]),
        "fixed": np.array([deal.fixed / 100 for deal in market.deals]),
        "least": np.array([float(deal.least) for deal in market.deals]),
        "budget": np.array([market.budget / 100]),
        "contents": contents,
    }
