"""A pricing instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: the market is made when an episode starts, and kept for the episodes that follow. A stored
digest and optimum are then compared with what was made; the optimum is a closed form, so that costs microseconds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalkit.envs.environment import Parameter
from evalkit.envs.numpy_random_state import MOST_SEED
from evalkit.envs.parameters import check_explicit, checked, generated, text_field
from evalkit.envs.pricing.demand import Drift, PricingMarket
from evalkit.envs.pricing.generate import (
    FAMILIES,
    REFERENCE_PERIODS,
    Making,
    family_of_seed,
    groups_of,
    native_factor,
    native_market,
    reference_market,
)
from evalkit.envs.pricing.optimum import PricingOptimum, solve
from evalkit.errors import UsageError, nearest

NAME = "pricing"

MOST_PRODUCTS = 2000
"""Prices of more would not fit the bound on a tool call's arguments."""

MOST_REFERENCE_PRODUCTS = 40
"""With more, the reference's generator may draw groups for ever."""

LEAST_PROFIT = 1.0
"""A period, at best: profits are counted with two decimals."""

_COSTS, _QUALITIES, _ALPHAS = (0.0, 1e6), (-1e3, 1e3), (1e-6, 1e6)


def _edge(text: str, default: float, bounds: tuple[float, float]) -> Parameter:
    return Parameter(kind=float, help=text, default=default, least=bounds[0], most=bounds[1])


PARAMETERS: Mapping[str, Parameter] = {
    "products": Parameter(kind=int, help="products to price", default=1, least=1, most=MOST_PRODUCTS),
    "groups": Parameter(
        kind=int,
        help="groups of near substitutes; where not said, a quarter of the products",
        default=None,
        least=1,
        most=MOST_PRODUCTS,
    ),
    "family": Parameter(kind=str, help="how the best prices move", default=None, choices=FAMILIES),
    "sigma": Parameter(kind=float, help="how alike products of a group are", default=0.5, least=0.0, most=0.9),
    "mu": Parameter(kind=float, help="how little customers care for differences", default=1.0, least=0.01, most=100.0),
    "strength": Parameter(kind=float, help="how far prices move, beside the paper's", default=1.0, least=0.0, most=1.9),
    "cost_low": _edge("least cost of a unit", 1.0, _COSTS),
    "cost_high": _edge("highest cost of a unit", 2.0, _COSTS),
    "quality_low": _edge("least quality", 2.0, _QUALITIES),
    "quality_high": _edge("highest quality", 3.0, _QUALITIES),
    "periods": Parameter(kind=int, help="periods", default=100, least=1, most=10**6),
    "scored": Parameter(
        kind=int, help="last periods that count; where not said, half of them", default=None, least=1, most=10**6
    ),
    "queries": Parameter(kind=int, help="requests a period at most", default=40, least=1, most=10**4),
    "hint": Parameter(kind=bool, help="whether a price is named above which not to go", default=True),
    "generator": Parameter(
        kind=str,
        help="who makes the market: the reference's generator, ours, or the line itself",
        default="native",
        choices=("reference", "native", "explicit"),
    ),
    "no_action": Parameter(
        kind=str,
        help="a period without an action: earn nothing and go on, or restart it as the reference does",
        default="keep",
        choices=("keep", "restart"),
    ),
    "seed": Parameter(kind=int, help="makes the market", default=0, least=0, most=2**63 - 1),
}

_MARKETS_KEPT = 64
_DRAWN = ("strength", "cost_low", "cost_high", "quality_low", "quality_high")
_EXPLICIT = ("costs", "qualities", "group_of", "alphas")
_STORED = ("id", "environment", "digest", "optimum")

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A market that a line spells out."""

    costs: Row
    """By product."""
    qualities: Row
    group_of: tuple[int, ...]
    """By product: its group, from 1 without gaps."""
    alphas: tuple[Row, ...]
    """By period, by product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricingInstance:
    """One pricing problem and how it is played."""

    id: str
    generator: str
    seed: int
    products: int
    groups: int | None
    """None: a quarter of the products."""
    family: str
    """Empty for explicit markets."""
    sigma: float
    mu: float
    strength: float
    cost_low: float
    cost_high: float
    quality_low: float
    quality_high: float
    periods: int
    scored: int | None
    """None: half of the periods, the larger half of an odd number."""
    queries: int
    hint: bool
    no_action: str
    given: Given | None = None
    digest: str = ""
    """Of the market, as the line says; empty: it says nothing."""
    optimum: PricingOptimum | None = None
    """As the line says."""

    @property
    def counted(self) -> int:
        """How many of the last periods count."""
        return (self.periods + 1) // 2 if self.scored is None else self.scored

    @property
    def making(self) -> Making:
        """What the market is drawn with."""
        return Making(
            products=self.products,
            groups=groups_of(self.products) if self.groups is None else self.groups,
            family=self.family,
            sigma=self.sigma,
            mu=self.mu,
            strength=self.strength,
            costs=(self.cost_low, self.cost_high),
            qualities=(self.quality_low, self.quality_high),
            periods=self.periods,
        )


def load(line: Mapping[str, Any]) -> PricingInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    for key in line:
        if key not in PARAMETERS and key not in _STORED and key not in _EXPLICIT:
            raise UsageError(f"{key}: a {NAME} instance has no such field.{nearest(key, (*PARAMETERS, *_EXPLICIT))}")
    if line.get("environment", NAME) != NAME:
        raise UsageError(f"environment: {line['environment']!r} is not {NAME!r}.")
    values = {
        name: checked(PARAMETERS, name, line.get(name, parameter.default)) for name, parameter in PARAMETERS.items()
    }
    explicit = values["generator"] == "explicit"
    _check_fit(line, values, explicit)
    if not explicit and values["family"] is None:
        values["family"] = family_of_seed(values["seed"])
    return PricingInstance(
        **{**values, "family": values["family"] or ""},
        id=text_field(line, "id"),
        given=_given(line, values["products"], values["periods"]) if explicit else None,
        digest=text_field(line, "digest"),
        optimum=_optimum(line.get("optimum")),
    )


def describe(instance: PricingInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the digest of its market and the optimum.

    What follows from other fields is left out, so that a sweep that varies those varies it too: a family from the
    reference's seed, groups from products, scored periods from all of them.
    """
    line: dict[str, Any] = {"id": instance.id, "environment": NAME, "generator": instance.generator}
    line |= {"seed": instance.seed, "products": instance.products}
    if instance.family and not (instance.generator == "reference" and instance.family == family_of_seed(instance.seed)):
        line["family"] = instance.family
    line |= {"sigma": instance.sigma, "mu": instance.mu}
    for name in ("groups", "scored", *_DRAWN):
        if getattr(instance, name) != PARAMETERS[name].default:
            line[name] = getattr(instance, name)
    line |= {name: getattr(instance, name) for name in ("periods", "queries", "hint", "no_action")}
    if instance.given is not None:
        given = instance.given
        line |= {"costs": list(given.costs), "qualities": list(given.qualities), "group_of": list(given.group_of)}
        line["alphas"] = [list(row) for row in given.alphas]
    digest, optimum = instance.digest, instance.optimum
    if not digest or optimum is None:
        market = market_of(instance)
        digest, optimum = market.digest, solve(market)
    return {**line, "digest": digest, "optimum": {"profit": optimum.profit, "markup": optimum.markup}}


def optimum_of(instance: PricingInstance) -> PricingOptimum:
    """What the best prices earn."""
    return instance.optimum or solve(market_of(instance))


def market_of(instance: PricingInstance) -> PricingMarket:
    """The instance's market.

    Raises UsageError where the line's digest or optimum is not that of the market made, or next to nothing can be
    earned.
    """
    given = instance.given
    if given is None:
        market = _made_market(instance.generator, instance.making, instance.seed)
    else:
        market = PricingMarket(
            costs=given.costs,
            qualities=given.qualities,
            groups=given.group_of,
            sigma=instance.sigma,
            mu=instance.mu,
            drift=Drift(kind="", table=given.alphas),
            factor=native_factor(instance.seed),
        )
    if instance.digest and instance.digest != market.digest:
        raise UsageError(
            f"{instance.id}: digest: the market made from this line has digest {market.digest}, the line says "
            f"{instance.digest}. Leave `digest` and `optimum` out if the line was changed on purpose."
        )
    _check_optimum(instance, solve(market))
    return market


def _check_optimum(instance: PricingInstance, optimum: PricingOptimum) -> None:
    if optimum.profit < LEAST_PROFIT:
        raise UsageError(
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
def _made_market(generator: str, making: Making, seed: int) -> PricingMarket:
    return (reference_market if generator == "reference" else native_market)(making, seed)


def stratum(instance: PricingInstance) -> str:
    """How prices move; explicit markets are a group of their own."""
    return instance.family or instance.generator


def likeness(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a line its stratum follows from. Raises TypeError for a seed that is no number."""
    family = line.get("family")
    if family is None:
        family = family_of_seed(line.get("seed", PARAMETERS["seed"].default))
    return line.get("generator"), family


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily: seeds keyed by place, families in turn unless one is asked for.

    With the reference's generator, its instances of the seeds from `seed` on.
    Raises UsageError for parameters that `load` refuses, and for explicit markets.
    """
    lines = generated(NAME, PARAMETERS, parameters, count, seed, families=FAMILIES)
    return (describe(load(line)) for line in lines)


def _check_fit(line: Mapping[str, Any], values: Mapping[str, Any], explicit: bool) -> None:
    """What no field says alone."""
    check_explicit(line, _EXPLICIT, values["generator"])
    for name in ("groups", "family", *_DRAWN):
        if explicit and line.get(name) is not None:
            raise UsageError(f"{name}: nothing is drawn for an explicit market.")
    for what in ("cost", "quality"):
        if values[f"{what}_low"] > values[f"{what}_high"]:
            raise UsageError(f"{what}_low: {values[f'{what}_low']} is above {what}_high, {values[f'{what}_high']}.")
    if values["groups"] is not None and values["groups"] > values["products"]:
        raise UsageError(f"groups: {values['groups']} groups need as many products, not {values['products']}.")
    if values["scored"] is not None and values["scored"] > values["periods"]:
        raise UsageError(f"scored: {values['scored']} is more than there are periods, {values['periods']}.")
    if values["generator"] == "reference":
        for name, most in (
            ("seed", MOST_SEED),
            ("products", MOST_REFERENCE_PRODUCTS),
            ("periods", REFERENCE_PERIODS),
        ):
            if values[name] > most:
                raise UsageError(
                    f"{name}: {values[name]} is out of range for the reference's generator (at most {most})."
                )
        if values["groups"] is not None:
            raise UsageError(
                "groups: in the reference's markets there are as many as a quarter of the products. Leave `groups` "
                "out, or make the market by generator 'native'."
            )


def _optimum(value: Any) -> PricingOptimum | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or value.keys() != {"profit", "markup"}:
        raise UsageError(f"optimum: expected an object with profit and markup, got {value!r}.")
    profit, markup = (_number(value[name], (0.0, 1e12), f"optimum.{name}") for name in ("profit", "markup"))
    if profit < LEAST_PROFIT:
        raise UsageError(f"optimum.profit: {profit} is out of range ({LEAST_PROFIT} at least).")
    return PricingOptimum(profit=profit, markup=markup)


def _given(line: Mapping[str, Any], products: int, periods: int) -> Given:
    rows = line["alphas"]
    if not _is_list(rows) or len(rows) != periods:
        raise UsageError(f"alphas: expected a list of {periods} rows, one a period.")
    group_of = line["group_of"]
    if not _is_list(group_of) or len(group_of) != products or any(type(group) is not int for group in group_of):
        raise UsageError(f"group_of: expected a list of {products} whole numbers.")
    if set(group_of) != set(range(1, len(set(group_of)) + 1)):
        raise UsageError("group_of: groups are numbered from 1 without gaps.")
    return Given(
        costs=_row(line["costs"], products, _COSTS, "costs"),
        qualities=_row(line["qualities"], products, _QUALITIES, "qualities"),
        group_of=tuple(group_of),
        alphas=tuple(_row(row, products, _ALPHAS, f"alphas[{t}]") for t, row in enumerate(rows)),
    )


def _row(value: Any, products: int, bounds: tuple[float, float], where: str) -> Row:
    if not _is_list(value) or len(value) != products:
        raise UsageError(f"{where}: expected a list of {products} numbers.")
    return tuple(_number(number, bounds, f"{where}[{i}]") for i, number in enumerate(value))


def _number(value: Any, bounds: tuple[float, float], where: str) -> float:
    if type(value) not in (int, float) or not bounds[0] <= value <= bounds[1]:
        raise UsageError(f"{where}: expected a number from {bounds[0]:g} to {bounds[1]:g}, got {value!r}.")
    return float(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
