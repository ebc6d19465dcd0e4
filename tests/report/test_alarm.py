import itertools

import numpy as np
import pytest

from evalkit.stats.alarm import HORIZON, Alarm, Night, regression

INSTANCES, NIGHTS, FALLS_AT = 60, 7, 5


def graded(draws: np.random.Generator, fall: float) -> list[Night]:
    """Nights of scores around 0.8 that differ by instance; from night 5 on lower by `fall`."""
    ease = draws.beta(8, 2, INSTANCES)
    found: list[Night] = []
    for night in range(1, NIGHTS + 1):
        values = ease - (fall if night >= FALLS_AT else 0) + draws.normal(0, 0.15, INSTANCES)
        found.append({f"i{i}": [float(one)] for i, one in enumerate(np.clip(values, 0, 1))})
    return found


def first_alarm(nights: list[Night]) -> int:
    """The night of the first alarm, from 1; 0 where there is none."""
    alarms = (night for night in range(2, len(nights) + 1) if regression(nights[: night - 1], nights[night - 1]).raised)
    return next(alarms, 0)


@pytest.mark.exhaustive
def test_a_fall_is_found_that_night_or_the_next() -> None:
    draws = np.random.Generator(np.random.Philox(1))
    found = [first_alarm(graded(draws, 0.2)) for _ in range(40)]
    assert sum(night in (FALLS_AT, FALLS_AT + 1) for night in found) >= 38
    # Fresh instances every night: nothing can be paired.
    fresh: list[Night] = [
        {f"{night}:{name}": values for name, values in one.items()} for night, one in enumerate(graded(draws, 0.2))
    ]
    assert first_alarm(fresh) in (FALLS_AT, FALLS_AT + 1)


@pytest.mark.exhaustive
def test_no_alarm_is_raised_without_a_change() -> None:
    draws = np.random.Generator(np.random.Philox(2))
    false = [first_alarm(graded(draws, 0.0)) for _ in range(200)]
    assert np.count_nonzero(false) / 200 <= 0.05


@pytest.mark.parametrize("count", range(2, 12))
def test_nights_that_repeat_each_other_to_the_last_digit_are_no_fall(count: int) -> None:
    """Sums over one and over four equal nights differ in their last bits, for all instances alike."""
    draws = np.random.Generator(np.random.Philox(3))
    for _ in range(10):
        night = {str(i): [float(value)] for i, value in enumerate(draws.uniform(0, 1, 36))}
        alarm = regression([night] * (count - 1), night)
        assert not alarm.raised, alarm.words
        assert alarm.p == 1.0


def test_rare_successes_that_stay_away_for_a_night_are_no_fall() -> None:
    seen = [{str(i): [float((i - 7 * night) % 60 < 3)] for i in range(60)} for night in range(20)]
    tonight = {str(i): [0.0] for i in range(60)}
    alarm = regression(seen, tonight)
    assert not alarm.raised
    # With 3 of 60 a night the chance of a night with none is 4.6 %.
    assert alarm.p is not None
    assert alarm.p > 0.02


def test_the_p_value_is_that_of_all_turns() -> None:
    """Two nights before, one now: every instance's three nights can stand in three ways."""
    draws = np.random.Generator(np.random.Philox(4))
    values = draws.normal(0.5, 0.2, (10, 3))
    values[:, 2] -= 0.3
    nights = [{f"i{i}": [float(row[night])] for i, row in enumerate(values)} for night in range(3)]
    falls = [[(row.sum() - one) / 2 - one for one in row] for row in values]
    seen = sum(one[2] for one in falls)
    every = np.array([0.0])
    for one in falls:
        every = np.concatenate([every + fall for fall in one])
    exact = np.mean(every >= seen - 1e-9)
    alarm = regression(nights[:2], nights[2])
    assert alarm.nights == 1
    assert alarm.p is not None
    assert alarm.p / 2 == pytest.approx(exact, abs=0.005)  # two windows fit


def test_a_small_fall_takes_several_nights_together() -> None:
    draws = np.random.Generator(np.random.Philox(5))
    ease = draws.beta(8, 2, INSTANCES)
    nights = [
        {f"i{i}": [float(one)] for i, one in enumerate(ease - 0.07 * (night >= 10) + draws.normal(0, 0.15, INSTANCES))}
        for night in range(14)
    ]
    alarms = [regression(nights[:night], nights[night]) for night in range(10, 14)]
    raised = [alarm for alarm in alarms if alarm.raised]
    assert raised
    assert max(alarm.nights for alarm in raised) > 1
    assert "regression: the last" in raised[-1].words


def test_a_fall_within_the_tolerance_is_none() -> None:
    draws = np.random.Generator(np.random.Philox(6))
    nights = graded(draws, 0.1)
    assert regression(nights[:4], nights[4]).raised
    assert not regression(nights[:4], nights[4], tolerance=0.12).raised
    better = graded(draws, -0.2)
    assert not regression(better[:4], better[4]).raised


@pytest.mark.exhaustive
def test_where_no_direction_is_worse_a_rise_is_an_alarm_as_a_fall_is() -> None:
    draws = np.random.Generator(np.random.Philox(11))
    falling = graded(draws, 0.2)[: FALLS_AT + 1]
    rising: list[Night] = [{name: [1 - one for one in values] for name, values in one.items()} for one in falling]
    assert not regression(rising[:-1], rising[-1]).raised
    fall, rise = (regression(nights[:-1], nights[-1], both_ways=True) for nights in (falling, rising))
    assert (fall.raised, rise.raised) == (True, True)
    assert fall.words.startswith("change: ")
    assert 0 <= (rise.before or 0) < (rise.now or 0) <= 1
    # Each direction has half of alpha.
    assert fall.p == pytest.approx(2 * (regression(falling[:-1], falling[-1]).p or 0), rel=0.6)
    still = [graded(draws, 0.0)[:4] for _ in range(100)]
    assert sum(regression(nights[:3], nights[3], both_ways=True).raised for nights in still) <= 2


def test_an_alarm_can_be_raised_however_small_alpha_is() -> None:
    nights = graded(np.random.Generator(np.random.Philox(9)), 0.3)
    alarm = regression(nights[:4], nights[4], 0.05 / 40)
    assert alarm.p is not None
    assert alarm.p <= alarm.threshold == 0.05 / 40 / HORIZON
    assert alarm.raised


def test_what_was_compared_is_said() -> None:
    draws = np.random.Generator(np.random.Philox(7))
    nights = graded(draws, 0.2)
    alarm = regression(nights[:4], {**nights[4], "new": [0.0]})
    assert (alarm.raised, alarm.nights, alarm.pairs, alarm.left_out) == (True, 1, 60, 1)
    assert alarm.threshold == 0.05 / HORIZON
    assert alarm.before is not None
    assert alarm.now is not None
    assert alarm.before - alarm.now == pytest.approx(0.2, abs=0.05)
    assert alarm.words.startswith("regression: tonight ")
    assert "in the 4 nights before, over 60 shared instances; p = " in alarm.words
    # Few shared ones: all instances count, unpaired.
    fresh = {f"x{i}": values for i, values in enumerate(nights[4].values())}
    assert regression(nights[:4], fresh).pairs == 0
    assert "unpaired" in regression(nights[:4], fresh).words


def test_replicates_of_a_night_are_averaged() -> None:
    draws = np.random.Generator(np.random.Philox(8))
    nights = graded(draws, 0.2)
    doubled = [{name: [*values, *values] for name, values in night.items()} for night in nights]
    assert regression(doubled[:4], doubled[4]) == regression(nights[:4], nights[4])


def test_nothing_to_compare_is_no_alarm() -> None:
    night = {"a": [1.0]}
    assert regression([], night).words == "no test: no earlier night"
    assert regression([night], {}).words == "no test: nothing was scored"
    assert regression([{}, {}], night) == Alarm(
        raised=False, p=None, threshold=0.05 / HORIZON, words="no test: no earlier night"
    )
    for alpha, tolerance in itertools.product((0.0, 1.0), (0.0,)):
        with pytest.raises(ValueError, match="alpha"):
            regression([night], night, alpha, tolerance=tolerance)
    with pytest.raises(ValueError, match="tolerance"):
        regression([night], night, tolerance=-0.1)
