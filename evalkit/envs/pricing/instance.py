"""A pricing instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: the market is made when an episode starts, and kept for the episodes that follow. A stored
digest and optimum are then compared with what was made; the optimum is a closed form, so that costs microseconds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from evalkit.envs.mersenne import MOST_SEED, RandomStateStream
from evalkit.envs.parameters import (
    Generator,
    NoAction,
    Periods,
    Queries,
    Seed,
    check_digest,
    check_explicit,
    check_most,
    generated,
    parameters_of,
    read_line,
    written,
)
from evalkit.envs.pricing.demand import CUSTOMERS, FAMILIES, LINEAR, Drift, Family, PricingMarket
from evalkit.envs.pricing.optimum import LEAST_PROFIT, PricingOptimum, solve
from evalkit.errors import UsageError, WeakInstanceError
from evalkit.seeds import Stream

# Markets from a seed: the reference's generator, draw for draw, and the native one for any size and number.
#
# Two families, by how prices have to move: `linear_shifts`, where every product's alpha drifts at a pace of its own,
# and `periodic_shifts`, where all swing together, each as far as it was drawn to.
#
# Source: specification of the reference, section A.3; the paper's appendix E. Differs: the paper draws costs from [1,
# 10], and swings of 10 to 20 periods, and lets groups stay empty; the reference code, which made the published data,
# draws costs from [1, 2] and 10 to 19 periods, and draws groups again until all occur. Both generators have the
# code's ranges where a line does not say others. Differs: with many groups that would be for ever, so the native
# generator gives one product to each group first.

DIFFICULTIES = {"basic": 1, "medium": 4, "hard": 10}
"""The paper's levels: number of products."""

REFERENCE_PERIODS = 100
"""Of the paper's instances: a linear shift adds up to half the starting alpha at most over so many."""

MOST_PRODUCTS = 2000
"""Prices of more would not fit the bound on a tool call's arguments."""

Cost = Annotated[float, Meta(ge=0.0, le=1e6)]
Quality = Annotated[float, Meta(ge=-1e3, le=1e3)]

FACTORS = (1.5, 2.5)
Swing = Annotated[int, Meta(ge=2, le=10_000)]
StartAlpha = Annotated[float, Meta(ge=1e-3, le=1e3)]


class MarketDraw(msgspec.Struct, frozen=True, kw_only=True):
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
    cycle_least: Annotated[Swing, Meta(description="periods of a swing, at least")] = 10
    cycle_most: Annotated[Swing, Meta(description="periods of a swing, at most; the paper says 20")] = 19
    alpha_low: Annotated[StartAlpha, Meta(description="least alpha in period 0: a factor on a product's prices")] = 1.0
    alpha_high: Annotated[StartAlpha, Meta(description="highest alpha in period 0")] = 10.0
    group_odds: Annotated[
        float, Meta(ge=0.01, le=0.9, description="probability that a product stops at a group, from the first on")
    ] = 0.2
    customers: Annotated[float, Meta(ge=1.0, le=1e6, description="quantity sold if everybody buys (M)")] = CUSTOMERS
    outside: (
        Annotated[
            float,
            Meta(ge=1e-6, le=1e6, description="what buying nothing weighs; the paper says 1, the code root 2"),
        ]
        | None
    ) = None
    periods: Annotated[Periods, Meta(description="periods")] = 100


def family_of_seed(seed: int) -> Family:
    """The family the reference gives to a seed: linear for even ones."""
    return FAMILIES[seed % 2]


def groups_of(products: int) -> int:
    """Groups of the paper's instances: a quarter of the products, rounded up."""
    return (products + 3) // 4


def reference_market(making: MarketDraw, seed: int) -> PricingMarket:
    """The reference's instance. Of `making`, the number of groups and of periods say nothing here."""
    stream, n = RandomStateStream(seed), making.products
    start = [stream.uniform(making.alpha_low, making.alpha_high) for _ in range(n)]
    costs = [stream.uniform(making.cost_low, making.cost_high) for _ in range(n)]
    qualities = [stream.uniform(making.quality_low, making.quality_high) for _ in range(n)]
    length = making.cycle_least + stream.below(making.cycle_most - making.cycle_least + 1)
    groups = _reference_groups(stream, n, making.group_odds)
    if making.family == LINEAR:
        bounds = [_linear_bounds(alpha, making.strength, REFERENCE_PERIODS) for alpha in start]
    else:
        bounds = [_periodic_bounds(alpha, making.strength) for alpha in start]
    step = [stream.uniform(*bound) for bound in bounds]
    # A second generator of the same seed: its first draw is that of the first alpha.
    factor = RandomStateStream(seed).uniform(*FACTORS)
    return _market(making, (start, costs, qualities, step), groups, length, factor)


def _reference_groups(stream: RandomStateStream, n: int, odds: float) -> list[int]:
    wanted = groups_of(n)
    while True:
        groups: list[int] = []
        while len(groups) < n:
            group = stream.geometric(odds)
            if group <= wanted:
                groups.append(group)
        if len(set(groups)) == wanted:
            return groups


def native_market(making: MarketDraw, seed: int) -> PricingMarket:
    """An instance of the native generator: each kind of figure drawn from a stream of its own, in product order."""
    n = making.products
    start = _uniforms(seed, "alphas", [(making.alpha_low, making.alpha_high)] * n)
    if making.family == LINEAR:
        bounds = [_linear_bounds(alpha, making.strength, making.periods) for alpha in start]
    else:
        bounds = [_periodic_bounds(alpha, making.strength) for alpha in start]
    costs = _uniforms(seed, "costs", [(making.cost_low, making.cost_high)] * n)
    qualities = _uniforms(seed, "qualities", [(making.quality_low, making.quality_high)] * n)
    length = making.cycle_least + Stream(seed, "pricing", "length").below(making.cycle_most - making.cycle_least + 1)
    drawn = (start, costs, qualities, _uniforms(seed, "steps", bounds))
    return _market(making, drawn, _native_groups(making, seed), length, native_factor(seed))


def native_factor(seed: int) -> float:
    """The hint's factor, where the reference's generator does not give it."""
    return _uniforms(seed, "factor", [FACTORS])[0]


def _native_groups(making: MarketDraw, seed: int) -> list[int]:
    """Every group has a product; the others fall into the groups by a truncated geometric distribution."""
    wanted, falls = making.groups or groups_of(making.products), math.log1p(-making.group_odds)
    order = Stream(seed, "pricing", "groups", "first").permutation(making.products)
    whole = -math.expm1(wanted * falls)
    groups = [
        min(1 + int(math.log1p(-draw * whole) / falls), wanted)
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
    making: MarketDraw, drawn: tuple[Sequence[float], ...], groups: Sequence[int], length: int, factor: float
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
        customers=making.customers,
        nothing=making.outside,
    )


NAME: Final = "pricing"

MOST_REFERENCE = {"seed": MOST_SEED, "products": 40, "periods": REFERENCE_PERIODS}
"""Of numbers for the reference's generator: with more products it may draw groups for ever."""

MOST_REFERENCE_ODDS = 0.5
"""Above it too: the last groups would never occur."""

_MARKETS_KEPT = 64
_RANGES = ("cost_low", "quality_low", "alpha_low", "cycle_least")
"""The lower bounds of what is drawn between two."""
_DRAWN = (
    *("strength", "cost_low", "cost_high", "quality_low", "quality_high", "cycle_least", "cycle_most"),
    *("alpha_low", "alpha_high", "group_odds"),
)
_DEMAND = ("customers", "outside")
_EXPLICIT = ("costs", "qualities", "group_of", "alphas")
_WRITTEN = (
    *(
        "id",
        "environment",
        "generator",
        "seed",
        "products",
        "family",
        "sigma",
        "mu",
        "groups",
        "scored",
        *_DRAWN,
        *_DEMAND,
    ),
    *("periods", "queries", "hint", "no_action", *_EXPLICIT, "digest", "optimum"),
)

Alpha = Annotated[float, Meta(ge=1e-6, le=1e6)]


class PricingInstance(MarketDraw, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pricing problem and how it is played: a suite's line, whose family is settled."""

    scored: (
        Annotated[int, Meta(ge=1, le=10**6, description="last periods that count; where not said, half of them")] | None
    ) = None
    queries: Queries = 40
    hint: Annotated[bool, Meta(description="whether a price is named above which not to go")] = True
    generator: Annotated[
        Generator, Meta(description="who makes the market: the reference's generator, ours, or the line itself")
    ] = "native"
    no_action: Annotated[
        NoAction,
        Meta(description="a period without an action: earn nothing and go on, or restart it as the reference does"),
    ] = "keep"
    seed: Annotated[Seed, Meta(description="makes the market")] = 0
    costs: tuple[Cost, ...] | None = None
    """Of a market that is written out, by product."""
    qualities: tuple[Quality, ...] | None = None
    group_of: tuple[int, ...] | None = None
    """By product: its group, from 1 without gaps."""
    alphas: tuple[tuple[Alpha, ...], ...] | None = None
    """By period, by product."""
    id: str = ""
    environment: Literal["pricing"] = NAME
    digest: str = ""
    """Of the market, as the line says; empty: it says nothing."""
    optimum: PricingOptimum | None = None
    """As the line says."""

    @property
    def counted(self) -> int:
        """How many of the last periods count: where not said, half of them, the larger half of an odd number."""
        return (self.periods + 1) // 2 if self.scored is None else self.scored

    @property
    def making(self) -> MarketDraw:
        """What the market is drawn with."""
        return MarketDraw(**{name: getattr(self, name) for name in MarketDraw.__struct_fields__})


PARAMETERS = parameters_of(PricingInstance)


def load(line: Mapping[str, Any]) -> PricingInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    instance = read_line(line, PricingInstance, NAME)
    _check_fit(line, instance)
    if instance.family is None and instance.generator != "explicit":
        return msgspec.structs.replace(instance, family=family_of_seed(instance.seed))
    return instance


def describe(instance: PricingInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the digest of its market and the optimum.

    What follows from other fields is left out, so that a sweep that varies those varies it too: a family from the
    reference's seed, groups from products, scored periods from all of them.
    """
    if not instance.digest or instance.optimum is None:
        market = market_of(instance)
        instance = msgspec.structs.replace(instance, digest=market.digest, optimum=solve(market))
    line = written(instance, _WRITTEN, (*_DRAWN, *_DEMAND))
    if instance.generator == "reference" and instance.family == family_of_seed(instance.seed):
        del line["family"]
    return line


def optimum_of(instance: PricingInstance) -> PricingOptimum:
    """What the best prices earn."""
    return instance.optimum or solve(market_of(instance))


def market_of(instance: PricingInstance) -> PricingMarket:
    """The instance's market.

    Raises UsageError if the line's digest or optimum is not that of the market made, or next to nothing can be
    earned.
    """
    costs, qualities, groups, alphas = instance.costs, instance.qualities, instance.group_of, instance.alphas
    if costs is None or qualities is None or groups is None or alphas is None:
        market = _made_market(instance.generator, instance.making, instance.seed)
    else:
        market = PricingMarket(
            costs=costs,
            qualities=qualities,
            groups=groups,
            sigma=instance.sigma,
            mu=instance.mu,
            drift=Drift(kind="", table=alphas),
            factor=native_factor(instance.seed),
            customers=instance.customers,
            nothing=instance.outside,
        )
    check_digest(instance.id, instance.digest, market.digest)
    _check_optimum(instance, solve(market))
    return market


def _check_optimum(instance: PricingInstance, optimum: PricingOptimum) -> None:
    if optimum.profit < LEAST_PROFIT:
        raise WeakInstanceError(
            f"{instance.id}: the best prices earn {optimum.profit:.3g} a period; profits are counted with two "
            f"decimals, so it must be {LEAST_PROFIT} at least. Lower the costs or raise the qualities."
        )
    stored = instance.optimum
    # Not to the last bit: a logarithm's may be the platform's.
    if stored is not None and not (
        math.isclose(stored.profit, optimum.profit, rel_tol=1e-12)
        and math.isclose(stored.markup, optimum.markup, rel_tol=1e-12)
    ):
        raise UsageError(
            f"{instance.id}: optimum: it is {{profit: {optimum.profit!r}, markup: {optimum.markup!r}}}, the line says "
            f"{{profit: {stored.profit!r}, markup: {stored.markup!r}}}."
        )


@lru_cache(maxsize=_MARKETS_KEPT)
def _made_market(generator: str, making: MarketDraw, seed: int) -> PricingMarket:
    return (reference_market if generator == "reference" else native_market)(making, seed)


def stratum(instance: PricingInstance) -> str:
    """How prices move; explicit markets are a group of their own."""
    return instance.family or instance.generator


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily: seeds keyed by place, families in turn unless one is asked for.

    With the reference's generator, its instances of the seeds from `seed` on. A market in which next to nothing can be
    earned is replaced by that of the next seed.
    Raises UsageError for parameters that `load` refuses, and for explicit markets.
    """
    return generated(NAME, PARAMETERS, parameters, count, seed, lambda line: describe(load(line)), families=FAMILIES)


def _check_fit(line: Mapping[str, Any], instance: PricingInstance) -> None:
    """What no field says alone."""
    check_explicit(line, _EXPLICIT, instance.generator)
    if instance.generator == "explicit":
        _check_explicit(line, instance)
    for lower in _RANGES:
        upper = lower.replace("_low", "_high").replace("_least", "_most")
        low, high = getattr(instance, lower), getattr(instance, upper)
        if low > high:
            raise UsageError(f"{lower}: {low} is above {upper}, {high}.")
    if (instance.groups or 0) > instance.products:
        raise UsageError(f"groups: {instance.groups} groups need as many products, not {instance.products}.")
    if (instance.scored or 0) > instance.periods:
        raise UsageError(f"scored: {instance.scored} is more than there are periods, {instance.periods}.")
    if instance.generator == "reference":
        check_most(instance, MOST_REFERENCE | {"group_odds": MOST_REFERENCE_ODDS})
        if instance.groups is not None:
            raise UsageError(
                "groups: in the reference's markets there are as many as a quarter of the products. Leave `groups` "
                "out, or make the market by generator 'native'."
            )


def _check_explicit(line: Mapping[str, Any], instance: PricingInstance) -> None:
    """A market that is written out: nothing is drawn, and its tables are as large as it is."""
    for name in ("groups", "family", *_DRAWN):
        if line.get(name) is not None:
            raise UsageError(f"{name}: nothing is drawn for an explicit market.")
    products, groups, alphas = instance.products, instance.group_of or (), instance.alphas or ()
    if len(alphas) != instance.periods:
        raise UsageError(f"alphas: expected a list of {instance.periods} rows, one a period, got {len(alphas)}.")
    rows = {"costs": instance.costs or (), "qualities": instance.qualities or (), "group_of": groups}
    for name, row in {**rows, **{f"alphas[{t}]": row for t, row in enumerate(alphas)}}.items():
        if len(row) != products:
            raise UsageError(f"{name}: expected a list of {products} numbers, one a product, got {len(row)}.")
    if set(groups) != set(range(1, len(set(groups)) + 1)):
        raise UsageError("group_of: groups are numbered from 1 without gaps.")
