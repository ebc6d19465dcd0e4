"""Golden optima of procurement: the reference's own, by a commercial solver, and ones by a slower exact method.

Each row's plan is judged anew, then the market is solved. Where the row's method has proven its plan optimal, ours must
support as many workers; where it has left a gap, ours must be at least as good and within the gap. Not compared:
timings, sizes of models, and how many optima the reference's solver has counted.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from evalkit.envs.procurement.best import ProcurementOptimum, solve
from evalkit.envs.procurement.generate import reference_market
from evalkit.envs.procurement.market import (
    ProcurementMarket,
    is_feasible,
    plan_cost,
    product,
    product_of,
    totals,
    workers,
)
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, out_of_scope, parting
from tests.conform.compare.procurement import level, reference_judgement

EXACT_BUDGET = "budget-in-cents"
SOLVER_GAP = "solver-gap"

_RELATIVE = 1e-12
"""Workers are powers of totals: optimal plans may differ in them, and methods in the order of factors."""


def exact(row: Row, data: Path | None) -> GoldenVerdict:
    """An optimum by the exact method: its plan, judged, and ours beside it."""
    del data
    return _exact(row, row["difficulty"], row["seed"])


def anchor(row: Row, data: Path | None) -> GoldenVerdict:
    """The instance that the paper's appendix shows, with its budget."""
    del data
    return _exact(row, "Basic", 0)


def gurobi(row: Row, data: Path | None) -> GoldenVerdict:
    """An optimum of the reference's own solver."""
    del data
    if row["status"] == "error":
        return out_of_scope(f"Gurobi's free licence refused it: {row['error']}")
    market = _market(row["difficulty"], row["seed"], row["budget"])
    theirs = _plan(market, row["opt_alloc"])
    if not math.isclose(row["opt_cost"] * 100, plan_cost(market, theirs), rel_tol=_RELATIVE):
        return differing(f"opt_cost: golden {row['opt_cost']!r}, ours {plan_cost(market, theirs)} cents")
    if not _close(row["opt_workers"], workers(market, theirs)):
        return differing(f"opt_workers: golden {row['opt_workers']!r}, ours {workers(market, theirs)!r} for its plan")
    if _beaten(market, theirs, row["opt_workers"]):
        return documented(SOLVER_GAP)
    found = _compared(market, theirs, 0.0)
    if found != EQUAL or row["feasible"]:
        return found
    if plan_cost(market, theirs) == market.budget and "exceeds budget" in row["reason"]:
        return documented(EXACT_BUDGET)
    return differing(f"feasible: golden False ({row['reason'].strip()}), ours True")


def sensitivity(row: Row, data: Path | None) -> GoldenVerdict:
    """Optima of one instance over budgets."""
    del data
    values = []
    for i, (budget, golden) in enumerate(row["opt_by_budget"]):
        market = _market(row["difficulty"], row["seed"], budget)
        values.append(workers(market, _proven(market).quantities))
        if not _close(golden, values[-1]):
            return differing(f"opt_by_budget[{i}][1]: golden {golden!r}, ours {values[-1]!r}")
    ours = (max(values) - min(values)) / min(values)
    if not math.isclose(row["rel_range"], ours, rel_tol=1e-9, abs_tol=_RELATIVE):
        return differing(f"rel_range: golden {row['rel_range']!r}, ours {ours!r}")
    return EQUAL


def _exact(row: Row, difficulty: str, seed: int) -> GoldenVerdict:
    market = _market(difficulty, seed, row["budget"])
    theirs = _plan(market, row["plan"])
    by_category = totals(market, theirs)
    ours = {
        "budget_cents": market.budget,
        "cost_cents": plan_cost(market, theirs),
        "category_totals": by_category,
        "product_of_totals": str(product_of(by_category)),
    }
    found = parting({key: row[key] for key in ours}, ours)
    if found:
        return differing(found)
    if not _close(row["workers"], workers(market, theirs)):
        return differing(f"workers: golden {row['workers']!r}, ours {workers(market, theirs)!r}")
    return _compared(market, theirs, 0.0 if row["status"] == "optimal" else row["gap_log"])


def _market(difficulty: str, seed: int, budget: float) -> ProcurementMarket:
    """The reference's market with another budget, in its currency."""
    return reference_market(level(difficulty, seed).shape, seed, budget=round(budget * 100)).market


def _plan(market: ProcurementMarket, bought: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(bought.get(deal.id, 0) for deal in market.deals)


def _proven(market: ProcurementMarket) -> ProcurementOptimum:
    found = solve(market)
    if not found.proven:
        raise RuntimeError(f"the search gave up after {found.nodes} boxes")
    return found


def _compared(market: ProcurementMarket, theirs: tuple[int, ...], gap: float) -> GoldenVerdict:
    """Our optimum beside a plan. gap: by how much a log product may exceed the plan's, for all that is proven of it."""
    if not is_feasible(market, theirs):
        return differing("the golden plan cannot be bought")
    ours, golden = _proven(market).product, product(market, theirs)
    if ours < golden:
        return differing(f"product: golden {golden}, ours {ours}, which is less")
    if ours == golden:
        return EQUAL
    more = math.log(ours) - math.log(golden) if golden else math.inf
    most = max(gap, len(market.categories) * _RELATIVE)
    if more > most:
        return differing(f"product: golden {golden}, ours {ours}: its logarithm is greater by {more:.3g} > {most:.3g}")
    return EQUAL


def _beaten(market: ProcurementMarket, theirs: tuple[int, ...], golden: float) -> bool:
    """Whether the solver's plan can be bought, and the proven optimum is a better one by the reference's own rule."""
    found = _proven(market)
    if not is_feasible(market, theirs) or found.product <= product(market, theirs):
        return False
    plan = {deal.id: units for deal, units in zip(market.deals, found.quantities, strict=True) if units}
    by_reference = reference_judgement(market, plan)
    supported = by_reference["workers"]
    return (
        by_reference["feasible"]
        and isinstance(supported, float)
        and supported > golden
        and not _close(golden, supported)
    )


def _close(golden: float, ours: float) -> bool:
    return math.isclose(golden, ours, rel_tol=_RELATIVE)
