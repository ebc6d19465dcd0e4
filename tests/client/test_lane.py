import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.lanes.buckets import PACE
from evalkit.client.lanes.health import DOWN_AFTER, GIVE_UP_S, LAST_PROBE_S
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.servers import Ticket
from evalkit.client.lanes.shared import Pool
from evalkit.client.lanes.window import FIRST
from evalkit.dialogue import Usage
from evalkit.errors import BudgetReached, EpisodeUnavailable, LaneClosed
from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance
from tests.support.virtual_clock import run_virtual

USAGE = Usage(input=25, output=10)


def now() -> float:
    return asyncio.get_running_loop().time()


async def admitted(lane: Lane, body_bytes: int = 100, max_tokens: int = 10) -> Ticket:
    return lane.try_enter(body_bytes, max_tokens) or await lane.enter(body_bytes, max_tokens)


def test_an_unlimited_lane_admits_at_once_until_its_window_is_full() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(in_flight=2), width=50)
        tickets = [lane.try_enter(1, 1) for _ in range(3)]
        assert [ticket is not None for ticket in tickets] == [True, True, False]
        assert tickets[0] is not None
        lane.succeeded(tickets[0], USAGE)
        assert lane.try_enter(1, 1) is not None

    run_virtual(main())


def test_requests_a_minute_are_kept_from_the_first_one_on() -> None:
    sent: list[float] = []

    async def ask(lane: Lane) -> None:
        ticket = await admitted(lane)
        sent.append(now())
        await asyncio.sleep(0.1)
        lane.succeeded(ticket, USAGE)

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(requests_per_minute=120), width=50)
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(ask(lane))

    run_virtual(main())
    assert sent == pytest.approx([0.5 / PACE * (i + 1) for i in range(20)])


@pytest.mark.parametrize("shared", [False, True])
def test_who_waits_for_money_behind_its_admission_keeps_those_behind_it_apart(shared: bool) -> None:
    async def main() -> None:
        limits = Limits(requests_per_minute=60)
        pools = [Pool("p", limits=limits)] if shared else []
        lane = Lane("p/m", limits=Limits() if shared else limits, width=50, shared=pools)
        first = await admitted(lane)
        await asyncio.sleep(0.9 / PACE)
        assert lane.renew(first)
        renewed = now()
        await admitted(lane)
        assert now() - renewed == pytest.approx(1 / PACE)

    run_virtual(main())


@pytest.mark.parametrize("counted", [5, 0], ids=["metered", "unmetered"])
def test_tokens_are_booked_by_estimate_and_corrected_by_usage(counted: int) -> None:
    sent: list[float] = []

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(output_tokens_per_minute=6_000), width=50)
        for _ in range(3):
            ticket = await admitted(lane, max_tokens=1_000)
            sent.append(now())
            lane.succeeded(ticket, Usage(input=counted, output=100))

    run_virtual(main())
    # 1,000 tokens at 98 a second; 900 come back, of which half a second's worth stays; then 100 are expected.
    assert sent == pytest.approx([10.2, 10.7, 11.7], abs=0.1)


def test_a_large_prompt_is_served_in_its_turn_and_small_ones_do_not_overtake_it() -> None:
    order: list[str] = []

    async def ask(lane: Lane, name: str, body_bytes: int) -> None:
        ticket = await admitted(lane, body_bytes)
        order.append(name)
        lane.succeeded(ticket, Usage(input=body_bytes // 4, output=1))

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(input_tokens_per_minute=6_000), width=50)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(lane, "small", 40))
            group.create_task(ask(lane, "large", 400_000))
            for i in range(5):
                group.create_task(ask(lane, f"later {i}", 40))
        assert now() == pytest.approx(1_000.0 / PACE, rel=0.01)

    run_virtual(main())
    assert order == ["small", "large", *(f"later {i}" for i in range(5))]


def test_a_later_retry_after_is_obeyed_by_those_who_wait_already() -> None:
    sent: list[float] = []

    async def ask(lane: Lane) -> None:
        ticket = await admitted(lane)
        sent.append(now())
        lane.succeeded(ticket, USAGE)

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50)
        first, second = await admitted(lane), await admitted(lane)
        lane.failed(first, "rate_limit", wait_s=5.0)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(lane))
            await asyncio.sleep(3)
            lane.failed(second, "rate_limit", wait_s=20.0)
            lane.pause(now() + 1.0)  # an earlier one does not shorten it
            assert lane.stats().paused_s == 20.0

    run_virtual(main())
    assert sent == [23.0]


def test_a_pause_that_is_over_opens_the_lane_without_anybody_waiting() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50)
        lane.pause(2.0)
        assert lane.try_enter(1, 1) is None
        await asyncio.sleep(3)
        assert (await lane.enter(1, 1)).sent_at == 3.0
        assert lane.try_enter(1, 1) is not None

    run_virtual(main())


@given(st.data())
def test_cancelled_waiters_leave_nothing_behind(data: st.DataObject) -> None:
    whens = data.draw(st.lists(st.floats(0, 8), min_size=6, max_size=6))

    async def ask(lane: Lane) -> None:
        ticket = await admitted(lane)
        lane.succeeded(ticket, USAGE)

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(requests_per_minute=60), width=50)
        tasks = [asyncio.ensure_future(ask(lane)) for _ in range(6)]
        for task, when in zip(tasks, whens, strict=True):
            asyncio.get_running_loop().call_at(when, task.cancel)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        served = sum(one is None for one in done)
        assert served == lane.stats().requests
        assert (lane.stats().in_flight, lane.stats().waiting) == (0, 0)
        # Whoever was cancelled took nothing: as many have gone as the rate allows for those who stayed.
        before = now()
        await ask(lane)
        assert now() - before <= 1.0 / PACE + 1e-6

    run_virtual(main())


def test_a_waiter_cancelled_in_the_moment_of_its_admission_gives_its_place_back() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(in_flight=1), width=50)
        held = await admitted(lane)
        waiter = asyncio.ensure_future(lane.enter(1, 1))
        await asyncio.sleep(1)
        lane.succeeded(held, USAGE)  # admits the waiter, whose task has not run yet
        assert lane.stats().in_flight == 1
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert lane.stats().in_flight == 0
        assert lane.try_enter(1, 1) is not None

    run_virtual(main())


def test_refusals_narrow_the_window_and_a_timeout_does_too() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=500)
        for kind in ("rate_limit", "overload", "timeout"):
            before = lane.stats().window
            await asyncio.sleep(1)
            lane.failed(await admitted(lane), kind)
            assert lane.stats().window < before
        assert lane.stats().failures == {"rate_limit": 1, "overload": 1, "timeout": 1}

    run_virtual(main())


def test_a_provider_that_is_down_is_probed_and_not_stormed() -> None:
    attempts: list[float] = []
    served: list[float] = []

    async def ask(lane: Lane) -> None:
        while True:
            ticket = await admitted(lane)
            attempts.append(now())
            await asyncio.sleep(0.01)
            if now() > 300.0:
                lane.succeeded(ticket, USAGE)
                served.append(now())
                return
            lane.failed(ticket, "connect", message="refused")

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=100)
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(ask(lane))
            await asyncio.sleep(100)
            assert lane.stats().trouble
        assert not lane.stats().trouble

    run_virtual(main())
    during = [at for at in attempts if at < 300.0]
    assert FIRST <= len(during) <= FIRST + DOWN_AFTER + 300 / LAST_PROBE_S + 3
    assert len(served) == 100
    assert max(served) < 300.0 + LAST_PROBE_S + 1.0


def test_probes_of_a_provider_that_is_down_keep_the_limit_too() -> None:
    attempts: list[float] = []

    async def ask(lane: Lane) -> None:
        while now() < 600.0:
            ticket = await admitted(lane)
            attempts.append(now())
            await asyncio.sleep(0.01)
            lane.failed(ticket, "connect", message="refused")

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(requests_per_minute=12), width=3)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(ask(lane))
            await asyncio.sleep(100)
            assert lane.stats().trouble

    run_virtual(main())
    assert len(attempts) > 100
    assert max(sum(at <= other < at + 60.0 for other in attempts) for at in attempts) <= 12


def test_only_after_its_bound_does_an_outage_cost_episodes() -> None:
    ended: list[tuple[float, str]] = []

    async def ask(lane: Lane) -> None:
        try:
            while True:
                lane.failed(await admitted(lane), "connect", message="connection refused")
                await asyncio.sleep(0.01)
        except (EpisodeUnavailable, LaneClosed) as flaw:
            ended.append((now(), str(flaw)))

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=20)
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(ask(lane))
        with pytest.raises(LaneClosed, match="Run again"):
            await admitted(lane)
        assert "no answer for 15 minutes" in lane.stats().ended

    run_virtual(main())
    assert len(ended) == 20
    assert all(at >= GIVE_UP_S and "connection refused" in why for at, why in ended)


def test_ending_a_lane_frees_all_who_wait_or_rest() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(in_flight=1), width=50)
        held = await admitted(lane)
        waiting, resting = asyncio.ensure_future(lane.enter(1, 1)), asyncio.ensure_future(lane.rest(1_000))
        await asyncio.sleep(1)
        lane.end(BudgetReached("time is up"))
        for one in (waiting, resting):
            with pytest.raises(BudgetReached, match="time is up"):
                await one
        assert now() == 1.0
        lane.succeeded(held, USAGE)  # what is in flight may come back
        with pytest.raises(BudgetReached):
            await lane.enter(1, 1)
        assert lane.stats().ended == "time is up"

    run_virtual(main())


def test_rest_lasts_as_long_as_asked() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50)
        await lane.rest(7.5)
        assert now() == 7.5

    run_virtual(main())


def test_headers_of_a_limit_nobody_configured_pace_the_lane() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50)
        lane.succeeded(await admitted(lane), USAGE)
        lane.apply_allowance(Allowance(limit=60.0, remaining=0.0, reset_s=60.0), None)
        began = now()
        for _ in range(5):
            await admitted(lane)
        assert now() - began == pytest.approx(5.0)
        lane.apply_allowance(Allowance(limit=60.0, remaining=59.0, reset_s=1.0), None)
        assert lane.try_enter(1, 1) is not None

    run_virtual(main())


def test_statistics_show_rates_and_latency() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=8)
        for _ in range(50):
            ticket = await admitted(lane)
            await asyncio.sleep(0.5)
            assert lane.succeeded(ticket, USAGE) == 0.5
        stats = lane.stats()
        assert stats.requests == 50
        assert stats.requests_per_min == pytest.approx(120.0, rel=0.1)
        assert stats.output_tokens_per_min == pytest.approx(1_200.0, rel=0.1)
        assert stats.median_latency_s == 0.5

    run_virtual(main())


async def seated(lane: Lane, players: int) -> list[asyncio.Task[None]]:
    """So many players who want an episode."""
    tasks = [asyncio.create_task(lane.join()) for _ in range(players)]
    await asyncio.sleep(0)
    return tasks


def joined(tasks: list[asyncio.Task[None]]) -> int:
    return sum(task.done() and not task.cancelled() for task in tasks)


def test_episodes_begin_as_the_window_opens_and_none_has_to_stand_in_line() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=400)
        tasks = await seated(lane, 400)
        counts = []
        for _ in range(3):
            counts.append(joined(tasks))
            tickets = [lane.try_enter(1, 1) for _ in range(joined(tasks))]
            assert None not in tickets
            await asyncio.sleep(1.0)
            for ticket in tickets:
                assert ticket is not None
                lane.succeeded(ticket, USAGE)
            await asyncio.sleep(0)
        assert counts == [16, 32, 64]
        assert joined(tasks) == 128

    run_virtual(main())


def test_at_its_bound_a_lane_lets_in_everybody_who_may_keep_it_full() -> None:
    async def main() -> None:
        tasks = await seated(Lane("p/m", limits=Limits(in_flight=3), width=400), 50)
        assert joined(tasks) == 50

    run_virtual(main())


def test_whoever_leaves_makes_room_for_one_and_whoever_is_cancelled_takes_none() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=400)

        async def player() -> None:
            try:
                await lane.join()
                await asyncio.sleep(10.0)
            finally:
                lane.part()

        tasks = [asyncio.create_task(player()) for _ in range(FIRST + 20)]
        await asyncio.sleep(5.0)
        for task in tasks[FIRST : FIRST + 15]:
            task.cancel()
        await asyncio.sleep(6.0)
        late = await seated(lane, FIRST)
        assert joined(late) == FIRST - 5
        await asyncio.sleep(10.0)
        assert joined(late) == FIRST

    run_virtual(main())


def test_a_lane_that_ends_lets_everybody_in_to_hear_of_it() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=400)
        tasks = await seated(lane, 100)
        assert joined(tasks) == FIRST
        lane.end(LaneClosed("no"))
        await asyncio.sleep(0)
        assert joined(tasks) == 100

    run_virtual(main())
