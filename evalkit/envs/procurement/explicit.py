"""A market written out in a suite's line, and its bounds: what is for sale, at which price, and how good it is.

    "items": [[["A1", 1], ["A2", 3]], [["B1", 2]]]              by category: item and effectiveness
    "menu": [{"id": "Offer_1", "kind": "basic", "price": 1.38, "contents": [["A1", 2], ["B1", 1]]},
             {"id": "Offer_2", "kind": "two_part_tariff", "price": 17.69, "fixed": 19.47, "contents": [["A2", 1]]},
             {"id": "Offer_3", "kind": "bulk_discount", "price": 10.68, "least": 2, "contents": [["B1", 2]]}]

Lists, because order matters and the keys of objects are sorted where lines are digested. Money is in units of currency
with at most two decimals, as a number or a string.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evalkit.envs.procurement.market import BULK, TWO_PART, Deal, Kind, ProcurementMarket
from evalkit.errors import UsageError, nearest

MOST_CATEGORIES = 100
MOST_DEALS = 2000
"""Items and deals: a plan of more would not fit the bound on a tool call's arguments."""
MOST_QUANTITY = 10**9
"""Of one deal in a plan."""
MOST_BUDGET = 10**9
"""Cents. Every quantity that can be paid can be submitted."""
MOST_PRICE = 10**6
"""Cents a unit. With the bounds above and below, any plan's cost and totals fit 63 bits."""
MOST_GAIN = 10**6
"""What one unit of a deal may add to a category's total."""

_MONEY = re.compile(r"(\d{1,9})(?:\.(\d{1,2})0*)?")

Id = Annotated[
    str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,39}\Z", title="a letter and then up to 39 letters, digits, _ . or -")
]
Money = Annotated[float | str, Meta(title="an amount with at most two decimals")]
Counted = Annotated[tuple[Id, Annotated[int, Meta(ge=1, le=MOST_GAIN)]], Meta(title="[item, number]")]
"""An item and its effectiveness, or how many units of it a deal has."""
Counts = Annotated[tuple[Counted, ...], Meta(min_length=1, title="a list of [item, number], one at least")]
Items = Annotated[
    tuple[Counts, ...],
    Meta(min_length=1, max_length=MOST_CATEGORIES, title=f"a list of 1 to {MOST_CATEGORIES} categories"),
]


class WrittenDeal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A deal as a line writes it."""

    id: Id
    kind: Kind
    price: Money
    fixed: Money | None = None
    """Of a two-part tariff alone."""
    least: Annotated[int, Meta(ge=1, le=MOST_QUANTITY)] | None = None
    """Of a bulk discount alone."""
    contents: Counts


Menu = Annotated[
    tuple[WrittenDeal, ...], Meta(min_length=1, max_length=MOST_DEALS, title=f"a list of 1 to {MOST_DEALS} deals")
]


def read_market(items: Items, menu: Menu, budget: int) -> ProcurementMarket:
    """The market that a line's `items` and `menu` write out. Raises UsageError naming the place that is wrong."""
    names = [item for category in items for item, _ in category]
    if len(names) > MOST_DEALS:
        raise UsageError(f"items: there may be {MOST_DEALS} in all at most, not {len(names)}.")
    _check_once("items: an item is listed twice", names)
    _check_once("menu: two deals share an id", [offer.id for offer in menu])
    index = {item: position for position, item in enumerate(names)}
    market = ProcurementMarket(
        categories=tuple(tuple(item for item, _ in category) for category in items),
        effectiveness=tuple(worth for category in items for _, worth in category),
        deals=tuple(_deal(f"menu[{position}]", offer, index) for position, offer in enumerate(menu)),
        budget=budget,
    )
    for number, gains in enumerate(zip(*market.gains, strict=True)):
        if not any(gains):
            raise UsageError(
                f"menu: no deal holds an item of category {number}: {', '.join(market.categories[number])}."
            )
    check_gains(market)
    return market


def _check_once(flaw: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UsageError(f"{flaw}: {next(name for name in names if names.count(name) > 1)!r}.")


def check_gains(market: ProcurementMarket) -> None:
    """Raise UsageError where a unit of a deal would add more than `MOST_GAIN` to a category's total."""
    for deal, gains in zip(market.deals, market.gains, strict=True):
        if max(gains) > MOST_GAIN:
            raise UsageError(f"{deal.id}: a unit adds {max(gains)} to a category's total; at most {MOST_GAIN} may be.")


def write_market(market: ProcurementMarket) -> dict[str, Any]:
    """A market as the fields `items` and `menu` of a line."""
    worth = iter(market.effectiveness)
    items = [[[item, next(worth)] for item in category] for category in market.categories]
    return {"items": items, "menu": [_entry(deal, market.items) for deal in market.deals]}


def read_money(name: str, value: float | str, most: int) -> int:
    """An amount of currency in cents. Raises UsageError naming the field."""
    match = _MONEY.fullmatch(str(value))
    if not match:
        raise UsageError(f"{name}: expected an amount with at most two decimals, got {value!r}.")
    cents = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))
    if not 1 <= cents <= most:
        raise UsageError(f"{name}: {value} is out of range (0.01 to {most / 100:.2f}).")
    return cents


def _deal(where: str, offer: WrittenDeal, index: Mapping[str, int]) -> Deal:
    for field, kind in (("fixed", TWO_PART), ("least", BULK)):
        given = getattr(offer, field) is not None
        if given != (offer.kind == kind):
            raise UsageError(
                f"{where}.{field}: {'says nothing' if given else 'is missing'} in a deal of kind {offer.kind!r}."
            )
    for item, _ in offer.contents:
        if item not in index:
            raise UsageError(f"{where}.contents: there is no item {item!r}.{nearest(item, index)}")
    _check_once(f"{where}.contents: an item is listed twice", [item for item, _ in offer.contents])
    return Deal(
        id=offer.id,
        kind=offer.kind,
        contents=tuple((index[item], units) for item, units in offer.contents),
        price=read_money(f"{where}.price", offer.price, MOST_PRICE),
        fixed=0 if offer.fixed is None else read_money(f"{where}.fixed", offer.fixed, MOST_BUDGET),
        least=offer.least or 0,
    )


def _entry(deal: Deal, items: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": deal.id, "kind": deal.kind, "price": deal.price / 100}
    if deal.kind == TWO_PART:
        entry["fixed"] = deal.fixed / 100
    if deal.kind == BULK:
        entry["least"] = deal.least
    return {**entry, "contents": [[items[item], units] for item, units in deal.contents]}
