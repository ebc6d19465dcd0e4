"""The best plan of a market as a suite's line stores it: what it supports, and how far that is proven.

"optimum": {"product": "537600", "workers": 81.31, "cost": 10949, "plan": {"Offer_4": 40, "Offer_8": 7},
            "gap": 0.0, "proven": true}
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.envs.procurement.explicit import MOST_QUANTITY
from evalkit.envs.procurement.generate import Made
from evalkit.envs.procurement.market import (
    ProcurementMarket,
    is_feasible,
    plan_cost,
    product,
    product_of,
    totals,
    workers_of,
)
from evalkit.envs.procurement.optimum import solve
from evalkit.errors import UsageError

_FIELDS = ("product", "workers", "cost", "plan", "gap", "proven")
_MOST_DIGITS = 4000
"""Of a product; Python converts no more than 4300."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best plan that is known."""

    product: int
    """Of its categories' totals, exactly."""
    workers: float
    """It supports."""
    cost: int
    """Cents."""
    plan: tuple[tuple[str, int], ...]
    """(deal, quantity) of what it buys."""
    gap: float
    """A feasible plan's log product exceeds this one's by so much at most."""
    proven: bool
    """Whether that is next to nothing: the plan is optimal."""


def made_best(made: Made) -> Best:
    """The best plan of a market, solved for."""
    market = made.market
    useful = is_feasible(market, made.start) and product(market, made.start) > 0
    solution = solve(market, made.start if useful else None)
    by_category = totals(market, solution.quantities)
    bought = zip(market.deals, solution.quantities, strict=True)
    return Best(
        product=product_of(by_category),
        workers=workers_of(by_category),
        cost=plan_cost(market, solution.quantities),
        plan=tuple((deal.id, quantity) for deal, quantity in bought if quantity),
        gap=solution.gap,
        proven=solution.proven,
    )


def read_best(value: object) -> Best | None:
    """A line's field `optimum`; None where it has none. Raises UsageError."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or value.keys() != set(_FIELDS):
        raise UsageError(f"optimum: expected an object with {', '.join(_FIELDS)}, got {value!r}.")
    plan = value["plan"]
    right = {
        "product": isinstance(value["product"], str)
        and len(value["product"]) <= _MOST_DIGITS
        and value["product"].isascii()
        and value["product"].isdigit(),
        "workers": _is_size(value["workers"]),
        "cost": type(value["cost"]) is int and value["cost"] >= 0,
        "plan": isinstance(plan, Mapping) and all(_is_quantity(quantity) for quantity in plan.values()),
        "gap": _is_size(value["gap"]),
        "proven": isinstance(value["proven"], bool),
    }
    wrong = next((name for name, is_right in right.items() if not is_right), None)
    if wrong:
        raise UsageError(f"optimum.{wrong}: got {value[wrong]!r}.")
    if int(value["product"]) < 1:
        raise UsageError("optimum.product: must be positive: a market where nobody can be supported cannot be scored.")
    return Best(
        product=int(value["product"]),
        workers=float(value["workers"]),
        cost=value["cost"],
        plan=tuple(plan.items()),
        gap=float(value["gap"]),
        proven=value["proven"],
    )


def written_best(best: Best) -> dict[str, Any]:
    """As the field `optimum` of a line."""
    return {
        "product": str(best.product),
        "workers": best.workers,
        "cost": best.cost,
        "plan": dict(best.plan),
        "gap": best.gap,
        "proven": best.proven,
    }


def check_best(market: ProcurementMarket, best: Best) -> str:
    """Why a stored optimum is not one of this market's plans, or not as good as it says; empty where all is well."""
    index_of = {deal.id: i for i, deal in enumerate(market.deals)}
    quantities = [0] * len(market.deals)
    for deal, quantity in best.plan:
        if deal not in index_of:
            return f"its plan buys {deal}, which is not on the menu."
        quantities[index_of[deal]] = quantity
    if not is_feasible(market, quantities):
        return "its plan is not feasible."
    by_category = totals(market, quantities)
    made = {"product": product_of(by_category), "cost": plan_cost(market, quantities)}
    for name, value in made.items():
        if value != getattr(best, name):
            return f"its plan has {name} {value}, the line says {getattr(best, name)}."
    # Powers are the system's: their last bit is not the same everywhere.
    if not math.isclose(workers_of(by_category), best.workers, rel_tol=1e-12):
        return f"its plan supports {workers_of(by_category)} workers, the line says {best.workers}."
    return ""


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_quantity(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_QUANTITY
