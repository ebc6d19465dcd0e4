"""What is taken from a box holds nothing better, and splitting leaves nothing out."""

import math
import random

import pytest

from evalkit.envs.procurement import branch
from evalkit.envs.procurement.best import _Search
from evalkit.envs.procurement.branch import open_top, search, shrink, split, tighten
from evalkit.envs.procurement.improve import improve
from evalkit.envs.procurement.relax import OPEN, relax
from evalkit.envs.procurement.scratch import BOUND, TOLL
from tests.envs.procurement.small_markets import a_market, best_in_box, drawn_boxes, inside, plans, room_for


def test_shrinking_takes_no_plan_that_can_be_bought() -> None:
    draws = random.Random(2)
    kept = 0
    for market, deals, _, low, high in drawn_boxes(draws):
        before = [plan for plan, _ in plans(market) if inside(low, plan, high)]
        if shrink(deals, low, high, market.budget):
            assert all(inside(low, plan, high) for plan in before)
            assert all(a <= b for a, b in zip(low, high, strict=True))
            kept += 1
        else:
            assert before == []
    assert kept > 100


def test_crossed_ends_and_least_quantities_out_of_reach_close_a_box_or_a_deal() -> None:
    deals, _ = room_for(a_market([(1, 1), (1, 1)], 10, price=[2, 3], least=[4, 2]))
    assert not shrink(deals, [5, 0], [4, 0], 10)
    assert not shrink(deals, [4, 2], [4, 2], 13)
    low, high = [0, 2], [5, 2]
    assert shrink(deals, low, high, 13)
    assert (low, high) == ([0, 2], [0, 2])
    low, high = [0, 2], [5, 2]
    assert shrink(deals, low, high, 14)
    assert (low, high) == ([0, 2], [4, 2])


def test_tightening_takes_no_plan_that_is_better_than_the_cutoff() -> None:
    draws = random.Random(3)
    changed = 0
    for market, deals, work, low, high in drawn_boxes(draws):
        best = best_in_box(market, low, high)
        cutoff = best - draws.choice([1e-9, 0.01, 0.3]) if best > -math.inf else 0.0
        if not shrink(deals, low, high, market.budget) or relax(deals, low, high, market.budget, cutoff, work) != OPEN:
            continue
        better = [
            plan
            for plan, sums in plans(market)
            if inside(low, plan, high) and min(sums) > 0 and math.log(math.prod(sums)) > cutoff
        ]
        assert better or best == -math.inf
        changed += tighten(deals, low, high, cutoff, work)
        assert all(inside(low, plan, high) for plan in better)
    assert changed > 50


def test_a_box_is_split_at_a_deal_whose_range_is_left_and_in_between() -> None:
    draws = random.Random(4)
    seen = 0
    for market, deals, work, low, high in drawn_boxes(draws):
        if not shrink(deals, low, high, market.budget) or relax(deals, low, high, market.budget, -1.0, work) != OPEN:
            continue
        j, at, _ = split(deals, low, high, work)
        assert (j < 0) == (low == high)
        if j >= 0:
            assert low[j] <= at < high[j]
            seen += 1
    assert seen > 100


def test_a_deal_bought_in_part_is_split_before_a_fractional_one() -> None:
    deals, work = room_for(a_market([(3, 1), (1, 3), (2, 2)], 100, price=[3, 4, 5], fixed=[0, 20, 0], least=[0, 0, 6]))
    work.totals[:], work.found[TOLL], work.found[BOUND] = [30.0, 30.0], 0.1, 9.0
    for z, place in (([2.5, 0.0, 0.0], (0, 2)), ([2.5, 3.0, 0.0], (1, 0)), ([2.5, 0.0, 3.5], (2, 0))):
        work.z[:] = z
        assert split(deals, [0, 0, 0], [33, 20, 20], work)[:2] == place
    work.z[:] = [2.0, 0.0, 0.0]
    assert split(deals, [2, 0, 0], [2, 0, 0], work)[0] == -1


@pytest.mark.parametrize(
    ("worth", "reach", "top"), [(4, 13, 7), (4, 6, 0), (4, 5, 0), (4, 90, 20), (6, 0, 20), (5, 5, 0)]
)
def test_an_undecided_tariff_can_be_bought_as_long_as_the_bound_can_lose_its_cost(
    worth: float, reach: float, top: int
) -> None:
    # At a toll of 1 a unit of price 5 loses 5 less its worth, and the fixed cost of 6 is lost besides.
    deals, work = room_for(a_market([(1,)], 100, price=[5], fixed=[6]))
    work.found[TOLL], work.worth[0] = 1.0, float(worth)
    assert open_top(deals, 0, 20, reach, work) == top


def test_the_one_plan_that_a_box_shrinks_to_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    market = a_market([(3, 1), (1, 3)], 10, price=[2, 2])
    maker = _Search(market, compiled=False)
    deals, work = room_for(market)
    plan = maker._plan([0, 0], -math.inf)
    stack = maker._stack([0, 1], [0, 0], [5, 5], [0.0, 0.0])
    stack.bound[0] = math.inf
    real, calls = improve, 0

    def late(*args):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        return calls > 1 and real(*args)

    def closed(deals, low, high, cutoff, work) -> bool:  # type: ignore[no-untyped-def]
        low[:], high[:] = [3, 2], [3, 2]
        return True

    monkeypatch.setattr(branch, "improve", late)
    monkeypatch.setattr(branch, "tighten", closed)
    assert search(deals, 10, 9, stack, work, plan) == (1, -math.inf)
    assert plan.best == [3, 2]
