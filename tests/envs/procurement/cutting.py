"""Procurement's optimum by another method: HiGHS, with cuts for the logarithms. A slow check.

Of integers S, log S lies below every line through (n, log n) and (n + 1, log(n + 1)): such lines are added where the
solver's plan lies until its bound is the plan's value. Source: specification of the reference, section D.1.
"""

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from evalkit.envs.procurement.market import BASIC, ProcurementMarket, totals


def best_by_cuts(market: ProcurementMarket, gap: float = 1e-8, rounds: int = 12) -> tuple[tuple[int, ...], float]:
    """A plan and a bound on every plan's log product. Columns: quantities, then whether any is bought, then logs."""
    m, k = len(market.deals), len(market.categories)
    gains = np.array(market.gains, float)
    price = np.array([deal.price for deal in market.deals], float)
    fixed = np.array([deal.fixed for deal in market.deals], float)
    least = np.array([max(deal.least, 1) for deal in market.deals], float)
    most = np.maximum((market.budget - fixed) // price, 0)
    bound = Bounds([0.0] * (2 * m + k), [*most, *[1.0] * m, *[math.log(float(most @ gains.max(axis=1)) + 2)] * k])
    rows = [np.concatenate([price, fixed, np.zeros(k)])]
    limits = [float(market.budget)]
    for j, deal in enumerate(market.deals):
        for quantity, bought in ((1.0, -most[j]), *(() if deal.kind == BASIC else ((-1.0, least[j]),))):
            row = np.zeros(2 * m + k)
            row[j], row[m + j] = quantity, bought
            rows.append(row)
            limits.append(0.0)

    def cut(c: int, n: int) -> None:
        rise = math.log1p(1 / n)
        row = np.zeros(2 * m + k)
        row[:m], row[2 * m + c] = -rise * gains[:, c], 1.0
        rows.append(row)
        limits.append(math.log(n) - rise * n)

    for c in range(k):
        n = 1.0
        while n < most @ gains[:, c]:
            cut(c, int(n))
            n *= 1.5
    plan: tuple[int, ...] = (0,) * m
    most_log = math.inf
    for _ in range(rounds):
        done = milp(
            np.concatenate([np.zeros(2 * m), -np.ones(k)]),
            integrality=np.concatenate([np.ones(2 * m), np.zeros(k)]),
            bounds=bound,
            constraints=LinearConstraint(np.array(rows), -np.inf, np.array(limits)),
            options={"mip_rel_gap": 0.0},
        )
        assert done.x is not None
        assert done.mip_dual_bound is not None
        most_log = -done.mip_dual_bound
        plan = tuple(round(units) for units in done.x[:m])
        sums = totals(market, plan)
        if most_log - sum(map(math.log, sums)) < gap:
            break
        for c, total in enumerate(sums):
            for n in {total, max(total - 1, 1), round(total * 1.001), round(total * 0.999)} - {0}:
                cut(c, n)
    return plan, most_log
