"""One step of Newton's method on the concave relaxation, among the deals that are free: what `relax.py` repeats.

Directions keep the plan's cost. They are in cents, so that every deal's slope is 1 and one system serves the direction
and the toll. The step goes as far as ranges and the logarithm's curvature allow, so no total falls to 0.
"""

import math

from evalkit.envs.procurement.scratch import TOLL, Deals, Floats, Ints, Rows, Scratch

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
