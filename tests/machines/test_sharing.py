"""Parts of a run's money and of its limits: what each worker has, what comes back, and what a dead one keeps."""

import math

import pytest

from evalkit.client.budget import LoanBalance
from evalkit.machines.sharing import FLOOR, SharedBalance, SharedLimit, WorkerBalance, divided

VALID_S = 15.0


def balance(budget: int | None = 10_000, before: int = 0) -> SharedBalance:
    """Of a run with two workers."""
    return SharedBalance(budget=budget, before=before, accounts={"a": WorkerBalance(), "b": WorkerBalance()})


def held(made: SharedBalance) -> int:
    return made.before + sum(account.held for account in made.accounts.values())


def waits(wanted: int, first: int, *, spent: int = 0, lent: int = 0) -> LoanBalance:
    return LoanBalance(spent=spent, reserved=0, lent=lent, wanted=wanted, first=first)


def has(lent: int, *, spent: int = 0, reserved: int = 0, over: int = 0) -> LoanBalance:
    return LoanBalance(spent=spent, reserved=reserved, lent=lent, over=over)


def test_a_worker_gets_what_its_requests_wait_for_or_at_least_the_first_of_them() -> None:
    made = balance(1_000, before=200)
    made.hear("a", waits(900, 300))
    assert made.lend("a", 0) == (400, 400), "an even part, since all of it is not there"
    made.hear("b", waits(300, 300))
    assert made.lend("b", 0) == (300, 300)
    assert held(made) == 900


def test_a_loan_is_a_thousandth_or_for_two_requests_whatever_is_in_flight() -> None:
    made = balance(1_000_000)
    made.hear("a", has(0))
    assert made.lend("a", 400) == (1_000, 1_000)
    made.hear("a", has(1_000, reserved=400))
    assert made.lend("a", 400) == (1_000, 0), "half of it is left"
    made.hear("a", has(1_000, reserved=1_000))
    assert made.lend("a", 700) == (2_400, 1_400)
    made.hear("a", has(2_400, reserved=2_400))
    assert made.lend("a", 0) == (3_400, 1_000)


def test_what_idles_is_called_back_for_the_worker_that_waits_first() -> None:
    made = balance(1_000)
    made.hear("a", waits(900, 900))
    assert made.lend("a", 0) == (900, 900)
    made.hear("b", waits(300, 300))
    assert made.lend("b", 0) == (0, 0)
    made.hear("a", has(900))
    assert made.lend("a", 0) == (0, 0)
    assert made.hear("a", has(0)) == 900
    assert made.lend("b", 0) == (0, 0), "the return is not durable yet"
    made.returned("a", 900)
    assert made.hear("a", has(0)) == 0, "it was heard before"
    assert made.lend("b", 0) == (300, 300)


def test_of_two_that_wait_with_some_money_each_one_gives_way() -> None:
    made = balance(1_000)
    for worker in ("a", "b"):
        made.hear(worker, waits(500, 500))
        assert made.lend(worker, 0) == (500, 500)
    made.hear("a", waits(200, 700, lent=500))
    made.hear("b", waits(200, 700, lent=500))
    assert made.lend("b", 0) == (0, 0), "it gives back what it has"
    made.returned("b", made.hear("b", waits(700, 700)))
    assert made.lend("b", 0) == (0, 0)
    assert made.lend("a", 0) == (700, 200)
    assert held(made) <= 1_000


def test_a_reply_above_its_bound_counts_and_is_not_lent_again() -> None:
    made = balance(1_000)
    made.hear("a", waits(100, 100))
    made.lend("a", 0)
    for _ in range(2):
        assert made.hear("a", has(100, spent=130, over=30)) == 0
    assert held(made) == 130
    made.hear("b", waits(2_000, 100))
    assert made.lend("b", 0) == (435, 435), "half of what is left"


def test_a_dead_worker_keeps_what_it_may_have_spent_and_frees_the_rest() -> None:
    made = balance(1_000)
    made.hear("a", waits(800, 800))
    made.lend("a", 0)
    made.settle("a", 150)
    assert held(made) == 150
    made.hear("b", waits(400, 400))
    made.lend("b", 0)
    made.settle("b", None)
    assert held(made) == 150 + 400, "nobody knows: all that it was lent counts"


def test_a_run_without_a_budget_lends_nothing_and_counts_what_is_spent() -> None:
    made = balance(None, before=5)
    made.hear("a", LoanBalance(spent=70, reserved=20, lent=0, wanted=10, first=10))
    assert made.lend("a", 0) == (0, 0)
    assert (made.spent, made.reserved) == (75, 20)


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


def test_requests_in_flight_are_divided_in_integers() -> None:
    assert divided({"a": 1.0, "b": 9.0}, 5.0, whole=True) == {"a": 1.0, "b": 4.0}
    assert divided({"a": 9.0, "b": 9.0, "c": 9.0}, 5.0, whole=True) == {"a": 1.0, "b": 2.0, "c": 2.0}
    assert divided({"a": 0.0, "b": 1.0}, 1.0, whole=True) == {"a": 0.0, "b": 1.0}
    assert divided({"a": 0.0, "b": 0.0}, 5.0, whole=True) == {"a": 2.0, "b": 3.0}


def test_everybody_has_a_hundredth_or_an_even_part_of_a_limit_that_many_share() -> None:
    few = divided({"a": math.inf, "b": 0.0}, 1000.0)
    many = divided({str(number): 0.0 for number in range(200)}, 1000.0)
    assert few["b"] == pytest.approx(FLOOR * 1000.0)
    assert set(many.values()) == {5.0}


class Sharers:
    """Two workers of a limit that have said nothing yet."""

    def __init__(self, most: float = 100.0, *, whole: bool = False) -> None:
        self.limit = SharedLimit(most, whole=whole)
        for worker in ("a", "b"):
            self.limit.hear(worker, 0.0)

    def tells(self, worker: str, demand: float, now: float, in_flight: float = 0.0) -> float:
        """A worker reports: its part from now on."""
        self.limit.hear(worker, demand, in_flight)
        return self.limit.part(worker, now, now + VALID_S)


def test_what_one_worker_loses_another_gets_once_the_first_has_reported_since() -> None:
    made = Sharers()
    assert made.tells("a", math.inf, 0.0) == pytest.approx(99.0)
    assert made.tells("b", math.inf, 1.0) == pytest.approx(1.0)
    assert made.tells("a", math.inf, 1.0) == pytest.approx(50.0)
    assert made.tells("b", math.inf, 1.1) == pytest.approx(1.0), "a may not have heard yet"
    assert made.tells("a", math.inf, 1.2) == pytest.approx(50.0)
    assert made.tells("b", math.inf, 1.2) == pytest.approx(50.0)


def test_what_a_silent_worker_had_is_free_when_its_time_has_passed() -> None:
    made = Sharers()
    made.tells("a", math.inf, 0.0)
    assert made.tells("b", math.inf, VALID_S - 0.1) == pytest.approx(1.0)
    assert made.tells("b", math.inf, VALID_S + 0.1) == pytest.approx(50.0)


def test_a_worker_that_is_gone_leaves_its_part_at_once() -> None:
    made = Sharers()
    made.tells("a", math.inf, 0.0)
    made.limit.leave("a")
    assert made.tells("b", 0.0, 0.1) == pytest.approx(100.0)


def test_what_is_in_flight_is_not_free_before_it_is_answered() -> None:
    made = Sharers(4.0, whole=True)
    assert made.tells("a", 9.0, 0.0) == 4.0
    assert made.tells("b", 9.0, 0.0) == 0.0
    assert made.tells("a", 9.0, 0.1, in_flight=4.0) == 2.0
    assert made.tells("a", 9.0, 0.2, in_flight=4.0) == 2.0
    assert made.tells("b", 9.0, 0.2) == 0.0, "the first has four in flight, and sends no more"
    made.tells("a", 9.0, 0.3, in_flight=3.0)
    assert made.tells("b", 9.0, 2 * VALID_S) == 1.0, "no time frees what was not answered"
    made.tells("a", 9.0, 2 * VALID_S, in_flight=1.0)
    assert made.tells("b", 9.0, 2 * VALID_S) == 2.0
