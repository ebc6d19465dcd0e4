"""Plans that are made quickly can be bought, and their totals are right."""

import math
import random

import pytest

from evalkit.envs.procurement.best import _Search
from evalkit.envs.procurement.improve import exchange, improve, keep, rounded, spend
from evalkit.envs.procurement.market import is_feasible, plan_cost, product, totals
from evalkit.envs.procurement.relax import slopes
from tests.envs.procurement.small_markets import a_market, drawn_market, room_for


@pytest.mark.parametrize("exchanges", [False, True])
def test_every_plan_can_be_bought_and_is_as_good_as_it_says(exchanges: bool) -> None:
    draws = random.Random(5)
    found = 0
    for seed in range(5000, 5300):
        market = drawn_market(seed)
        deals, work = room_for(market)
        plan = _Search(market, compiled=False)._plan([0] * len(market.deals), -math.inf)
        high = [market.budget // deal.price for deal in market.deals]
        slopes(deals, [0] * len(high), high, market.budget, work)
        work.z[:] = [draws.choice([0.0, draws.uniform(0, most)]) for most in high]
        kept = improve(deals, market.budget, exchanges, work, plan)
        assert is_feasible(market, tuple(plan.quantity))
        assert tuple(plan.totals) == totals(market, tuple(plan.quantity))
        assert kept == (product(market, tuple(plan.best)) > 0)
        if kept:
            assert plan.best_log[0] == pytest.approx(math.log(product(market, tuple(plan.best))), abs=1e-12)
            assert all(deal.price + deal.fixed > market.budget or any(plan.best) for deal in market.deals)
        found += kept
    assert found > 100


def test_an_exchange_pays_back_the_fixed_cost_of_a_deal_that_it_gives_up() -> None:
    market = a_market([(5, 5), (4, 4)], 20, price=[1, 1], fixed=[15, 0])
    deals, work = room_for(market)
    plan = _Search(market, compiled=False)._plan([0, 0], -math.inf)
    work.z[:] = [5.0, 0.0]
    slopes(deals, [0, 0], [5, 20], 20, work)
    left = spend(deals, rounded(deals, 20, work, plan), plan)
    assert (list(plan.quantity), left) == ([5, 0], 0)
    left, changed = exchange(deals, left, plan)
    assert (list(plan.quantity), left, changed) == ([0, 20], 0, True)
    assert plan_cost(market, tuple(plan.quantity)) == 20
    assert exchange(deals, left, plan) == (0, False)
    assert keep(plan)
    assert not keep(plan)
