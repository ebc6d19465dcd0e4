"""Markets from a seed: the reference's generator, draw for draw, and the native one for any size and number.

Two families, by how prices have to move: `linear_shifts`, where every product's alpha drifts at a pace of its own, and
`periodic_shifts`, where all swing together, each as far as it was drawn to.

Source: specification of the reference, section A.3; the paper's appendix E.
Differs: the paper draws costs from [1, 10], and swings of 10 to 20 periods, and lets groups stay empty; the reference
code, which made the published data, draws costs from [1, 2] and 10 to 19 periods, and draws groups again until all
occur. Both generators have the code's ranges.
Differs: with many groups that would be for ever, so the native generator gives one product to each group first.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from evalkit.envs.numpy_random_state import RandomStateStream
from evalkit.envs.parameters import Periods
from evalkit.envs.pricing.demand import FAMILIES, LINEAR, Drift, Family, PricingMarket
from evalkit.seeds import Stream

DIFFICULTIES = {"basic": 1, "medium": 4, "hard": 10}
"""The paper's levels: number of products."""

REFERENCE_PERIODS = 100
"""Of the paper's instances: a linear shift adds up to half the starting alpha at most over so many."""

MOST_PRODUCTS = 2000
"""Prices of more would not fit the bound on a tool call's arguments."""

Cost = Annotated[float, Meta(ge=0.0, le=1e6)]
Quality = Annotated[float, Meta(ge=-1e3, le=1e3)]

ALPHAS = (1.0, 10.0)
FACTORS = (1.5, 2.5)
SHORTEST, LONGEST = 10, 19
"""Periods of one swing."""
GROUP_ODDS = 0.2
"""Probability that a product stops at a group, from the first on."""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """What a market is drawn with."""

    products: Annotated[int, Meta(ge=1, le=MOST_PRODUCTS, description="products to price")] = 1
    groups: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST_PRODUCTS,
                description="groups of near substitutes; where not said, a quarter of the products",
            ),
        ]
        | None
    ) = None
    family: Annotated[Family, Meta(description="how the best prices move")] | None = None
    sigma: Annotated[float, Meta(ge=0.0, le=0.9, description="how alike products of a group are")] = 0.5
    mu: Annotated[float, Meta(ge=0.01, le=100.0, description="how little customers care for differences")] = 1.0
    # Below 2, so that alphas stay above 0.
    strength: Annotated[float, Meta(ge=0.0, le=1.9, description="how far prices move, beside the paper's")] = 1.0
    cost_low: Annotated[Cost, Meta(description="least cost of a unit")] = 1.0
    cost_high: Annotated[Cost, Meta(description="highest cost of a unit")] = 2.0
    quality_low: Annotated[Quality, Meta(description="least quality")] = 2.0
    quality_high: Annotated[Quality, Meta(description="highest quality")] = 3.0
    periods: Annotated[Periods, Meta(description="periods")] = 100


def family_of_seed(seed: int) -> Family:
    """The family the reference gives to a seed: linear for even ones."""
    return FAMILIES[seed % 2]


def groups_of(products: int) -> int:
    """Groups of the paper's instances: a quarter of the products, rounded up."""
    return (products + 3) // 4


def reference_market(making: Making, seed: int) -> PricingMarket:
    """The reference's instance. Of `making`, the number of groups and of periods say nothing here."""
    stream, n = RandomStateStream(seed), making.products
    start = [stream.uniform(*ALPHAS) for _ in range(n)]
    costs = [stream.uniform(making.cost_low, making.cost_high) for _ in range(n)]
    qualities = [stream.uniform(making.quality_low, making.quality_high) for _ in range(n)]
    length = SHORTEST + stream.below(LONGEST - SHORTEST + 1)
    groups = _reference_groups(stream, n)
    if making.family == LINEAR:
        bounds = [_linear_bounds(alpha, making.strength, REFERENCE_PERIODS) for alpha in start]
    else:
        bounds = [_periodic_bounds(alpha, making.strength) for alpha in start]
    step = [stream.uniform(*bound) for bound in bounds]
    # A second generator of the same seed: its first draw is that of the first alpha.
    factor = RandomStateStream(seed).uniform(*FACTORS)
    return _market(making, (start, costs, qualities, step), groups, length, factor)


def _reference_groups(stream: RandomStateStream, n: int) -> list[int]:
    wanted = groups_of(n)
    while True:
        groups: list[int] = []
        while len(groups) < n:
            group = stream.geometric(GROUP_ODDS)
            if group <= wanted:
                groups.append(group)
        if len(set(groups)) == wanted:
            return groups


def native_market(making: Making, seed: int) -> PricingMarket:
    """An instance of the native generator: each kind of figure drawn from a stream of its own, in product order."""
    n = making.products
    start = _uniforms(seed, "alphas", [ALPHAS] * n)
    if making.family == LINEAR:
        bounds = [_linear_bounds(alpha, making.strength, making.periods) for alpha in start]
    else:
        bounds = [_periodic_bounds(alpha, making.strength) for alpha in start]
    costs = _uniforms(seed, "costs", [(making.cost_low, making.cost_high)] * n)
    qualities = _uniforms(seed, "qualities", [(making.quality_low, making.quality_high)] * n)
    length = SHORTEST + Stream(seed, "pricing", "length").below(LONGEST - SHORTEST + 1)
    drawn = (start, costs, qualities, _uniforms(seed, "steps", bounds))
    return _market(making, drawn, _native_groups(making, seed), length, native_factor(seed))


def native_factor(seed: int) -> float:
    """The hint's factor, where the reference's generator does not give it."""
    return _uniforms(seed, "factor", [FACTORS])[0]


def _native_groups(making: Making, seed: int) -> list[int]:
    """Every group has a product; the others fall into the groups by a truncated geometric distribution."""
    wanted = making.groups or groups_of(making.products)
    order = Stream(seed, "pricing", "groups", "first").permutation(making.products)
    whole = -math.expm1(wanted * math.log1p(-GROUP_ODDS))
    groups = [
        min(1 + int(math.log1p(-draw * whole) / math.log1p(-GROUP_ODDS)), wanted)
        for draw in Stream(seed, "pricing", "groups").uniforms(making.products).tolist()
    ]
    for group, product in enumerate(order[:wanted], 1):
        groups[product] = group
    return groups


def _uniforms(seed: int, what: str, bounds: Sequence[tuple[float, float]]) -> list[float]:
    draws = Stream(seed, "pricing", what).uniforms(len(bounds)).tolist()
    return [low + (high - low) * draw for (low, high), draw in zip(bounds, draws, strict=True)]


def _linear_bounds(start: float, strength: float, periods: int) -> tuple[float, float]:
    most = strength * start / (2 * periods)
    return -most, most


def _periodic_bounds(start: float, strength: float) -> tuple[float, float]:
    return strength * start / 4, strength * start / 2


def _market(
    making: Making, drawn: tuple[Sequence[float], ...], groups: Sequence[int], length: int, factor: float
) -> PricingMarket:
    start, costs, qualities, step = map(tuple, drawn)
    return PricingMarket(
        costs=costs,
        qualities=qualities,
        groups=tuple(groups),
        sigma=making.sigma,
        mu=making.mu,
        drift=Drift(kind=making.family or "", start=start, step=step, length=length),
        factor=factor,
    )
