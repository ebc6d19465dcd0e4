"""`check_each` tells of every case that fails, by name, and takes no group without a case for a passed one."""

import pytest

from tests.support.each_case import check_each


def positive(number: int) -> None:
    assert 1 / number > 0


def test_all_cases_are_tried_and_each_that_fails_is_named() -> None:
    seen: list[int] = []
    cases = [("one", 1), ("none", 0), ("two", 2), ("below", -4), ("three", 3)]
    with pytest.raises(ExceptionGroup, match=r"2 of 5 cases failed: none, below") as raised:
        check_each(cases, lambda number: seen.append(number) or positive(number))
    assert seen == [1, 0, 2, -4, 3]
    division, assertion = raised.value.exceptions
    assert (type(division), division.__notes__) == (ZeroDivisionError, ["in the case none"])
    assert (type(assertion), assertion.__notes__) == (AssertionError, ["in the case below"])


def test_cases_that_hold_say_nothing() -> None:
    check_each([(number, number) for number in (1, 2)], positive)


def test_a_group_without_a_case_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        check_each([], positive)
