"""Leases of a run's money: what is lent, what comes back, and what a dead worker keeps."""

from evalkit.engine.machines.leases import Leases, Pot
from evalkit.engine.machines.messages import RUN, Purse


def leases(budget: int = 10_000, before: int = 0) -> Leases:
    """Of a run with two workers."""
    made = Leases({RUN: Pot(budget=budget, before=before)})
    for worker in ("a", "b"):
        made.join(worker)
    return made


def held(made: Leases) -> int:
    pot = made.pots[RUN]
    return pot.before + sum(account.held for account in pot.accounts.values())


def test_a_worker_gets_what_its_requests_wait_for_or_at_least_the_first_of_them() -> None:
    made = leases(1_000, before=200)
    made.report("a", {RUN: Purse(0, 0, 900, 300)})
    assert made.grants("a", 0.0, 0) == {RUN: 400}, "an even part, since all of it is not there"
    made.report("b", {RUN: Purse(0, 0, 300, 300)})
    assert made.grants("b", 0.0, 0) == {RUN: 300}
    assert held(made) == 900


def test_a_lease_is_for_some_seconds_of_spending_and_at_most_a_thousandth_or_what_is_in_flight() -> None:
    made = leases(1_000_000)
    made.report("a", {RUN: Purse(0, 0)})
    assert made.grants("a", 60.0, 20) == {RUN: 340}
    assert made.grants("a", 10_000.0, 20) == {RUN: 660}, "a thousandth, less what it has"
    made.report("a", {RUN: Purse(0, 1_000)})
    assert made.grants("a", 10_000.0, 20) == {RUN: 1_000}
    made.report("a", {RUN: Purse(0, 2_000)})
    assert made.grants("a", 10_000.0, 20) == {RUN: 2_000}, "as much again as is in flight"


def test_what_idles_is_called_back_for_the_worker_that_waits_first() -> None:
    made = leases(1_000)
    made.report("a", {RUN: Purse(0, 0, 900, 900)})
    assert made.grants("a", 0.0, 0) == {RUN: 900}
    made.report("a", {RUN: Purse(0, 0)})
    made.report("b", {RUN: Purse(0, 0, 300, 300)})
    assert made.grants("b", 0.0, 0) == {}
    assert made.recalls("a") == {RUN: 900}
    assert made.report("a", {RUN: Purse(0, 0, returned=900)}) == 900
    assert made.grants("b", 0.0, 0) == {}, "the return is not durable yet"
    assert made.report("a", {RUN: Purse(0, 0, returned=900)}) == 0, "it was heard before"
    made.returned("a", 900)
    assert made.grants("b", 0.0, 0) == {RUN: 300}
    assert made.leased("a") == {RUN: 900}


def test_of_two_that_wait_with_some_money_each_one_gives_way() -> None:
    made = leases(1_000)
    for worker in ("a", "b"):
        made.report(worker, {RUN: Purse(0, 0, 500, 500)})
        made.grants(worker, 0.0, 0)
    for worker in ("a", "b"):
        made.report(worker, {RUN: Purse(0, 0, 200, 700)})
    assert (made.recalls("a"), made.recalls("b")) == ({}, {RUN: 500})
    made.returned("b", made.report("b", {RUN: Purse(0, 0, 700, 700, 500)}))
    assert made.grants("b", 0.0, 0) == {}
    assert made.grants("a", 0.0, 0) == {RUN: 200}
    assert held(made) <= 1_000


def test_a_reply_above_its_bound_counts_and_is_not_lent_again() -> None:
    made = leases(1_000)
    made.report("a", {RUN: Purse(0, 0, 100, 100)})
    made.grants("a", 0.0, 0)
    for _ in range(2):
        made.report("a", {RUN: Purse(130, 0, over=30)})
    assert held(made) == 130
    assert made.leased("a") == {RUN: 100}, "what it was told stays what it was lent"


def test_a_dead_worker_keeps_what_it_may_have_spent_and_frees_the_rest() -> None:
    made = leases(1_000)
    made.report("a", {RUN: Purse(0, 0, 800, 800)})
    made.grants("a", 0.0, 0)
    made.settle("a", {RUN: 150})
    assert held(made) == 150
    made.join("c")
    made.report("c", {RUN: Purse(0, 0, 400, 400)})
    made.grants("c", 0.0, 0)
    made.settle("c", {})
    assert held(made) == 150 + 400, "nobody knows: all that it was lent counts"


def test_a_run_without_a_budget_lends_nothing_and_counts_what_is_spent() -> None:
    made = Leases({RUN: Pot(budget=None, before=5)})
    made.join("a")
    made.report("a", {RUN: Purse(70, 20, 10, 10)})
    assert (made.grants("a", 1.0, 1), made.leased("a"), made.recalls("a")) == ({}, {}, {})
    assert list(made.spent()) == [(RUN, 75, 20)]


def test_a_return_counts_once_however_often_it_is_told() -> None:
    made = leases(1_000)
    made.report("a", {RUN: Purse(0, 0, 800, 800)})
    made.grants("a", 0.0, 0)
    for told, news in ((300, 300), (300, 0), (500, 200), (500, 0)):
        assert made.report("a", {RUN: Purse(0, 0, returned=told)}) == news
        assert held(made) == 800 - (told - news), "not free before it is durable"
        made.returned("a", news)
    assert held(made) == 300
    assert made.leased("a") == {RUN: 800}, "what a worker is told only grows"


def test_a_return_to_an_agents_own_budget_counts_once_too() -> None:
    made = Leases({RUN: Pot(budget=None, before=0), "agent x": Pot(budget=1_000, before=0)})
    made.join("a")
    made.report("a", {"agent x": Purse(0, 0, 800, 800)})
    made.grants("a", 0.0, 0)
    for _ in range(3):
        made.report("a", {"agent x": Purse(0, 0, returned=300)})
    assert made.pots["agent x"].accounts["a"].held == 500
    assert made.leased("a") == {"agent x": 800}
