"""Several servers of one model: which of them a request goes to, and what a lane does while one is slow or away."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from evalkit.client.lanes.health import DOWN_AFTER, DOWN_AFTER_OF_SEVERAL, GIVE_UP_S, LAST_PROBE_OF_SEVERAL_S
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.servers import (
    ANYWHERE,
    MOST_PASSED,
    NOWHERE,
    ServerLoad,
    Ticket,
    Wish,
    belongs,
    chosen,
    may_be_passed,
)
from evalkit.client.lanes.window import FIRST
from evalkit.dialogue import Usage
from evalkit.errors import LaneClosed
from evalkit.spec.model import Limits, ServerSpec
from evalkit.wire.allowance import Allowance
from tests.support.virtual_clock import run_virtual

USAGE = Usage(input=25, output=10)
TWO = (ServerSpec(url="a:1"), ServerSpec(url="b:1"))


def up(in_flight: int, most: float = 16.0, wait_s: float = 0.0) -> ServerLoad:
    return ServerLoad(math.inf if in_flight + 1 > most else wait_s, in_flight, most, down=False)


def down(wait_s: float = 0.0) -> ServerLoad:
    return ServerLoad(wait_s, 0, 16.0, down=True)


@pytest.mark.parametrize(
    ("servers", "cached", "number"),
    [
        ([up(3), up(2), up(4)], NOWHERE, 1),
        ([up(2), up(2)], NOWHERE, 0),
        ([up(3, most=16), up(6, most=64)], NOWHERE, 1),
        ([up(16), up(16)], NOWHERE, NOWHERE),
        ([up(0, wait_s=0.5), up(9)], NOWHERE, 1),
        ([up(0, wait_s=0.5), up(9, wait_s=0.2)], NOWHERE, NOWHERE),
        ([up(2), up(6)], 1, 1),
        ([up(2), up(7)], 1, 0),
        ([up(2), up(16)], 1, 0),
        ([up(2), up(2, wait_s=3.0)], 1, 0),
        ([up(9), up(9), down()], 1, 2),
        ([up(9), up(9), down(wait_s=7.0)], 1, 1),
        ([up(2), down(wait_s=7.0)], 1, 0),
        ([up(5), up(0, most=0.0)], NOWHERE, 0),
    ],
    ids=[
        "the least load",
        "the first of equals",
        "the load is relative to what it may have",
        "all full",
        "one waits for its own limit",
        "all wait",
        "it stays where its prompt is, with a quarter more there",
        "it leaves what is clearly more loaded",
        "nobody waits for a full one",
        "nor for one that is paused",
        "a probe that is due goes first",
        "not before it is due",
        "its server is down",
        "one of which this process has no share",
    ],
)
def test_a_request_goes_to_the_least_load_but_stays_where_its_prompt_is(
    servers: Sequence[ServerLoad], cached: int, number: int
) -> None:
    assert chosen(servers, Wish(cached)) == number


def test_an_attempt_that_failed_is_repeated_elsewhere_where_there_is_room() -> None:
    assert chosen([up(2), up(9)], Wish(failed=0)) == 1
    assert chosen([up(2), up(9)], Wish(cached=0, failed=0)) == 1
    assert chosen([up(2), up(16)], Wish(failed=0)) == 0
    assert chosen([down(), up(9)], Wish(failed=0)) == 1
    assert chosen([down(), down(math.inf)], Wish(failed=0)) == 0


def test_the_first_in_line_lets_others_go_first_only_while_its_own_server_is_just_full() -> None:
    full, free = up(16), up(3)
    assert may_be_passed([full, free], Wish(0), 0)
    assert not may_be_passed([full, free], Wish(0), MOST_PASSED)
    assert not may_be_passed([full, free], Wish(1), 0)
    assert not may_be_passed([full, free], ANYWHERE, 0)
    assert not may_be_passed([down(math.inf), free], Wish(0), 0)
    assert belongs([full, free], Wish(1))
    assert not belongs([full, free], Wish(0))
    assert not belongs([down(), free], Wish(0))


def now() -> float:
    return asyncio.get_running_loop().time()


def sent(lane: Lane, cached: int = NOWHERE) -> Ticket:
    ticket = lane.try_enter(100, 10, Wish(cached))
    assert ticket is not None
    return ticket


def at(tickets: Sequence[Ticket]) -> list[int]:
    return [ticket.server.number for ticket in tickets]


def test_servers_take_turns_and_an_episode_returns_to_its_own() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50, servers=TWO)
        assert at([sent(lane) for _ in range(4)]) == [0, 1, 0, 1]
        assert at([sent(lane, 1) for _ in range(5)]) == [1] * 5
        # With five more of the sixteen, the other one is clearly less loaded.
        assert at([sent(lane, 1)]) == [0]

    run_virtual(main())


def test_each_server_has_limits_of_its_own_and_the_lane_s_hold_for_all() -> None:
    async def main() -> None:
        servers = (ServerSpec(url="a:1", limits=Limits(in_flight=2)), ServerSpec(url="b:1", limits=Limits(in_flight=4)))
        lane = Lane("p/m", limits=Limits(in_flight=5), width=50, servers=servers)
        tickets = [sent(lane) for _ in range(5)]
        assert Counter(at(tickets)) == {0: 2, 1: 3}
        assert lane.try_enter(1, 1) is None  # five are the lane's
        assert lane.stats().servers[1].in_flight == 3
        for ticket in tickets:
            lane.succeeded(ticket, USAGE)
        paced = (ServerSpec(url="a:1", limits=Limits(requests_per_minute=60)), ServerSpec(url="b:1"))
        lane = Lane("p/m", limits=Limits(), width=50, servers=paced)
        assert at([sent(lane) for _ in range(3)]) == [1, 1, 1]
        await asyncio.sleep(1.1)
        assert at([sent(lane), sent(lane)]) == [0, 1]

    run_virtual(main())


def test_one_server_that_refuses_takes_neither_the_others_nor_their_windows_with_it() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(requests_per_minute=6e6), width=50, servers=TWO)
        await asyncio.sleep(1)
        first, second = sent(lane), sent(lane)
        lane.failed(first, "rate_limit", wait_s=30.0)
        assert lane.has_other(first.server)
        assert not lane.has_other(second.server)
        servers = lane.stats().servers
        assert [one.window for one in servers] == [int(0.7 * FIRST), FIRST]
        assert [one.paused_s for one in servers] == [30.0, 0.0]
        assert lane.stats().paused_s == 0.0
        assert at([sent(lane, 0), sent(lane, 0)]) == [1, 1]
        lane.failed(second, "rate_limit", wait_s=20.0)
        assert lane.stats().paused_s == 20.0
        began = now()
        assert at([await lane.enter(1, 1)]) == [1]
        assert now() - began == pytest.approx(20.0)

    run_virtual(main())


def test_a_slow_server_narrows_its_own_window_alone_and_gets_fewer() -> None:
    """Two servers of eight slots: one answers in a second, the other in ten."""
    asked = Counter[int]()

    async def player(lane: Lane) -> None:
        cached = NOWHERE
        while now() < 120:
            ticket = lane.try_enter(100, 10, Wish(cached)) or await lane.enter(100, 10, Wish(cached))
            cached = ticket.server.number
            asked[cached] += 1
            busy = max(1.0, ticket.server.in_flight / 8)
            await asyncio.sleep((1.0, 10.0)[cached] * busy)
            lane.succeeded(ticket, USAGE)

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=24, servers=TWO)
        async with asyncio.TaskGroup() as group:
            for _ in range(24):
                group.create_task(player(lane))
        assert asked[0] > 4 * asked[1] > 0
        assert lane.median_s < 3.0

    run_virtual(main())


def test_a_server_that_dies_is_taken_out_and_comes_back_while_the_lane_goes_on() -> None:
    dead = [(10.0, 130.0)]
    times: dict[int, list[float]] = {0: [], 1: []}
    tried: list[float] = []

    async def ask(lane: Lane, cached: int) -> int:
        for _ in range(9):
            ticket = lane.try_enter(100, 10, Wish(cached)) or await lane.enter(100, 10, Wish(cached))
            number = ticket.server.number
            if number == 1 and any(begin <= now() < end for begin, end in dead):
                tried.append(now())
                await asyncio.sleep(0.001)
                lane.failed(ticket, "connect", message="nobody is there")
                await lane.rest(0.2)
                continue
            await asyncio.sleep(1.0)
            times[number].append(now())
            lane.succeeded(ticket, USAGE)
            return number
        raise AssertionError("all attempts were used up")

    async def episode(lane: Lane) -> None:
        cached = NOWHERE
        while now() < 200:
            cached = await ask(lane, cached)

    async def main() -> None:
        lane = Lane("p/m", limits=Limits(in_flight=16), width=8, servers=TWO)
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(episode(lane))
            await asyncio.sleep(60)
            gone = lane.stats().servers[1]
            assert gone.is_down
            assert gone.down_s == pytest.approx(50.0, abs=1.5)
            assert gone.trouble == "nobody is there"
            assert lane.trouble == ""
            assert not lane.stats().servers[0].is_down
        assert not lane.stats().servers[1].is_down

    run_virtual(main())
    assert len([one for one in tried if one < 12]) <= DOWN_AFTER_OF_SEVERAL + 3  # some had been sent already
    gaps = [later - before for before, later in pairwise(tried)]
    assert max(gaps) == pytest.approx(LAST_PROBE_OF_SEVERAL_S, abs=1.5)
    assert len(tried) < DOWN_AFTER + 5
    outage = [when for when in times[0] if 15 <= when < 130]
    assert len(outage) >= 8 * 115 * 0.9  # nobody waited for the dead one
    assert [when for when in times[1] if when > 162]


def test_the_lane_waits_only_when_all_are_down_and_gives_up_when_all_have_been_for_long() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50, servers=TWO)
        for _ in range(DOWN_AFTER_OF_SEVERAL):
            lane.failed(sent(lane), "connect", message="gone")
        for _ in range(DOWN_AFTER_OF_SEVERAL - 1):
            lane.failed(sent(lane, 1), "connect", message="gone too")
        assert lane.trouble == "gone"  # neither has answered once
        assert lane.try_enter(1, 1) is not None
        await asyncio.sleep(0.5)
        last = sent(lane, 1)
        lane.failed(last, "server_error", message="gone too")
        assert lane.try_enter(1, 1) is None
        began = now()
        probe = await lane.enter(1, 1)
        assert probe.probe
        assert now() - began <= 1.0
        lane.succeeded(probe, USAGE)
        assert at([sent(lane)]) == at([probe])
        for server in (0, 1):
            for _ in range(40):
                ticket = lane.try_enter(1, 1, Wish(server))
                if ticket is None:
                    break
                lane.failed(ticket, "connect", message="gone")

        async def refused() -> None:
            while True:
                lane.failed(await lane.enter(1, 1), "connect", message="gone")

        with pytest.raises(LaneClosed, match="no answer for 15 minutes"):
            await refused()
        assert now() >= GIVE_UP_S

    run_virtual(main())


def test_headers_of_one_server_hold_for_it_alone() -> None:
    async def main() -> None:
        lane = Lane("p/m", limits=Limits(), width=50, servers=TWO)
        first = sent(lane)
        lane.succeeded(first, USAGE)
        lane.apply_allowance(Allowance(limit=60.0, remaining=0.0, reset_s=60.0), None, at=first.server)
        assert at([sent(lane, 0), sent(lane, 0)]) == [1, 1]

    run_virtual(main())


def test_with_more_players_than_room_most_requests_still_find_their_prompt() -> None:
    """All servers are full all the time: what waits first belongs elsewhere mostly, and is passed a few times."""
    found = Counter[bool]()
    waited: list[float] = []

    async def episode(lane: Lane, seed: int) -> None:
        cached = NOWHERE
        for turn in range(30):
            since = now()
            ticket = lane.try_enter(100, 10, Wish(cached)) or await lane.enter(100, 10, Wish(cached))
            waited.append(now() - since)
            if cached != NOWHERE:
                found[cached == ticket.server.number] += 1
            cached = ticket.server.number
            await asyncio.sleep(1.0 + ((seed * 7 + turn * 13) % 10) / 10)
            lane.succeeded(ticket, USAGE)

    async def main() -> None:
        servers = tuple(ServerSpec(url=f"s{n}:1", limits=Limits(in_flight=8)) for n in range(4))
        lane = Lane("p/m", limits=Limits(), width=96, start=32, servers=servers)
        async with asyncio.TaskGroup() as group:
            for seed in range(96):
                group.create_task(episode(lane, seed))

    run_virtual(main())
    assert found[True] > 0.8 * found.total()
    assert max(waited) < 4 * sum(waited) / len(waited)
