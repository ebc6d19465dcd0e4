"""Markets from a seed: the reference's generator, draw for draw, and the native one for any size and number.

Both make the same kind of market: effectiveness by item; deals of the three kinds, each anchored on one item so that
every item is for sale; and a budget that just pays a plan with one randomly chosen deal for each category, so that the
plan is feasible and supports more than no workers. That plan comes with the market: it is where a search may begin.

Source: specification of the reference, section A.1.
Differs: where the paper and the code that made its data part, both generators do as the code does: a deal's further
items are drawn with replacement and may repeat (a repeated item keeps its last quantity), least quantities are 2 to 9
unless a line says otherwise, and where two categories draw the same deal for the budget's plan, the last quantity
counts.
Differs: the reference draws the budget's slack from a generator without a seed, so that no two of its runs share a
budget; here the slack follows from the instance's seed, unless slack or budget are given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
from msgspec import Meta

from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.procurement.explicit import MOST_CATEGORIES, MOST_DEALS
from evalkit.envs.procurement.market import BULK, KINDS, TWO_PART, Aggregate, Deal, Kind, ProcurementMarket, plan_cost
from evalkit.seeds import Stream

Quantities = tuple[int, ...]

Price = Annotated[float, Meta(ge=0.01, le=1000.0)]
Least = Annotated[int, Meta(ge=1, le=1000)]
Weight = Annotated[int, Meta(ge=0, le=100)]
Odds = Annotated[float, Meta(ge=0.02, le=1.0)]
"""Of a geometric distribution, whose mean is 1 / p."""
Worth = Annotated[int, Meta(ge=1, le=100, description="of an item's effectiveness")]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How big a market is, and how its parts are distributed: what makes it hard."""

    categories: Annotated[
        int, Meta(ge=1, le=MOST_CATEGORIES, description="categories of items, all of which are needed")
    ] = 3
    products: Annotated[
        int, Meta(ge=1, le=MOST_DEALS, description="items in all categories together, as many in each")
    ] = 12
    deals: (
        Annotated[int, Meta(ge=1, le=MOST_DEALS, description="deals on the menu, at least the items; else as many")]
        | None
    ) = None
    p_items: Annotated[Odds, Meta(description="1 / mean number of item slots of a deal")] = 0.8
    p_quantity: Annotated[Odds, Meta(description="1 / mean number of units of an item in a deal")] = 0.5
    p_budget: Annotated[Odds, Meta(description="1 / mean quantity in the plan that the budget pays")] = 0.5
    effectiveness_least: Worth = 1
    effectiveness_most: Worth = 3
    price_low: Annotated[Price, Meta(description="least price of a deal's unit, and least fixed cost")] = 1.0
    price_high: Annotated[Price, Meta(description="highest price of a deal's unit, and highest fixed cost")] = 20.0
    bulk_least: Annotated[Least, Meta(description="minimum quantity of a bulk deal, at least")] = 2
    bulk_most: Annotated[Least, Meta(description="minimum quantity of a bulk deal, at most; the paper says 10")] = 9
    weight_basic: Annotated[Weight, Meta(description="how often deals are basic, beside the other two kinds")] = 1
    weight_two_part: Annotated[Weight, Meta(description="how often deals are two-part tariffs")] = 1
    weight_bulk: Annotated[Weight, Meta(description="how often deals are bulk discounts")] = 1
    aggregate: Annotated[
        Aggregate, Meta(description="workers supported: geometric mean of the categories' totals, or the least of them")
    ] = "product"

    @property
    def offered(self) -> int:
        """How many deals there are."""
        return self.products if self.deals is None else self.deals

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of deals, each as often as it weighs."""
        weights = (self.weight_basic, self.weight_two_part, self.weight_bulk)
        return tuple(kind for kind, weight in zip(KINDS, weights, strict=True) for _ in range(weight))


def _shape(categories: int, products: int, p_items: float, p_quantity: float, most: int) -> Shape:
    return Shape(
        categories=categories,
        products=products,
        p_items=p_items,
        p_quantity=p_quantity,
        p_budget=p_quantity,
        effectiveness_most=most,
    )


DIFFICULTIES = {
    "basic": _shape(3, 12, 0.8, 0.5, 3),
    "medium": _shape(5, 30, 0.5, 0.2, 5),
    "hard": _shape(10, 100, 0.1, 0.1, 20),
}
"""The paper's levels."""

N40K5 = _shape(5, 40, 0.1, 0.1, 20)
"""The paper's variant that needs no solver's licence. Chosen: the other numbers are those of `hard`; it gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeMarket:
    """A market and the plan its budget was made from."""

    market: ProcurementMarket
    start: Quantities


class _KeyedDraws:
    """Draws from a stream of one place."""

    __slots__ = ("_stream",)

    def __init__(self, seed: int, *key: str | int) -> None:
        self._stream = Stream(seed, "procurement", *key)

    def below(self, n: int) -> int:
        return self._stream.below(n)

    def permutation(self, n: int) -> list[int]:
        return self._stream.permutation(n)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._stream.uniform()

    def geometric(self, p: float) -> int:
        u = self._stream.uniform()
        return 1 if p == 1 else max(1, math.ceil(math.log1p(-u) / math.log1p(-p)))


GeneratorDraws = RandomStateStream | _KeyedDraws
"""What the generators draw from at one place."""


def reference_market(shape: Shape, seed: int, slack: float | None = None, budget: int | None = None) -> MadeMarket:
    """The reference's market of a seed (0 to 2**32 - 1). See `_closed` for slack and budget."""
    draws = RandomStateStream(seed)
    effectiveness = _effectiveness(shape, draws)
    among = shape.kinds
    kinds = [among[draws.below(len(among))] for _ in range(shape.offered)]
    slots = [draws.geometric(shape.p_items) for _ in range(shape.offered)]
    anchors = _anchors(shape, draws)
    contents = [_contents(shape, draws, anchor, size) for anchor, size in zip(anchors, slots, strict=True)]
    deals = tuple(
        _deal(shape, index, kind, content, draws)
        for index, (kind, content) in enumerate(zip(kinds, contents, strict=True))
    )
    start = _start(shape, deals, draws)
    drawn = RandomStateStream(seed).double() if slack is None else slack
    return _closed(shape, effectiveness, deals, start, drawn, budget)


def native_market(shape: Shape, seed: int, slack: float | None = None, budget: int | None = None) -> MadeMarket:
    """A market of the native generator: each deal's draws keyed by its place."""
    effectiveness = _effectiveness(shape, _KeyedDraws(seed, "effectiveness"))
    anchors = _anchors(shape, _KeyedDraws(seed, "anchors"))
    deals, among = [], shape.kinds
    for index, anchor in enumerate(anchors):
        draws = _KeyedDraws(seed, "deal", index)
        kind = among[draws.below(len(among))]
        contents = _contents(shape, draws, anchor, draws.geometric(shape.p_items))
        deals.append(_deal(shape, index, kind, contents, draws))
    start = _start(shape, deals, _KeyedDraws(seed, "budget"))
    drawn = _KeyedDraws(seed, "slack").uniform(0.0, 1.0) if slack is None else slack
    return _closed(shape, effectiveness, tuple(deals), start, drawn, budget)


def item_ids(categories: int, size: int) -> tuple[tuple[str, ...], ...]:
    """Ids by category: its letter and a number from 1. Behind Z come AA, AB and so on; the reference ends at Z."""
    return tuple(tuple(f"{_letters(c)}{i}" for i in range(1, size + 1)) for c in range(categories))


def _letters(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def _effectiveness(shape: Shape, draws: GeneratorDraws) -> tuple[int, ...]:
    span = shape.effectiveness_most - shape.effectiveness_least + 1
    return tuple(shape.effectiveness_least + draws.below(span) for _ in range(shape.products))


def _anchors(shape: Shape, draws: GeneratorDraws) -> list[int]:
    """By deal: the item it certainly holds. Each item at least once.

    Chosen: where deals are several times the items, copies of all items stand one after the other before the draw;
    no published instance has more deals than items.
    """
    n, m = shape.products, shape.offered
    first = draws.permutation(n)
    more = [position % n for position in draws.permutation(n * (m // n))[: m - n]]
    anchors = first + more
    return [anchors[position] for position in draws.permutation(m)]


def _contents(shape: Shape, draws: GeneratorDraws, anchor: int, slots: int) -> tuple[tuple[int, int], ...]:
    items = [anchor, *(draws.below(shape.products) for _ in range(slots - 1))]
    units = [draws.geometric(shape.p_quantity) for _ in range(slots)]
    return tuple(dict(zip(items, units, strict=True)).items())


def _deal(shape: Shape, index: int, kind: Kind, contents: tuple[tuple[int, int], ...], draws: GeneratorDraws) -> Deal:
    fixed = _cents(shape, draws) if kind == TWO_PART else 0
    price = _cents(shape, draws)
    least = shape.bulk_least + draws.below(shape.bulk_most - shape.bulk_least + 1) if kind == BULK else 0
    return Deal(id=f"Offer_{index + 1}", kind=kind, contents=contents, price=price, fixed=fixed, least=least)


def _cents(shape: Shape, draws: GeneratorDraws) -> int:
    return round(round(draws.uniform(shape.price_low, shape.price_high), 2) * 100)


def _start(shape: Shape, deals: Sequence[Deal], draws: GeneratorDraws) -> Quantities:
    """The budget's plan: for each category one of its items, and one of the deals that hold it."""
    size = shape.products // shape.categories
    items = [c * size + draws.below(size) for c in range(shape.categories)]
    sellers = [
        [index for index, deal in enumerate(deals) if any(item == sold for sold, _ in deal.contents)] for item in items
    ]
    chosen = [among[draws.below(len(among))] for among in sellers]
    quantities = [0] * len(deals)
    for index in chosen:
        quantities[index] = draws.geometric(shape.p_budget) + max(deals[index].least - 1, 0)
    return tuple(quantities)


def _closed(
    shape: Shape,
    effectiveness: tuple[int, ...],
    deals: tuple[Deal, ...],
    start: Quantities,
    slack: float,
    budget: int | None,
) -> MadeMarket:
    """The market with its budget: the given one in cents, or what the plan costs plus the slack, rounded to cents."""
    categories = item_ids(shape.categories, shape.products // shape.categories)
    free = ProcurementMarket(categories=categories, effectiveness=effectiveness, deals=deals, budget=0)
    if budget is None:
        budget = plan_cost(free, start) + round(round(slack, 2) * 100)
    market = replace(free, budget=budget, aggregate=shape.aggregate)
    return MadeMarket(market=market, start=start)
