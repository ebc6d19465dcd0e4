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
from evalkit.stats.evidence import SCORES, Evidence
from evalkit.stats.sequential import capital, filled, in_turns, sequence, sequential_p
from tests.support.guessing_runs import a_manifest, a_suite, an_agent

STUDIES, LOOKS = 1500, 400


def yes_or_no(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.8) * 1.0, 0.8


def rare(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return (draws.random((STUDIES, LOOKS)) < 0.03) * 1.0, 0.03


def skewed(draws: np.random.Generator) -> tuple[np.ndarray, float]:
    return draws.beta(5, 2, (STUDIES, LOOKS)), 5 / 7


def refuted(values: np.ndarray, guess: float) -> np.ndarray:
    """Whether each look refutes it; of the shape of `values`."""
    return np.maximum(capital(values, guess, up=True), capital(values, guess, up=False)) >= np.log(40)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("draw", [yes_or_no, rare, skewed])
def test_the_truth_is_within_at_all_looks_together(
    draw: Callable[[np.random.Generator], tuple[np.ndarray, float]],
) -> None:
    values, truth = draw(np.random.Generator(np.random.Philox(3)))
    # Three standard errors of 1,500 studies are 1.7 points.
    assert refuted(values, truth).any(axis=1).mean() <= 0.05 + 0.017
    # An interval for one look is not for all of them.
    looks = np.arange(1, LOOKS + 1)
    means = np.cumsum(values, axis=1) / looks
    half = 1.96 * np.sqrt(means * (1 - means) / looks) if draw is yes_or_no else None
    if half is not None:
        assert (np.abs(means - truth) > half)[:, 11:].any(axis=1).mean() > 0.2


def test_bets_and_bounds_say_the_same() -> None:
    values = np.random.Generator(np.random.Philox(4)).beta(5, 2, 200)
    low, high = sequence(values, values) or (0.0, 0.0)
    for guess in np.linspace(0, 1, 501):
        assert refuted(values, guess)[-1] == (guess <= low or guess >= high)
    assert high - low < 0.13


def test_a_bet_sees_no_value_before_it_is_made() -> None:
    values = np.random.Generator(np.random.Philox(5)).random(50)
    other = values.copy()
    other[30:] = 1 - other[30:]
    for up in (True, False):
        assert (capital(values, 0.4, up=up)[:30] == capital(other, 0.4, up=up)[:30]).all()
    gains = [capital(np.array([x]), 0.5, up=True)[0] for x in (0.0, 0.5, 1.0)]
    # The stake is the same whatever comes: what is won at 1 is lost at 0.
    won, even, lost = (np.exp(gain - gains[1]) for gain in (gains[2], gains[1], gains[0]))
    assert won - even == pytest.approx(even - lost)


def test_a_turn_holds_each_stratum_in_its_proportion() -> None:
    assert in_turns("abbaa", {"a": 1, "b": 1}) == [0, 1, 3, 2]
    assert in_turns("aabba", {"a": 2, "b": 1}) == [0, 1, 2]
    # Of a stratum that no turn has, nothing; without one that it needs, nothing at all.
    assert in_turns("axa", {"a": 1, "x": 0}) == [0, 2]
    assert in_turns("aaa", {"a": 1, "b": 1}) == []
    assert in_turns("", {"a": 1}) == []


def test_strata_in_turns_are_read_as_the_evidence_reads_them() -> None:
    draws = np.random.Generator(np.random.Philox(6))
    values = np.clip(draws.normal(np.resize([0.2, 0.4, 0.6, 0.8], 60), 0.05), 0, 1)
    evidence = Evidence(bounds=SCORES, turn=4)
    evidence.add(values.tolist())
    low, high = sequence(values, values, 4) or (0.0, 0.0)
    assert (low, high) == pytest.approx(evidence.interval(0.05), abs=0.0045)
    averages = values.reshape(-1, 4).mean(axis=1)
    rounds = sequence(averages, averages) or (0.0, 0.0)
    assert high - low < 0.6 * (rounds[1] - rounds[0])
    for guess in (low - 0.002, high + 0.002, (low + high) / 2):
        assert (sequential_p(values, values, guess, 4) <= 0.05) == (not low <= guess <= high)


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
        found = sequence(filled(values, 0.0), filled(values, 1.0))
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
    low, high = sequence(filled(values, 0.0), filled(values, 1.0)) or (0.5, 0.5)
    assert low <= 0.4
    assert high >= 0.73
    alike = np.array([0.4, 0.5, 0.7, 0.6, 0.8, 0.6] * 10)
    ends = sequence(alike, alike) or (0.0, 1.0)
    assert low < ends[0] < ends[1] < high


def test_the_p_value_of_a_sequence_holds_at_all_looks_and_agrees_with_its_bounds() -> None:
    draws = np.random.Generator(np.random.Philox(8))
    wrong = 0
    for _ in range(studies := 400):
        values = draws.beta(2, 2, 120)
        wrong += sequential_p(values, values, 0.5) <= 0.05
    assert wrong / studies <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    values = draws.beta(3, 2, 120)
    low, high = sequence(values, values) or (0.5, 0.5)
    for guess in (low - 0.01, high + 0.01):
        assert sequential_p(values, values, guess) <= 0.05
    assert sequential_p(values, values, (low + high) / 2) > 0.05
    assert sequential_p(np.zeros(0), np.zeros(0), 0.5) == 1.0


def test_nothing_seen_says_nothing_and_what_is_no_score_is_refused() -> None:
    none, one = np.zeros(0), np.array([1.0])
    assert sequence(none, none) is None
    assert sequence(one, one) == (0.0, 1.0)
    assert sequence(np.zeros(30), np.ones(30)) == (0.0, 1.0)
    for wrong in (np.array([0.5, 1.2]), np.array([np.nan])):
        with pytest.raises(ValueError, match="0 to 1"):
            sequence(wrong, wrong)


def test_there_is_no_such_interval_where_scores_can_be_below_0(the_report: Report) -> None:
    cell = the_report.cells[0]
    assert anytime_interval(cell) is None
    bounded = replace(cell, suite=type(cell.suite)(**{**_fields(cell.suite), "environment": "costbench"}))
    assert anytime_interval(replace(bounded, prefix=())) is None
    found = anytime_interval(bounded)
    assert found is not None
    assert found[1] == 1.0


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
    missed = refuted(values, 0.5)
    # In the file's order every run is misled.
    assert missed.any(axis=1).mean() <= 0.05 if keyed else missed.any()


def test_the_note_explains_each_method_without_the_others() -> None:
    (note,) = kind_notes([{"kind": "betting"}], [])
    assert note.endswith("betting: for a partial run, valid at every look")
