"""A submitted purchase plan: whether it is one, what it costs and supports, and what the history says of it.

A well-formed plan is an attempt even if it cannot be bought: it is recorded with the reasons. What is not a plan is
refused, the agent is told why, and the period continues.

Source: specification of the reference, sections B.3, B.6 and G.
Differs: the reference takes quantities of any kind: negative ones lower the cost and can make a plan support more than
the optimum, or a complex number of workers; texts end the run. Here a quantity is a whole number from 0 to a bound.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from rpds import HashTrieSet

from evalkit.dialogue import as_dataclass
from evalkit.envs.arguments import Refusal, listed, whole_argument
from evalkit.envs.environment import fill
from evalkit.envs.procurement.explicit import MOST_QUANTITY
from evalkit.envs.procurement.market import (
    BULK,
    KINDS,
    TWO_PART,
    Deal,
    ProcurementMarket,
    plan_cost,
    product_of,
    short_deals,
    totals,
    workers_of,
)
from evalkit.envs.rules import AcceptedAction, PeriodsState

# The menu as an agent reads it: a line a deal, with its price and what a unit of it holds.
#
# Source: specification of the reference, section B.6.

_OWN = {TWO_PART: ("fixed",), BULK: ("least",)}

MENU_TEXTS = {
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


UNKNOWN = "unknown_deals"

REFUSALS = {
    UNKNOWN: frozenset({"ids"}),
    "not_numbers": frozenset({"ids"}),
    "fractional": frozenset({"ids"}),
    "negative": frozenset({"ids"}),
    "too_many": frozenset({"ids", "limit"}),
}
"""Outcomes of a mapping that is not a plan, in the order they are looked for."""

SHORT = "under_minimum"
OVER = "over_budget"

TEXTS = {
    "results.history_supported": frozenset({"attempt", "plan", "workers", "cost"}),
    "results.history_invalid": frozenset({"attempt", "plan", "reasons"}),
    f"results.{SHORT}": frozenset({"deal", "quantity", "least"}),
    f"results.{OVER}": frozenset({"cost", "budget"}),
}
"""What the history says of a plan, and the reasons why one cannot be bought."""


@as_dataclass
class ProcurementWorld(msgspec.Struct, frozen=True, kw_only=True):
    """What procurement adds to the state of the loop."""

    market: ProcurementMarket
    places: Mapping[str, int]
    """The deals' places by id."""
    menu: str
    """The menu as it is shown."""
    seen: "HashTrieSet[tuple[tuple[int, int], ...]]" = msgspec.field(default_factory=HashTrieSet)
    """Plans submitted so far: what they buy, as (place, quantity)."""
    written: "HashTrieSet[bytes]" = msgspec.field(default_factory=HashTrieSet)
    """Digests of how they were written."""


def submit(
    state: PeriodsState[ProcurementWorld], mapping: Mapping[Any, Any]
) -> AcceptedAction[ProcurementWorld] | Refusal:
    """Judge a submitted mapping. Outcomes: those of `REFUSALS`, or an accepted action.

    The action's facts: `feasible`; `reasons` why it is not, each an object with `reason`; `cost` in cents; `totals` by
    category and their `product` as a string; `plan`, what it buys; `repeat`, whether a plan that buys the same was
    submitted before; `repeat_text`, whether one was that the reference would have written the same way (it minds the
    order of deals and zeros that are spelled out).
    """
    world = state.world
    market = world.market
    quantities = read_plan(world, mapping)
    if isinstance(quantities, Refusal):
        return quantities
    order = (*mapping, *(deal.id for deal in market.deals if deal.id not in mapping))
    plan = {name: quantities[world.places[name]] for name in order}
    cost, by_category = plan_cost(market, quantities), totals(market, quantities)
    reasons = _reasons(world, order, quantities, cost)
    bought = tuple((index, quantity) for index, quantity in enumerate(quantities) if quantity)
    written = _written(mapping, plan)
    facts = {
        "feasible": not reasons,
        "reasons": reasons,
        "cost": cost,
        "totals": list(by_category),
        "product": str(product_of(by_category, market.aggregate)),
        "plan": {market.deals[index].id: quantity for index, quantity in bought},
        "repeat": bought in world.seen,
        "repeat_text": written in world.written,
    }
    return AcceptedAction(
        world=replace(world, seen=world.seen.insert(bought), written=world.written.insert(written)),
        facts=facts,
        history=_history(state, plan, facts),
    )


def read_plan(world: ProcurementWorld, mapping: Mapping[Any, Any]) -> tuple[int, ...] | Refusal:
    """A mapping from deals to quantities as a quantity for each deal, 0 for those left out.

    A quantity is a whole number, as an integer, a float or a string of digits; a truth value is none.
    """
    unknown = [name for name in mapping if not isinstance(name, str) or name not in world.places]
    if unknown:
        return Refusal(UNKNOWN, {"ids": listed(unknown)})
    numbers = {name: _whole(value) for name, value in mapping.items()}
    checks: tuple[tuple[str, Callable[[int | float | None], bool]], ...] = (
        ("not_numbers", lambda value: value is None),
        ("fractional", lambda value: isinstance(value, float)),
        ("negative", lambda value: value is not None and value < 0),
        ("too_many", lambda value: value is not None and value > MOST_QUANTITY),
    )
    for outcome, fails in checks:
        wrong = [name for name, value in numbers.items() if fails(value)]
        if wrong:
            return Refusal(outcome, {"ids": listed(wrong), "limit": MOST_QUANTITY})
    quantities = [0] * len(world.market.deals)
    for name, value in numbers.items():
        quantities[world.places[name]] = int(value or 0)
    return tuple(quantities)


def _whole(value: object) -> int | float | None:
    """A quantity as an integer; a finite number that is not whole as it is; None for everything else."""
    number = whole_argument({"quantity": value}, "quantity")
    if not isinstance(number, Refusal):
        return number
    return value if isinstance(value, float) and math.isfinite(value) else None


def _reasons(
    world: ProcurementWorld, order: tuple[str, ...], quantities: tuple[int, ...], cost: int
) -> list[dict[str, Any]]:
    """Why a plan cannot be bought: deals in the order they were written, then the budget."""
    market, places = world.market, world.places
    short = frozenset(short_deals(market, quantities))
    reasons: list[dict[str, Any]] = [
        {"reason": SHORT, "deal": name, "quantity": quantities[places[name]], "least": market.deals[places[name]].least}
        for name in (order if short else ())
        if places[name] in short
    ]
    if cost > market.budget:
        reasons.append({"reason": OVER, "cost": cost, "budget": market.budget})
    return reasons


def _written(mapping: Mapping[str, Any], plan: Mapping[str, int]) -> bytes:
    """A digest of the plan's text as the reference's log holds it: values as submitted, then the deals left out."""
    text = str({**plan, **mapping})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _history(state: PeriodsState[ProcurementWorld], plan: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    """What the history tool appends for a plan: all quantities in one line, and what came of it."""
    texts = state.setting.texts
    if facts["feasible"]:
        return fill(
            texts["results.history_supported"],
            attempt=state.period,
            plan=plan,
            workers=f"{workers_of(facts['totals'], state.world.market.aggregate):.2f}",
            cost=money(facts["cost"]),
        )
    reasons = "".join(_worded(reason, texts) for reason in facts["reasons"])
    return fill(texts["results.history_invalid"], attempt=state.period, plan=plan, reasons=reasons)


def _worded(reason: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    text = texts[f"results.{reason['reason']}"]
    if reason["reason"] == OVER:
        return fill(text, cost=money(reason["cost"]), budget=money(reason["budget"]))
    return fill(text, deal=reason["deal"], quantity=reason["quantity"], least=reason["least"])
