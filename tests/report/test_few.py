"""A fall that sits in few instances is found, and neither a night's effect nor one night's outage is taken for it."""

from collections.abc import Callable

import numpy as np
import pytest

from evalkit.stats.alarm import HORIZON, INSTANCES_PART, Night, watched
from evalkit.stats.few_instances import SIZES, few_fallen

BASELINE, INSTANCES, FALLEN = 14, 50, 5
THRESHOLD = INSTANCES_PART * 0.05 / HORIZON / len(SIZES)

Values = np.ndarray
Noise = Callable[[np.random.Generator, tuple[int, ...]], Values]


def nights(seed: int, fall: float, after: int, noise: float = 0.15, effect: float = 0.01) -> Values:
    """Shape (nights, instances): the first `FALLEN` of them lower by `fall` after the baseline."""
    draws = np.random.Generator(np.random.Philox(seed))
    shape = (BASELINE + after, INSTANCES)
    values = draws.uniform(0.4, 0.9, INSTANCES) + effect * draws.standard_normal((shape[0], 1))
    values = values + noise * draws.standard_normal(shape)
    values[BASELINE:, :FALLEN] -= fall
    return values


def named(values: Values) -> list[dict[str, float]]:
    return [{str(place): float(value) for place, value in enumerate(night)} for night in values]


def clear(values: Values) -> bool:
    return any(few_fallen(named(values), size, size, 1.0, 20_000) <= THRESHOLD for size in SIZES)


@pytest.mark.parametrize("seed", range(3))
def test_five_points_on_average_that_sit_in_a_tenth_are_found_in_four_nights(seed: int) -> None:
    assert clear(nights(seed, 0.5, 4))
    assert not clear(nights(seed, 0.0, 4))


def test_an_alarm_says_that_some_instances_fell_far() -> None:
    told: list[Night] = [{name: (value,) for name, value in night.items()} for night in named(nights(12, 0.5, 4))]
    found = watched(told[:-1], told[-1], tolerance=0.02)
    assert (found.raised, found.by) == (True, "instances")
    assert found.p is not None
    assert found.p <= found.threshold == INSTANCES_PART * 0.05 / HORIZON
    assert "over 50 shared instances; some of them far: p =" in found.words
    # It stands as long as they stay low, and ends when they come back.
    stands = watched(told[:-1], told[-1], tolerance=0.02, fallen=3)
    assert stands.raised
    back: list[Night] = [{name: (value,) for name, value in night.items()} for night in named(nights(12, 0.0, 4))]
    assert not watched(told[:BASELINE] + back[BASELINE:-1], back[-1], tolerance=0.02, fallen=3).raised


def test_no_effect_of_a_night_and_no_single_outage_is_such_a_fall() -> None:
    shifted = nights(3, 0.0, 4)
    shifted[-4:] -= 0.2  # all of them: another test's business
    assert not clear(shifted)
    outage = nights(4, 0.0, 4)
    outage[-1, :FALLEN] = 0.0
    assert not clear(outage)


def test_a_fall_that_the_mean_does_not_show_beyond_the_tolerance_is_none() -> None:
    told: list[Night] = [{name: (value,) for name, value in night.items()} for night in named(nights(5, 0.1, 4, 0.02))]
    assert clear(np.array([[value for (value,) in night.values()] for night in told]))
    assert not watched(told[:-1], told[-1], tolerance=0.02).raised


def test_nights_that_do_not_share_their_instances_say_nothing() -> None:
    some = named(nights(6, 0.5, 4))
    assert few_fallen(some[-5:], 4, 4, 1.0, 500) == 1.0
    apart = [{f"{number} {name}": value for name, value in night.items()} for number, night in enumerate(some)]
    assert few_fallen(apart, 4, 4, 1.0, 500) == 1.0
    assert few_fallen([dict.fromkeys(map(str, range(20)), 0.5)] * 9, 2, 2, 1.0, 500) == 1.0


@pytest.mark.exhaustive
def test_equal_nights_have_p_values_as_small_as_they_say_however_skewed_scores_are() -> None:
    draws = np.random.Generator(np.random.Philox(9))
    small = 0
    for _ in range(series := 300):
        values = np.where(draws.random((12, 30)) < 0.05, 0.0, draws.uniform(0.9, 1.0, (12, 30)))
        small += few_fallen(named(values), 2, 2, 1.0, 400) <= 0.1
    # Three standard errors of so many.
    assert small / series <= 0.1 + 3 * (0.09 / series) ** 0.5
