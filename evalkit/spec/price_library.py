"""Prices that no provider's file states: those which the library genai-prices brings along, without a network.

The library says what a request costs at a given moment; a budget needs what it may cost at most. So of several prices
that take turns within a day, and of a price now and one announced for later, each rate is the highest; and where there
is more than one step in a prompt's length, all that lies above the first step costs the highest rates.
Chosen: a rate finer than a pico-dollar a token is rounded up.
Chosen: a cached token without a price of its own costs what any input token costs.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from evalkit.money import PICO_PER_USD, TIERS, Price, Tier, pico_at_least

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

_DATED = re.compile(r"[-@](latest|20\d\d-?\d\d-?\d\d|\d{4})$")
"""What may follow a model's known name and still be that model: `-latest`, a day, a month."""

_KINDS: Mapping[str, tuple[str, ...]] = {
    "input": ("input_mtok",),
    "output": ("output_mtok", "output_reasoning_mtok", "output_citation_mtok"),
    "cached_read": ("cache_read_mtok",),
    "cached_write": ("cache_write_mtok", "cache_write_5m_mtok"),
}
"""Our kinds of token -> the library's rates that a token of this kind may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryModel:
    """What the library knows of a model."""

    price: Price
    tiers: Mapping[Tier, Price]
    """Of tiers other than the standard one."""
    context_tokens: int | None
    source: str
    """The library's version, and the day for which the price was looked up."""


def published(provider: str, model: str, *, on: datetime.date | None = None) -> LibraryModel | None:
    """The price of a model at a provider (the library's id) from a day on (today); None if it knows none.

    Only exact names count, and those with a date or `-latest` after them: the library's own search would also take
    what merely begins or ends like a name it knows.
    """
    day = on or datetime.datetime.now(datetime.UTC).date()
    info = _find(provider, model)
    price = _price(info, day) if info else None
    if info is None or price is None:
        return None
    from genai_prices import __version__

    tiers = {tier: own for tier in TIERS if (own := _price(info, day, tier)) is not None}
    source = f"genai-prices {__version__}, as of {day}"
    return LibraryModel(price=price, tiers=tiers, context_tokens=info.context_window, source=source)


def published_names(provider: str) -> list[str]:
    """The names under which the library knows a price for chatting with a provider's models, sorted."""
    return sorted(
        shown
        for name, shown in _names(provider).items()
        if (info := _find(provider, name)) and _price(info, datetime.date.min)
    )


def _ours(provider: str) -> "list[Provider]":
    """The provider, and those whose models it also sells at their price."""
    from genai_prices.data import providers

    by_id = {entry.id: entry for entry in providers}
    if provider not in by_id:
        return []
    return [by_id[provider], *(by_id[name] for name in by_id[provider].fallback_model_providers or () if name in by_id)]


def _find(provider: str, model: str) -> "ModelInfo | None":
    name = model.lower()
    if not {name, _DATED.sub("", name)} & _names(provider).keys():
        return None
    for entry in _ours(provider):
        for info in entry.models:
            if info.is_match(name):
                return info
    return None


@cache
def _names(provider: str) -> Mapping[str, str]:
    """All names by which models are called: in lower case -> as they are written."""
    return {
        name.lower(): name
        for entry in _ours(provider)
        for info in entry.models
        for name in (*_named(info.match), info.id)  # the id last: its spelling is the one to show
    }


def _named(clause: Any) -> Iterator[str]:
    """The names that a rule for recognising a model spells out."""
    for kind in ("equals", "starts_with"):
        name = getattr(clause, kind, None)
        if name is not None:
            yield name
    for part in getattr(clause, "or_", ()):
        yield from _named(part)


def _price(info: "ModelInfo", day: datetime.date, tier: Tier = "") -> Price | None:
    """The highest of the prices that may hold from a day on; None if a reply's tokens have none. `tier`: only what a
    variant of the price says of it; rates that it leaves out are those of the price."""
    prices = [vars(price) for price in _from(info, day)]
    if not all("input_mtok" in price and "output_mtok" in price for price in prices):
        return None
    own = [vars(one.prices) for one in info.price_variants or () if one.when == {"service_tier": tier}]
    rates = [
        {**price, **{key: rate for key, rate in one.items() if rate is not None}} for price in prices for one in own
    ]
    if tier and not any(own):
        return None
    rates = rates if tier else prices
    starts = [start for rate in rates for kind in _KINDS.values() for key in kind for start in _steps(rate.get(key))]
    fees = (Decimal(rate.get("requests_kcount") or 0) / 1000 for rate in rates)
    price = {kind: max(_rate(rate, kind, above=False) for rate in rates) for kind in _KINDS}
    price["request"] = pico_at_least(max(fees) * PICO_PER_USD)
    if starts:
        price |= {f"over_{kind}": max(_rate(rate, kind, above=True) for rate in rates) for kind in _KINDS}
        price["over"] = min(starts)
    return Price(**price)


def _from(info: "ModelInfo", day: datetime.date) -> "Iterator[ModelPrice]":
    """The price in force on a day, and those that may take its place later, or at some hour."""
    from genai_prices.types import ModelPrice, StartDateConstraint

    if isinstance(info.prices, ModelPrice):
        yield info.prices
        return
    for conditional in reversed(info.prices):
        yield conditional.prices
        when = conditional.constraint
        if when is None or (isinstance(when, StartDateConstraint) and when.start_date <= day):
            return


def _rate(prices: Mapping[str, Any], kind: str, *, above: bool) -> int:
    """Pico-dollars a token of a kind; `above`: of a prompt beyond the first step."""
    listed = [prices[key] for key in _KINDS[kind] if prices.get(key) is not None]
    if not listed:
        return _rate(prices, "input", above=above)
    return max(pico_at_least(amount * 10**6) for value in listed for amount in _amounts(value, above))


def _amounts(value: Any, above: bool) -> Iterable[Decimal]:
    if isinstance(value, Decimal):
        return (value,)
    return (value.base, *(tier.price for tier in value.tiers)) if above else (value.base,)


def _steps(value: Any) -> Iterable[int]:
    return () if value is None or isinstance(value, Decimal) else (tier.start for tier in value.tiers)
