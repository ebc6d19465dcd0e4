from collections.abc import Callable

import numpy as np
import pytest

from evalkit.stats import bootstrap
from evalkit.stats.bootstrap import Interval, mean_interval, mean_of_instances

PLACE = ("suite", "agent")


def coverage(
    draw: Callable[[np.random.Generator], np.ndarray], truth: float, *, trials: int = 400, strata: bool = False
) -> float:
    """Share of simulated data sets whose interval holds the true mean."""
    held = 0
    for trial in range(trials):
        values = draw(np.random.Generator(np.random.Philox(trial)))
        data = {f"i{i}": row for i, row in enumerate(values)}
        groups = {f"i{i}": str(i % 3) for i in range(len(values))} if strata else None
        found = mean_interval(data, place=(str(trial),), strata=groups)
        assert found is not None
        held += found.low <= truth <= found.high
    return held / trials


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 1000)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(("instances", "replicates"), [(3, 2), (6, 1), (12, 3), (40, 1)])
def test_the_interval_covers_as_often_as_it_says(few_resamples: None, instances: int, replicates: int) -> None:
    def nested(draws: np.random.Generator) -> np.ndarray:
        between = draws.normal(0.6, 0.2, size=(instances, 1))
        return between + draws.normal(0, 0.3, size=(instances, replicates))

    # 400 trials at 95 % have a standard error of 1.1 %.
    assert 0.92 <= coverage(nested, 0.6) <= 0.985


def test_it_covers_skewed_scores(few_resamples: None) -> None:
    def near_the_optimum(draws: np.random.Generator) -> np.ndarray:
        return 1 - draws.exponential(0.1, size=(12, 2))

    assert 0.89 <= coverage(near_the_optimum, 0.9) <= 0.985


def test_it_covers_within_strata(few_resamples: None) -> None:
    def strata(draws: np.random.Generator) -> np.ndarray:
        return np.array([0.2, 0.5, 0.8] * 4)[:, None] + draws.normal(0, 0.1, size=(12, 1))

    assert 0.92 <= coverage(strata, 0.5, strata=True) <= 0.985


def test_replicates_that_agree_bring_no_certainty() -> None:
    one = {str(i): [i / 11] for i in range(12)}
    many = {name: values * 50 for name, values in one.items()}
    assert mean_interval(one, place=PLACE) == mean_interval(many, place=PLACE)


def test_the_same_data_give_the_same_interval_in_any_order() -> None:
    data = {str(i): [i / 11, i / 13] for i in range(12)}
    turned = dict(reversed(data.items()))
    strata = {str(i): "ab"[i % 2] for i in range(12)}
    assert mean_interval(data, place=PLACE) == mean_interval(turned, place=PLACE)
    assert mean_interval(data, place=PLACE, strata=strata) == mean_interval(turned, place=PLACE, strata=strata)
    assert mean_interval(data, place=PLACE) != mean_interval(data, place=("suite", "other"))


def test_draws_in_pieces_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {str(i): [i / 11] for i in range(12)}
    whole = mean_interval(data, place=PLACE)
    monkeypatch.setattr(bootstrap, "_DRAWS_AT_ONCE", 100)
    assert mean_interval(data, place=PLACE) == whole


def test_it_is_that_of_the_definition() -> None:
    """The definition read aloud: draw instances, take the mean, order, widen."""
    from scipy.stats import norm, t

    from evalkit.seeds import Stream

    values = [0.1, 0.4, 0.45, 0.9, 1.0]
    draws = iter(Stream(0, "report", "bootstrap", *PLACE).uniforms(bootstrap.RESAMPLES * 5))
    means = [sum(values[int(next(draws) * 5)] for _ in range(5)) / 5 for _ in range(bootstrap.RESAMPLES)]
    width = (5 / 4) ** 0.5 * t.ppf(0.975, 4) / norm.ppf(0.975)
    low, high = np.quantile(means, [0.025, 0.975])
    found = mean_interval({str(i): [value] for i, value in enumerate(values)}, place=PLACE)
    assert found is not None
    assert found.low == pytest.approx(0.57 + (low - 0.57) * width)
    assert found.high == pytest.approx(0.57 + (high - 0.57) * width)


def test_the_normal_quantile_is_scipy_s() -> None:
    from scipy.special import ndtri

    assert float(ndtri((1 + bootstrap.LEVEL) / 2)) == bootstrap.NORMAL


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_instances_have_no_interval(count: int) -> None:
    assert mean_interval({str(i): [0.5, 0.7] for i in range(count)}, place=PLACE) is None


def test_equal_instances_have_an_interval_without_width() -> None:
    assert mean_interval({str(i): [1.0, 1.0] for i in range(5)}, place=PLACE, most=1.0) == Interval(low=1.0, high=1.0)


def test_an_interval_does_not_go_beyond_the_largest_value() -> None:
    data = {"a": [1.0], "b": [1.0], "c": [0.7]}
    found, free = mean_interval(data, place=PLACE, most=1.0), mean_interval(data, place=PLACE)
    assert found is not None
    assert free is not None
    assert found.high == 1.0 < free.high
    assert found.low == free.low < 0.9


def test_an_interval_does_not_go_below_the_least_value() -> None:
    data = {"a": [0.0], "b": [0.0], "c": [0.3]}
    found, free = mean_interval(data, place=PLACE, least=0.0), mean_interval(data, place=PLACE)
    assert found is not None
    assert free is not None
    assert found.low == 0.0 > free.low
    assert found.high == free.high
    none = {name: [0.0] for name in data}
    assert mean_interval(none, place=PLACE, least=0.0) == Interval(low=0.0, high=0.0)


def test_a_small_stratum_leaves_strata_aside() -> None:
    data = {str(i): [i / 5] for i in range(5)}
    strata = {"0": "x", "1": "x", "2": "y", "3": "y", "4": "z"}
    found = mean_interval(data, place=PLACE, strata=strata)
    assert found is not None
    plain = mean_interval(data, place=PLACE)
    assert plain is not None
    assert found.high - found.low == pytest.approx(plain.high - plain.low, rel=0.1)


def test_instances_weigh_the_same_however_many_replicates_they_have() -> None:
    assert mean_of_instances({"a": [1.0], "b": [0.0, 0.0, 0.0]}) == 0.5
    with pytest.raises(ValueError, match="no instance"):
        mean_of_instances({})
