"""The plan whose least total is greatest: a linear problem in whole numbers.

Maximise t, subject to: every category's total is t at least; prices and fixed costs come to the budget at most; a deal
with a fixed cost or a minimum is bought (y = 1) or not. All coefficients are whole numbers, and so is the optimum, so
a bound below t + 1 proves t. HiGHS solves it (`scipy.optimize.milp`); what it finds is checked in whole numbers.

Source: the reference's `agg_type = "min"`, which no published instance has.
"""

import math
from collections.abc import Sequence

from evalkit.envs.procurement.market import ProcurementMarket, is_feasible, product

_NEAR = 1e-5
"""How far a float bound may lie above the whole number that it stands for."""


def best_least(market: ProcurementMarket, start: Sequence[int] | None, nodes: int) -> tuple[list[int], int, float]:
    """(the best plan found, boxes looked into, bound on the log of other plans' least total; minus infinity: proven).

    start   a plan to fall back on
    nodes   boxes after which to give up
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    deals, gains = market.deals, np.array(market.gains, float)
    count, k = gains.shape
    most = np.array([max(market.budget - deal.fixed, 0) // deal.price for deal in deals], float)
    most[[deal.least > units for deal, units in zip(deals, most, strict=True)]] = 0
    price, fixed = np.array([deal.price for deal in deals]), np.array([deal.fixed for deal in deals])
    # Unknown: quantities, whether bought, t.
    eye, last = np.eye(count), np.zeros((count, 1))
    rows = [
        LinearConstraint(np.hstack([gains.T, np.zeros((k, count)), -np.ones((k, 1))]), 0, np.inf),
        LinearConstraint(np.concatenate([price, fixed, [0]])[None, :], 0, market.budget),
        LinearConstraint(np.hstack([eye, -np.diag(most), last]), -np.inf, 0),
        LinearConstraint(np.hstack([eye, -np.diag([float(deal.least) for deal in deals]), last]), 0, np.inf),
    ]
    top = float((gains * most[:, None]).sum(axis=0).min())
    found = milp(
        np.concatenate([np.zeros(2 * count), [-1.0]]),
        constraints=rows,
        integrality=np.ones(2 * count + 1),
        bounds=Bounds(0, np.concatenate([most, np.ones(count), [top]])),
        options={"mip_rel_gap": 0.0, "node_limit": nodes},
    )
    plans = [[0] * count, *([list(start)] if start is not None and is_feasible(market, start) else [])]
    if found.x is not None:
        plans.append([round(float(units)) for units in found.x[:count]])
    best = max((plan for plan in plans if is_feasible(market, plan)), key=lambda plan: product(market, plan))
    bound = top if found.mip_dual_bound is None else -float(found.mip_dual_bound)
    proven = math.floor(bound + _NEAR) <= product(market, best)
    return best, int(found.mip_node_count or 0), -math.inf if proven else math.log(bound)
