"""A menu of deals and what is exactly true of a plan: its cost, its categories' totals, the workers it supports.

Money is an integer number of cents. A category's total is the sum over its items of units times effectiveness, also an
integer; a plan supports the geometric mean of its totals many workers, or as many as the least of them. Plans are
compared by the product of their totals, or by the least one: an exact integer that orders them as the workers do.

A plan is a tuple of quantities, whole numbers from 0, one a deal in the menu's order.

Source: specification of the reference, section B.3; math.md, section 3.
Differs: the reference adds up dollars in floats, so that a plan of exactly the budget may count as too dear; here a
plan is within the budget if its cents are.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["basic", "two_part_tariff", "bulk_discount"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BASIC, TWO_PART, BULK = KINDS
"""Kinds of deals, in the order the reference draws them from."""


Aggregate = Literal["product", "min"]
PRODUCT, MIN = get_args(Aggregate)
"""How a plan's totals make it good: the reference's `prod`, which the paper uses, and its `min`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """One line of the menu. Its quantity says how often its contents are bought."""

    id: str
    kind: Kind
    """`basic`: price a unit; `two_part_tariff`: a fixed cost besides; `bulk_discount`: from a least quantity on."""
    contents: tuple[tuple[int, int], ...]
    """(item's index, units of it), in the order the menu shows them; each item once."""
    price: int
    """Cents a unit of the deal."""
    fixed: int = 0
    """Cents once, where any is bought; 0 unless the deal is a two-part tariff."""
    least: int = 0
    """The smallest quantity above 0 that can be bought; 0 unless the deal is a bulk discount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcurementMarket:
    """What is for sale, what it is good for, and the money there is."""

    categories: tuple[tuple[str, ...], ...]
    """Item ids by category. Items are numbered through all categories, from 0."""
    effectiveness: tuple[int, ...]
    """By item: what one unit adds to its category's total. Hidden from the agent."""
    deals: tuple[Deal, ...]
    budget: int
    """Cents."""
    aggregate: str = PRODUCT
    gains: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """By deal, by category: what one unit of the deal adds to the category's total."""

    def __post_init__(self) -> None:
        category = [c for c, items in enumerate(self.categories) for _ in items]
        rows = []
        for deal in self.deals:
            row = [0] * len(self.categories)
            for item, units in deal.contents:
                row[category[item]] += units * self.effectiveness[item]
            rows.append(tuple(row))
        object.__setattr__(self, "gains", tuple(rows))

    @property
    def items(self) -> tuple[str, ...]:
        """The items' ids, in order."""
        return tuple(item for items in self.categories for item in items)


def deal_cost(deal: Deal, quantity: int) -> int:
    """Cents for so much of one deal. A bulk discount below its least quantity counts as nothing, as in the reference:
    the plan is infeasible anyway."""
    if quantity <= 0 or quantity < deal.least:
        return 0
    return deal.fixed + deal.price * quantity


def plan_cost(market: ProcurementMarket, quantities: Sequence[int]) -> int:
    """Cents for a plan."""
    return sum(deal_cost(deal, quantity) for deal, quantity in zip(market.deals, quantities, strict=True) if quantity)


def short_deals(market: ProcurementMarket, quantities: Sequence[int]) -> list[int]:
    """Indices of the bulk discounts of which a plan takes some, but less than the least quantity."""
    return [index for index, deal in enumerate(market.deals) if 0 < quantities[index] < deal.least]


def is_feasible(market: ProcurementMarket, quantities: Sequence[int]) -> bool:
    """Whether a plan can be bought: no bulk discount below its least quantity, and no more than the budget."""
    return not short_deals(market, quantities) and plan_cost(market, quantities) <= market.budget


def totals(market: ProcurementMarket, quantities: Sequence[int]) -> tuple[int, ...]:
    """A plan's total by category."""
    by_category = [0] * len(market.categories)
    for quantity, row in zip(quantities, market.gains, strict=True):
        if quantity:
            for category, gain in enumerate(row):
                by_category[category] += quantity * gain
    return tuple(by_category)


def product(market: ProcurementMarket, quantities: Sequence[int]) -> int:
    """The product of a plan's totals, exactly; or the least one, where that is what counts."""
    return product_of(totals(market, quantities), market.aggregate)


def product_of(by_category: Sequence[int], aggregate: str = PRODUCT) -> int:
    """The product of totals, exactly; or the least one."""
    if aggregate == MIN:
        return min(by_category)
    result = 1
    for total in by_category:
        result *= total
    return result


def workers(market: ProcurementMarket, quantities: Sequence[int]) -> float:
    """How many workers a plan supports."""
    return workers_of(totals(market, quantities), market.aggregate)


def workers_of(by_category: Sequence[float], aggregate: str = PRODUCT) -> float:
    """The geometric mean of totals, rounded as the reference rounds it: powers are multiplied one by one. Or the least.

    Chosen: of the least one the reference takes a k-th part, which changes no score.
    """
    if aggregate == MIN:
        return float(min(by_category))
    exponent = 1 / len(by_category)
    workers = 1.0
    for total in by_category:
        workers *= float(total) ** exponent
    return workers


def market_digest(market: ProcurementMarket) -> str:
    """Hex digest of all that a market holds."""
    deals = [[deal.id, deal.kind, deal.contents, deal.price, deal.fixed, deal.least] for deal in market.deals]
    held = [market.categories, market.effectiveness, deals, market.budget]
    text = json.dumps(held + [MIN] * (market.aggregate == MIN), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
