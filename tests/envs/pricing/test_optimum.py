import math
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.envs.pricing.demand import CUSTOMERS, Drift, PricingMarket, profits, quantities
from evalkit.envs.pricing.instance import load, market_of
from evalkit.envs.pricing.optimum import best_prices, hint, solve
from evalkit.seeds import Stream
from tests.envs.pricing.playing import reference, rows
from tests.support.examples import examples


def earned(market: PricingMarket, period: int, prices: "tuple[float, ...] | list[float]") -> float:
    alphas = market.drift.alphas(period)
    return math.fsum(profits(market, alphas, prices, quantities(market, alphas, prices)))


def native(seed: int, **more: object) -> PricingMarket:
    return market_of(load({"id": "n", "seed": seed, "products": 4, **more}))


VARIED = [
    native(0, groups=1, sigma=0.9, family="linear_shifts"),
    native(1, groups=4, sigma=0.0, mu=0.25, cost_low=0.5),
    native(2, groups=3, sigma=0.7, mu=4.0, quality_high=9.0),
    native(3, products=1, mu=0.05, quality_low=2.0),
    native(4, products=7, cost_high=6.0, strength=1.9, family="periodic_shifts"),
    native(5, outside=1.0, customers=2500.0, alpha_low=0.1, alpha_high=0.2),
    native(6, outside=40.0, sigma=0.2, cycle_least=3, cycle_most=3, group_odds=0.6, family="periodic_shifts"),
]


@pytest.mark.parametrize("difficulty", ["basic", "medium", "hard"])
def test_golden_optima_are_met_within_what_a_search_leaves(shared: Path, difficulty: str) -> None:
    cases = rows(shared, f"pricing_opt_{difficulty}.jsonl")
    assert len(cases) >= 8
    for case in cases:
        market = market_of(load(reference(difficulty, case["seed"])))
        best = solve(market)
        assert best.markup == pytest.approx(case["exact_markup"], rel=1e-15)
        assert best.profit == pytest.approx(case["exact_profit_per_period"], rel=1e-15)
        assert 50 * best.profit == pytest.approx(case["opt_last50"], rel=4e-13)
        assert case["opt_total_profit_per_period"] == pytest.approx([best.profit] * 100, rel=4e-13)
        for period, prices in case["opt_prices"].items():
            assert best_prices(market, int(period)) == pytest.approx(prices, rel=4e-7)
            assert earned(market, int(period), prices) == pytest.approx(
                case["opt_total_profit_per_period"][int(period)], rel=1e-14
            )


def test_golden_hints_are_the_same(shared: Path) -> None:
    cases = rows(shared, "pricing_upper_bounds.jsonl")
    assert len(cases) >= 24
    for case in cases:
        market = market_of(load(reference(case["difficulty"], case["seed"])))
        hints = [[hint(market, 10 * block + t, 100) for block in range(10)] for t in (0, 4, 9)]
        assert hints == [case["upper_bound_per_block_closed_form"]] * 3
        assert case.get("upper_bound_per_block_upstream", hints[0]) == hints[0]
        assert market.factor == case["multiplier"]


def test_the_paper_s_hint() -> None:
    assert hint(market_of(load(reference("basic", 0))), 0, 100) == 38.11


def test_a_hint_looks_no_further_than_the_episode() -> None:
    rising = PricingMarket(
        costs=(1.0,),
        qualities=(2.0,),
        groups=(1,),
        sigma=0.5,
        mu=1.0,
        drift=Drift(kind="", table=tuple((1.0 + t,) for t in range(13))),
        factor=2.0,
    )
    price = 1.0 + solve(rising).markup
    assert [hint(rising, t, 13) for t in (0, 9, 10, 12)] == [round(2 * a * price, 2) for a in (10, 10, 13, 13)]


@pytest.mark.parametrize("market", VARIED, ids=range(len(VARIED)))
def test_the_best_prices_earn_the_optimum_in_every_period(market: PricingMarket) -> None:
    best = solve(market)
    for period in (0, 1, 17, 50, 99):
        assert earned(market, period, best_prices(market, period)) == pytest.approx(best.profit, rel=1e-12)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("market", VARIED, ids=range(len(VARIED)))
def test_no_search_from_anywhere_finds_better_prices(market: PricingMarket) -> None:
    from scipy.optimize import minimize

    best, n = solve(market), len(market.costs)
    alphas, costs = np.array(market.drift.alphas(0)), np.array(market.costs)

    def loss(markups: npt.NDArray[np.float64]) -> float:
        prices = alphas * (costs + markups)
        return -earned(market, 0, prices.tolist()) / best.profit

    found = []
    for start in range(2):
        begin = Stream(start, "start").uniforms(n) * 2 * best.markup
        finely: Any = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 300}
        found.append(minimize(loss, begin, jac="3-point", method="L-BFGS-B", options=finely))
    values = [-float(one.fun) for one in found]
    assert max(values) <= 1 + 1e-12
    assert max(values) == pytest.approx(1.0, abs=1e-5)
    nearest = max(found, key=lambda one: -one.fun)
    assert nearest.x == pytest.approx([best.markup] * n, rel=0.02)


@given(st.integers(0, 10**6), st.data())
def test_random_prices_never_beat_it(seed: int, data: st.DataObject) -> None:
    market = native(seed, sigma=data.draw(st.sampled_from([0.0, 0.5, 0.9])), mu=data.draw(st.sampled_from([0.2, 1.0])))
    best, alphas = solve(market), market.drift.alphas(7)
    factors = data.draw(st.lists(st.floats(-1.0, 5.0), min_size=4, max_size=4))
    prices = [alpha * (cost + one) for alpha, cost, one in zip(alphas, market.costs, factors, strict=True)]
    assert earned(market, 7, prices) <= best.profit * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1 - 1e-3, 1 + 1e-3])
def test_it_is_a_maximum_in_every_direction(scale: float) -> None:
    for market in VARIED:
        best, prices = solve(market), best_prices(market, 3)
        for i in range(len(prices)):
            moved = [*prices[:i], prices[i] * scale, *prices[i + 1 :]]
            assert earned(market, 3, moved) < best.profit


def exactly(market: PricingMarket, digits: int = 50) -> tuple[Decimal, Decimal]:
    """(profit, markup) in decimal arithmetic, with a Newton's method of its own."""
    with localcontext() as context:
        context.prec = digits + 10
        rest, mu = 1 - Decimal(market.sigma), Decimal(market.mu)
        weight = Decimal(0)
        for members in market.members:
            inner = sum(
                ((Decimal(market.qualities[i]) - Decimal(market.costs[i])) / (mu * rest)).exp() for i in members
            )
            weight += (rest * Decimal(inner).ln()).exp()
        outside = (-rest * rest.ln()).exp() if market.nothing is None else Decimal(market.nothing)
        target = (weight / outside).ln() - 1
        y = Decimal(1) if target < 1 else target
        for _ in range(200):
            # From either side: y + log y is concave, and Newton's method on it comes from below after one step.
            y = max(y * (1 + target - y.ln()) / (y + 1), y / 10)
        assert abs(y + y.ln() - target) < Decimal(10) ** -digits
        return Decimal(market.customers) * mu * y, mu * (1 + y)


def test_it_is_right_in_fifty_digits() -> None:
    markets = [*VARIED, *(native(seed, sigma=seed % 10 / 10, mu=10 ** (seed % 5 / 2 - 1)) for seed in range(10, 40))]
    for market in markets:
        best, (profit, markup) = solve(market), exactly(market)
        assert abs(Decimal(best.profit) / profit - 1) < Decimal("1e-14")
        assert abs(Decimal(best.markup) / markup - 1) < Decimal("1e-14")


@settings(max_examples=examples(200))
@given(st.floats(-500.0, 1e4))
def test_the_equation_behind_it_is_solved_at_any_size(height: float) -> None:
    # One product, mu 1, no groups: y + log y = quality - cost - 1.
    market = PricingMarket(
        costs=(0.0,),
        qualities=(height + 1,),
        groups=(1,),
        sigma=0.0,
        mu=1.0,
        drift=Drift(kind="", table=((1.0,),)),
        factor=2.0,
    )
    y = solve(market).profit / CUSTOMERS
    assert y > 0
    assert abs(y + math.log(y) - height) <= 1e-13 * max(1.0, abs(height))
