from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from evalkit.frozen.manifest import ManifestOrder, ManifestSuite
from evalkit.report.report import Report
from evalkit.report.scores import anytime_interval, kind_notes
from evalkit.seeds import derive
from evalkit.stats.sequential import bernstein, betting, betting_now, filled, rounds, sequence, sequential_p, wealth
from tests.support.guessing_runs import a_manifest, a_suite, an_agent

STUDIES, LOOKS = 1500, 400


def yes_or_no(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.8) * 1.0, 0.8


def rare(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.03) * 1.0, 0.03


def skewed(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return draws.beta(5, 2, (STUDIES, LOOKS)), 5 / 7


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("draw", [yes_or_no, rare, skewed])
def test_the_truth_is_within_at_all_looks_together(
    draw: Callable[[np.random.Generator], tuple[np.ndarray, float]],
) -> None:
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
    values = (draws.random((STUDIES, LOOKS)) < chances).astype(np.float64)
    average = np.cumsum(chances) / np.arange(1, LOOKS + 1)
    low, high = bernstein(values)
    assert ((low > average) | (average > high)).any(axis=1).mean() <= 0.067


def test_strata_that_take_turns_are_averaged_by_rounds() -> None:
    values = np.array([0.0, 1.0, 0.2, 0.8, 0.5])
    found = rounds(values, list("abbaa"))
    assert found is not None
    assert found.tolist() == [0.5, 0.5]
    assert rounds(values, list("aabba")) is None
    none = rounds(np.zeros(0), [])
    assert none is not None
    assert none.tolist() == []


def killed(draws: np.random.Generator, planned: int, width: int, share: float) -> tuple[list[float | None], float]:
    """(scores of the episodes that had begun when a run was killed, in order, None of what had not ended; their mean's
    truth): `width` at a time, long episodes score lower, the kill after `share` of the time."""
    scores = draws.beta(4, 1, planned)
    lasts = (1.2 - scores) * draws.uniform(0.5, 1.5, planned)
    free, starts = np.zeros(width), np.empty(planned)
    for i in range(planned):
        first = int(free.argmin())
        starts[i] = free[first]
        free[first] += lasts[i]
    kill = share * float((starts + lasts).max())
    begun = int((starts < kill).sum())
    ended = (starts + lasts <= kill)[:begun]
    return [float(score) if there else None for score, there in zip(scores, ended, strict=False)], 0.8


def prefix_mean(values: list[float | None]) -> float | None:
    ended = values[: values.index(None)] if None in values else values
    return float(np.mean([one for one in ended if one is not None])) if ended else None


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_a_kill_is_survived_by_the_interval_though_not_by_the_mean(share: float) -> None:
    draws = np.random.Generator(np.random.Philox(7))
    held, means = 0, []
    for _ in range(studies := 300):
        values, truth = killed(draws, 60, 16, share)
        found = sequence(filled(values, 0.0), filled(values, 1.0), [""] * len(values))
        assert found is not None
        held += found[0] <= truth <= found[1]
        mean = prefix_mean(values)
        means += [mean] if mean is not None else []
    # Three standard errors of 300 studies are 3.8 points.
    assert held / studies >= 0.95 - 0.038
    if share == 0.25:
        assert np.mean(means) > truth + 0.01


def test_what_has_begun_and_not_ended_counts_as_the_worst_and_as_the_best() -> None:
    values: list[float | None] = [0.5, None, 0.7, 0.6, None, 0.6] * 10
    low, high, method = sequence(filled(values, 0.0), filled(values, 1.0), [""] * 60) or (0.0, 1.0, "")
    assert method == "betting"
    assert low <= 0.4
    assert high >= 0.73
    alike = [0.4, 0.5, 0.7, 0.6, 0.8, 0.6] * 10
    assert low < betting(np.array(alike))[0][-1]
    assert high > betting(np.array(alike))[1][-1]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("unlike", [0.2, 1.0, 5.0])
def test_the_bound_of_now_is_the_last_of_all_looks(unlike: float) -> None:
    draws = np.random.Generator(np.random.Philox(9))
    kinds = [np.zeros(30), np.ones(30), np.repeat([0.0, 1.0], 60), np.array([0.5]), np.repeat([1.0, 0.0], 60)]
    kinds += [draws.beta(unlike, 1.0, length) for length in (2, 17, 90)]
    for values in (*kinds, *((values > 0.5) * 1.0 for values in kinds)):
        assert betting_now(values) == tuple(ends[-1] for ends in betting(values))
    assert betting_now(np.zeros(0)) == (0.0, 1.0)


def test_the_p_value_of_a_sequence_holds_at_all_looks_and_agrees_with_its_bounds() -> None:
    draws = np.random.Generator(np.random.Philox(8))
    wrong = 0
    for _ in range(studies := 400):
        values = draws.beta(2, 2, 120)
        wrong += sequential_p(values, values, 0.5) <= 0.05
    assert wrong / studies <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    values = draws.beta(3, 2, 120)
    low, high = (ends[-1] for ends in betting(values))
    for guess in (low - 0.01, high + 0.01):
        assert sequential_p(values, values, guess) <= 0.05
    assert sequential_p(values, values, (low + high) / 2) > 0.05
    assert sequential_p(np.zeros(0), np.zeros(0), 0.5) == 1.0


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


def _fields(suite: ManifestSuite) -> dict[str, Any]:
    return {name: getattr(suite, name) for name in suite.__struct_fields__}


@pytest.mark.parametrize("keyed", [True, False])
def test_a_suite_sorted_by_difficulty_misleads_nobody_once_its_order_is_random(keyed: bool) -> None:
    """A suite without strata whose file begins with the easy instances; the score is sure, the order is not."""
    suite = a_suite("s", range(0, 240, 2))  # all of one stratum
    scores = {one.id: score for one, score in zip(suite.instances, np.linspace(1, 0, 120), strict=True)}
    manifest = a_manifest([an_agent("a")], [suite])
    runs = 400 if keyed else 1
    values = np.empty((runs, 120))
    for run in range(runs):
        key = derive("admission order", f"run-{run}") if keyed else None
        frozen = msgspec.structs.replace(manifest, order=ManifestOrder(key=key))
        values[run] = [scores[one.id] for one in frozen.admitted(suite)]
    missed = (wealth(values, 0.5, up=True) >= 0) | (wealth(values, 0.5, up=False) >= 0)
    # In the file's order every run is misled.
    assert missed.any(axis=1).mean() <= 0.05 if keyed else missed.any()


def test_the_note_explains_each_method_without_the_others() -> None:
    (note,) = kind_notes([{"kind": "bernstein"}], [])
    assert note.endswith("bernstein: for a partial run whose strata do not take turns, valid at every look")
