"""What sellers of one product each sell at which prices, and the two prices between which scores lie.

Plain logit, in units of alpha: of 100 customers, product i has the share e_i / (1 + sum of e), with
e = exp((a - p) / mu); a unit costs c. At the monopoly price the sellers together earn most, (p - c)(1 - n s) = mu; at
the competitive price none earns more by another price of its own, (p - c)(1 - s) = mu. There s is a product's share
where all prices are p.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

CUSTOMERS = 100.0


@dataclass(frozen=True, slots=True)
class Logit:
    """What all products of a market have; by default the reference's."""

    a: float = 2.0
    """How good it is."""
    c: float = 1.0
    """What a unit costs."""
    mu: float = 0.25
    """How little customers heed prices."""


REFERENCE = Logit()
_FAR = 700.0
"""Beyond it either way, a utility's exponential is no float's business."""
ALPHAS = (1.0, 3.2, 10.0)
"""By seed, modulo 3."""
HINT = 1.5
"""Times the monopoly price: above it no price is advised."""


def quantities(alpha: float, prices: Sequence[float], market: Logit = REFERENCE) -> tuple[float, ...]:
    """Units sold by seller; prices are finite."""
    utilities = [(market.a - price / alpha) / market.mu for price in prices]
    top = max(0.0, *utilities)
    weights = [math.exp(utility - top) for utility in utilities]
    whole = math.fsum([math.exp(-top), *weights])
    return tuple(CUSTOMERS * weight / whole for weight in weights)


def profits(alpha: float, prices: Sequence[float], market: Logit = REFERENCE) -> tuple[float, ...]:
    """(price / alpha - cost) * quantity, by seller; what is not sold brings nothing."""
    sold = quantities(alpha, prices, market)
    return tuple(
        (price / alpha - market.c) * units if units else 0.0 for price, units in zip(prices, sold, strict=True)
    )


@lru_cache(maxsize=64)
def monopoly(sellers: int, market: Logit = REFERENCE) -> float:
    """The price at which the sellers together earn most, in units of alpha."""
    return _root(market, lambda price: (price - market.c) * (1 - sellers * _share(sellers, price, market)) - market.mu)


@lru_cache(maxsize=64)
def competitive(sellers: int, market: Logit = REFERENCE) -> float:
    """The price at which no seller earns more by another one of its own, in units of alpha."""
    return _root(market, lambda price: (price - market.c) * (1 - _share(sellers, price, market)) - market.mu)


def hint(alpha: float, sellers: int, market: Logit = REFERENCE) -> float:
    """The highest price that is advised."""
    return round(HINT * alpha * monopoly(sellers, market), 2)


def _share(sellers: int, price: float, market: Logit) -> float:
    weight = math.exp(min(_FAR, max(-_FAR, (market.a - price) / market.mu)))
    return weight / (1 + sellers * weight)


def _root(market: Logit, rising: Callable[[float], float]) -> float:
    """Where a rising function is 0, above the cost, to the last bit."""
    low, high = market.c, 10 * market.c or market.mu
    while rising(high) < 0:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
