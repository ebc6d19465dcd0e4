"""The best prices and what they earn: in closed form, and the same profit in every period.

In x = price / alpha neither demand nor profit depends on alpha, so the best x, and the best profit, never change. There
every product has the same markup m = x - cost: with K the groups' weight at cost (x = cost for all) and O the weight of
buying nothing,

    y e^y = K / (e O),   m = mu (1 + y),   profit = customers * mu * y.

Why: dividing the derivative of the profit by q_i shows that all markups of a group are equal, and then that groups'
are. What is left is one equation for m, with one solution. Dropping a product lowers K and so y; it is the maximum.

Source: math.md, section 2; specification of the reference, sections A.3 (hints) and D.3.
Differs: the reference searches numerically at 20 periods and takes medians; its profit is within 4e-13 of this one.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from evalkit.envs.pricing.demand import PricingMarket

BLOCK = 10
"""Periods for which one hint holds."""

_MOST_ROUNDS = 60
"""Of Newton's method; it takes about six."""


LEAST_PROFIT = 1.0
"""A period, at best: profits are counted with two decimals."""


class PricingOptimum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the best prices earn."""

    profit: Annotated[float, Meta(ge=LEAST_PROFIT, le=1e12)]
    """A period, all products together."""
    markup: Annotated[float, Meta(ge=0.0, le=1e12)]
    """Of every product: price / alpha - cost."""


@lru_cache(maxsize=64)
def solve(market: PricingMarket) -> PricingOptimum:
    """The optimum of every period."""
    rest, mu = 1 - market.sigma, market.mu
    at_cost = [
        rest * _log_sum([(market.qualities[i] - market.costs[i]) / (mu * rest) for i in members])
        for members in market.members
    ]
    nothing = rest * math.log(rest) if market.nothing is None else -math.log(market.nothing)
    y = lambert(_log_sum(at_cost) - 1 + nothing)
    return PricingOptimum(profit=market.customers * mu * y, markup=mu * (1 + y))


def _log_sum(exponents: Sequence[float]) -> float:
    """log of the sum of exp."""
    top = max(exponents)
    return top + math.log(math.fsum([math.exp(exponent - top) for exponent in exponents]))


def lambert(log_argument: float) -> float:
    """W(e^L): the y > 0 with y + log y = L, by Newton's method on z = log y, from above.

    e^z + z - L is convex and rising, so from a start at or above its root every step comes down to it.
    """
    z = math.log(log_argument) if log_argument > 1 else min(log_argument, 0.0)
    for _ in range(_MOST_ROUNDS):
        y = math.exp(z)
        step = (y + z - log_argument) / (y + 1)
        z -= step
        if abs(step) <= 1e-9 * max(1.0, abs(z)):  # the next step would be of the order of its square
            break
    return math.exp(z)


def best_prices(market: PricingMarket, period: int) -> tuple[float, ...]:
    """By product: the prices that earn the most in one period."""
    markup = solve(market).markup
    return tuple(alpha * (cost + markup) for alpha, cost in zip(market.drift.alphas(period), market.costs, strict=True))


def hint(market: PricingMarket, period: int, periods: int) -> float:
    """The price above which to go is advised against: a factor times the highest best price in the period's block."""
    first = period - period % BLOCK
    return _hint(market, first, min(first + BLOCK, periods))


@lru_cache(maxsize=256)
def _hint(market: PricingMarket, first: int, end: int) -> float:
    highest = max(price for period in range(first, end) for price in best_prices(market, period))
    return round(market.factor * highest, 2)
