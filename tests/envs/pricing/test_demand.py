import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.pricing.demand import Drift, PricingMarket, profits, quantities
from evalkit.envs.pricing.instance import load, market_of
from tests.envs.pricing.playing import reference, rows


def market(
    *, costs: tuple[float, ...], qualities: tuple[float, ...], groups: tuple[int, ...], sigma: float, mu: float = 1.0
) -> PricingMarket:
    drift = Drift(kind="", table=(tuple(1.0 for _ in costs),))
    return PricingMarket(costs=costs, qualities=qualities, groups=groups, sigma=sigma, mu=mu, drift=drift, factor=2.0)


def by_definition(at: PricingMarket, alphas: list[float], prices: list[float]) -> list[float]:
    """The formulas of the specification, read aloud; overflows where the reference does."""
    s = at.sigma
    e = [math.exp((a - p / t) / at.mu / (1 - s)) for a, p, t in zip(at.qualities, prices, alphas, strict=True)]
    sums = {g: sum(x for x, h in zip(e, at.groups, strict=True) if h == g) for g in set(at.groups)}
    whole = (1 / (1 - s)) ** (1 - s) + sum(d ** (1 - s) for d in sums.values())
    return [100 * x / sums[g] * sums[g] ** (1 - s) / whole for x, g in zip(e, at.groups, strict=True)]


@pytest.mark.parametrize("difficulty", ["basic", "medium", "hard"])
def test_golden_quantities_and_profits_are_the_same_to_the_last_bit(shared: Path, difficulty: str) -> None:
    cases = rows(shared, f"pricing_vectors_{difficulty}.jsonl")
    assert len(cases) >= 900
    for case in cases:
        at = market_of(load(reference(difficulty, case["seed"])))
        alphas = at.drift.alphas(case["period"])
        sold = quantities(at, alphas, case["prices"])
        assert list(sold) == case["quantities"], case["name"]
        assert list(profits(at, alphas, case["prices"], sold)) == case["profits"]


def test_without_groups_it_is_the_plain_logit_of_the_literature() -> None:
    # Two products with quality 2, cost 1, mu 0.25: figures of the reference's own tests.
    at = market(costs=(1.0, 1.0), qualities=(2.0, 2.0), groups=(1, 2), sigma=0.0, mu=0.25)
    sold = quantities(at, (1.0, 1.0), (1.5, 1.5))
    assert sold == pytest.approx((46.83105, 46.83105), abs=1e-5)
    assert profits(at, (1.0, 1.0), (1.5, 1.5), sold) == pytest.approx((23.41553, 23.41553), abs=1e-5)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SIGMAS = st.sampled_from([0.0, 0.3, 0.5, 0.9])


@st.composite
def markets(draw: st.DrawFn) -> PricingMarket:
    n = draw(st.integers(1, 5))
    groups = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    places = {group: i for i, group in enumerate(dict.fromkeys(groups), 1)}
    figures = st.lists(st.floats(0.5, 4.0), min_size=n, max_size=n).map(tuple)
    return market(
        costs=draw(figures),
        qualities=draw(figures),
        groups=tuple(places[group] for group in groups),
        sigma=draw(SIGMAS),
        mu=draw(st.sampled_from([0.01, 0.25, 1.0, 100.0])),
    )


@given(markets(), st.data())
def test_ordinary_prices_sell_what_the_formula_says(at: PricingMarket, data: st.DataObject) -> None:
    n = len(at.costs)
    alphas = data.draw(st.lists(st.floats(0.5, 10.0), min_size=n, max_size=n))
    prices = data.draw(st.lists(st.floats(0.0, 3.0), min_size=n, max_size=n))
    if at.mu >= 0.25:
        assert quantities(at, alphas, prices) == pytest.approx(by_definition(at, alphas, prices), rel=1e-12)


@given(markets(), st.data())
def test_every_finite_price_has_a_demand(at: PricingMarket, data: st.DataObject) -> None:
    n = len(at.costs)
    alphas = data.draw(st.lists(st.floats(1e-6, 1e6), min_size=n, max_size=n))
    prices = data.draw(st.lists(FLOATS | st.sampled_from([1e308, -1e308, 5e-324]), min_size=n, max_size=n))
    sold = quantities(at, alphas, prices)
    assert all(0.0 <= one <= 100.0 * (1 + 1e-12) for one in sold)
    assert sum(sold) <= 100.0 * (1 + 1e-12)
    earned = profits(at, alphas, prices, sold)
    assert not any(math.isnan(one) for one in earned)


@pytest.mark.parametrize(
    ("prices", "sold"),
    [
        ((1e9, 1e9, 1e9), (0, 0, 0)),
        ((1e308, 1e308, 1e308), (0, 0, 0)),
        ((-1e9, 1.0, 1.0), (100, 0, 0)),
        ((-1e308, 1e308, 1e308), (100, 0, 0)),
        ((-1e6, -1e6, 1.0), (50, 50, 0)),
        ((-1e6, 1.0, -1e6), (50, 0, 50)),
        ((-1e6, 1e6, -1e6 - 1e3), (0, 0, 100)),
    ],
)
def test_extreme_prices_sell_nothing_or_everything(prices: tuple[float, ...], sold: tuple[float, ...]) -> None:
    at = market(costs=(1.0,) * 3, qualities=(2.0,) * 3, groups=(1, 1, 2), sigma=0.5)
    assert quantities(at, (1.0,) * 3, prices) == pytest.approx(sold, abs=1e-9)


def test_where_one_price_is_absurd_the_others_sell_as_if_it_were_not_there() -> None:
    both = market(costs=(1.0,) * 2, qualities=(2.0, 2.5), groups=(1, 1), sigma=0.5)
    alone = market(costs=(1.0,), qualities=(2.0,), groups=(1,), sigma=0.5)
    assert quantities(both, (1.0, 1.0), (1.5, 1e15))[0] == quantities(alone, (1.0,), (1.5,))[0]


@pytest.mark.parametrize("beyond", [599.9, 600.1, 1500.0, -599.9, -600.1])
def test_shifted_and_plain_exponents_meet_without_a_step(beyond: float) -> None:
    at = market(costs=(1.0, 1.0), qualities=(0.0, 1.0), groups=(1, 1), sigma=0.5)
    # Exponents are twice the utility: the higher one is at `beyond`.
    sold = quantities(at, (1.0, 1.0), (-beyond / 2, 1 - beyond / 2))
    share = 1 / (1 + math.exp(math.log(math.sqrt(2)) - (beyond + math.log(2)) / 2))
    assert sold == pytest.approx((50 * share, 50 * share), rel=1e-12)


@given(markets(), st.data())
def test_a_dearer_product_sells_less_and_leaves_more_to_every_other(at: PricingMarket, data: st.DataObject) -> None:
    n = len(at.costs)
    prices = data.draw(st.lists(st.floats(0.0, 5.0), min_size=n, max_size=n))
    i = data.draw(st.integers(0, n - 1))
    ones = [1.0] * n
    dearer = [*prices[:i], prices[i] + 0.5, *prices[i + 1 :]]
    for j, (one, other) in enumerate(zip(quantities(at, ones, prices), quantities(at, ones, dearer), strict=True)):
        slack = 1e-9 * (one + 1e-9)
        assert other <= one + slack if j == i else other >= one - slack


def test_what_is_not_sold_brings_nothing_and_a_negative_price_a_loss() -> None:
    at = market(costs=(1.5,), qualities=(2.0,), groups=(1,), sigma=0.5)
    assert profits(at, (0.05,), (1e308,), quantities(at, (0.05,), (1e308,))) == (0.0,)
    (sold,) = quantities(at, (2.0,), (-100.0,))
    assert profits(at, (2.0,), (-100.0,), (sold,)) == ((-50 - 1.5) * sold,)


def test_the_digest_tells_markets_apart_and_is_of_what_was_drawn() -> None:
    lines = [
        reference("hard", 0),
        reference("hard", 1),
        reference("hard", 0, sigma=0.4),
        reference("hard", 0, family="periodic_shifts"),
    ]
    digests = {market_of(load(line)).digest for line in lines}
    assert len(digests) == 4
    assert market_of(load(reference("hard", 0, periods=7, id="other"))).digest in digests
