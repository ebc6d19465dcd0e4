"""What is forecast before the first draw is what simulated runs take."""

import math

import numpy as np
import pytest

from bench.calibrations.deciding import ended
from bench.calibrations.deciding_shapes import yes_no_pairs
from evalkit.stats.deciding import SupposedDifference, answered, graded, least_draws, reach


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(
    ("supposed", "answer"),
    [
        (graded(0.0, 0.13), "equal"),
        (graded(0.02, 0.13), "above"),
        (graded(-0.05, 0.13), "below"),
        (graded(0.1, 0.13), "above"),
        (yes_no_pairs(0.1, 0.34), "above"),
        (yes_no_pairs(-0.2, 0.5), "below"),
    ],
)
def test_a_forecast_is_somewhat_too_long(supposed: SupposedDifference, answer: str) -> None:
    said = reach(supposed, margin=0.02, alpha=0.05)
    assert said.answer == answer
    draws = np.random.Generator(np.random.Philox(1))
    most = int(said.nine_tenths * 1.3)
    found = ended(draws.choice(np.array(supposed.values), p=supposed.weights, size=(250, most)))
    half, nine_tenths = (float(np.quantile(found.draws, share, method="higher")) for share in (0.5, 0.9))
    # A quantile of 250 studies is itself known to some percent.
    assert 0.93 <= said.half / half <= 1.45
    assert 0.9 <= said.nine_tenths / nine_tenths <= 1.45
    assert (found.answer == answer).mean() > 0.85


def test_surer_answers_and_smaller_differences_take_more() -> None:
    sizes = [reach(graded(gap, 0.13), margin=0.02, alpha=0.05).half for gap in (0.1, 0.05, 0.02)]
    assert sizes == sorted(sizes)
    assert reach(graded(0.05, 0.13), margin=0.02, alpha=0.05 / 28).half > sizes[1]


def test_what_a_few_instances_cannot_answer() -> None:
    # The least that answers anything, and the most that would: nine draws of the greatest difference.
    assert (least_draws(0.05), least_draws(0.05 / 28)) == (9, 15)
    sure = np.ones((1, 9))
    assert ended(sure).draws[0] == 9
    shares = answered(graded(0.05, 0.13), 12, margin=0.02, alpha=0.05)
    assert sum(shares.values()) < 1e-6
    assert answered(graded(0.05, 0.13), 0, margin=0.02, alpha=0.05) == {"above": 0.0, "below": 0.0, "equal": 0.0}
    assert answered(graded(0.05, 0.13), 400, margin=0.02, alpha=0.05)["above"] > 0.99


def test_what_is_never_answered_says_so() -> None:
    said = reach(yes_no_pairs(0.0002, 0.5), margin=0.0001, alpha=0.05)
    assert (said.answer, said.nine_tenths) == ("undecided", math.inf)


def test_what_cannot_be_supposed_is_refused() -> None:
    with pytest.raises(ValueError, match="no draws from -1 to 1"):
        graded(0.95, 0.13)
    with pytest.raises(ValueError, match=r"cannot make a difference of 0\.4"):
        yes_no_pairs(0.4, 0.3)
    assert yes_no_pairs(0.1, 0.3).mean == pytest.approx(0.1)


def test_a_suite_played_once_is_known_by_its_end_and_sooner_than_such_instances() -> None:
    supposed = graded(0.1, 0.25)
    such, once = (reach(supposed, margin=0.02, alpha=0.05, total=total) for total in (0, 100))
    # The table `sizes` of docs/deciding.md has what simulated runs take.
    assert (round(once.half), once.answer) == (55, "above")
    assert once.half < such.half
    assert reach(graded(0.0, 0.25), margin=0.02, alpha=0.05, total=12).nine_tenths == 12
    assert answered(supposed, 100, margin=0.02, alpha=0.05, total=100)["above"] == 1.0
    many = reach(supposed, margin=0.02, alpha=0.05, total=1_000_000)
    assert (many.half, many.nine_tenths) == pytest.approx((such.half, such.nine_tenths), rel=0.02)
