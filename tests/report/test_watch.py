"""The nights' alarm: evidence over all nights beside the windows' test."""

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.calibrations.beginnings import number, summed
from evalkit.stats import sustained_drop
from evalkit.stats.alarm import EVIDENCE_PART, HORIZON, Night, regression, watched
from evalkit.stats.sustained_drop import Levels, beginnings, gathered, levels, needed, visible_fall

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]


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
    raised = []
    # A few at a time are faster.
    for means, noise in zip(np.split(all_nights.means, 12), np.split(all_nights.noise, 12), strict=True):
        some = Levels(means=means, noise=noise)
        each = [
            gathered(some.until(night), tolerance)[0] >= needed(EVIDENCE_PART * 0.05)
            for night in range(before + 1, means.shape[1] + 1)
        ]
        raised.append(np.any(each, axis=0))
    return float(np.concatenate(raised).mean())


@pytest.mark.exhaustive
@pytest.mark.parametrize("effect", [0.0, 0.01])
@pytest.mark.parametrize(("fall", "tolerance"), [(0.0, 0.0), (0.0, 0.02), (0.02, 0.02)])
def test_false_alarms_of_the_evidence_stay_within_alpha(effect: float, fall: float, tolerance: float) -> None:
    draws = np.random.Generator(np.random.Philox(1))
    assert ever(series(draws, 30, HORIZON, fall, effect), 30, tolerance) <= 0.05


@pytest.mark.exhaustive
def test_a_sustained_drop_is_found_within_a_week_as_often_as_by_one_who_knows_the_noise() -> None:
    """One who also knows the fall's size and that it is recent finds 82 % (`python -m bench.calibrations.alarms`)."""
    draws = np.random.Generator(np.random.Philox(2))
    assert ever(series(draws, 30, 7, 0.05, 0.0), 30, 0.02) >= 0.85 * 0.82


def test_the_evidence_is_what_its_definition_says() -> None:
    """Two nights: one beginning, and the mean between the two is known to nobody."""
    noise, fall, tolerance = 0.02**2, 0.1, 0.01
    both = Levels(means=np.array([0.8, 0.7]), noise=np.full(2, noise))
    spread = np.sqrt(noise + sustained_drop._EFFECTS**2)

    def likelihood(lower: "Doubles") -> "Doubles":
        return np.asarray(np.exp(-(((fall - lower) / spread) ** 2) / 4) / spread)

    harmless = sustained_drop._PRIOR * likelihood(tolerance + 0 * spread)
    bets = zip(sustained_drop.PARTS, sustained_drop.BETS, strict=True)
    found = sum(part * sustained_drop._PRIOR * likelihood(tolerance + bet * spread) for part, bet in bets)
    # An effect of `_SMALL` of the noise is half as small as none.
    more = np.exp(sustained_drop._SMALLER / (1 + (sustained_drop._EFFECTS / (sustained_drop._SMALL * 0.02)) ** 2))
    expected = (found * more / np.exp(beginnings(tolerance / spread, 1))).sum() / harmless.sum()
    log, since = gathered(both, tolerance)
    assert float(log) == pytest.approx(math.log(expected))
    assert int(since) == 1


@pytest.mark.parametrize("later", [0, 5])
def test_no_harmless_fall_gives_more_evidence_than_one_of_just_the_tolerance(later: int) -> None:
    """With the same noise, on each night: what the bound of false alarms rests on."""
    draws = np.random.Generator(np.random.Philox(11))
    noise = draws.standard_normal((200, 20))

    def evidence(fall: float, tolerance: float, night: int) -> "Doubles":
        levels = noise - fall * (np.arange(20) >= 7 + later)
        return summed(np.concatenate([np.zeros((200, 1)), np.cumsum(levels, axis=1)], axis=1), night, tolerance)

    for night in range(8, 21):
        worst = evidence(0.8, 0.8, night)
        assert all((evidence(fall, 0.8, night) <= worst + 1e-9).all() for fall in (0.0, 0.3, 0.7))
        assert (worst <= evidence(0.0, 0.0, night) + 1e-9).all()


@pytest.mark.parametrize(("tolerance", "baseline", "later"), [(0.0, 30, 0), (0.5, 7, 7), (1.0, 2, 7), (2.0, 30, 0)])
def test_the_number_of_beginnings_is_enough_where_the_noise_is_known(
    tolerance: float, baseline: int, later: int
) -> None:
    draws = np.random.Generator(np.random.Philox(12))
    used = math.exp(float(beginnings(np.array(tolerance), HORIZON)))
    assert number(draws, tolerance, baseline, later) <= used


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


@pytest.mark.parametrize("before", [0.97, 0.8])
def test_the_noise_of_answers_stays_what_it_is_when_a_level_falls(before: float) -> None:
    draws = np.random.Generator(np.random.Philox(13))
    shares = np.repeat([before, 0.5], 400)[:, None]
    played = [{str(i): float(value) for i, value in enumerate(night)} for night in draws.random((800, 60)) < shares]
    means = levels(played, paired=False, bounded=True).means
    assert means[:400].var() == pytest.approx(means[400:].var(), rel=0.25)
    small = levels(played[:400], paired=False, bounded=True)
    assert small.means.var() == pytest.approx(small.noise.mean(), rel=0.25)
    assert float(small.step(0.01)) == pytest.approx(0.01, rel=0.15)


def test_only_what_scatters_counts_as_loss_where_scores_fail_outright() -> None:
    """Scores of 0.97 of which one in a hundred is 0 lose 0.03 that does not scatter.

    A base is 3/8 of an answer higher than what is lost, in answers that scatter as much as a night.
    """
    draws = np.random.Generator(np.random.Philox(14))
    graded = 0.97 + 0.005 * draws.standard_normal((300, 40))
    fails = draws.random((300, 40)) < 0.01

    def base(scores: "Doubles") -> float:
        told = [{str(place): float(score) for place, score in enumerate(night)} for night in scores]
        found = levels(told, paired=True, bounded=True).base
        assert found is not None
        return float(found)

    assert base(np.where(fails, 0.0, graded)) == pytest.approx(1.8 * 0.01 + 3 / 8 / 80, rel=0.15)
    assert base(graded) == pytest.approx(0.03, rel=0.05)
    assert base(np.where(fails, 0.0, 1.0)) == pytest.approx(0.01 + 3 / 8 / 40, rel=0.15)
    # Two nights leave each instance as much above its mean as below.
    assert base(np.where(fails, 0.0, graded)[:2]) > 0.03


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


def test_rare_failures_that_meet_on_a_night_are_no_sustained_drop() -> None:
    """A failure in a hundred, and two of twelve tonight: for levels that are normal this is a clear fall."""
    draws = np.random.Generator(np.random.Philox(9))
    said = []
    for _ in range(12):
        seen: list[Night] = [{str(i): [float(draws.random() > 1 / 100)] for i in range(12)} for _ in range(30)]
        said.append(watched(seen, {str(i): [float(i >= 2)] for i in range(12)}))
    # On the angular scale the failures of such a night scatter as much as they do.
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
            watched(falling[:n], falling[n], tolerance=0.02, fallen=n - 30),
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
