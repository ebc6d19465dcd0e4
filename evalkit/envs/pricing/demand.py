"""A market of priced products and what it buys: nested logit demand, defined for every finite price.

Products lie in groups of near substitutes. With x = price / alpha, a product's utility is v = (quality - x) / mu. A
group weighs D^(1 - sigma), D being the sum of exp(v / (1 - sigma)) over its products, and buying nothing weighs O. A
group's share of all customers is its weight over the sum of all weights, a product's share of its group its part of D.

Source: specification of the reference, sections A.3 and B.5; the paper's section 3.3.3.
Differs: the paper lets buying nothing weigh 1; the reference code, which made the published data, lets it weigh
(1 / (1 - sigma))^(1 - sigma), which is the root of 2 at sigma = 0.5. This is the code's.
Differs: the reference dies where an exponential over- or underflows. Here exponents that far out are taken relative to
the group's largest, so such prices sell nothing, or everything; all others are computed term by term as the reference
does, and give its figures to the last bit.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

CUSTOMERS = 100.0
"""Quantity sold if everybody buys, where nothing else is said; the reference's multiplier."""

Family = Literal["linear_shifts", "periodic_shifts"]
"""How the best prices move."""
FAMILIES: tuple[Family, ...] = get_args(Family)
LINEAR, PERIODIC = FAMILIES

_SAFE = 600.0
"""Exponents of at most this size have exponentials, and sums and powers of them, that are normal doubles."""
_FURTHEST = 1e300
"""Exponents beyond it are taken for it: prices may overflow on their way to a utility."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How the alphas move: price / alpha is a price in the units of costs, so alphas scale good prices."""

    kind: str
    """`LINEAR`: start + step * t; `PERIODIC`: start + step * sin(2 pi t / length); empty: by the table."""
    start: tuple[float, ...] = ()
    """By product, in period 0."""
    step: tuple[float, ...] = ()
    """By product: change a period, or amplitude."""
    length: int = 0
    """Periods of one swing."""
    table: tuple[tuple[float, ...], ...] = ()
    """By period, by product."""

    def alphas(self, period: int) -> tuple[float, ...]:
        """By product, in one period."""
        if self.table:
            return self.table[period]
        if self.kind == LINEAR:
            return tuple(start + step * period for start, step in zip(self.start, self.step, strict=True))
        swing = math.sin(((period * 2) * math.pi) / self.length)  # in the reference's order: it is bit for bit the same
        return tuple(start + step * swing for start, step in zip(self.start, self.step, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PricingMarket:
    """Products, what they cost and are worth, and how that moves. Nothing of it is shown but the costs."""

    costs: tuple[float, ...]
    """By product, a unit."""
    qualities: tuple[float, ...]
    """By product."""
    groups: tuple[int, ...]
    """By product: the number of its group, from 1."""
    sigma: float
    """0: groups do not matter; towards 1: within a group only the best offer sells."""
    mu: float
    """How little customers care for differences."""
    drift: Drift
    factor: float
    """Of the highest price hinted at: times the highest best one."""
    customers: float = CUSTOMERS
    nothing: float | None = None
    """What buying nothing weighs, where it is not the reference code's."""

    def __hash__(self) -> int:
        return hash(self.costs)  # as good as that of all tables, which may be long

    @property
    def products(self) -> tuple[str, ...]:
        """The products' ids, in order."""
        return product_ids(len(self.costs))

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Products by group."""
        return _members(self.groups)

    @property
    def outside(self) -> float:
        """What buying nothing weighs."""
        if self.nothing is not None:
            return self.nothing
        return math.pow(1 / (1 - self.sigma), 1 - self.sigma)

    @property
    def digest(self) -> str:
        """Hex digest of all that was drawn or given. Alphas that follow from it are left out: their last bit is the
        platform's."""
        drift = self.drift
        drawn = [self.costs, self.qualities, self.groups, self.sigma, self.mu, self.factor]
        drawn += [drift.kind, drift.start, drift.step, drift.length, drift.table]
        if (self.customers, self.nothing) != (CUSTOMERS, None):
            drawn += [self.customers, self.nothing]
        return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:32]


@lru_cache(maxsize=64)
def product_ids(n: int) -> tuple[str, ...]:
    """`Product_1` to `Product_n`."""
    return tuple(f"Product_{i}" for i in range(1, n + 1))


@lru_cache(maxsize=64)
def _members(groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(i for i, other in enumerate(groups) if other == group) for group in sorted(set(groups)))


def quantities(market: PricingMarket, alphas: Sequence[float], prices: Sequence[float]) -> tuple[float, ...]:
    """Units sold by product: each from 0 to the customers, and no more than that together but for rounding.

    Prices are finite; alphas are above 0.
    """
    rest = 1 - market.sigma
    utilities = [
        min(max(((quality - price / alpha) / market.mu) / rest, -_FURTHEST), _FURTHEST)
        for quality, price, alpha in zip(market.qualities, prices, alphas, strict=True)
    ]
    groups = [_group(utilities, members, rest) for members in market.members]
    # In ordinary cases no group is lifted, and every exp below is 1 exactly.
    lift = max(0.0, *(raised for _, _, raised in groups))
    weights = [weight * math.exp(raised - lift) for _, weight, raised in groups]
    # Summed without error: the reference's Python adds with compensation, and the two agree.
    whole = math.fsum([market.outside * math.exp(-lift), *weights])
    sold = [0.0] * len(utilities)
    for members, (parts, _, _), weight in zip(market.members, groups, weights, strict=True):
        for i, part in zip(members, parts, strict=True):
            sold[i] = (market.customers * part) * (weight / whole)
    return tuple(sold)


def _group(utilities: Sequence[float], members: Sequence[int], rest: float) -> tuple[list[float], float, float]:
    """Shares within a group; its weight; and by which exponent that weight still has to be raised."""
    top = max(utilities[i] for i in members)
    shift = top if abs(top) > _SAFE else 0.0
    terms = [math.exp(utilities[i] - shift) for i in members]
    total = math.fsum(terms)
    return [term / total for term in terms], total**rest, rest * shift


def profits(
    market: PricingMarket, alphas: Sequence[float], prices: Sequence[float], sold: Sequence[float]
) -> tuple[float, ...]:
    """Profit by product: (price / alpha - cost) * quantity. What is not sold brings nothing, whatever its price.

    The price counts in the units of costs, so price minus cost times quantity, as an agent may compute it, is another
    figure (specification, section B.5).
    """
    return tuple(
        (price / alpha - cost) * quantity if quantity else 0.0
        for price, alpha, cost, quantity in zip(prices, alphas, market.costs, sold, strict=True)
    )
