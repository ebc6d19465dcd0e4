"""A market written out in a suite's line, and its bounds: what is for sale, at which price, and how good it is.

    "items": [[["A1", 1], ["A2", 3]], [["B1", 2]]]              by category: item and effectiveness
    "menu": [{"id": "Offer_1", "kind": "basic", "price": 1.38, "contents": [["A1", 2], ["B1", 1]]},
             {"id": "Offer_2", "kind": "two_part_tariff", "price": 17.69, "fixed": 19.47, "contents": [["A2", 1]]},
             {"id": "Offer_3", "kind": "bulk_discount", "price": 10.68, "least": 2, "contents": [["B1", 2]]}]

Lists, because order matters and the keys of objects are sorted where lines are digested. Money is in units of currency
with at most two decimals, as a number or a text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.envs.procurement.market import BULK, KINDS, TWO_PART, Deal, ProcurementMarket
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

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_MONEY = re.compile(r"(\d{1,9})(?:\.(\d{1,2})0*)?")
_FIELDS = {"id", "kind", "contents", "price"}
_OWN = {TWO_PART: "fixed", BULK: "least"}


def read_market(items: object, menu: object, budget: int) -> ProcurementMarket:
    """The market that a line's `items` and `menu` write out. Raises UsageError naming the place that is wrong."""
    categories = _categories(items)
    names = [item for category in categories for item, _ in category]
    if len(set(names)) < len(names):
        raise UsageError("items: an item is listed twice.")
    if not isinstance(menu, Sequence) or isinstance(menu, str) or not 1 <= len(menu) <= MOST_DEALS:
        raise UsageError(f"menu: expected a list of 1 to {MOST_DEALS} deals.")
    index = {item: position for position, item in enumerate(names)}
    deals = tuple(_deal(f"menu[{position}]", entry, index) for position, entry in enumerate(menu))
    if len({deal.id for deal in deals}) < len(deals):
        raise UsageError("menu: two deals share an id.")
    market = ProcurementMarket(
        categories=tuple(tuple(item for item, _ in category) for category in categories),
        effectiveness=tuple(worth for category in categories for _, worth in category),
        deals=deals,
        budget=budget,
    )
    for number, gains in enumerate(zip(*market.gains, strict=True)):
        if not any(gains):
            raise UsageError(
                f"menu: no deal holds an item of category {number}: {', '.join(market.categories[number])}."
            )
    check_gains(market)
    return market


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


def read_money(name: str, value: object, most: int, least: int = 1) -> int:
    """An amount of currency in cents. Raises UsageError naming the field."""
    amount = isinstance(value, int | float | str) and not isinstance(value, bool)
    match = _MONEY.fullmatch(str(value)) if amount else None
    if not match:
        raise UsageError(f"{name}: expected an amount with at most two decimals, got {value!r}.")
    cents = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))
    if not least <= cents <= most:
        raise UsageError(f"{name}: {value} is out of range ({least / 100:.2f} to {most / 100:.2f}).")
    return cents


def _categories(items: object) -> list[list[tuple[str, int]]]:
    if not isinstance(items, Sequence) or isinstance(items, str) or not 1 <= len(items) <= MOST_CATEGORIES:
        raise UsageError(f"items: expected a list of 1 to {MOST_CATEGORIES} categories.")
    categories = [_counted(f"items[{i}]", category, "effectiveness") for i, category in enumerate(items)]
    if sum(map(len, categories)) > MOST_DEALS:
        raise UsageError(f"items: there may be {MOST_DEALS} in all at most.")
    return categories


def _counted(where: str, pairs: object, what: str) -> list[tuple[str, int]]:
    """[[item, number], ...] as pairs."""
    if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not pairs:
        raise UsageError(f"{where}: expected a list of [item, {what}], one at least.")
    counted = []
    for pair in pairs:
        fits = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not fits or not isinstance(pair[0], str) or not _ID.fullmatch(pair[0]):
            raise UsageError(f"{where}: expected [item, {what}], got {pair!r}.")
        if type(pair[1]) is not int or not 1 <= pair[1] <= MOST_GAIN:
            raise UsageError(f"{where}: {what} must be a whole number from 1 to {MOST_GAIN}, got {pair[1]!r}.")
        counted.append((pair[0], pair[1]))
    return counted


def _deal(where: str, entry: object, index: Mapping[str, int]) -> Deal:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: expected an object with {', '.join(sorted(_FIELDS))}.")
    kind = entry.get("kind")
    if kind not in KINDS:
        raise UsageError(f"{where}.kind: there is no {kind!r}.{nearest(str(kind), KINDS)}")
    wanted = _FIELDS | ({_OWN[kind]} if kind in _OWN else set())
    if entry.keys() != wanted:
        raise UsageError(f"{where}: a deal of kind {kind!r} has exactly the fields {', '.join(sorted(wanted))}.")
    if not isinstance(entry["id"], str) or not _ID.fullmatch(entry["id"]):
        raise UsageError(f"{where}.id: expected a letter and then letters, digits, _ . or -; got {entry['id']!r}.")
    contents = _counted(f"{where}.contents", entry["contents"], "units")
    for item, _ in contents:
        if item not in index:
            raise UsageError(f"{where}.contents: there is no item {item!r}.{nearest(item, index)}")
    if len(dict(contents)) < len(contents):
        raise UsageError(f"{where}.contents: an item is listed twice.")
    least = entry.get("least", 0)
    if kind == BULK and (type(least) is not int or not 1 <= least <= MOST_QUANTITY):
        raise UsageError(f"{where}.least: expected a whole number from 1 to {MOST_QUANTITY}, got {least!r}.")
    return Deal(
        id=entry["id"],
        kind=kind,
        contents=tuple((index[item], units) for item, units in contents),
        price=read_money(f"{where}.price", entry["price"], MOST_PRICE),
        fixed=read_money(f"{where}.fixed", entry["fixed"], MOST_BUDGET) if kind == TWO_PART else 0,
        least=least,
    )


def _entry(deal: Deal, items: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": deal.id, "kind": deal.kind, "price": deal.price / 100}
    if deal.kind == TWO_PART:
        entry["fixed"] = deal.fixed / 100
    if deal.kind == BULK:
        entry["least"] = deal.least
    return {**entry, "contents": [[items[item], units] for item, units in deal.contents]}
