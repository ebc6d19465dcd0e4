"""Good plans, quickly: rounding a relaxed plan, spending what is left, exchanging deals.

Nothing here is needed for the certificate; it only finds the plans that let bounds prune. Quantities and money are
whole numbers, so every plan here can be bought. Plans are compared by the ratio of their products.
"""

import math
from typing import NamedTuple

from evalkit.envs.procurement.scratch import Deals, Floats, Ints, Scratch

_MOST_TAKEN = 12
"""Units of one deal that an exchange removes at most, unless it removes the deal."""
_MOST_EXCHANGES = 60
_NOTHING = 1e-3
"""What a total of 0 counts as while plans are compared."""


class PlanScratch(NamedTuple):
    """Room for one plan and the best one."""

    quantity: Ints
    """(m,) quantities of the plan that is being improved."""
    totals: Floats
    """(k,) its totals: whole numbers, exact below 2**53."""
    after: Floats
    """(k,) the totals after an exchange's first half."""
    spent: Floats
    """(m,) what the relaxation spends on deals that are not rounded yet."""
    best: Ints
    """(m,) the best plan so far."""
    best_log: Floats
    """(1,) log of its product."""


def improve(deals: Deals, budget: int, exchanges: bool, work: Scratch, plan: PlanScratch) -> bool:
    """A plan from the relaxation's; kept where it is the best so far. Whether it is."""
    left = rounded(deals, budget, work, plan)
    left = spend(deals, left, plan)
    if exchanges:
        for _ in range(_MOST_EXCHANGES):
            left, improved = exchange(deals, left, plan)
            if not improved:
                break
            left = spend(deals, left, plan)
    return keep(plan)


def keep(plan: PlanScratch) -> bool:
    """Keeps the plan if it is better than the best so far; whether it is."""
    log = 0.0
    for total in plan.totals:
        if total < 0.5:
            return False
        log += math.log(total)
    if log <= plan.best_log[0]:
        return False
    plan.best_log[0] = log
    for j in range(len(plan.quantity)):
        plan.best[j] = plan.quantity[j]
    return True


def rounded(deals: Deals, budget: int, work: Scratch, plan: PlanScratch) -> int:
    """The relaxation's plan rounded down, the deals that cost most first. Cents left."""
    z, quantity, spent = work.z, plan.quantity, plan.spent
    left = budget
    for j in range(len(quantity)):
        quantity[j] = 0
        spent[j] = z[j] * work.slope[j]
    for c in range(len(plan.totals)):
        plan.totals[c] = 0.0
    while True:
        best, most = -1, 0.0
        for j in range(len(quantity)):
            if spent[j] > most:
                best, most = j, spent[j]
        if best < 0:
            return left
        spent[best] = 0.0
        least = deals.least[best]
        units = int(z[best] + 1e-7)
        if z[best] < least:
            units = least if z[best] >= 0.5 * least else 0
        if units > 0:
            units = min(units, (left - deals.fixed[best]) // deals.price[best])
        if units >= least:
            left -= add(deals, best, units, plan)


def add(deals: Deals, j: int, units: int, plan: PlanScratch) -> int:
    """Adds units of a deal, fewer with a number below 0. Cents that it costs."""
    row = deals.gains[j]
    cost = units * deals.price[j]
    if plan.quantity[j] == 0:
        cost += deals.fixed[j]
    plan.quantity[j] += units
    if plan.quantity[j] == 0:
        cost -= deals.fixed[j]
    for c in range(len(plan.totals)):
        plan.totals[c] += row[c] * units
    return cost


def spend(deals: Deals, left: int, plan: PlanScratch) -> int:
    """Buys what raises the product most a cent until nothing can be bought. Cents left."""
    while True:
        best, most, number = -1, 0.0, 0
        for j in range(len(plan.quantity)):
            units, cost = 1, deals.price[j]
            if plan.quantity[j] == 0:
                units = deals.least[j]
                cost = units * cost + deals.fixed[j]
            if cost > left:
                continue
            row, rise = deals.gains[j], 0.0
            for c in range(len(plan.totals)):
                rise += row[c] / max(plan.totals[c], _NOTHING)
            rise *= units / cost
            if rise > most:
                best, most, number = j, rise, units
        if best < 0:
            return left
        left -= add(deals, best, number, plan)


def exchange(deals: Deals, left: int, plan: PlanScratch) -> tuple[int, bool]:
    """The best of all exchanges of units of one deal for as many of another as there is money for.

    Cents left, and whether there was one.
    """
    quantity, totals, after = plan.quantity, plan.totals, plan.after
    k, m = len(totals), len(quantity)
    out, into, taken, given, most = -1, -1, 0, 0, 1.0 + 1e-13
    for i in range(m):
        if quantity[i] == 0:
            continue
        for turn in range(1, min(quantity[i], _MOST_TAKEN) + 1):
            units = turn
            if quantity[i] - units < deals.least[i] or turn == _MOST_TAKEN:
                units = quantity[i]
            money = left + units * deals.price[i]
            if units == quantity[i]:
                money += deals.fixed[i]
            row = deals.gains[i]
            for c in range(k):
                after[c] = totals[c] - row[c] * units
            for j in range(m):
                price, least = deals.price[j], 1
                can = money
                if quantity[j] == 0:
                    can -= deals.fixed[j]
                    least = deals.least[j]
                number = can // price
                if j == i or number < least:
                    continue
                other, ratio = deals.gains[j], 1.0
                for c in range(k):
                    ratio *= (after[c] + other[c] * number) / max(totals[c], _NOTHING)
                if ratio > most:
                    out, into, taken, given, most = i, j, units, number, ratio
            if units == quantity[i]:
                break
    if out < 0:
        return left, False
    left -= add(deals, out, -taken, plan)
    left -= add(deals, into, given, plan)
    return left, True
