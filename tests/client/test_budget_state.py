from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.budget_state import BudgetState, Ceiling, crash_charge, in_flight_bound


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
        if step.action == "lease":
            assert 0 < step.lease <= budget - before - book.leased
            state.lease(step.lease)
            book.leased += step.lease
            step = state.next(amount)
            assert step.action == "go"
        if step.action == "go":
            assert state.take(amount)
            book.in_flight.append(amount)
        else:
            assert not state.take(amount)
            fits_when_all_is_back_for_nothing = before + sum(book.settled) + amount <= budget
            assert (step.action == "wait") == fits_when_all_is_back_for_nothing
        assert before + sum(book.settled) + sum(book.in_flight) <= before + book.leased <= budget
        assert state.left == budget - before - sum(book.settled) - sum(book.in_flight)


@given(budget=st.integers(1_000, 10**15), amount=st.integers(1, 10**15))
def test_a_lease_is_a_hundredth_of_the_budget_unless_one_request_needs_more(budget: int, amount: int) -> None:
    step = BudgetState(budget=budget, before=0).next(amount)
    if amount > budget:
        assert step.action == "never"
    else:
        assert step.lease == min(budget, max(amount, budget // 100))


@given(budget=st.integers(1, 10**6), room=st.integers(0, 10**5), amounts=st.lists(st.integers(1, 10**5), max_size=30))
def test_those_who_wait_get_leases_of_their_own(budget: int, room: int, amounts: list[int]) -> None:
    """Each at most a hundredth of the budget or one request's bound; together they let all go, or exhaust it."""
    state = BudgetState(budget=budget, before=0)
    state.lease(min(room, budget))
    leases = list(state.leases(amounts))
    assert all(lease <= max(budget // 100, *amounts) for lease in leases)
    assert state.leased == min(room, budget)  # nothing is leased before it is durable
    assert state.leased + sum(leases) <= budget
    if sum(amounts) <= budget:
        assert state.leased + sum(leases) >= sum(amounts)


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


@given(left=st.integers(-5, 10**6), worst_case=st.integers(1, 10**4))
def test_as_many_requests_are_in_flight_as_have_room_for_their_worst_case(left: int, worst_case: int) -> None:
    state = BudgetState(budget=max(0, left), before=0)
    state.lease(max(0, left))
    count = 0
    while count < 300 and state.take(worst_case):
        count += 1
    assert count == min(300, in_flight_bound(left, worst_case))


def test_a_reply_above_its_bound_shrinks_what_may_still_be_leased() -> None:
    state = BudgetState(budget=1_000, before=0)
    state.lease(100)
    assert state.take(100)
    state.settle(100, 700)
    assert state.leasable == 300
    assert state.next(301).action == "never"
    assert state.next(300).lease == 300
    assert state.left == 300


def test_without_a_budget_everything_fits_and_is_still_counted() -> None:
    state = BudgetState(budget=None, before=7)
    assert state.take(10**18)
    state.settle(10**18, 5)
    assert (state.spent, state.reserved, state.left) == (5, 0, None)


@given(
    worst=st.lists(st.integers(0, 1_000), max_size=20),
    share=st.floats(0, 1),
    settled=st.integers(0, 5_000),
    charged=st.integers(0, 500),
    spare=st.integers(0, 5_000),
)
def test_the_crash_charge_covers_whatever_was_in_flight(
    worst: list[int], share: float, settled: int, charged: int, spare: int
) -> None:
    in_flight = worst[: int(len(worst) * share)]
    leased = settled + charged + sum(in_flight) + spare  # the state's invariant
    charge = crash_charge(leased=leased, settled=settled, charged=charged, worst_cases=worst)
    assert sum(in_flight) <= charge <= leased - settled - charged
    assert crash_charge(leased=None, settled=settled, charged=charged, worst_cases=worst) == sum(worst)
