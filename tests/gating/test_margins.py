"""The tests of a gate: what answers them, and how often they are wrong."""

import math

import numpy as np
import pytest

from bench.calibrations import gate as simulated
from bench.calibrations.deciding import cells
from bench.calibrations.deciding_shapes import SHAPES
from evalkit.stats.gating import MarginTest, draws_to_answer, exceeded

ALPHA, MARGIN = 0.05, 0.1
STUDIES, DRAWS = 40, 150


def judged(draws: list[float], *, tests: int = 1, margin: float = MARGIN) -> MarginTest:
    test = MarginTest(margin=margin, alpha=ALPHA, tests=tests)
    test.add(draws)
    return test


def test_how_draws_come_together_changes_nothing() -> None:
    draws = np.random.default_rng(1).normal(0.05, 0.2, 150).clip(-1, 1).tolist()
    whole, torn = judged(draws), MarginTest(margin=MARGIN, alpha=ALPHA, tests=1)
    for first in range(0, 150, 7):
        torn.add(draws[first : first + 7])
    assert torn.answered == whole.answered
    assert torn.interval == whole.interval
    assert torn.mean == whole.mean


@pytest.mark.parametrize(("difference", "word"), [(0.0, "not worse"), (0.05, "not worse"), (-0.03, "not worse")])
def test_constant_differences_above_half_the_margin_are_not_worse(difference: float, word: str) -> None:
    at, said = judged([difference] * 400).answered
    assert said == word
    assert 0 < at <= 400


@pytest.mark.parametrize("difference", [-0.08, -0.1, -0.5])
def test_constant_differences_below_are_worse(difference: float) -> None:
    assert judged([difference] * 400).answered[1] == "worse"


def test_more_tests_make_worse_harder_to_show_and_not_worse_no_harder() -> None:
    assert judged([-0.5] * 60, tests=8).answered[0] > judged([-0.5] * 60).answered[0] > 0
    assert judged([0.0] * 200, tests=8).answered == judged([0.0] * 200).answered


def test_the_forecast_is_what_draws_like_these_take() -> None:
    for draws in ([0.0] * 50, [-0.4] * 50):
        at, _ = judged(draws * 10).answered
        assert draws_to_answer(draws, margin=MARGIN, alpha=ALPHA, tests=1) == pytest.approx(at, abs=1)
    assert math.isinf(draws_to_answer([], margin=MARGIN, alpha=ALPHA, tests=1))


def test_a_share_is_beyond_its_limit_only_if_that_is_shown() -> None:
    assert not exceeded([], 0.1, alpha=ALPHA, tests=1)
    assert not exceeded([1.0], 0.1, alpha=ALPHA, tests=1000)
    assert exceeded([1.0] * 20, 0.1, alpha=ALPHA, tests=3)
    assert not exceeded([0.1] * 1000, 0.1, alpha=ALPHA, tests=3)


@pytest.mark.parametrize("turn", [1, 5])
def test_the_simulated_rule_is_this_one(turn: int) -> None:
    draws = np.random.default_rng(3).normal([[-0.2], [0.2], [-0.05]] * 4, 0.2, (12, 150)).clip(-1, 1)
    found = simulated.ended(draws, margin=MARGIN, tests=3, turn=turn, centred=turn > 1)
    for one, at, word in zip(draws, found.draws, found.answer, strict=True):
        test = MarginTest(margin=MARGIN, alpha=ALPHA, tests=3, turn=turn, centred=turn > 1)
        test.add(one.tolist())
        assert test.answered == (0 if math.isinf(at) else at, word)
    assert {*found.answer} >= {"worse", "not worse"}


PAGE = simulated.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", simulated.STUDIES)
def test_the_page_has_each_table_and_no_verdict_is_wrong_too_often(name: str) -> None:
    studies, rows = cells(PAGE, name)
    assert studies == simulated.STUDIES[name]
    wrong = {"gates": (1, 2), "several": (1, 2), "hours": (2, 3)}.get(name, ())
    for row in rows:
        for place in wrong if row[0] != "stored" else ():
            # Three standard errors of so many studies.
            assert float(row[place]) <= 5 + 300 * (0.05 * 0.95 / studies) ** 0.5
    assert name != "hours" or max(float(row[2]) for row in rows if row[0] == "stored") > 20


def test_a_quick_try_agrees_with_the_page() -> None:
    assert simulated.least_table(1).splitlines()[2:] == [
        "| " + " | ".join(row) + " |" for row in cells(PAGE, "least")[1]
    ]
    shown = {row[0]: row[1:] for row in cells(PAGE, "gates")[1]}
    for shape in SHAPES[:1]:
        mine, theirs = simulated.gates_row(shape, 40)[1:], shown[shape.name]
        for got, wanted in ((mine[3], theirs[3]), (mine[5], theirs[5])):
            assert float(got) == pytest.approx(float(wanted), rel=0.2)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(("mean", "wrong"), [(0.0, "worse"), (-MARGIN, "not worse")])
def test_wrong_answers_are_rarer_than_alpha(mean: float, wrong: str) -> None:
    """Yes and no: draws are -1, 0 and 1. The tables of docs/gate.md have many more studies."""
    chance = np.random.default_rng(7)
    found = 0
    for _ in range(STUDIES):
        draws = chance.choice([-1.0, 0.0, 1.0], DRAWS, p=[0.2 - mean / 2, 0.6, 0.2 + mean / 2])
        found += judged(draws.tolist()).answered[1] == wrong
    # With a share of just alpha, more than this is seen in fewer than one of ten thousand such tests.
    assert found <= ALPHA * STUDIES + 4 * math.sqrt(ALPHA * STUDIES)
