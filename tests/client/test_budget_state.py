from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.budget_state import LEASE_PARTS, BudgetState, Ceiling


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
def test_no_order_of_reservations_and_settlements_passes_the_ceiling(
    budget: int, before: int, moves: list[tuple[int, float, bool]]
) -> None:
    before = min(before, budget)
    state, book = BudgetState(budget=budget, before=before), Book(budget=budget, before=before)
    for amount, share, settle_first in moves:
        if settle_first and book.in_flight:
            reserved = book.in_flight.pop(0)
            cost = int(reserved * share)
            state.settle(reserved, cost)
            book.settled.append(cost)
        step = state.next(amount)
        if step == "lease":
            lease = state.lease_for([amount])
            assert 0 < lease <= budget - before - book.leased
            state.lease(lease)
            book.leased += lease
            step = state.next(amount)
            assert step == "go"
        if step == "go":
            assert state.take(amount)
            book.in_flight.append(amount)
        else:
            assert not state.take(amount)
            fits_when_all_is_back_for_nothing = before + sum(book.settled) + amount <= budget
            assert (step == "wait") == fits_when_all_is_back_for_nothing
        assert before + sum(book.settled) + sum(book.in_flight) <= before + book.leased <= budget
        assert state.left == budget - before - sum(book.settled) - sum(book.in_flight)


@given(budget=st.integers(1_000, 10**15), amount=st.integers(1, 10**15))
def test_a_lease_is_a_part_of_the_budget_unless_one_request_needs_more(budget: int, amount: int) -> None:
    state = BudgetState(budget=budget, before=0)
    step = state.next(amount)
    if amount > budget:
        assert step == "never"
    else:
        assert state.lease_for([amount]) == min(budget, max(amount, budget // LEASE_PARTS))


@given(
    budget=st.one_of(st.none(), st.integers(1, 10**6)),
    out=st.integers(0, 10**5),
    amounts=st.lists(st.integers(1, 10**5), max_size=30),
)
def test_one_lease_lets_all_go_who_wait_and_is_as_large_as_what_is_in_flight(
    budget: int | None, out: int, amounts: list[int]
) -> None:
    state, most = BudgetState(budget=budget, before=0), 10**18 if budget is None else budget
    state.lease(min(out, most))
    assert state.take(min(out, most))
    lease = state.lease_for(amounts)
    assert state.leased == min(out, most)  # nothing is leased before it is durable
    assert state.leased + lease <= most
    whole = max(sum(amounts), (budget or 0) // LEASE_PARTS, state.reserved)
    assert lease <= whole
    state.lease(lease)
    for amount in amounts:  # in order; the first that the budget has no room for ends it
        if not state.take(amount):
            assert state.leased + amount - state.room > most
            return
    assert lease == min(whole, most - min(out, most))


def test_a_ceiling_has_room_for_what_is_neither_spent_nor_in_flight() -> None:
    ceiling = Ceiling(budget=100, before=20)
    ceiling.reserved += 50
    assert (ceiling.fits(30), ceiling.fits(31), ceiling.hopeless(80), ceiling.hopeless(81)) == (
        True,
        False,
        False,
        True,
    )
    ceiling.settle(50, 10)
    assert (ceiling.fits(70), ceiling.hopeless(71)) == (True, True)


def test_a_reply_above_its_bound_shrinks_what_may_still_be_leased() -> None:
    state = BudgetState(budget=1_000, before=0)
    state.lease(100)
    assert state.take(100)
    assert state.settle(100, 700) == 600, "it is leased now"
    assert (state.leased, state.room) == (700, 0)
    assert state.leasable == 300
    assert state.next(301) == "never"
    assert state.lease_for([300]) == 300
    assert state.left == 300


def test_without_a_budget_everything_can_be_leased_and_is_still_counted() -> None:
    state = BudgetState(budget=None, before=7)
    assert not state.take(10**18)
    assert state.lease_for([10**18]) == 10**18
    state.lease(10**18)
    assert state.take(10**18)
    assert state.settle(10**18, 5) == 0
    assert (state.spent, state.reserved, state.left) == (5, 0, None)
