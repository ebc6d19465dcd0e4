import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from evalkit.stats import intervals
from evalkit.stats.intervals import bounded, estimate, hall, mean_of_instances, student, unmet_share, wilson

STUDIES = 1500


def named(values: np.ndarray) -> dict[str, list[float]]:
    return {f"i{i:03}": [float(one) for one in np.atleast_1d(row)] for i, row in enumerate(values)}


Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Makes the scores of n instances."""


def normal(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.normal(0.6, 0.2, n)


def nested(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.normal(0.6, 0.2, (n, 1)) + draws.normal(0, 0.3, (n, 3))


def skewed(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.beta(5, 2, n) + 0.6 - 5 / 7


def yes_or_no(draws: np.random.Generator, n: int) -> np.ndarray:
    return (draws.random((n, 5)) < draws.beta(3, 2, (n, 1))) * 1.0


def by_stratum(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.normal(np.resize([0.3, 0.9], n), 0.1)


# Three standard errors of 1,500 studies at 95 % are 1.7 points; what a dozen instances give is stated, not promised.
@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("draw", "n", "least", "most"),
    [
        (normal, 20, 0.935, 0.965),
        (nested, 20, 0.935, 0.965),
        (skewed, 20, 0.935, 0.965),
        (yes_or_no, 20, 0.935, 0.965),
        (by_stratum, 20, 0.935, 0.965),
        (skewed, 40, 0.935, 0.965),
        (normal, 6, 0.935, 0.965),
        (yes_or_no, 12, 0.92, 0.965),
        (skewed, 6, 0.915, 0.965),
    ],
)
def test_an_interval_covers_as_often_as_it_says(draw: Draw, n: int, least: float, most: float) -> None:
    draws = np.random.Generator(np.random.Philox(7))
    strata = {f"i{i:03}": "ab"[i % 2] for i in range(n)} if draw is by_stratum else None
    held, methods = 0, set()
    for _ in range(STUDIES):
        found = estimate(named(draw(draws, n)), strata=strata)
        methods.add(found.method)
        assert found.interval is not None
        held += found.interval.low <= 0.6 <= found.interval.high
    assert methods == {"Hall"}
    assert least <= held / STUDIES <= most


def mostly_optimal(draws: np.random.Generator, n: int) -> np.ndarray:
    return np.where(draws.random(n) < 0.8, 1.0, draws.random(n))


def rarely_off(draws: np.random.Generator, n: int) -> np.ndarray:
    return np.where(draws.random(n) < 0.95, 1.0, draws.random(n))


def small_losses(draws: np.random.Generator, n: int) -> np.ndarray:
    return np.where(draws.random(n) < 0.8, 1.0, draws.beta(9, 1, n))


def losses(draws: np.random.Generator, n: int) -> np.ndarray:
    return np.maximum(0.0, 1 - draws.exponential(0.2, n))


def near_one(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.beta(8, 1, n)


def even(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.random(n)


def narrow(draws: np.random.Generator, n: int) -> np.ndarray:
    return draws.normal(0.5, 0.05, n)


TRUTHS: dict[Draw, float] = {
    mostly_optimal: 0.9,
    rarely_off: 0.975,
    small_losses: 0.98,
    losses: 1 - 0.2 * (1 - np.exp(-5)),
    near_one: 8 / 9,
    even: 0.5,
    narrow: 0.5,
}


# 1,500 studies have a standard error of 0.6 points; what 6 instances give is stated, not promised.
@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("n", [6, 12, 36])
@pytest.mark.parametrize("draw", TRUTHS, ids=lambda draw: draw.__name__)
def test_bounded_scores_are_covered_near_the_optimum_too_and_normal_ones_no_wider(draw: Draw, n: int) -> None:
    draws = np.random.Generator(np.random.Philox(11))
    held, mine, students = 0, 0.0, 0.0
    for _ in range(studies := 1500):
        values = draw(draws, n)
        found = estimate(named(values), least=0.0, most=1.0)
        assert found.method == ("bounded" if np.ptp(values) else "alike")
        low, high = ends(found)
        assert 0 <= low <= found.mean <= high <= 1
        # A sum in another order: 1 is 1.
        held += low - 1e-12 <= TRUTHS[draw] <= high
        plain = student([values])
        mine += high - low
        students += plain.high - plain.low
    assert held / studies >= (0.93 if n > 6 else 0.925)
    if draw in (narrow, even):
        assert mine <= 1.1 * students
    if draw is narrow and n > 6:
        assert held / studies <= 0.965


def test_the_bounded_interval_is_students_where_values_are_normal_and_far_from_the_bounds() -> None:
    values = 0.5 + 0.01 * stats.norm.ppf((np.arange(200) + 0.5) / 200)
    found, want = bounded([values], 0.0, 1.0), student([values])
    assert (found.low, found.high) == pytest.approx((want.low, want.high), abs=1e-5)
    # The scale of the values does not matter.
    far = bounded([values * 200 - 100], -100.0, 100.0)
    assert ((far.low + 100) / 200, (far.high + 100) / 200) == pytest.approx((found.low, found.high))


def test_the_bounded_interval_is_wilsons_where_answers_are_yes_or_no() -> None:
    found, want = bounded([np.repeat([0.0, 1.0], [60, 140])], 0.0, 1.0), wilson(140, 200)
    assert (found.low, found.high) == pytest.approx((want.low, want.high), abs=0.002)


def test_strata_that_agree_within_themselves_say_nothing_of_their_spread() -> None:
    high, low = np.full(6, 1.0), np.full(6, 0.4)
    with pytest.raises(ValueError, match="agree"):
        bounded([high, low], 0.0, 1.0)
    with pytest.raises(ValueError, match="agree"):
        bounded([high], 0.0, 1.0)
    strata = {f"i{i:03}": "ab"[i // 6] for i in range(12)}
    found = estimate(named(np.concatenate([high, low])), strata=strata, least=0.0, most=1.0)
    assert (found.method, found.stratified) == ("alike", True)
    assert ends(found) == pytest.approx((0.7 * (1 - unmet_share(12)), 0.7 + 0.3 * unmet_share(12)))
    # What rounding adds changes nothing.
    noisy = np.concatenate([high, low]) - np.resize([0.0, 1e-9], 12)
    assert ends(estimate(named(noisy), strata=strata, least=0.0, most=1.0)) == pytest.approx(ends(found), abs=1e-6)


def test_no_interval_excludes_its_mean_where_rounding_goes_beyond_the_bound() -> None:
    for values in ([1.0001] * 12, [1.0001] * 11 + [1.0002], [1.0001] * 23 + [1.0002], list(1 + np.arange(24) / 1e6)):
        for least in (0.0, -np.inf):
            found = estimate(named(np.array(values)), least=least, most=1.0)
            if found.interval is not None:
                assert found.interval.low <= found.mean <= found.interval.high


@pytest.mark.parametrize("n", [20, 40, 100])
def test_wilsons_interval_covers_on_average_as_often_as_it_says(n: int) -> None:
    ends = [wilson(yes, n) for yes in range(n + 1)]
    truths = np.linspace(0.05, 0.95, 181)
    held = np.array([[end.low <= truth <= end.high for end in ends] for truth in truths])
    chances = stats.binom.pmf(np.arange(n + 1), n, truths[:, None])
    coverage = (held * chances).sum(axis=1)
    assert 0.945 <= coverage.mean() <= 0.96
    assert coverage.min() > 0.9


@pytest.mark.parametrize(("yes", "n"), [(0, 12), (1, 12), (7, 12), (12, 12), (200, 381)])
def test_wilsons_interval_is_scipys(yes: int, n: int) -> None:
    found, want = wilson(yes, n), stats.binomtest(yes, n).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((want.low, want.high), abs=1e-12)
    with pytest.raises(ValueError, match="no share"):
        wilson(n + 1, n)


def test_students_interval_is_scipys_and_strata_take_their_spread_out() -> None:
    values = np.array([0.1, 0.5, 0.55, 0.9])
    found, want = student([values]), stats.ttest_1samp(values, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((want.low, want.high))
    apart = student([values, values + 10])
    error = np.sqrt(2 * 4 * np.var(values, ddof=1)) / 8
    assert apart.high - apart.low == pytest.approx(2 * stats.t.ppf(0.975, 6) * error)


@pytest.mark.parametrize("n", [6, 12, 40])
def test_halls_ends_are_where_his_cubic_is_at_students_quantiles(n: int) -> None:
    values = np.random.Generator(np.random.Philox(1)).exponential(1.0, n)
    found, plain = hall([values]), student([values])
    error, skew = stats.sem(values), stats.skew(values) * ((n - 1) / n) ** 1.5 / math.sqrt(n)
    t = stats.t.ppf(0.975, n - 1)

    def cubic(end: float) -> float:
        ratio = (values.mean() - end) / error
        return float(ratio + skew * ratio**2 / 3 + skew**2 * ratio**3 / 27 + skew / 6)

    # The upper end is beyond Student's, where the tail is; the lower one would be within his and is his.
    assert cubic(found.high) == pytest.approx(-t)
    assert found.high > plain.high
    assert found.low == plain.low
    assert cubic(plain.low) > t
    turned = hall([-values])
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_without_skewness_halls_interval_is_students() -> None:
    even = [np.array([0.1, 0.5, 0.9]), np.array([1.0, 2.0, 3.0, 4.0])]
    assert hall(even) == student(even)
    # Strata whose tails outweigh each other are not skewed together.
    tail = np.array([0.0, 0.0, 0.1, 0.9])
    assert hall([tail, 5 - tail]) == pytest.approx(student([tail, 5 - tail]))


def test_instances_weigh_the_same_however_many_replicates_they_have() -> None:
    assert mean_of_instances({"a": [1.0], "b": [0.0, 0.0, 0.0]}) == 0.5


def test_a_small_stratum_leaves_strata_aside() -> None:
    values = named(np.arange(5) / 5)
    strata = dict(zip(values, "xxyyz", strict=True))
    assert estimate(values, strata=strata) == estimate(values)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 6])
def test_wilsons_interval_is_scipys_whatever_the_level(alpha: float) -> None:
    theirs = stats.binomtest(7, 30).proportion_ci(confidence_level=1 - alpha, method="wilson")
    ours = intervals.wilson(7, 30, alpha)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("most", [1.0, np.inf])
def test_an_interval_that_is_surer_is_wider_as_students_is(most: float) -> None:
    values = named(0.3 + 0.4 * np.random.Generator(np.random.Philox(4)).random(30))
    wide, narrow = (estimate(values, least=-most, most=most, alpha=alpha).interval for alpha in (0.005, 0.05))
    assert wide is not None
    assert narrow is not None
    ratio = float(stats.t.ppf(0.9975, 29) / stats.t.ppf(0.975, 29))
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(ratio, rel=0.05)


def test_each_figure_gets_what_suits_it() -> None:
    some = np.random.Generator(np.random.Philox(2)).random(24)
    share = np.arange(24) % 3 == 0
    lone = np.where(np.arange(24) == 0, 0.4, 1.0)
    figures = {
        "few": some[:19],
        "enough": some,
        "share": share,
        "lone": lone,
        "same": np.full(24, 0.7),
        "two": some[:2],
    }

    def methods(least: float) -> dict[str, str]:
        return {name: estimate(named(values * 1.0), least=least, most=1.0).method for name, values in figures.items()}

    assert methods(0.0) == {
        "few": "bounded",
        "enough": "bounded",
        "share": "Wilson",
        "lone": "bounded",
        "same": "alike",
        "two": "none",
    }
    assert methods(-np.inf) == {
        "few": "Hall",
        "enough": "Hall",
        "share": "Hall",
        "lone": "Hall",
        "same": "none",
        "two": "none",
    }


def ends(found: intervals.Estimate) -> tuple[float, float]:
    """Of the interval that a claim rests on."""
    assert found.cautious is not None
    return found.cautious.low, found.cautious.high


def test_what_was_seen_and_what_few_cannot_exclude_are_apart() -> None:
    """More noise never narrows: twelve scores around 80 are as sure of each other as they are alike, and as unsure of
    the others as twelve can be."""
    draws = np.random.Generator(np.random.Philox(8))
    shape = stats.zscore(draws.normal(size=12), ddof=1)
    before = 0.0
    for spread in (0.0, 1e-9, 0.001, 0.005, 0.0095, 0.011, 0.03, 0.06):
        found = estimate(named(0.8 + spread * shape), least=0.0, most=1.0)
        assert found.interval is not None
        assert found.unmet is not None
        width = found.interval.high - found.interval.low
        assert width >= before
        assert width == pytest.approx(2 * stats.t.ppf(0.975, 11) * spread / math.sqrt(12), rel=0.2, abs=1e-6)
        low, high = min(0.606, found.interval.low), max(0.848, found.interval.high)
        assert (found.unmet.low, found.unmet.high) == pytest.approx((low, high), abs=0.001)
        before = width
    # Of answers of yes and no Wilson's interval says both.
    mixed = estimate(named(np.arange(12) % 3 == 0), least=0.0, most=1.0)
    assert mixed.interval == mixed.unmet == mixed.cautious
    # Nothing is said of others where they have no bounds.
    assert estimate(named(0.8 + 0.01 * shape)).unmet is None


@pytest.mark.parametrize("values", [np.ones(4), np.zeros(7)])
def test_instances_that_are_all_solved_are_certain_of_their_like_alone(values: np.ndarray) -> None:
    found, want = estimate(named(values), least=0.0, most=1.0), wilson(float(values.sum()), len(values))
    assert found.interval == intervals.Interval(low=values[0], high=values[0])
    assert found.unmet is not None
    assert (found.unmet.low, found.unmet.high) == pytest.approx((want.low, want.high))


def scored(values: object, **bounds: Any) -> tuple[float, float]:
    return ends(estimate(named(np.asarray(values, float)), **{"least": 0.0, "most": 1.0, **bounds}))


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=3, max_size=40), st.integers(2, 50))
def test_replicates_that_agree_change_nothing(values: list[float], replicates: int) -> None:
    once = estimate(named(np.array(values)), least=0.0, most=1.0)
    again = estimate(named(np.repeat(np.array([values]).T, replicates, 1)), least=0.0, most=1.0)
    assert (again.method, again.values) == (once.method, replicates * len(values))
    assert ends(again) == pytest.approx(ends(once), abs=1e-9)
    assert once.method == {True: "Wilson", False: once.method}[set(values) == {0.0, 1.0}]


def test_one_failure_in_36_is_as_sure_with_replicates_as_without() -> None:
    once, twice = np.zeros(36), np.zeros((36, 2))
    once[0] = twice[0] = 1.0
    assert scored(twice) == scored(once)
    assert scored(once) == pytest.approx((0.005, 0.142), abs=0.001)
    # Half a point less on one of the others moves the interval by about as much, not to [0, 0.35].
    once[0] = 0.995
    assert scored(once) == pytest.approx((0.005, 0.142), abs=0.002)


def test_instances_that_agree_do_not_bring_certainty() -> None:
    found = estimate(named(np.full((10, 2), 1.0)), least=0.0, most=1.0)
    assert (found.method, ends(found)) == ("alike", (pytest.approx(1 - unmet_share(10)), 1.0))
    inner = estimate(named(np.full(10, 0.5)), least=0.0, most=1.0)
    assert inner.method == "alike"
    assert ends(inner) == pytest.approx((0.5 - 0.5 * unmet_share(10), 0.5 + 0.5 * unmet_share(10)))
    open_below = estimate(named(np.full(10, 1.0)), most=1.0)
    assert (open_below.interval, open_below.why) == (None, "all instances agree")
    # Where failures are told to be at 0 the same holds as for bounded scores.
    told = estimate(named(np.full(10, 1.0)), most=1.0, unmet=(0.0, 1.0))
    assert (told.method, ends(told)) == ("alike", pytest.approx(ends(found)))


@pytest.mark.parametrize("n", [3, 4, 6, 12, 36, 100])
@pytest.mark.parametrize("below", [0.0, -math.inf])
def test_nothing_jumps_from_all_optimal_to_nearly_optimal(n: int, below: float) -> None:
    lone = np.arange(n) == 0
    where: dict[str, Any] = {"least": below, "unmet": (0.0, 1.0)}
    perfect = scored(np.ones(n), **where)
    assert perfect == pytest.approx((1 - unmet_share(n), 1.0))
    before = perfect
    for loss in (1e-13, 1e-11, 1e-9, 1e-6, 1e-4, 0.001, 0.01, 0.05, 0.1):
        for losses in (lone * loss, np.full(n, loss), loss * np.arange(n) / n):
            low, high = scored(1 - losses, **where)
            assert -1e-12 <= perfect[0] - low <= 2 * loss / math.sqrt(n) + loss * unmet_share(n) + losses.mean() * 6
            assert high <= 1.0
        low, _ = scored(1 - lone * loss, **where)
        assert low <= before[0] + 1e-12
        before = low, 1.0


UNITS = st.integers(0, 1000).map(lambda i: i / 1000)
SCORES = st.lists(UNITS, min_size=3, max_size=24)


@given(SCORES, st.data())
def test_small_changes_of_scores_are_small_changes_of_intervals(scores: list[float], data: st.DataObject) -> None:
    nudge = data.draw(st.lists(st.floats(-1, 1), min_size=len(scores), max_size=len(scores)))
    strata = {f"i{i:03}": "ab"[i % 2] for i in range(len(scores))}
    for size in (1e-7, 1e-10):
        moved = np.clip(np.array(scores) + size * np.array(nudge), 0, 1)
        for groups in (None, strata):
            one, other = (estimate(named(np.asarray(v)), strata=groups, least=0.0, most=1.0) for v in (scores, moved))
            # A spread weighs at most 1 / TRIFLE times itself, and a standard error its root.
            assert ends(other) == pytest.approx(ends(one), abs=2000 * size + 20 * math.sqrt(size))


@given(SCORES)
def test_no_loss_makes_anybody_surer_than_none(scores: list[float]) -> None:
    low, high = scored(scores)
    q = unmet_share(len(scores))
    assert low <= 1 - q + 1e-12
    assert high >= q - 1e-12
    # Nor is an interval wider than that of as many answers of yes and no with the same mean.
    widest = wilson(float(np.sum(scores)), len(scores))
    assert widest.low - 1e-9 <= low
    assert high <= widest.high + 1e-9


@given(SCORES, st.floats(0.001, 0.3))
def test_worse_scores_have_no_higher_interval(scores: list[float], loss: float) -> None:
    assume(min(scores) >= loss)
    before, after = scored(scores), scored(np.array(scores) - loss)
    assert after[0] <= before[0] + 1e-9
    assert after[1] <= before[1] + 1e-9


@given(st.lists(UNITS, min_size=12, max_size=12))
def test_mirrored_scores_have_mirrored_intervals(scores: list[float]) -> None:
    low, high = scored(scores)
    assert scored(1 - np.array(scores)) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("failures", [0.05, 0.1])
@pytest.mark.parametrize("n", [4, 6, 12, 36, 100])
def test_agents_that_are_nearly_optimal_and_rarely_fail_are_covered(failures: float, n: int) -> None:
    draws = np.random.Generator(np.random.Philox(13))
    truth = 0.975 * (1 - failures)
    held = 0
    for _ in range(studies := 600):
        low, high = scored(np.where(draws.random(n) < failures, 0.0, draws.uniform(0.95, 1, n)))
        held += low <= truth <= high
    # Three standard errors of 600 studies are 2.7 points.
    assert held / studies >= 0.95 - 0.027


def test_an_interval_keeps_within_what_can_be_and_in_any_order() -> None:
    values = named(np.array([1.0, 1.0, 1.0, 0.2]))
    found = estimate(values, least=0.0, most=1.0)
    assert found.interval is not None
    assert 0.8 < found.interval.high <= 1.0
    assert ends(estimate(values, most=1.0))[1] == 1.0
    turned = estimate(dict(reversed(values.items())), least=0.0, most=1.0)
    assert turned == found
    with pytest.raises(ValueError, match="no instance"):
        estimate({})
