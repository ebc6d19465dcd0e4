"""A step keeps the cost, never lowers the product, and ends where the relaxation's best plan is."""

import math
import random

import pytest

from evalkit.envs.procurement.relax import direction, move, slopes, sums
from tests.envs.procurement.small_markets import a_market, room_for


def test_steps_from_anywhere_raise_the_product_at_the_same_cost() -> None:
    draws = random.Random(6)
    for _ in range(300):
        k = draws.randint(2, 4)
        rows = [tuple(draws.choice([0, 1, 3, 20]) + (j == c) for c in range(k)) for j in range(k)]
        market = a_market(rows, 10**6, price=[draws.randint(1, 9) for _ in rows])
        deals, work = room_for(market)
        low, high = [0] * k, [10**6] * k
        slopes(deals, low, high, market.budget, work)
        work.z[:] = [math.exp(draws.uniform(-5, 8)) for _ in rows]
        work.free[:k] = range(k)
        assert sums(deals, work)
        for _ in range(5):
            before, cost = math.fsum(map(math.log, work.totals)), spent(work)
            size = direction(deals, k, work)
            stuck = move(low, high, k, size, work)
            assert min(work.totals) > 0
            assert math.fsum(map(math.log, work.totals)) >= before - 1e-12
            assert spent(work) == pytest.approx(cost, rel=1e-9)
            assert stuck < 0 or work.z[work.free[stuck]] in (0.0, 1e6)
            if stuck >= 0:
                break


def spent(work) -> float:  # type: ignore[no-untyped-def]
    return sum(units * slope for units, slope in zip(work.z, work.slope, strict=True))


def test_one_deal_a_category_ends_with_equal_shares() -> None:
    deals, work = room_for(a_market([(5, 0, 0), (0, 1, 0), (0, 0, 2)], 300, price=[1, 2, 4]))
    low, high = [0, 0, 0], [300, 300, 300]
    slopes(deals, low, high, 300, work)
    work.z[:] = [280.0, 5.0, 2.5]
    work.free[:3] = [0, 1, 2]
    assert sums(deals, work)
    for _ in range(12):
        assert move(low, high, 3, direction(deals, 3, work), work) == -1
    assert list(work.z) == pytest.approx([100.0, 50.0, 25.0])
    assert list(work.totals) == pytest.approx([500.0, 50.0, 50.0])


def test_a_step_that_would_take_a_total_away_is_cut_short() -> None:
    deals, work = room_for(a_market([(1, 0), (0, 1)], 100))
    slopes(deals, [0, 0], [100, 100], 100, work)
    work.z[:], work.free[:2] = [50.0, 50.0], [0, 1]
    assert sums(deals, work)
    work.step[:2], work.change[:] = [-45.0, 45.0], [-0.9, 0.9]
    assert move([0, 0], [100, 100], 2, 1.62, work) == -1
    part = 1 / (1 + math.sqrt(1.62))
    assert list(work.totals) == pytest.approx([50 - 45 * part, 50 + 45 * part])
    assert list(work.z) == pytest.approx(list(work.totals))
