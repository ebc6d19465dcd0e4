"""How good the plans of a box can be at most: the concave relaxation, and the bound that prunes.

A box gives each deal j a least and a greatest quantity; l = 0 leaves open whether the deal is bought at all, l > 0 says
that it is and its fixed cost paid. For any weights g > 0 of the categories and any toll L >= 0 on a cent, concavity of
the logarithm and the budget give, for every plan of the box with totals S,

    sum log S_c  <=  k log(V / k) - sum log g_c,    V = L * room + sum_j max over z_j of (g . W_j - L * slope_j) z_j

where room is the budget without the fixed costs that are paid, and slope_j the price, of an undecided two-part tariff
its price plus fixed / u: the convex envelope. Nothing else prunes. An active-set Newton method on the relaxation finds
weights and toll that make the bound tight; where it stops early, the bound is weaker and holds all the same.

The functions here and in `branch.py` and `improve.py` run on lists as they are, and on arrays compiled (`kernels.py`):
hence the plain loops, the scratch room that comes from outside, and no function that allocates. Source: math.md, 3.2.
"""

import math

from evalkit.envs.procurement.scratch import BOUND, TOLL, VALUE, WHOLE, Deals, Floats, Ints, Rows, Scratch

# One step of Newton's method on the concave relaxation, among the deals that are free: what `relax` below repeats.
#
# Directions keep the plan's cost. They are in cents, so that every deal's slope is 1 and one system serves the
# direction and the toll. The step goes as far as ranges and the logarithm's curvature allow, so no total falls to 0.

_RIDGE = 1e-11
"""Of a deal's curvature, added to it: parallel deals then have a direction that leads to the end of a range."""


def direction(deals: Deals, number: int, work: Scratch) -> float:
    """Newton's direction of the free deals at a constant cost; sets step and change. The square of its size."""
    totals, change = work.totals, work.change
    k = len(totals)
    for a in range(number):
        j = work.free[a]
        row, line = deals.gains[j], work.share[a]
        per, rise = 1.0 / work.slope[j], 0.0
        for c in range(k):
            line[c] = row[c] * per / totals[c]
            rise += line[c]
        work.step[a] = rise
        work.other[a] = 1.0
    factor(number, work)
    back(number, work.square, work.step)
    back(number, work.square, work.other)
    up, down = 0.0, 0.0
    for a in range(number):
        up += work.step[a]
        down += work.other[a]
    toll = up / down
    work.found[TOLL] = max(toll, 0.0)
    for c in range(k):
        change[c] = 0.0
    for a in range(number):
        work.step[a] -= toll * work.other[a]
        line = work.share[a]
        for c in range(k):
            change[c] += line[c] * work.step[a]
    size = 0.0
    for c in range(k):
        size += change[c] * change[c]
    return size


def factor(number: int, work: Scratch) -> None:
    """The Cholesky factor of the free deals' curvature, with a ridge that keeps parallel deals apart."""
    share, square = work.share, work.square
    k = len(work.totals)
    for a in range(number):
        share_a, square_a = share[a], square[a]
        for b in range(a + 1):
            share_b, square_b = share[b], square[b]
            total = 0.0
            for c in range(k):
                total += share_a[c] * share_b[c]
            if a == b:
                ridge = _RIDGE * total + 1e-300
                total += ridge
                for i in range(b):
                    total -= square_a[i] * square_a[i]
                square_a[a] = math.sqrt(max(total, ridge))
            else:
                for i in range(b):
                    total -= square_a[i] * square_b[i]
                square_a[b] = total / square_b[b]


def back(number: int, square: Rows, x: Floats) -> None:
    """Solves the factored system in place."""
    for a in range(number):
        line, total = square[a], x[a]
        for i in range(a):
            total -= line[i] * x[i]
        x[a] = total / line[a]
    for a in range(number - 1, -1, -1):
        total = x[a]
        for i in range(a + 1, number):
            total -= square[i][a] * x[i]
        x[a] = total / square[a][a]


def move(low: Ints, high: Ints, number: int, size: float, work: Scratch) -> int:
    """Goes along the direction as far as box and curvature allow. The place in `free` that stopped it, or -1."""
    z, totals, change = work.z, work.totals, work.change
    part, stuck, down = 1.0, -1, 0.0
    for c in range(len(totals)):
        down = min(down, change[c])
    if down < -0.5:
        part = 1.0 / (1.0 + math.sqrt(size))
    for a in range(number):
        j = work.free[a]
        by = work.step[a] / work.slope[j]
        if z[j] + part * by >= high[j] and by > 0:
            part, stuck = max((high[j] - z[j]) / by, 0.0), a
        elif z[j] + part * by <= low[j] and by < 0:
            part, stuck = max((low[j] - z[j]) / by, 0.0), a
    for a in range(number):
        j = work.free[a]
        z[j] = min(max(z[j] + part * work.step[a] / work.slope[j], float(low[j])), float(high[j]))
    if stuck >= 0:
        j = work.free[stuck]
        z[j] = float(high[j]) if work.step[stuck] > 0 else float(low[j])
    for c in range(len(totals)):
        totals[c] *= 1.0 + part * change[c]
    return stuck


FUTILE, OPEN, EMPTY = 0, 1, 2
"""The outcome of a box: its bound is no better than the cutoff; it may hold better plans; it holds no plan at all."""

_TURNS = 200
"""Steps after which the relaxation is left as it is."""
_NONE = 1e-9
"""A total below it counts as 0."""
_NEAR = 1e-2
"""Square of a direction's size from which on no bound is computed: it would be weak."""


def relax(deals: Deals, low: Ints, high: Ints, budget: int, cutoff: float, work: Scratch) -> int:
    """FUTILE, OPEN or EMPTY; with OPEN, `work` holds the relaxation's plan and all of `found`.

    cutoff: the log product that a plan must exceed to be of interest.
    """
    room = slopes(deals, low, high, budget, work)
    if not begin(deals, low, high, room, work):
        return EMPTY
    m, k, most = len(low), len(work.totals), len(work.free)
    z, figures = work.z, work.found
    number = 0
    for j in range(m):
        work.barred[j] = 0
        if low[j] < z[j] < high[j] and number < most:
            work.free[number] = j
            number += 1
    entered = -1
    for _ in range(_TURNS):
        size = 0.0
        if number > 0:
            size = direction(deals, number, work)
            stuck = move(low, high, number, size, work)
            if stuck >= 0:
                if work.free[stuck] == entered:
                    work.barred[entered] = 1
                number -= 1
                work.free[stuck] = work.free[number]
        entered = -1
        if number > 0 and size > _NEAR:
            continue
        pick = price(deals, low, high, room, number, work)
        if figures[BOUND] <= cutoff:
            return FUTILE
        excess = figures[VALUE] - cutoff
        if figures[BOUND] - figures[VALUE] <= max(1e-13 * k, 0.02 * excess):
            return OPEN
        if pick >= 0 and number < most:
            entered = pick
            work.free[number] = pick
            number += 1
        elif number == 0 or size < 1e-20:
            return OPEN
    return OPEN


def slopes(deals: Deals, low: Ints, high: Ints, budget: int, work: Scratch) -> float:
    """Sets each deal's slope. Cents without the fixed costs that are paid."""
    spent = 0
    for j in range(len(low)):
        work.slope[j] = float(deals.price[j])
        if deals.fixed[j] > 0:
            if low[j] > 0:
                spent += deals.fixed[j]
            elif high[j] > 0:
                work.slope[j] += deals.fixed[j] / high[j]
    return float(budget - spent)


def begin(deals: Deals, low: Ints, high: Ints, room: float, work: Scratch) -> bool:
    """Makes `work.z` a point of the box that costs all the room, or as much as can be, and has no total of 0.

    False: there is none.
    """
    z, slope = work.z, work.slope
    base, spent = 0.0, 0.0
    for j in range(len(low)):
        z[j] = min(max(z[j], float(low[j])), float(high[j]))
        base += slope[j] * low[j]
        spent += slope[j] * z[j]
    if base > room * (1 + 1e-12):
        return False
    if spent > room:
        part = max(room - base, 0.0) / (spent - base)
        for j in range(len(low)):
            z[j] = low[j] + part * (z[j] - low[j])
        spent = room
    if not sums(deals, work):
        if room - base < 1e-9:
            return False
        for j in range(len(low)):
            z[j] = float(low[j])
        if not cover(deals, high, room - base, work):
            return False
        spent = 0.0
        for j in range(len(low)):
            spent += slope[j] * z[j]
    fill(deals, high, room - spent, work)
    return sums(deals, work)


def sums(deals: Deals, work: Scratch) -> bool:
    """Sets the totals of `work.z`. Whether all are above 0."""
    z, totals = work.z, work.totals
    k = len(totals)
    for c in range(k):
        totals[c] = 0.0
    for j in range(len(z)):
        x = z[j]
        if x > 0:
            row = deals.gains[j]
            for c in range(k):
                totals[c] += row[c] * x
    smallest = math.inf
    for c in range(k):
        smallest = min(smallest, totals[c])
    return smallest >= _NONE


def cover(deals: Deals, high: Ints, rest: float, work: Scratch) -> bool:
    """Spends an equal share of `rest` on each category without a total, on its cheapest deal. False: it has none."""
    k = len(work.totals)
    for c in range(k):
        best, ratio = -1, 0.0
        for j in range(len(high)):
            if high[j] > 0:
                worth = deals.gains[j][c] / work.slope[j]
                if worth > ratio:
                    best, ratio = j, worth
        if best < 0:
            return False
        work.z[best] = min(work.z[best] + rest / k / work.slope[best], float(high[best]))
    return True


def fill(deals: Deals, high: Ints, rest: float, work: Scratch) -> None:
    """Spends `rest` on the deals that are worth most a cent at the present totals."""
    z, slope, worth, totals = work.z, work.slope, work.worth, work.totals
    if rest <= 1e-9:
        return
    k, m = len(totals), len(z)
    sums(deals, work)
    for j in range(m):
        worth[j] = 0.0
        if z[j] < high[j]:
            row = deals.gains[j]
            for c in range(k):
                worth[j] += row[c] / totals[c]
            worth[j] /= slope[j]
    while rest > 1e-9:
        best, most = -1, 0.0
        for j in range(m):
            if worth[j] > most:
                best, most = j, worth[j]
        if best < 0:
            return
        worth[best] = 0.0
        more = rest / slope[best]
        if z[best] + more >= high[best]:
            rest -= (high[best] - z[best]) * slope[best]
            z[best] = float(high[best])
        else:
            z[best] += more
            return


def price(deals: Deals, low: Ints, high: Ints, room: float, number: int, work: Scratch) -> int:
    """Sets `found` from the weights 1 / S and the toll. The deal that should become free, or -1.

    Any totals above 0 and any toll from 0 on give a bound that holds.
    """
    z, slope, worth, totals, figures = work.z, work.slope, work.worth, work.totals, work.found
    k, m = len(totals), len(z)
    logs = 0.0
    for c in range(k):
        logs += math.log(totals[c])
        work.change[c] = 1.0 / totals[c]
    for j in range(m):
        total = 0.0
        if high[j] > 0:
            row = deals.gains[j]
            for c in range(k):
                total += row[c] * work.change[c]
        worth[j] = total
    if number == 0:
        figures[TOLL] = lone_toll(low, high, room, work)
    toll = figures[TOLL]
    whole = toll * room
    pick, most, rest = -1, 0.0, 0.0
    for j in range(m):
        net = worth[j] - toll * slope[j]
        if net > 0:
            whole += net * high[j]
            lost = net * (high[j] - z[j])
        else:
            whole += net * low[j]
            lost = net * (low[j] - z[j])
        if lost > most and work.barred[j] == 0:
            taken = False
            for a in range(number):
                taken = taken or work.free[a] == j
            if not taken:
                pick, most = j, lost
            else:
                rest = max(rest, lost)
    figures[VALUE], figures[WHOLE] = logs, whole
    figures[BOUND] = k * math.log(max(whole, 1e-300) / k) + logs
    if most < 1e-3 * rest:
        return -1
    return pick


def lone_toll(low: Ints, high: Ints, room: float, work: Scratch) -> float:
    """The best toll where no deal is free: that of the deal at which, bought by worth a cent, the room is used up."""
    m = len(low)
    spare = room
    for j in range(m):
        spare -= work.slope[j] * low[j]
        work.barred[j] &= 1
    while True:
        best, most = -1, 0.0
        for j in range(m):
            if work.barred[j] < 2 and high[j] > low[j] and work.worth[j] > most * work.slope[j]:
                best, most = j, work.worth[j] / work.slope[j]
        if best < 0:
            toll = 0.0
            break
        spare -= work.slope[best] * (high[best] - low[best])
        work.barred[best] += 2
        if spare < -1e-9:
            toll = most
            break
    for j in range(m):
        work.barred[j] &= 1
    return toll
