from dataclasses import replace

import numpy as np
import pytest

from evalkit.report.report import Report
from evalkit.report.sequential import anytime_interval, bernstein, betting, rounds, wealth

STUDIES, LOOKS = 1500, 400


def yes_or_no(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.8) * 1.0, 0.8


def rare(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.03) * 1.0, 0.03


def skewed(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return draws.beta(5, 2, (STUDIES, LOOKS)), 5 / 7


@pytest.mark.parametrize("draw", [yes_or_no, rare, skewed])
def test_the_truth_is_within_at_all_looks_together(draw) -> None:
    values, truth = draw(np.random.Generator(np.random.Philox(3)))
    out = (wealth(values, truth, up=True) >= 0) | (wealth(values, truth, up=False) >= 0)
    # Three standard errors of 1,500 studies are 1.7 points.
    assert out.any(axis=1).mean() <= 0.05 + 0.017
    low, high = bernstein(values)
    assert ((low > truth) | (truth > high)).any(axis=1).mean() <= 0.05 + 0.017
    # An interval for one look is not for all of them.
    looks = np.arange(1, LOOKS + 1)
    means = np.cumsum(values, axis=1) / looks
    half = 1.96 * np.sqrt(means * (1 - means) / looks) if draw is yes_or_no else None
    if half is not None:
        assert (np.abs(means - truth) > half)[:, 11:].any(axis=1).mean() > 0.2


def test_bets_and_bounds_say_the_same() -> None:
    values = np.random.Generator(np.random.Philox(4)).beta(5, 2, 200)
    low, high = betting(values)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) <= 0).all()
    for guess in (0.55, 0.65, 0.71, 0.77, 0.9):
        assert ((wealth(values, guess, up=True) >= 0) <= (low >= guess - 0.002)).all()
        assert ((wealth(values, guess, up=True) >= 0) >= (low >= guess + 0.002)).all()
        assert ((wealth(values, guess, up=False) >= 0) <= (high <= guess + 0.002)).all()
    assert high[-1] - low[-1] < 0.13


def test_a_bet_sees_no_value_before_it_is_made() -> None:
    values = np.random.Generator(np.random.Philox(5)).random(50)
    other = values.copy()
    other[30:] = 1 - other[30:]
    for up in (True, False):
        assert (wealth(values, 0.4, up=up)[:30] == wealth(other, 0.4, up=up)[:30]).all()
    gains = [wealth(np.array([x]), 0.5, up=True)[0] for x in (0.0, 0.5, 1.0)]
    # The stake is the same whatever comes: what is won at 1 is lost at 0.
    won, even, lost = (np.exp(gain - gains[1]) for gain in (gains[2], gains[1], gains[0]))
    assert won - even == pytest.approx(even - lost)


def test_means_that_change_are_followed_by_their_average() -> None:
    draws = np.random.Generator(np.random.Philox(6))
    chances = np.where(np.arange(LOOKS) < 100, 0.9, 0.3)
    values = (draws.random((STUDIES, LOOKS)) < chances) * 1.0
    average = np.cumsum(chances) / np.arange(1, LOOKS + 1)
    low, high = bernstein(values)
    assert ((low > average) | (average > high)).any(axis=1).mean() <= 0.067


def test_strata_that_take_turns_are_averaged_by_rounds() -> None:
    values = np.array([0.0, 1.0, 0.2, 0.8, 0.5])
    found = rounds(values, list("abbaa"))
    assert found is not None
    assert found.tolist() == [0.5, 0.5]
    assert rounds(values, list("aabba")) is None
    assert rounds(np.zeros(0), []).tolist() == []


def test_nothing_seen_says_nothing_and_what_is_no_score_is_refused() -> None:
    assert [one.tolist() for one in betting(np.zeros(0))] == [[], []]
    low, high = betting(np.array([1.0]))
    assert (low[0], high[0]) == (0.0, 1.0)
    with pytest.raises(ValueError, match="0 to 1"):
        betting(np.array([0.5, 1.2]))
    with pytest.raises(ValueError, match="0 to 1"):
        bernstein(np.array([np.nan]))


def test_there_is_no_such_interval_where_scores_can_be_below_0(the_report: Report) -> None:
    cell = the_report.cells[0]
    assert anytime_interval(cell) is None
    bounded = replace(cell, suite=type(cell.suite)(**{**_fields(cell.suite), "environment": "costbench"}))
    assert anytime_interval(replace(bounded, prefix=())) is None
    found = anytime_interval(bounded)
    assert found is not None
    assert found[1:] == (1.0, "betting")


def _fields(suite) -> dict:
    return {name: getattr(suite, name) for name in suite.__struct_fields__}
