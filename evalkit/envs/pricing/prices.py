"""Prices that were set: whether they are prices, what they sell and earn, and what the history says.

What is shown and recorded is rounded to two decimals, and scores are made of the rounded profits; demand has the prices
as they were given.

Source: specification of the reference, sections B.5 and B.6.
Differs: the reference dies of prices that are texts or not finite; here they are refused, with a text to the agent, and
so is `True`, which it takes for 1. Any finite price is accepted, below 0 too; one beyond `MOST_PRICE` counts as that.
A bare number in place of the mapping is answered, and the chat continues, also where other misuse restarts the period.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from rpds import HashTrieSet

from evalkit.dialogue import as_dataclass
from evalkit.envs.arguments import Refusal, listed
from evalkit.envs.environment import fill
from evalkit.envs.pricing.demand import PricingMarket, profits, quantities
from evalkit.envs.pricing.optimum import hint
from evalkit.envs.rules import AcceptedAction, PeriodsState

MOST_PRICE = 1e15
"""Either way from 0. No alpha is so high that anything sells at this price, and figures stay of bounded length."""

REFUSALS = {
    "missing_products": frozenset({"ids"}),
    "unknown_products": frozenset({"ids"}),
    "not_numbers": frozenset({"ids"}),
    "not_finite": frozenset({"ids"}),
}
"""Outcomes of prices that are none, in the order they are looked for."""

TEXTS = {
    "results.history_attempt": frozenset({"attempt", "products"}),
    "results.history_product": frozenset(
        {"product", "price", "quantity", "profit", "cost", "price_signed", "quantity_signed", "profit_signed"}
    ),
    "hint": frozenset({"price", "price_short"}),
}
"""What the history says of one attempt and of one product in it; and what the opening says of high prices.

`price` has two decimals; `price_short` only those it needs (77.2), as the reference writes it. `price_signed` and its
like keep the minus before a zero that was below it before it was rounded, as the reference does.
"""

BARE_NUMBER = "bare_number"
"""The outcome of a number where the mapping should be."""


@as_dataclass
class PricingWorld(msgspec.Struct, frozen=True, kw_only=True):
    """What pricing adds to the state of the loop."""

    market: PricingMarket
    hinted: bool
    """Whether the opening names a price above which not to go."""
    seen: "HashTrieSet[tuple[float, ...]]" = msgspec.field(default_factory=HashTrieSet)
    """The prices set so far, as they were shown."""


def submit(state: PeriodsState[PricingWorld], mapping: Mapping[Any, Any]) -> AcceptedAction[PricingWorld] | Refusal:
    """Judge a submitted mapping. Outcomes: those of `REFUSALS`, or an accepted action.

    The action's facts, each a list in product order: `prices` as they counted; `quantities` and `profits`, rounded to
    two decimals; and `repeat`: whether the same prices, to two decimals, were set before.
    """
    market = state.world.market
    prices = read_prices(market.products, mapping)
    if isinstance(prices, Refusal):
        return prices
    alphas = market.drift.alphas(state.period)
    sold = quantities(market, alphas, prices)
    exact = prices, sold, profits(market, alphas, prices, sold)
    shown, sold, earned = (_rounded(values) for values in exact)
    return AcceptedAction(
        world=replace(state.world, seen=state.world.seen.insert(shown)),
        facts={
            "prices": list(prices),
            "quantities": list(sold),
            "profits": list(earned),
            "repeat": shown in state.world.seen,
        },
        history=_history(state, exact),
    )


def read_prices(products: Sequence[str], mapping: Mapping[Any, Any]) -> tuple[float, ...] | Refusal:
    """A mapping from products to prices, as prices in product order. The first check that fails is the refusal."""
    known = frozenset(products)
    named = {product: mapping[product] for product in products if product in mapping}
    numbers = {product: value for product, value in named.items() if type(value) in (int, float)}
    for outcome, ids in (
        ("missing_products", [product for product in products if product not in named]),
        ("unknown_products", [product for product in mapping if product not in known]),
        ("not_numbers", [product for product in products if product not in numbers]),
        (
            "not_finite",
            [product for product, value in numbers.items() if isinstance(value, float) and not math.isfinite(value)],
        ),
    ):
        if ids:
            return Refusal(outcome, {"ids": listed(ids)})
    # Bounded before it becomes a float: a whole number may be too large for one.
    return tuple(float(min(max(numbers[product], -MOST_PRICE), MOST_PRICE)) for product in products)


def told_hint(state: PeriodsState[PricingWorld]) -> str:
    """What the opening says of high prices; nothing where hints are switched off."""
    if not state.world.hinted:
        return ""
    price = hint(state.world.market, state.period, state.setting.periods)
    return fill(state.setting.texts["hint"], price=_shown(price), price_short=price)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 2) + 0.0 for value in values)  # no minus before a zero


def _shown(value: float) -> str:
    return f"{value:.2f}"


_FIGURES = ("price", "quantity", "profit")


def _history(state: PeriodsState[PricingWorld], exact: Sequence[Sequence[float]]) -> str:
    """What the history tool appends: product by product, without a total. `exact`: prices, quantities and profits."""
    texts, market = state.setting.texts, state.world.market
    lines = []
    for product, cost, *values in zip(market.products, market.costs, *exact, strict=True):
        figures = dict(zip(_FIGURES, values, strict=True))
        lines.append(
            fill(
                texts["results.history_product"],
                product=product,
                cost=_shown(cost),
                **{name: _shown(value) for name, value in zip(_FIGURES, _rounded(values), strict=True)},
                **{f"{name}_signed": _shown(round(value, 2)) for name, value in figures.items()},
            )
        )
    return fill(texts["results.history_attempt"], attempt=state.period, products="".join(lines))
