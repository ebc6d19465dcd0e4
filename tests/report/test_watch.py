"""The nights' alarm: evidence over all nights beside the windows' test."""

import math

import numpy as np
import pytest

from evalkit.stats.alarm import HORIZON, Night, regression
from evalkit.stats.lasting_fall import Levels, gathered, levels, needed, visible_fall
from evalkit.stats.watch import EVIDENCE_PART, watched


def nights(
    draws: np.random.Generator, count: int, *, falls_at: int = 0, fall: float = 0.0, effect: float = 0.0
) -> list[Night]:
    """Fifty instances with a spread of 0.15; lower by `fall` from the place `falls_at` on."""
    ease = draws.uniform(0.4, 0.9, 50)
    found: list[Night] = []
    for place in range(count):
        level = ease - fall * (place >= falls_at) + effect * draws.standard_normal()
        values = level + 0.15 * draws.standard_normal(50)
        found.append({f"i{i}": [float(value)] for i, value in enumerate(values)})
    return found


def series(draws: np.random.Generator, before: int, after: int, fall: float, effect: float) -> Levels:
    """Three thousand series of such nights as levels."""
    noise = 0.15**2 / 50
    means = 0.7 + math.hypot(effect, math.sqrt(noise)) * draws.standard_normal((3000, before + after))
    means[:, before:] -= fall
    return Levels(means=means, noise=np.full(means.shape, noise))


def ever(all_nights: Levels, before: int, tolerance: float) -> float:
    """The share of series whose evidence raises an alarm after the baseline."""
    raised = np.zeros(len(all_nights.means), np.bool_)
    for night in range(before + 1, all_nights.means.shape[1] + 1):
        raised |= gathered(all_nights.until(night), tolerance)[0] >= needed(EVIDENCE_PART * 0.05)
    return float(raised.mean())


@pytest.mark.parametrize("effect", [0.0, 0.01])
@pytest.mark.parametrize(("fall", "tolerance"), [(0.0, 0.0), (0.0, 0.02), (0.02, 0.02)])
def test_false_alarms_of_the_evidence_stay_within_alpha(effect: float, fall: float, tolerance: float) -> None:
    draws = np.random.Generator(np.random.Philox(1))
    assert ever(series(draws, 30, HORIZON, fall, effect), 30, tolerance) <= 0.05


def test_a_lasting_fall_is_found_within_a_week_as_often_as_by_one_who_knows_the_noise() -> None:
    """An oracle finds 82 % of these (`python -m bench.alarms`)."""
    draws = np.random.Generator(np.random.Philox(2))
    assert ever(series(draws, 30, 7, 0.05, 0.0), 30, 0.02) >= 0.85 * 0.82


def test_the_evidence_is_the_likelihood_ratio_of_its_definition() -> None:
    """Two nights and no tolerance: one beginning, and the mean between the two is known to nobody."""
    from evalkit.stats import lasting_fall

    noise, fall = 0.02**2, 0.1
    both = Levels(means=np.array([0.8, 0.7]), noise=np.full(2, noise))

    def likelihood(lower: float) -> float:
        spread = 2 * (noise + lasting_fall._EFFECTS**2)
        return float(lasting_fall._PRIOR @ (np.exp(-((fall - lower) ** 2) / 2 / spread) / np.sqrt(spread)))

    bets = sum(part * likelihood(lower) for part, lower in zip(lasting_fall._PARTS, lasting_fall._FALLS, strict=True))
    expected = lasting_fall._FLAT * bets / HORIZON / likelihood(0.0)
    log, since = gathered(both, 0.0)
    assert float(log) == pytest.approx(math.log(expected))
    assert int(since) == 1


def test_levels_follow_the_nights_also_where_nights_play_other_instances() -> None:
    draws = np.random.Generator(np.random.Philox(3))
    ease, steps = draws.uniform(0, 1, 300), [0.0, 0.1, -0.2, 0.05, 0.0, 0.1]
    played = [
        {str(i): float(ease[i] + step) for i in range(300) if (i + place) % 3} for place, step in enumerate(steps)
    ]
    means = levels(played, paired=True, bounded=False).means
    assert means - means[0] == pytest.approx(np.array(steps) - steps[0], abs=1e-6)
    # As groups their instances' differences are noise.
    assert (
        levels(played, paired=False, bounded=False).noise[0] > 100 * levels(played, paired=True, bounded=False).noise[0]
    )


def test_a_small_fall_that_lasts_is_found_by_all_nights_together() -> None:
    draws = np.random.Generator(np.random.Philox(4))
    falling = nights(draws, 26, falls_at=14, fall=0.06)
    alarms = [watched(falling[:night], falling[night], tolerance=0.02) for night in range(14, 26)]
    raised = [alarm for alarm in alarms if alarm.raised]
    assert raised
    assert raised[0].by == "evidence"
    assert "evidence of all nights" in raised[-1].words
    assert raised[-1].p is not None
    assert raised[-1].p <= raised[-1].threshold == EVIDENCE_PART * 0.05
    assert raised[-1].now is not None
    assert raised[-1].before is not None
    assert raised[-1].before - raised[-1].now == pytest.approx(0.06, abs=0.03)
    rising = [{name: [-value for value in values] for name, values in night.items()} for night in falling]
    assert not watched(rising[:-1], rising[-1], tolerance=0.02).raised
    assert watched(rising[:-1], rising[-1], tolerance=0.02, both_ways=True).words.startswith("change: ")


def test_rare_failures_that_meet_on_a_night_are_no_lasting_fall() -> None:
    """A failure in a hundred, and two of twelve tonight: for levels that are normal this is a clear fall."""
    draws = np.random.Generator(np.random.Philox(9))
    said = []
    for _ in range(12):
        seen: list[Night] = [{str(i): [float(draws.random() > 1 / 100)] for i in range(12)} for _ in range(30)]
        said.append(watched(seen, {str(i): [float(i >= 2)] for i in range(12)}))
    # On the scale of the square root of what lacks, the failures of such a night scatter as much as they do.
    assert not any(alarm.raised for alarm in said)
    assert all(alarm.evidence is not None and alarm.evidence < math.exp(needed(0.04)) for alarm in said)


def test_the_windows_allow_for_what_a_night_does_to_all_its_instances() -> None:
    draws = np.random.Generator(np.random.Philox(5))
    shaken = nights(draws, 12, effect=0.03)
    low: Night = {name: [value - 0.06 for value in values] for name, values in shaken[0].items()}
    assert regression(shaken, low).raised
    assert not watched(shaken, low).raised


def test_the_visible_fall_gets_smaller_with_nights_and_instances() -> None:
    def least(count: int, noise: float) -> float:
        draws = np.random.Generator(np.random.Philox(6))
        means = 0.7 + noise * draws.standard_normal(count)
        found = visible_fall(Levels(means=means, noise=np.full(count, noise**2)), 0.02, 0.04)
        assert found is not None
        return found

    assert 0.02 < least(30, 0.01) < least(30, 0.02) < least(30, 0.04)
    assert least(30, 0.02) < least(10, 0.02) < least(4, 0.02)
    hopeless = Levels(means=np.array([0.2, 0.9]), noise=np.full(2, 0.4))
    assert visible_fall(hopeless, 0.02, 0.04) is None


def test_a_standing_alarm_needs_less_to_go_on() -> None:
    draws = np.random.Generator(np.random.Philox(7))
    falling = nights(draws, 40, falls_at=30, fall=0.05)
    told = [
        (
            watched(falling[:n], falling[n], tolerance=0.02),
            watched(falling[:n], falling[n], tolerance=0.02, standing=True),
        )
        for n in range(30, 40)
    ]
    assert all(standing.raised for fresh, standing in told if fresh.raised)
    assert sum(standing.raised for _, standing in told) > sum(fresh.raised for fresh, _ in told)


def test_nothing_to_compare_is_no_alarm() -> None:
    assert watched([], {"a": [1.0]}).words == "no test: no earlier night"
    assert watched([{"a": [1.0]}], {}).words == "no test: nothing was scored"
    with pytest.raises(ValueError, match="tolerance"):
        watched([{"a": [1.0]}], {"a": [1.0]}, tolerance=-1)
