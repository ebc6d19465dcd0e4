import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.pricing.demand import FAMILIES, LINEAR, PERIODIC, Family
from evalkit.envs.pricing.instance import (
    DIFFICULTIES,
    MarketDraw,
    family_of_seed,
    groups_of,
    native_market,
    reference_market,
)
from tests.envs.pricing.playing import rows


def making(products: int, family: Family = LINEAR, **more: Any) -> MarketDraw:
    return MarketDraw(products=products, family=family, **more)


def test_golden_instances_are_made_bit_for_bit(shared: Path) -> None:
    cases = rows(shared, "pricing_instances.jsonl")
    assert len(cases) >= 24
    for case in cases:
        assert DIFFICULTIES[case["difficulty"].lower()] == case["n"]
        assert family_of_seed(case["seed"]) == case["env_type"]
        market = reference_market(making(case["n"], case["env_type"]), case["seed"])
        drift = market.drift
        assert dict(zip(market.products, market.costs, strict=True)) == case["costs"]
        assert list(market.qualities) == case["a"]
        assert list(market.groups) == case["group_idxs"]
        assert (market.sigma, market.mu, drift.length) == (case["sigma"], case["mu"], case["period_length"])
        assert list(drift.start) == case["starting_alphas"]
        assert list(drift.step) == (case["slopes"] or case["amplitudes"])
        assert [list(drift.alphas(period)) for period in range(100)] == case["alpha_list"]
        assert market.factor == case["upper_bound_multiplier"]


def test_the_reference_s_groups_are_a_quarter_of_the_products() -> None:
    assert [groups_of(n) for n in (1, 4, 5, 8, 10, 12)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("generator", [reference_market, native_market], ids=["reference", "native"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_generators_keep_to_the_same_ranges(generator: object, family: Family) -> None:
    assert callable(generator)
    starts, lengths, shifts = [], set(), []
    for seed in range(120):
        market = generator(making(8, family), seed)
        drift = market.drift
        assert all(1 <= cost < 2 for cost in market.costs)
        assert all(2 <= quality < 3 for quality in market.qualities)
        assert set(market.groups) == {1, 2}
        assert 1.5 <= market.factor < 2.5
        starts += drift.start
        lengths.add(drift.length)
        shifts += [step / start for step, start in zip(drift.step, drift.start, strict=True)]
    assert 1 <= min(starts) < 1.2
    assert 9.8 < max(starts) < 10
    assert lengths == set(range(10, 20))
    low, high = (-1 / 200, 1 / 200) if family == LINEAR else (0.25, 0.5)
    assert low <= min(shifts) < low + (high - low) / 20
    assert high - (high - low) / 20 < max(shifts) <= high


@given(st.integers(1, 60), st.integers(0, 2**63 - 1), st.data())
def test_native_markets_repeat_and_fill_their_groups(products: int, seed: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, products))
    family = data.draw(st.sampled_from(FAMILIES))
    made = making(products, family, groups=groups, strength=1.9, periods=7)
    market = native_market(made, seed)
    assert market == native_market(made, seed)
    assert set(market.groups) == set(range(1, groups + 1))
    assert len(market.costs) == len(market.qualities) == len(market.groups) == products
    assert all(alpha > 0 for t in range(7) for alpha in market.drift.alphas(t))


@pytest.mark.parametrize("generator", [reference_market, native_market], ids=["reference", "native"])
def test_ranges_that_are_asked_for_are_kept_and_change_nothing_else(generator: object) -> None:
    assert callable(generator)
    for seed in range(40):
        plain = generator(making(8, "periodic_shifts"), seed)
        asked = msgspec.structs.replace(
            making(8, "periodic_shifts"), cycle_least=21, cycle_most=21 + 9, alpha_low=20.0, alpha_high=30.0
        )
        other = generator(asked, seed)
        assert (other.costs, other.qualities, other.groups) == (plain.costs, plain.qualities, plain.groups)
        assert 21 <= other.drift.length <= 30
        assert all(20 <= start < 30 for start in other.drift.start)
        assert other.digest != plain.digest
        weighed = generator(msgspec.structs.replace(making(8, "periodic_shifts"), outside=1.0, customers=50.0), seed)
        assert (weighed.outside, weighed.customers) == (1.0, 50.0)
        assert weighed.digest not in (plain.digest, other.digest)


def test_native_markets_differ_by_seed() -> None:
    assert len({native_market(making(3, family), seed).digest for seed in range(20) for family in FAMILIES}) == 40


def test_figures_of_a_market_do_not_hang_on_its_other_settings() -> None:
    one, other = native_market(making(5), 9), native_market(making(5, PERIODIC, sigma=0.2, groups=3), 9)
    assert (one.costs, one.qualities, one.drift.start) == (other.costs, other.qualities, other.drift.start)
    assert one.drift.step != other.drift.step


def test_native_groups_are_drawn_like_the_reference_s() -> None:
    native, reference = (
        Counter(group for seed in range(400) for group in generator(making(12), seed).groups)
        for generator in (native_market, reference_market)
    )
    # Of 4,800 products each: the first groups are the largest, and both generators agree on how large within 5 points.
    assert native[1] > native[2] > native[3]
    assert all(abs(native[group] - reference[group]) < 240 for group in (1, 2, 3))


def test_strength_scales_how_far_alphas_move() -> None:
    for family in FAMILIES:
        plain, none, strong = (native_market(making(4, family, strength=strength), 5) for strength in (1.0, 0.0, 1.5))
        assert set(none.drift.step) == {0.0}
        assert none.drift.alphas(63) == none.drift.start
        assert strong.drift.step == pytest.approx([1.5 * step for step in plain.drift.step])


def test_swings_return_and_lines_go_on() -> None:
    swing, line = native_market(making(3, PERIODIC), 1).drift, native_market(making(3), 1).drift
    assert swing.alphas(swing.length) == pytest.approx(swing.alphas(0))
    height = math.sin(2 * math.pi * 5 / swing.length)
    assert swing.alphas(5) == pytest.approx([a + b * height for a, b in zip(swing.start, swing.step, strict=True)])
    moved = [a + 40 * (b - a) for a, b in zip(line.alphas(0), line.alphas(1), strict=True)]
    assert line.alphas(40) == pytest.approx(moved)
