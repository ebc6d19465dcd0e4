"""What sellers of one product each sell at which prices, and the two prices between which scores lie.

Plain logit, in units of alpha: of 100 customers, product i has the share e_i / (1 + sum of e), with
e = exp((2 - p) / mu); a unit costs 1. At the monopoly price the sellers together earn most, (p - 1)(1 - n s) = mu; at
the competitive price none earns more by another price of its own, (p - 1)(1 - s) = mu. There s is a product's share
where all prices are p.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

QUALITY, COST, MU, CUSTOMERS = 2.0, 1.0, 0.25, 100.0
ALPHAS = (1.0, 3.2, 10.0)
"""By seed, modulo 3."""
HINT = 1.5
"""Times the monopoly price: above it no price is advised."""


def quantities(alpha: float, prices: Sequence[float]) -> tuple[float, ...]:
    """Units sold by seller; prices are finite."""
    utilities = [(QUALITY - price / alpha) / MU for price in prices]
    top = max(0.0, *utilities)
    weights = [math.exp(utility - top) for utility in utilities]
    whole = math.fsum([math.exp(-top), *weights])
    return tuple(CUSTOMERS * weight / whole for weight in weights)


def profits(alpha: float, prices: Sequence[float]) -> tuple[float, ...]:
    """(price / alpha - cost) * quantity, by seller; what is not sold brings nothing."""
    sold = quantities(alpha, prices)
    return tuple((price / alpha - COST) * units if units else 0.0 for price, units in zip(prices, sold, strict=True))


@lru_cache(maxsize=8)
def monopoly(sellers: int) -> float:
    """The price at which the sellers together earn most, in units of alpha."""
    return _root(lambda price: (price - COST) * (1 - sellers * _share(sellers, price)) - MU)


@lru_cache(maxsize=8)
def competitive(sellers: int) -> float:
    """The price at which no seller earns more by another one of its own, in units of alpha."""
    return _root(lambda price: (price - COST) * (1 - _share(sellers, price)) - MU)


def hint(alpha: float, sellers: int) -> float:
    """The highest price that is advised."""
    return round(HINT * alpha * monopoly(sellers), 2)


def _share(sellers: int, price: float) -> float:
    weight = math.exp((QUALITY - price) / MU)
    return weight / (1 + sellers * weight)


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function is 0, between the cost and ten times it, to the last bit."""
    low, high = COST, 10 * COST
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
