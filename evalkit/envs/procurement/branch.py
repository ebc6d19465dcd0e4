"""Branch and bound over boxes of plans, depth first: what proves the optimum.

A box is split where its relaxation is not a plan: first at a deal that is bought in part, below its least quantity or
without paying all of its fixed cost; then at a fractional quantity; then anywhere. Boxes shrink before they are split:
by the budget, and by what each deal's quantity may be before the bound falls to the cutoff.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from evalkit.envs.procurement.improve import PlanScratch, improve
from evalkit.envs.procurement.relax import OPEN, relax
from evalkit.envs.procurement.scratch import BOUND, TOLL, VALUE, WHOLE, Deals, Floats, Ints, Rows, Scratch

TOLERANCE = 1e-11
"""No plan's log product exceeds the one found by more, where the search ends."""
_INNER = 0.5 * TOLERANCE
"""What boxes are pruned with; the rest is for rounding."""

_SURE = 1e-7
_ROUNDS = 6
_OFTEN = 16
"""Relaxed plans of so many boxes are improved by exchanges at the beginning, then each so many-th."""


class Stack(NamedTuple):
    """Boxes that wait, d at most."""

    low: Sequence[Ints]
    """(d, m) least quantities."""
    high: Sequence[Ints]
    """(d, m) greatest quantities."""
    z: Rows
    """(d, m) where the relaxation begins."""
    bound: Floats
    """(d,) of the box that this one is a part of."""


def cutoff_of(plan: PlanScratch) -> float:
    """The log product that a plan must exceed. A plan that covers all categories has 0 at least."""
    return max(plan.best_log[0], -1.0) + _INNER


def shrink(deals: Deals, low: Ints, high: Ints, budget: int) -> bool:
    """Lowers each greatest quantity to what the budget pays beside all least ones. False: it does not pay those."""
    left = budget
    for j in range(len(low)):
        if low[j] > high[j]:
            return False
        if low[j] > 0:
            left -= low[j] * deals.price[j] + deals.fixed[j]
    if left < 0:
        return False
    for j in range(len(low)):
        if high[j] > low[j]:
            if low[j] > 0:
                high[j] = min(high[j], low[j] + left // deals.price[j])
            else:
                high[j] = min(high[j], max((left - deals.fixed[j]) // deals.price[j], 0))
                if high[j] < deals.least[j]:
                    high[j] = 0
    return True


def tighten(deals: Deals, low: Ints, high: Ints, cutoff: float, work: Scratch) -> bool:
    """Takes from each deal's range what the bound in `work` shows to be futile. Whether any range shrank.

    Moving a deal from the end of its range that the bound assumes costs V its worth less its toll, a unit; V can lose
    `reach` before the bound falls to the cutoff.
    """
    whole, toll, k = work.found[WHOLE], work.found[TOLL], len(work.totals)
    reach = (whole - k * math.exp((cutoff - work.found[VALUE]) / k)) * (1 + 1e-9) + 1e-13 * k
    changed = False
    for j in range(len(low)):
        if high[j] <= low[j]:
            continue
        net = work.worth[j] - toll * work.slope[j]
        span = float(high[j] - low[j])
        if net < 0:
            top = high[j]
            if low[j] == 0 and deals.fixed[j] > 0:
                top = open_top(deals, j, top, reach, work)
            elif reach < -net * span:
                top = low[j] + int(reach / -net)
            if low[j] == 0 and top < deals.least[j]:
                top = 0
            if top < high[j]:
                high[j] = top
                changed = True
        elif net > 0 and reach < net * span:
            low[j] = max(high[j] - int(reach / net), deals.least[j])
            changed = True
    return changed


def open_top(deals: Deals, j: int, high: int, reach: float, work: Scratch) -> int:
    """The greatest quantity, if any is bought, of a deal whose fixed cost the bound's best plan does not pay."""
    toll = work.found[TOLL]
    net, fee = work.worth[j] - toll * deals.price[j], toll * deals.fixed[j]
    if net >= 0:
        return high if net * high - fee >= -reach else 0
    if reach < fee:
        return 0
    top = (reach - fee) / -net
    return high if top >= high else int(top)


def split(deals: Deals, low: Ints, high: Ints, work: Scratch) -> tuple[int, int, bool]:
    """Where to split a box: deal, the greatest quantity of the lower part, whether to look into the upper part first.

    The deal is -1 where the box is one plan.
    """
    z, toll, k = work.z, work.found[TOLL], len(work.totals)
    pick, most = -1, 0.0
    for j in range(len(low)):
        if low[j] == 0 and high[j] > 0 and z[j] > _SURE:
            lost = deals.fixed[j] * (1.0 - z[j] / high[j])
            if z[j] < deals.least[j]:
                lost += deals.price[j] * min(z[j], deals.least[j] - z[j])
            if lost * toll > most and (lost > _SURE * deals.price[j]):
                pick, most = j, lost * toll
    if pick >= 0:
        return pick, 0, z[pick] >= 0.3 * deals.least[pick]
    for j in range(len(low)):
        over = z[j] - math.floor(z[j])
        if low[j] < high[j] and _SURE < over < 1 - _SURE:
            row, bend = deals.gains[j], 0.0
            for c in range(k):
                bend += (row[c] / work.totals[c]) ** 2
            bend *= min(over, 1 - over) ** 2
            if bend > most:
                pick, most = j, bend
    if pick >= 0:
        floor = int(z[pick])
        return pick, floor, z[pick] - floor > 0.5
    for j in range(len(low)):
        if low[j] < high[j] and high[j] - low[j] > most:
            pick, most = j, float(high[j] - low[j])
    if pick < 0:
        return -1, 0, False
    return pick, min(max(int(z[pick] + 0.5), low[pick]), high[pick] - 1), False


def push(slot: int, low: Ints, high: Ints, bound: float, stack: Stack, work: Scratch) -> None:
    """Writes a box to a slot of the stack."""
    stack.bound[slot] = bound
    for j in range(len(low)):
        stack.low[slot][j] = low[j]
        stack.high[slot][j] = high[j]
        stack.z[slot][j] = work.z[j]


def search(deals: Deals, budget: int, limit: int, stack: Stack, work: Scratch, plan: PlanScratch) -> tuple[int, float]:
    """Looks into the box at the bottom of the stack and all its parts; the best plan is in `plan`.

    Boxes looked into, and the best bound of those that were not, for want of `limit` or room; -inf: there are none.
    """
    top, nodes, missed = 1, 0, -math.inf
    while top > 0 and nodes < limit:
        top -= 1
        cutoff = cutoff_of(plan)
        if stack.bound[top] <= cutoff:
            continue
        nodes += 1
        low, high = stack.low[top], stack.high[top]
        for j in range(len(low)):
            work.z[j] = stack.z[top][j]
        if not shrink(deals, low, high, budget) or relax(deals, low, high, budget, cutoff, work) != OPEN:
            continue
        improve(deals, budget, nodes <= _OFTEN or nodes % _OFTEN == 0, work, plan)
        cutoff = cutoff_of(plan)
        bound = min(work.found[BOUND], stack.bound[top])
        if bound <= cutoff:
            continue
        tighten(deals, low, high, cutoff, work)
        for j in range(len(low)):
            work.z[j] = min(max(work.z[j], float(low[j])), float(high[j]))
        j, floor, upward = split(deals, low, high, work)
        if j < 0:
            improve(deals, budget, False, work, plan)  # the one plan that is left
            continue
        if top + 2 > len(stack.bound):
            missed = max(missed, bound)
            continue
        push(top + 1, low, high, bound, stack, work)
        push(top, low, high, bound, stack, work)
        upper, lower = (top + 1, top) if upward else (top, top + 1)
        stack.high[lower][j] = floor if floor >= deals.least[j] else 0
        stack.low[upper][j] = max(floor + 1, deals.least[j])
        top += 2
    for slot in range(top):
        if stack.bound[slot] > cutoff_of(plan):
            missed = max(missed, stack.bound[slot])
    return nodes, missed


def root(deals: Deals, low: Ints, high: Ints, budget: int, work: Scratch, plan: PlanScratch) -> float:
    """Shrinks the box of all plans to what may hold a better one than the best found. Its bound; -inf: nothing does."""
    if not shrink(deals, low, high, budget):
        return -math.inf
    for turn in range(_ROUNDS):
        if relax(deals, low, high, budget, cutoff_of(plan), work) != OPEN:
            return -math.inf
        if turn < 2:
            improve(deals, budget, True, work, plan)
        cutoff = cutoff_of(plan)
        if work.found[BOUND] <= cutoff:
            return -math.inf
        if not tighten(deals, low, high, cutoff, work):
            break
        if not shrink(deals, low, high, budget):
            return -math.inf
    return work.found[BOUND]
