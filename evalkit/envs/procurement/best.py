"""The best plan of a market as a suite's line stores it: what it supports, and how far that is proven.

"optimum": {"product": "537600", "workers": 81.31, "cost": 10949, "plan": {"Offer_4": 40, "Offer_8": 7},
            "gap": 0.0, "proven": true}
"""

import math
import sys
from typing import Annotated

import msgspec
from msgspec import Meta

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

Finite = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]


class Best(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best plan that is known."""

    # Python converts no more than 4300 digits.
    digits: Annotated[
        str,
        Meta(
            pattern=r"^0*[1-9][0-9]*\Z",
            max_length=4000,
            title="a positive whole number, as a string of 4000 digits at most",
        ),
    ] = msgspec.field(name="product")
    """Product of its categories' totals, exactly."""
    workers: Finite
    """It supports."""
    cost: Annotated[int, Meta(ge=0)]
    """Cents."""
    plan: dict[str, Annotated[int, Meta(ge=1, le=MOST_QUANTITY)]]
    """Quantities by deal of what it buys."""
    gap: Finite
    """A feasible plan's log product exceeds this one's by so much at most."""
    proven: bool
    """Whether that is next to nothing: the plan is optimal."""

    @property
    def product(self) -> int:
        """Of its categories' totals."""
        return int(self.digits)


def made_best(made: Made) -> Best:
    """The best plan of a market, solved for."""
    market = made.market
    useful = is_feasible(market, made.start) and product(market, made.start) > 0
    solution = solve(market, made.start if useful else None)
    by_category = totals(market, solution.quantities)
    bought = zip(market.deals, solution.quantities, strict=True)
    return Best(
        digits=str(product_of(by_category)),
        workers=workers_of(by_category),
        cost=plan_cost(market, solution.quantities),
        plan={deal.id: quantity for deal, quantity in bought if quantity},
        gap=solution.gap,
        proven=solution.proven,
    )


def check_best(market: ProcurementMarket, best: Best) -> str:
    """Why a stored optimum is not one of this market's plans, or not as good as it says; empty if all is well."""
    index_of = {deal.id: i for i, deal in enumerate(market.deals)}
    quantities = [0] * len(market.deals)
    for deal, quantity in best.plan.items():
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
