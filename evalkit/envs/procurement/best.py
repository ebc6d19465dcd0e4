"""The best plan of a market as a suite's line stores it: what it supports, and how far that is proven.

"optimum": {"product": "537600", "workers": 81.31, "cost": 10949, "plan": {"Offer_4": 40, "Offer_8": 7},
            "gap": 0.0, "proven": true}
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evalkit.compiled import Kernels
from evalkit.envs.procurement import branch
from evalkit.envs.procurement.branch import TOLERANCE, Stack
from evalkit.envs.procurement.explicit import MOST_QUANTITY
from evalkit.envs.procurement.generate import DIFFICULTIES, MadeMarket, reference_market
from evalkit.envs.procurement.improve import PlanScratch
from evalkit.envs.procurement.least import best_least
from evalkit.envs.procurement.market import (
    MIN,
    ProcurementMarket,
    is_feasible,
    plan_cost,
    product,
    product_of,
    totals,
    workers_of,
)
from evalkit.envs.procurement.scratch import Deals, Scratch

# The best plan of a market, with a certificate: no plan that can be bought has a log product higher by 1e-11.
#
# Branch and bound (`branch.py`) on what a relaxation of the whole menu leaves of it. Money is whole cents, the plan's
# product an exact integer; bounds are floats and carry the tolerance. A market in which no plan covers all categories
# has the optimum 0, which the empty plan attains.
#
# Small markets take the loops as they are, big ones compiled. Both find the same plan in the same number of steps.
# Source: specification of the reference, section D.1; math.md, section 3. Differs: the reference asks a commercial
# solver, which stops within its default gap: of 40 deals and 5 items its plan supported up to 0.09 % fewer workers
# than the proven optimum. Its objective is off by up to 4.5e-7 besides. It truncates what it finds, and breaks off
# where the best plan costs exactly the budget and floats add up to more.

MOST_NODES = 1_000_000
"""Boxes after which a search gives up, and says so."""
MOST_BUDGET = 2**50
"""Cents: floats hold every sum of money and what comes of it."""

_DEPTH = 600
_PLAIN_SIZE = 10_000
"""Deals times categories up to which the plain path takes about a second."""
KERNELS = Kernels(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcurementOptimum:
    """The best plan found and what is proven of it."""

    quantities: tuple[int, ...]
    """By deal; all 0 if no plan that can be bought covers all categories."""
    product: int
    """Of the categories' totals, exactly."""
    cost: int
    """Cents."""
    gap: float
    """No plan's log product exceeds this one's by more. Of a product of 0: 0 if proven, otherwise infinite."""
    proven: bool
    """Whether the search ended; the gap is then 1e-11 at most."""
    nodes: int
    """Boxes looked into."""


def solve(
    market: ProcurementMarket,
    start: Sequence[int] | None = None,
    *,
    compiled: bool | None = None,
    nodes: int = MOST_NODES,
) -> ProcurementOptimum:
    """The best plan of a market.

    start: a plan to begin with, if it can be bought; the result is at least as good. compiled: which path to take;
    None: compiled if the market is big and they are ready. nodes: after how many boxes to give up.
    Raises ValueError for a start of another length, a deal that costs nothing, and a budget beyond 2**50 cents.
    """
    _check(market, start)
    if market.aggregate == MIN:
        return _ended(market, *best_least(market, start, nodes))
    size = len(market.deals) * len(market.categories)
    if compiled is None:
        compiled = size > _PLAIN_SIZE and KERNELS.ready(at_once=True) is not None
    return _Search(market, compiled).run(start, nodes)


def _check(market: ProcurementMarket, start: Sequence[int] | None) -> None:
    if start is not None and len(start) != len(market.deals):
        raise ValueError(f"the start has {len(start)} quantities, the menu {len(market.deals)} deals")
    if start is not None and min(start, default=0) < 0:
        raise ValueError("the start has quantities below 0")
    for deal in market.deals:
        if deal.price < 1 or deal.fixed < 0:
            raise ValueError(f"{deal.id}: a unit must cost at least 1 cent, and the fixed cost must not be negative")
    if market.budget > MOST_BUDGET:
        raise ValueError(f"the budget must not exceed {MOST_BUDGET} cents")


def _ended(market: ProcurementMarket, best: Sequence[int], nodes: int, missed: float) -> ProcurementOptimum:
    """`missed`: a bound on the log of what other plans come to; minus infinity: none is better."""
    plan = tuple(best)
    value = product(market, plan)
    if not is_feasible(market, plan):
        raise RuntimeError("the search kept a plan that cannot be bought")
    proven = missed == -math.inf
    gap = 0.0 if value == 0 else TOLERANCE
    if not proven:
        gap = missed - math.log(value) if value else math.inf
    return ProcurementOptimum(
        quantities=plan, product=value, cost=plan_cost(market, plan), gap=gap, proven=proven, nodes=nodes
    )


class _Room:
    """Makes what the loops work on: lists to run them as they are, arrays to run them compiled."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: bool) -> None:
        self._arrays = arrays

    def ints(self, values: Sequence[Any]) -> Any:
        return self._made(values, "int64")

    def floats(self, values: Sequence[Any]) -> Any:
        return self._made(values, "float64")

    def blank(self, rows: int, columns: int, kind: str) -> Any:
        if self._arrays:
            import numpy as np

            return np.zeros((rows, columns), kind)
        return [[0] * columns for _ in range(rows)]

    def _made(self, values: Sequence[Any], kind: str) -> Any:
        if self._arrays:
            import numpy as np

            return np.array(values, kind)
        return [list(row) for row in values] if values and isinstance(values[0], tuple) else list(values)


class _Search:
    """One market's search: on the whole menu first, then on the deals that are left."""

    __slots__ = ("_functions", "_market", "_room")

    def __init__(self, market: ProcurementMarket, compiled: bool) -> None:
        self._market = market
        self._room = _Room(compiled)
        self._functions: Any = branch
        if compiled:
            from evalkit.envs.procurement import kernels

            self._functions = kernels

    def run(self, start: Sequence[int] | None, limit: int) -> ProcurementOptimum:
        market = self._market
        count, k = len(market.deals), len(market.categories)
        best, best_log = [0] * count, -math.inf
        if start is not None and is_feasible(market, start) and product(market, start) > 0:
            best, best_log = [int(units) for units in start], math.log(product(market, start))
        high = [self._most(j) for j in range(count)]
        if any(not any(high[j] and market.gains[j][c] for j in range(count)) for c in range(k)):
            return _ended(market, best, 0, -math.inf)
        every = list(range(count))
        deals, work = self._deals(every), self._scratch(count)
        plan = self._plan(best, best_log)
        low, high = self._room.ints([0] * count), self._room.ints(high)
        bound = self._functions.root(deals, low, high, market.budget, work, plan)
        best, best_log = [int(units) for units in plan.best], float(plan.best_log[0])
        if bound == -math.inf:
            return _ended(market, best, 1, -math.inf)
        if limit <= 1:
            return _ended(market, best, 1, float(bound))
        core = self._core([int(units) for units in low], [int(units) for units in high])
        plan = self._plan([best[j] for j in core], best_log)
        stack = self._stack(core, low, high, work.z)
        stack.bound[0] = bound
        boxes, missed = self._functions.search(
            self._deals(core), market.budget, limit - 1, stack, self._scratch(len(core)), plan
        )
        if plan.best_log[0] > best_log:
            best = [0] * count
            for position, j in enumerate(core):
                best[j] = int(plan.best[position])
        return _ended(market, best, 1 + int(boxes), float(missed))

    def _most(self, j: int) -> int:
        """The most of a deal that the budget pays; 0 of what is of no use."""
        deal = self._market.deals[j]
        most = max(self._market.budget - deal.fixed, 0) // deal.price if any(self._market.gains[j]) else 0
        return most if most >= deal.least else 0

    def _core(self, low: list[int], high: list[int]) -> list[int]:
        """The deals that are left, without those that can be bought as well by the unit of another one.

        A plan that is better than the best so far stays so with the other deal, and stays inside what is left of it.
        """
        left = [j for j in range(len(high)) if high[j] > 0]
        return [j for j in left if low[j] > 0 or not any(self._replaces(i, j) for i in left if i != j)]

    def _replaces(self, i: int, j: int) -> bool:
        """Whether so many units of deal i give all that one of j gives, and cost no more. Twins: the first does."""
        deal, other = self._market.deals[i], self._market.deals[j]
        gains, others = self._market.gains[i], self._market.gains[j]
        units = other.price // deal.price
        if units == 0 or deal.fixed > other.fixed or max(deal.least, 1) > units * max(other.least, 1):
            return False
        if any(units * a < b for a, b in zip(gains, others, strict=True)):
            return False
        terms = (deal.price, deal.fixed, max(deal.least, 1), gains)
        return i < j or terms != (other.price, other.fixed, max(other.least, 1), others)

    def _deals(self, chosen: list[int]) -> Deals:
        deals = [self._market.deals[j] for j in chosen]
        return Deals(
            gains=self._room.floats([self._market.gains[j] for j in chosen]),
            price=self._room.ints([deal.price for deal in deals]),
            fixed=self._room.ints([deal.fixed for deal in deals]),
            least=self._room.ints([max(deal.least, 1) for deal in deals]),
        )

    def _plan(self, best: list[int], best_log: float) -> PlanScratch:
        m, k, room = len(best), len(self._market.categories), self._room
        return PlanScratch(
            quantity=room.ints([0] * m),
            totals=room.floats([0.0] * k),
            after=room.floats([0.0] * k),
            spent=room.floats([0.0] * m),
            best=room.ints(best),
            best_log=room.floats([best_log]),
        )

    def _scratch(self, m: int) -> Scratch:
        k, room = len(self._market.categories), self._room
        w = min(m, 2 * k + 4)
        return Scratch(
            z=room.floats([0.0] * m),
            slope=room.floats([0.0] * m),
            worth=room.floats([0.0] * m),
            totals=room.floats([0.0] * k),
            change=room.floats([0.0] * k),
            free=room.ints([0] * w),
            barred=room.ints([0] * m),
            share=room.blank(w, k, "float64"),
            square=room.blank(w, w, "float64"),
            step=room.floats([0.0] * w),
            other=room.floats([0.0] * w),
            found=room.floats([0.0] * 4),
        )

    def _stack(self, core: list[int], low: Sequence[int], high: Sequence[int], z: Sequence[float]) -> Stack:
        room = self._room
        stack = Stack(
            low=room.blank(_DEPTH, len(core), "int64"),
            high=room.blank(_DEPTH, len(core), "int64"),
            z=room.blank(_DEPTH, len(core), "float64"),
            bound=room.floats([0.0] * _DEPTH),
        )
        for position, j in enumerate(core):
            stack.low[0][position], stack.high[0][position], stack.z[0][position] = low[j], high[j], z[j]
        return stack


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


def made_best(made: MadeMarket) -> Best:
    """The best plan of a market, solved for."""
    market = made.market
    useful = is_feasible(market, made.start) and product(market, made.start) > 0
    solution = solve(market, made.start if useful else None)
    by_category = totals(market, solution.quantities)
    bought = zip(market.deals, solution.quantities, strict=True)
    return Best(
        digits=str(product_of(by_category, market.aggregate)),
        workers=workers_of(by_category, market.aggregate),
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
    made = {"product": product_of(by_category, market.aggregate), "cost": plan_cost(market, quantities)}
    for name, value in made.items():
        if value != getattr(best, name):
            return f"its plan has {name} {value}, the line says {getattr(best, name)}."
    # Powers are the system's: their last bit is not the same everywhere.
    supported = workers_of(by_category, market.aggregate)
    if not math.isclose(supported, best.workers, rel_tol=1e-12):
        return f"its plan supports {supported} workers, the line says {best.workers}."
    return ""


def warm() -> None:
    """Call the compiled search once, on a small market: see `Kernels`."""
    solve(reference_market(DIFFICULTIES["basic"], 0).market, compiled=True)
