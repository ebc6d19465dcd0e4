import itertools
import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalkit.stats.contrasts import CONSTANT, FEW, MANY, NO_DIFFERENCE, flips, paired, signs, welch

# Scores as they are: with few decimals, so that ties occur.
VALUES = st.integers(-200, 1000).map(lambda i: i / 1000)
GROUPS = st.lists(VALUES, min_size=2, max_size=14).filter(lambda group: max(group) > min(group))

BASIC = [1.0, 0.62, 0.71, 0.9, 0.55, 1.0, 0.48, 0.83, 0.77, 0.69, 0.95, 0.38]
HARD = [0.31, 0.42, 0.66, 0.58, 0.2, 0.49, 0.37, 0.71, 0.44, 0.52, 0.6, 0.25]


@given(GROUPS, st.lists(VALUES, min_size=2, max_size=14))
def test_welch_is_scipys(first: list[float], second: list[float]) -> None:
    if max(second) == min(second):
        second = [*second, second[0] + 0.5]
    sides: tuple[tuple[bool, Literal["two-sided", "greater"]], ...] = ((False, "two-sided"), (True, "greater"))
    for greater, alternative in sides:
        want = stats.ttest_ind(first, second, equal_var=False, alternative=alternative)
        got = welch(first, second, greater=greater)
        assert (got.statistic, got.free) == (pytest.approx(want.statistic, abs=1e-12), pytest.approx(want.df))
        assert got.p == pytest.approx(want.pvalue, rel=1e-9)


@given(st.integers(2, 14), st.data())
def test_the_paired_test_is_scipys(n: int, data: st.DataObject) -> None:
    first, second = (data.draw(st.lists(VALUES, min_size=n, max_size=n)) for _ in range(2))
    differences = [a - b for a, b in zip(first, second, strict=True)]
    got = paired(differences)
    if max(differences) - min(differences) < 1e-9:
        assert (got.p, got.why) == (None, CONSTANT)
        return
    want = stats.ttest_rel(first, second)
    assert got.p == pytest.approx(want.pvalue, rel=1e-9)
    assert got.free == n - 1


@given(st.lists(VALUES, min_size=2, max_size=9))
def test_exact_tests_are_their_definitions_read_aloud(differences: list[float]) -> None:
    moved = [value for value in differences if value]
    if not moved:
        assert signs(differences).why == flips(differences).why == NO_DIFFERENCE
        return
    up = sum(value > 0 for value in moved)
    assert signs(differences).p == pytest.approx(stats.binomtest(up, len(moved)).pvalue)
    # In thousandths: whole numbers, so that sums can be compared.
    whole = [round(1000 * value) for value in differences]
    every = [
        abs(sum(s * d for s, d in zip(row, whole, strict=True)))
        for row in itertools.product((1, -1), repeat=len(whole))
    ]
    assert flips(differences).p == pytest.approx(sum(one >= abs(sum(whole)) for one in every) / len(every))


def test_by_hand() -> None:
    assert signs([0.1, 0.2, 0.3, 0.4, 0.5]).p == 2 / 32
    assert signs([0.1, 0.2, -0.3, 0.0]).p == 1.0
    assert flips([0.1, 0.2, 0.3, 0.4]).p == 2 / 16
    assert flips([0.1, -0.1]).p == 1.0
    fall = welch(BASIC, HARD, greater=True)
    rise = welch(HARD, BASIC, greater=True)
    assert fall.p is not None
    assert rise.p is not None
    assert fall.p < 0.05
    assert fall.p + rise.p == pytest.approx(1)
    # One side without spread leaves the test defined.
    assert welch([1.0] * 12, HARD, greater=True).free == pytest.approx(11)


def test_what_is_not_defined_has_no_p_value_and_says_why() -> None:
    assert (welch([1.0], HARD).p, welch([1.0], HARD).why) == (None, FEW)
    assert (welch([1.0, 1.0], [0.5, 0.5]).p, welch([1.0, 1.0], [0.5, 0.5]).why) == (None, CONSTANT)
    assert paired([0.5]).why == signs([0.5]).why == flips([]).why == FEW
    assert paired([0.0, 0.0]).why == CONSTANT
    assert flips([0.01 * (i + 1) for i in range(21)]).why == MANY
    assert signs([0.01 * (i + 1) for i in range(21)]).p == pytest.approx(2 / 2**21)


def test_rounding_makes_no_significance() -> None:
    noise = [0.1 + 0.2 - 0.3, 0.0, 0.3 - 0.1 - 0.2]
    assert any(noise)
    assert paired(noise).why == CONSTANT
    assert signs(noise).why == flips(noise).why == NO_DIFFERENCE
    third = [math.fsum([0.1] * n) / n for n in (3, 7, 9)]
    assert welch(third, [0.1, 0.1]).why == CONSTANT
