import asyncio

import pytest

from evalkit.client.lanes.buckets import PACE
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.shared import LONGEST_PAUSE_S, Pool
from evalkit.dialogue import Usage
from evalkit.errors import LaneClosed
from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance
from tests.support.virtual_clock import run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


def lanes(limits: Limits, count: int = 2, *, own: Limits | None = None, inner: Pool | None = None) -> list[Lane]:
    """So many lanes that share limits; the first two share `inner` as well."""
    pool = Pool("p", limits=limits)
    pools = [(inner, pool) if inner is not None and i < 2 else (pool,) for i in range(count)]
    return [Lane(f"p/{i}", limits=own or Limits(), width=500, shared=pools[i]) for i in range(count)]


async def ask(lane: Lane, sent: list[str], body_bytes: int = 40) -> None:
    ticket = lane.try_enter(body_bytes, 10) or await lane.enter(body_bytes, 10)
    sent.append(lane.name)
    await asyncio.sleep(0.1)
    lane.succeeded(ticket, Usage(input=body_bytes // 4, output=1))


async def ask_all(many: list[tuple[Lane, int]], sent: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for lane, count in many:
            for _ in range(count):
                group.create_task(ask(lane, sent))


def test_lanes_take_turns_and_the_sum_keeps_the_limit() -> None:
    sent: list[str] = []

    async def main() -> None:
        one, two = lanes(Limits(requests_per_minute=60))
        await ask_all([(one, 50), (two, 5)], sent)
        assert now() == pytest.approx(55 / PACE + 0.1)
        assert one.stats().waits_for == ""

    run_virtual(main())
    assert sent[:11].count("p/1") == 5


def test_lanes_of_a_group_have_each_as_much_as_one_outside_it_where_all_share_a_limit() -> None:
    sent: list[str] = []

    async def main() -> None:
        inner = Pool("p: small", limits=Limits(requests_per_minute=6_000))
        three = lanes(Limits(requests_per_minute=60), 3, inner=inner)
        await ask_all([(lane, 10) for lane in three], sent)

    run_virtual(main())
    assert sorted(sent[:15].count(f"p/{i}") for i in range(3)) == [5, 5, 5]


def test_a_group_that_waits_for_its_own_limit_holds_up_nobody_outside() -> None:
    sent: list[str] = []

    async def main() -> None:
        inner = Pool("p: small", limits=Limits(requests_per_minute=6))
        one, two, outside = lanes(Limits(requests_per_minute=600), 3, inner=inner)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_all([(one, 5), (two, 5)], sent))
            await ask_all([(outside, 90)], [])
            assert now() < 90 / 10 / PACE + 1.0
            assert one.stats().waits_for == "requests/min, shared limit of p: small"

    run_virtual(main())
    assert len(sent) == 10


def test_a_long_prompt_is_not_starved_by_the_short_ones_of_other_lanes() -> None:
    sent: list[str] = []

    async def main() -> None:
        one, two, three = lanes(Limits(input_tokens_per_minute=6_000), 3)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_all([(one, 300), (three, 300)], sent))
            await asyncio.sleep(1.0)
            await ask(two, sent, body_bytes=40_000)
            assert now() < 1.0 + 10_000 / 100 / PACE + 2.0

    run_virtual(main())
    assert len(sent) == 601


def test_whoever_is_cancelled_while_it_stands_leaves_nothing_behind() -> None:
    async def main() -> None:
        one, two = lanes(Limits(requests_per_minute=60))
        sent: list[str] = []
        gone = [asyncio.ensure_future(ask(one, sent)) for _ in range(20)]
        await asyncio.sleep(0.5)
        for task in gone:
            task.cancel()
        await ask(two, sent)
        assert now() == pytest.approx(1 / PACE + 0.1)
        assert sent == ["p/1"]
        assert (one.stats().in_flight, one.stats().waiting) == (0, 0)

    run_virtual(main())


def test_requests_in_flight_are_bounded_together() -> None:
    async def main() -> None:
        one, two = lanes(Limits(in_flight=3))
        tickets = [one.try_enter(1, 1), one.try_enter(1, 1), two.try_enter(1, 1)]
        assert None not in tickets
        assert two.try_enter(1, 1) is None
        waiting = asyncio.ensure_future(two.enter(1, 1))
        await asyncio.sleep(1.0)
        assert two.stats().waits_for == "requests in flight, shared limit of p"
        assert tickets[0] is not None
        one.succeeded(tickets[0], Usage(input=1, output=1))
        await asyncio.sleep(0.0)
        assert (await waiting).sent_at == 1.0

    run_virtual(main())


@pytest.mark.parametrize(("said_s", "paused_s"), [(5.0, 5.0), (3_600.0, LONGEST_PAUSE_S)])
def test_a_refusal_of_one_lane_pauses_those_it_shares_with_for_a_minute_at_most(said_s: float, paused_s: float) -> None:
    async def main() -> None:
        one, two = lanes(Limits(requests_per_minute=600))
        ticket = await one.enter(1, 1)
        began = now()
        one.failed(ticket, "rate_limit", wait_s=said_s)
        assert two.try_enter(1, 1) is None
        assert (await two.enter(1, 1)).sent_at - began == pytest.approx(paused_s, abs=0.2)

    run_virtual(main())


def test_headers_lower_the_limit_they_speak_of() -> None:
    async def main() -> None:
        one, two = lanes(Limits(requests_per_minute=600), own=Limits(requests_per_minute=300))
        await asyncio.sleep(10.0)
        one.apply_allowance(Allowance(limit=600.0, remaining=0.0, reset_s=60.0), None)
        assert two.try_enter(1, 1) is None
        await asyncio.sleep(10.0)
        one.apply_allowance(Allowance(limit=300.0, remaining=0.0, reset_s=60.0), None)
        assert two.try_enter(1, 1) is not None
        assert one.try_enter(1, 1) is None

    run_virtual(main())


def test_a_lane_that_ended_stands_in_nobodys_way() -> None:
    async def main() -> None:
        one, two = lanes(Limits(in_flight=1))
        ticket = two.try_enter(1, 1)
        assert ticket is not None
        waiting = asyncio.ensure_future(one.enter(1, 1))
        await asyncio.sleep(0.0)
        one.end(LaneClosed("over"))
        two.succeeded(ticket, Usage(input=1, output=1))
        assert two.try_enter(1, 1) is not None
        with pytest.raises(LaneClosed, match="over"):
            await waiting

    run_virtual(main())


def test_what_a_lane_waits_for_is_said() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(requests_per_minute=6, in_flight=2), width=50, trial=True)
        seats = [asyncio.ensure_future(lane.join()) for _ in range(6)]
        await asyncio.sleep(0.0)
        assert lane.stats().waits_for == "first valid action"
        lane.acted()
        await asyncio.gather(*seats)
        first = [asyncio.ensure_future(lane.enter(1, 1)) for _ in range(3)]
        await asyncio.sleep(1.0)
        assert lane.stats().waits_for == "requests/min"
        lane.pause(5.0)
        assert lane.stats().waits_for == "pause that its provider asked for"
        await asyncio.sleep(30.0)
        assert lane.stats().waits_for == "requests in flight"
        for task in first:
            task.cancel()

    run_virtual(main())
