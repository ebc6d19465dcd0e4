"""One procurement episode's score, from the facts of its steps alone.

score = workers of the best feasible plan / workers of the optimum. Both are geometric means of category totals, so the
quotient is the k-th root of a quotient of integers; or both are the least of the totals. An episode without a feasible
plan scores 0.

Source: specification of the reference, sections D.1 and D.4.
Differs: the reference calls a run solved if a quotient of floats is exactly 1; here integers are compared. It leaves
runs without a feasible plan out of its means; the metric `reference_score` is left out for them.
Chosen: all plans are the denominator of budget utilisation, infeasible ones included; exploration distinguishes plans
by what they buy, and the reference's rate, which minds how they are written, stands beside it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.envs.environment import Facts, Score
from evalkit.envs.periods import NO_ACTION, RESTART
from evalkit.envs.procurement.best import Best
from evalkit.envs.procurement.instance import ProcurementInstance, market_of, optimum_of
from evalkit.envs.procurement.market import workers_of

_UTILISED = (19, 20)
"""A plan uses the budget from so much of it on."""

_LEAST_QUOTIENT = 1e-300
"""Below it, a quotient of floats loses digits."""


def score(instance: ProcurementInstance, trajectory: Sequence[Facts]) -> Score:
    """The score with its secondary metrics. Raises UsageError if the instance has no stored optimum.

    reference_score: the score by the reference's floats; first_score, final_score: of the first and the last feasible
    plan; budget_utilisation: share of plans that are feasible and cost 0.95 of the budget or more; exploration_rate:
    distinct over submitted plans; exploration_rate_text: the same by how they are written; feasible_plans, plans,
    periods, no_action_periods, restarts, queries: counts; solved_period: the period that found an optimal plan.
    """
    best = optimum_of(instance)
    actions = [(facts["period"], facts["action"]) for facts in trajectory if "action" in facts]
    feasible = [(period, action) for period, action in actions if action["feasible"]]
    endings = [facts.get("period_end") for facts in trajectory]
    metrics: dict[str, float] = {
        "periods": len(actions) + endings.count(NO_ACTION),
        "no_action_periods": endings.count(NO_ACTION),
        "restarts": endings.count(RESTART),
        "plans": len(actions),
        "feasible_plans": len(feasible),
        "queries": len(trajectory),
    }
    if actions:
        metrics["exploration_rate"] = _share(not action["repeat"] for _, action in actions)
        metrics["exploration_rate_text"] = _share(not action["repeat_text"] for _, action in actions)
        metrics["budget_utilisation"] = _utilisation(instance, [action for _, action in actions])
    if not feasible:
        return Score(value=0.0, solved=False, metrics=metrics)
    size = instance.root(feasible[0][1]["totals"])
    products = [int(action["product"]) for _, action in feasible]
    metrics["reference_score"] = (
        max(workers_of(action["totals"], instance.aggregate) for _, action in feasible) / best.workers
    )
    metrics["first_score"] = value_of(products[0], size, best)
    metrics["final_score"] = value_of(products[-1], size, best)
    top = max(products)
    solved = top >= best.product
    if solved:
        metrics["solved_period"] = next(
            period for (period, _), value in zip(feasible, products, strict=True) if value >= best.product
        )
    return Score(value=value_of(top, size, best), solved=solved, metrics=metrics)


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values)


def _utilisation(instance: ProcurementInstance, actions: Sequence[Mapping[str, Any]]) -> float:
    budget = market_of(instance).market.budget
    part, whole = _UTILISED
    return _share(action["feasible"] and action["cost"] * whole >= budget * part for action in actions)


def value_of(product: int, root: int, best: Best) -> float:
    """(product / the optimum's) ^ (1 / root); `root` as of `ProcurementInstance`. Above 1 only where the stored optimum
    is unproven and beaten."""
    if product == best.product:
        return 1.0
    if product == 0:
        return 0.0
    if product / best.product >= _LEAST_QUOTIENT:
        return math.pow(product / best.product, 1 / root)
    return math.exp((math.log(product) - math.log(best.product)) / root)
