"""Shares of limits: how they are divided, and when what one worker loses is another's."""

import math

import pytest

from evalkit.engine.machines.shares import FLOOR, Capacity, Shares, divided

LIMIT = "requests lane m"
VALID_S = 15.0


def shares(most: float = 100.0, *, whole: bool = False) -> Shares:
    """Of one limit, with two workers that have said nothing yet."""
    made = Shares({LIMIT: Capacity(most=most, whole=whole)}, valid_s=VALID_S)
    for worker in ("a", "b"):
        made.join(worker)
    return made


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ({"a": 0.0, "b": 0.0}, {"a": 50.0, "b": 50.0}),
        ({"a": math.inf, "b": math.inf}, {"a": 50.0, "b": 50.0}),
        ({"a": math.inf, "b": 10.0}, {"a": 90.0, "b": 10.0}),
        ({"a": math.inf, "b": 0.0}, {"a": 99.0, "b": 1.0}),
        ({"a": 10.0, "b": 20.0}, {"a": 45.0, "b": 55.0}),
        ({"a": 200.0, "b": 30.0, "c": math.inf}, {"a": 35.0, "b": 30.0, "c": 35.0}),
    ],
)
def test_nobody_gets_more_than_it_demands_while_another_lacks_something(
    demands: dict[str, float], expected: dict[str, float]
) -> None:
    assert divided(demands, 100.0) == pytest.approx(expected)


def test_everybody_has_a_hundredth_or_an_even_part_of_a_limit_that_many_share() -> None:
    few = divided({"a": math.inf, "b": 0.0}, 1000.0)
    many = divided({str(number): 0.0 for number in range(200)}, 1000.0)
    assert few["b"] == pytest.approx(FLOOR * 1000.0)
    assert set(many.values()) == {5.0}


def test_what_one_worker_loses_another_gets_once_the_first_has_confirmed() -> None:
    made = shares()
    made.wants("a", {LIMIT: math.inf})
    first, alone = made.share("a", 0.0)
    assert alone[LIMIT] == pytest.approx(99.0)
    made.confirm("a", first)
    made.wants("b", {LIMIT: math.inf})
    assert made.share("b", 1.0)[1][LIMIT] == pytest.approx(1.0)
    second, less = made.share("a", 1.0)
    assert less[LIMIT] == pytest.approx(50.0)
    assert made.share("b", 1.1)[1][LIMIT] == pytest.approx(1.0), "a may not have heard yet"
    made.confirm("a", second)
    assert made.share("b", 1.2)[1][LIMIT] == pytest.approx(50.0)


def test_what_a_silent_worker_had_is_free_when_its_time_has_passed() -> None:
    made = shares()
    made.wants("a", {LIMIT: math.inf})
    made.share("a", 0.0)
    made.wants("b", {LIMIT: math.inf})
    assert made.share("b", VALID_S - 0.1)[1][LIMIT] == pytest.approx(1.0)
    assert made.share("b", VALID_S + 0.1)[1][LIMIT] == pytest.approx(50.0)


def test_a_worker_that_is_gone_leaves_its_share_at_once() -> None:
    made = shares()
    made.wants("a", {LIMIT: math.inf})
    made.share("a", 0.0)
    made.leave("a")
    assert made.share("b", 0.1)[1][LIMIT] == pytest.approx(100.0)


def test_requests_in_flight_are_divided_in_integers() -> None:
    made = shares(5.0, whole=True)
    made.wants("a", {LIMIT: 1.0})
    made.wants("b", {LIMIT: 9.0})
    parts = {worker: made.share(worker, 0.0)[1][LIMIT] for worker in ("b", "a")}
    assert parts == {"a": 1.0, "b": 4.0}


def test_what_is_in_flight_is_not_free_before_it_is_answered() -> None:
    made = shares(4.0, whole=True)
    made.wants("a", {LIMIT: 9.0})
    first, alone = made.share("a", 0.0)
    assert alone[LIMIT] == 4.0
    made.wants("b", {LIMIT: 9.0})
    made.uses("a", {LIMIT: 4.0})
    made.confirm("a", first)
    second, less = made.share("a", 0.1)
    assert less[LIMIT] == 2.0
    made.confirm("a", second)
    assert made.share("b", 0.2)[1][LIMIT] == 0.0, "the first has four in flight, and sends no more"
    made.uses("a", {LIMIT: 3.0})
    assert made.share("b", 2 * VALID_S)[1][LIMIT] == 1.0, "no time frees what was not answered"
    made.uses("a", {LIMIT: 1.0})
    made.share("a", 2 * VALID_S)
    assert made.share("b", 2 * VALID_S)[1][LIMIT] == 2.0
