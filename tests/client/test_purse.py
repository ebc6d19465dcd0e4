from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.purse import Purse, crash_charge


@dataclass
class Book:
    """The money as an auditor would keep it: one entry a fact, nothing derived."""

    budget: int
    before: int
    leased: int = 0
    settled: list[int] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


@given(
    budget=st.integers(1, 10_000),
    before=st.integers(0, 5_000),
    moves=st.lists(st.tuples(st.integers(1, 2_000), st.floats(0, 1), st.booleans()), max_size=80),
)
def test_no_order_of_reservations_and_settlements_passes_the_ceiling(budget, before, moves) -> None:
    before = min(before, budget)
    purse, book = Purse(budget=budget, before=before), Book(budget=budget, before=before)
    for amount, share, settle_first in moves:
        if settle_first and book.in_flight:
            reserved = book.in_flight.pop(0)
            cost = int(reserved * share)
            purse.settle(reserved, cost)
            book.settled.append(cost)
        step = purse.next(amount)
        if step.action == "lease":
            assert 0 < step.lease <= budget - before - book.leased
            purse.lease(step.lease)
            book.leased += step.lease
            step = purse.next(amount)
            assert step.action == "go"
        if step.action == "go":
            assert purse.take(amount)
            book.in_flight.append(amount)
        else:
            assert not purse.take(amount)
            fits_when_all_is_back_for_nothing = before + sum(book.settled) + amount <= budget
            assert (step.action == "wait") == fits_when_all_is_back_for_nothing
        assert before + sum(book.settled) + sum(book.in_flight) <= before + book.leased <= budget
        assert purse.left == budget - before - sum(book.settled) - sum(book.in_flight)


@given(budget=st.integers(1_000, 10**15), amount=st.integers(1, 10**15), behind=st.integers(0, 10**15))
def test_a_lease_is_a_hundredth_of_the_budget_unless_more_is_needed_at_once(budget, amount, behind) -> None:
    step = Purse(budget=budget, before=0).next(amount, behind)
    if amount > budget:
        assert step.action == "never"
    else:
        assert step.lease == min(budget, max(amount + behind, budget // 100))


def test_a_reply_above_its_bound_shrinks_what_may_still_be_leased() -> None:
    purse = Purse(budget=1_000, before=0)
    purse.lease(100)
    assert purse.take(100)
    purse.settle(100, 700)
    assert purse.leasable == 300
    assert purse.next(301).action == "never"
    assert purse.next(300).lease == 300
    assert purse.left == 300


def test_without_a_budget_everything_fits_and_is_still_counted() -> None:
    purse = Purse(budget=None, before=7)
    assert purse.take(10**18)
    purse.settle(10**18, 5)
    assert (purse.spent, purse.reserved, purse.left) == (5, 0, None)


@given(
    worst=st.lists(st.integers(0, 1_000), max_size=20),
    share=st.floats(0, 1),
    settled=st.integers(0, 5_000),
    charged=st.integers(0, 500),
    spare=st.integers(0, 5_000),
)
def test_the_crash_charge_covers_whatever_was_in_flight(worst, share, settled, charged, spare) -> None:
    in_flight = worst[: int(len(worst) * share)]
    leased = settled + charged + sum(in_flight) + spare  # the purse's invariant
    charge = crash_charge(leased=leased, settled=settled, charged=charged, worst_cases=worst)
    assert sum(in_flight) <= charge <= leased - settled - charged
    assert crash_charge(leased=None, settled=settled, charged=charged, worst_cases=worst) == sum(worst)
