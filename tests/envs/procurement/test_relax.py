"""The bound holds for every plan of a box, whatever weights and toll it is computed from."""

import math
import random

import pytest

from evalkit.envs.procurement.relax import EMPTY, FUTILE, OPEN, begin, price, relax, slopes
from evalkit.envs.procurement.scratch import BOUND, TOLL, VALUE
from tests.envs.procurement.small_markets import a_market, best_in_box, drawn_boxes, room_for


def test_the_bound_holds_for_any_weights_and_any_toll() -> None:
    draws = random.Random(0)
    tight = 0
    for market, deals, work, low, high in drawn_boxes(draws):
        best = best_in_box(market, low, high)
        for _ in range(5):
            for c in range(len(work.totals)):
                work.totals[c] = math.exp(draws.uniform(-2, 5))
            room = slopes(deals, low, high, market.budget, work)
            work.found[TOLL] = draws.choice([0.0, math.exp(draws.uniform(-8, 2))])
            price(deals, low, high, room, draws.randint(0, 1), work)
            assert work.found[BOUND] >= best - 1e-12
        tight += best > -math.inf
    assert tight > 100


def test_the_relaxation_bounds_every_box_and_prunes_none_that_is_better() -> None:
    draws = random.Random(1)
    fates = {EMPTY: 0, FUTILE: 0, OPEN: 0}
    for market, deals, work, low, high in drawn_boxes(draws):
        best = best_in_box(market, low, high)
        cutoff = draws.choice([-1.0, best - 1e-9, best + 1e-9, best + 0.1]) if best > -math.inf else -1.0
        fate = relax(deals, low, high, market.budget, cutoff, work)
        fates[fate] += 1
        if fate == EMPTY:
            assert best == -math.inf
        elif fate == FUTILE:
            assert best <= cutoff
        else:
            assert work.found[BOUND] >= best - 1e-12
            assert work.found[BOUND] - work.found[VALUE] <= max(1e-12, 0.03 * (work.found[VALUE] - cutoff))
    assert min(fates.values()) > 10


def test_a_closed_deal_takes_nothing_from_the_budget_and_an_open_one_its_fixed_cost() -> None:
    market = a_market([(1, 1), (1, 2), (2, 1)], 100, price=[3, 4, 5], fixed=[0, 30, 50])
    deals, work = room_for(market)
    assert slopes(deals, [0, 0, 0], [9, 0, 0], 100, work) == 100
    assert list(work.slope) == [3, 4, 5]
    assert slopes(deals, [0, 1, 0], [9, 6, 10], 100, work) == 70
    assert list(work.slope) == [3, 4, 5 + 50 / 10]


def test_a_box_whose_least_plan_is_too_dear_or_covers_too_little_is_empty() -> None:
    market = a_market([(1, 0), (0, 1)], 10, price=[3, 3])
    deals, work = room_for(market)
    assert relax(deals, [4, 0], [4, 1], 10, -1.0, work) == EMPTY
    assert relax(deals, [1, 0], [3, 0], 10, -1.0, work) == EMPTY
    assert relax(deals, [3, 0], [3, 1], 9, -1.0, work) == EMPTY
    assert relax(deals, [2, 0], [3, 1], 9, -1.0, work) == OPEN


@pytest.mark.parametrize("where", [(0.0, 0.0, 0.0), (50.0, 50.0, 50.0), (0.0, 9.0, 1.0)])
def test_the_beginning_spends_all_the_money_wherever_it_is_told_to_begin(where: tuple[float, ...]) -> None:
    market = a_market([(3, 0, 1), (0, 2, 1), (1, 1, 0)], 90, price=[3, 4, 5])
    deals, work = room_for(market)
    work.z[:] = list(where)
    low, high = [0, 1, 0], [30, 20, 18]
    assert begin(deals, low, high, slopes(deals, low, high, 90, work), work)
    assert sum(units * price for units, price in zip(work.z, (3, 4, 5), strict=True)) == pytest.approx(90)
    assert all(a <= units <= b for a, units, b in zip(low, work.z, high, strict=True))
    assert min(work.totals) > 0
