"""The menu as an agent reads it: a line a deal, with its price and what a unit of it holds.

Source: specification of the reference, section B.6.
"""

from collections.abc import Mapping, Sequence

from evalkit.envs.environment import fill
from evalkit.envs.procurement.market import BULK, KINDS, TWO_PART, Deal, ProcurementMarket

_OWN = {TWO_PART: ("fixed",), BULK: ("least",)}

TEXTS = {
    **{f"results.menu_{kind}": frozenset({"deal", "price", "contents", *_OWN.get(kind, ())}) for kind in KINDS},
    "results.menu_unit": frozenset({"item"}),
    "results.menu_units": frozenset({"units", "item"}),
    "results.menu_pair": frozenset({"first", "last"}),
    "results.menu_list": frozenset({"first", "last"}),
}
"""A line for each kind of deal; one unit of an item, and several; two items, and more (`first` are joined by commas).
"""


def menu_text(market: ProcurementMarket, texts: Mapping[str, str]) -> str:
    """All deals in order."""
    items = market.items
    return "".join(_line(deal, items, texts) for deal in market.deals)


def money(cents: int) -> str:
    """Cents as units of currency with two decimals."""
    return f"{cents // 100}.{cents % 100:02d}"


def _line(deal: Deal, items: Sequence[str], texts: Mapping[str, str]) -> str:
    return fill(
        texts[f"results.menu_{deal.kind}"],
        deal=deal.id,
        price=money(deal.price),
        fixed=money(deal.fixed),
        least=deal.least,
        contents=_joined([_counted(units, items[item], texts) for item, units in deal.contents], texts),
    )


def _counted(units: int, item: str, texts: Mapping[str, str]) -> str:
    if units == 1:
        return fill(texts["results.menu_unit"], item=item)
    return fill(texts["results.menu_units"], units=units, item=item)


def _joined(parts: Sequence[str], texts: Mapping[str, str]) -> str:
    if len(parts) == 1:
        return parts[0]
    key = "results.menu_pair" if len(parts) == 2 else "results.menu_list"
    return fill(texts[key], first=", ".join(parts[:-1]), last=parts[-1])
