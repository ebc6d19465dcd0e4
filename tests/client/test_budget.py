import asyncio
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.budget import Budget
from evalkit.client.budget_state import Ceiling
from evalkit.errors import BudgetReached, EpisodeUnavailable, LaneClosed, RequestTooLarge, StorageError
from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord
from tests.support.virtual_clock import run_virtual


class Disk:
    """A ledger whose commits take a tenth of a second, and which knows what is durable."""

    def __init__(self, *, fails: bool = False) -> None:
        self.entered: list[LedgerRecord] = []
        self.then: list[Callable[[], None] | None] = []
        self.safe = 0
        self.commits = 0
        self.fails = fails

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        self.entered.append(record)
        self.then.append(then)

    async def durable(self) -> None:
        count = len(self.entered)
        await asyncio.sleep(0.1)
        if self.fails:
            raise StorageError("disk full")
        fresh, self.safe = self.then[self.safe : count], max(self.safe, count)
        self.commits += 1
        for then in filter(None, fresh):
            then()

    def total(self, kind: str, *, durable: bool = False) -> int:
        rows = self.entered[: self.safe] if durable else self.entered
        return sum(row.amount for row in rows if row.kind == kind)


def opened(budget: int | None, disk: Disk, spent: int = 0) -> Budget:
    limit = None if budget is None else PicoUsd(budget)
    return Budget(budget=limit, spent=PicoUsd(spent), ledger=disk, session="host:1")


@given(seed=st.integers(0, 10**6), budget=st.integers(500, 20_000), width=st.integers(1, 12))
def test_many_players_never_spend_what_is_not_durably_leased(seed: int, budget: int, width: int) -> None:
    draws = random.Random(seed)
    disk = Disk()
    money = opened(budget, disk)
    in_flight, spent = [0], [0]

    async def player() -> None:
        while True:
            amount = draws.randint(1, 400)
            try:
                await money.reserve(amount)
            except BudgetReached:
                return
            in_flight[0] += amount
            assert spent[0] + in_flight[0] <= disk.total("lease", durable=True) <= budget
            await asyncio.sleep(draws.random())
            in_flight[0] -= amount
            cost = draws.randint(0, amount)
            if draws.random() < 0.1:
                cost = amount
                money.book_charge(amount, lane="l", agent="a", episode="e", step=0, attempt=0, reason="timeout")
            else:
                money.settle(amount, cost)
            spent[0] += cost

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(player())
        money.close()

    run_virtual(main())
    assert money.stats().reserved == 0
    assert money.stats().spent == spent[0] <= budget
    assert disk.total("close") == spent[0]
    assert spent[0] > budget - 400  # it gives up only when the next request really does not fit


def test_those_who_wait_share_one_refill() -> None:
    disk = Disk()
    money = opened(100_000, disk)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(money.reserve(500))

    run_virtual(main())
    assert disk.commits <= 2
    assert [row.amount for row in disk.entered] == [500, 24_500, 25_000], "the last is the next, for whoever comes"
    assert money.stats().reserved == 25_000


def test_a_waiter_is_served_when_another_comes_back_cheaper_than_its_bound() -> None:
    money = opened(100, Disk())
    told: list[float] = []

    async def cheap() -> None:
        await money.reserve(90)
        await asyncio.sleep(5)
        money.settle(90, 10)

    async def late() -> None:
        await asyncio.sleep(1)
        await money.reserve(80)
        told.append(asyncio.get_running_loop().time())

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cheap())
            group.create_task(late())

    run_virtual(main())
    assert told
    assert told[0] >= 5


def test_it_says_so_at_once_when_nothing_in_flight_could_free_enough() -> None:
    money = opened(100, Disk(), spent=50)

    async def main() -> None:
        await money.reserve(40)
        with pytest.raises(BudgetReached, match="raise `--budget`, or `budget_usd` in the sweep"):
            await money.reserve(51)
        assert money.stats().waiting == 0

    run_virtual(main())


def test_a_large_reservation_is_not_overtaken() -> None:
    money = opened(100, Disk())
    order: list[str] = []

    async def ask(name: str, amount: int, after: float) -> None:
        await asyncio.sleep(after)
        await money.reserve(amount)
        order.append(name)

    async def main() -> None:
        await money.reserve(60)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask("large", 90, 1))
            group.create_task(ask("small", 5, 2))
            await asyncio.sleep(3)
            assert not order
            money.settle(60, 0)

    run_virtual(main())
    assert order == ["large", "small"]


@pytest.mark.parametrize("when", [0.0, 0.05, 0.5])
def test_a_cancelled_waiter_leaves_no_reservation_and_lets_the_next_one_go(when: float) -> None:
    disk = Disk()
    money = opened(1_000, disk)

    async def main() -> None:
        await money.reserve(10)
        first = asyncio.ensure_future(money.reserve(900))
        second = asyncio.ensure_future(money.reserve(50))
        await asyncio.sleep(when)
        first.cancel()
        await second
        granted = first.done() and not first.cancelled()
        assert money.stats().reserved == 60 + (900 if granted else 0)
        assert disk.total("lease", durable=True) >= money.stats().reserved

    run_virtual(main())


def test_a_lease_that_cannot_be_written_is_not_spent() -> None:
    money = opened(1_000, Disk(fails=True))

    async def main() -> None:
        with pytest.raises(StorageError):
            await money.reserve(10)
        assert money.stats().reserved == 0

    run_virtual(main())


def test_what_a_reply_spends_beyond_all_leases_is_leased_at_once() -> None:
    """So a crash still costs all that is in flight."""
    disk = Disk()
    money = opened(None, disk)

    async def main() -> None:
        for _ in range(2):
            await money.reserve(100)
            await disk.durable()  # so is the lease that follows
        assert not money.settle(100, 450)

    run_virtual(main())
    assert [row.amount for row in disk.entered] == [100, 100, 200, 150, 100], "the last is a tranche"
    assert disk.total("lease") - money.stats().spent >= money.stats().reserved == 100


def test_a_lease_that_runs_low_is_renewed_before_it_is_used_up() -> None:
    """With the row of the step that runs it low: nobody waits for it."""
    disk, waits = Disk(), list[float]()
    money = opened(10**6, disk)  # a tranche is 1,000

    async def main() -> None:
        await money.reserve(100)
        for _ in range(200):
            money.settle(100, 40)
            await disk.durable()  # of the step
            began = asyncio.get_running_loop().time()
            await money.reserve(100)
            waits.append(asyncio.get_running_loop().time() - began)

    run_virtual(main())
    assert set(waits) == {0.0}
    assert disk.commits == 201, "one a step, and the first lease's"
    assert disk.total("lease") - money.stats().spent <= 100 + 1_000


def test_ending_frees_all_that_wait() -> None:
    money = opened(100, Disk())

    async def main() -> None:
        await money.reserve(100)
        waiting = asyncio.ensure_future(money.reserve(60))
        await asyncio.sleep(1)
        money.end(LaneClosed("stopping"))
        with pytest.raises(LaneClosed):
            await waiting
        with pytest.raises(LaneClosed):
            await money.reserve(1)
        money.settle(100, 30)

    run_virtual(main())
    assert money.stats().spent == 30


def test_without_a_budget_all_is_leased_before_it_is_spent() -> None:
    disk = Disk()
    money = opened(None, disk)
    assert not money.take(10**15)
    run_virtual(money.reserve(10**15))
    assert disk.total("lease", durable=True) == 10**15
    money.book_charge(10**15, lane="l", agent="a", episode="e", step=3, attempt=1, reason="timeout")
    money.close()
    assert [(row.kind, row.amount) for row in disk.entered] == [
        ("lease", 10**15),
        ("lease", 10**15),  # the next, before anybody waits for it
        ("charge", 10**15),
        ("close", 10**15),
    ]
    assert disk.entered[2].step == 3
    assert money.stats().left is None


def test_near_the_end_a_wide_lane_leaves_a_narrow_one_its_turn() -> None:
    """Room for four requests at once; a hundred of one lane and one of the other want it, over and over."""
    money = opened(100_000, Disk())
    done = {"wide": 0, "narrow": 0, "dear": 0}

    async def player(lane: str, amount: int) -> None:
        mine = money.of(lane, lane)
        while asyncio.get_running_loop().time() < 60:
            await mine.reserve(amount)
            await asyncio.sleep(1)
            mine.settle(amount, 1)
            done[lane] += 1

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(player("wide", 25_000))
            group.create_task(player("narrow", 25_000))
            group.create_task(player("dear", 50_000))

    run_virtual(main())
    assert done["narrow"] >= 25
    assert done["dear"] >= 25
    assert done["wide"] >= 25


@given(seed=st.integers(0, 10**6))
def test_whatever_is_left_of_it_nobody_starves_and_nothing_hangs(seed: int) -> None:
    """Three lanes whose worst cases together are far more than what is left; everyone's last word is served or no."""
    draws = random.Random(seed)
    disk = Disk()
    money = opened(draws.randint(1_000, 3_000), disk)
    bounds = {"a": 100, "b": 400, "c": 900}
    served = dict.fromkeys(bounds, 0)

    async def player(lane: str, times: int) -> None:
        mine = money.of(lane, lane)
        for _ in range(times):
            try:
                await mine.reserve(bounds[lane])
            except BudgetReached:
                return
            await asyncio.sleep(draws.random())
            mine.settle(bounds[lane], draws.randint(0, bounds[lane] // 50))
            served[lane] += 1

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for lane in bounds:
                for _ in range(draws.randint(1, 10)):
                    group.create_task(player(lane, 3))

    run_virtual(main())
    assert min(served.values()) > 0
    assert money.stats().reserved == money.stats().waiting == 0
    assert disk.total("lease", durable=True) <= 3_000


def below(money: int, **budgets: int) -> Budget:
    """A run's budget with some of its agents' below it."""
    ceilings = {("agent", name): Ceiling(budget=budget, before=0) for name, budget in budgets.items()}
    return Budget(budget=PicoUsd(money), spent=PicoUsd(0), ledger=Disk(), session="host:1", ceilings=ceilings)


def test_an_agent_that_has_used_up_its_own_budget_hears_of_it_alone() -> None:
    money = below(10_000, a=100)
    mine, other = money.of("l", "a"), money.of("other", "b")

    async def main() -> None:
        await mine.reserve(60)
        waiting = asyncio.ensure_future(mine.reserve(80))
        await asyncio.sleep(1)
        assert not waiting.done()  # the first may come back at no cost
        await asyncio.wait_for(other.reserve(5_000), 1)  # and holds up nobody else
        mine.settle(60, 30)
        with pytest.raises(EpisodeUnavailable, match=r"The budget of agent a \(.* is reached"):
            await waiting
        await mine.reserve(70)
        mine.book_charge(70, lane="l", agent="a", episode="e", step=0, attempt=0, reason="timeout")
        with pytest.raises(EpisodeUnavailable):
            await mine.reserve(1)
        await other.reserve(100)
        other.settle(100, 50)
        assert (money.stats().spent, money.stats().waiting) == (150, 0)
        assert (money.largest("l"), money.largest("other")) == (70, 5_000)

    run_virtual(main())


@pytest.mark.parametrize(
    ("amount", "usual", "raises"),
    [
        (700, 10, RequestTooLarge),  # more than the whole budget
        (450, 10, RequestTooLarge),  # more than what remains of it, and far more than usual
        (450, 200, BudgetReached),  # ordinary chats have grown so far
        (700, 300, RequestTooLarge),  # no budget of this size will ever do for it, but for others
        (700, 450, BudgetReached),  # nothing that is usual fits any more
        (450, 0, BudgetReached),  # unknown what is usual
    ],
)
def test_a_request_out_of_the_ordinary_is_left_alone_while_the_money_does_for_usual_ones(
    amount: int, usual: int, raises: type[Exception]
) -> None:
    async def main() -> None:
        money = opened(500, Disk())
        await money.reserve(100, usual=10)
        money.settle(100, 100)
        with pytest.raises(raises) as caught:
            await money.reserve(amount, usual=usual)
        assert "$4e-10 remain" in str(caught.value)
        await money.reserve(90, usual=10)
        assert money.stats().reserved == 90

    run_virtual(main())


def test_what_is_usual_is_the_median_of_the_lane_where_a_single_giant_changes_little() -> None:
    async def main() -> None:
        money = opened(10_000, Disk()).of("l", "a")
        for amount in [300] * 40 + [5_000] + [300] * 5:
            await money.reserve(amount, usual=100)
            money.settle(amount, 100)
        with pytest.raises(RequestTooLarge):
            await money.reserve(6_000, usual=100)
        with pytest.raises(BudgetReached):  # of this agent's requests many are so large, if not of this episode's
            await opened(1_000, Disk()).reserve(1_200, usual=1_100)

    run_virtual(main())


def test_a_ceiling_leaves_a_request_out_of_the_ordinary_alone_too() -> None:
    async def main() -> None:
        ceiling = Ceiling(budget=500, before=0)
        money = Budget(
            budget=PicoUsd(9_000),
            spent=PicoUsd(0),
            ledger=Disk(),
            session="s",
            ceilings={("agent", "a"): ceiling},
        ).of("l", "a")
        with pytest.raises(RequestTooLarge, match="the budget of agent"):
            await money.reserve(600, usual=10)
        with pytest.raises(EpisodeUnavailable):
            await money.reserve(600, usual=550)

    run_virtual(main())
