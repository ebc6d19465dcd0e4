"""Two thousand episodes at once under virtual time: nobody starves, and no lane hears of another's troubles."""

import asyncio
import gc
from pathlib import Path

import numpy as np
import pytest

from evalkit.client.lanes.window import FIRST
from evalkit.envs.replay import Position
from evalkit.spec.model import Limits
from evalkit.wire.http import HttpResponse
from tests.support.virtual_fleet import LATENCY_S, OK, Fleet, Provides, sail, steady

PAUSE_AT, PAUSE_S = 5.0, 60.0
BOUND = 33 * 10**9
"""Pico-dollars that one request of a fleet is bounded by, nearly."""


def shares(values: list[float]) -> tuple[float, float, float]:
    """Median, 99th percentile, largest."""
    return float(np.median(values)), float(np.quantile(values, 0.99)), max(values)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("limits", "waits"),
    [
        (Limits(), False),
        (Limits(requests_per_minute=240_000, input_tokens_per_minute=60_000_000), True),
        (Limits(in_flight=500), True),
    ],
)
def test_two_thousand_episodes_in_flight_share_fairly(tmp_path: Path, limits: Limits, waits: bool) -> None:
    fleet = Fleet("a", episodes=2_000, width=2_000, length=12, limits=limits)
    sail(tmp_path, fleet)
    assert len(fleet.ended) == 2_000
    assert fleet.most_at_once > 1_000
    median_s, _, slowest_s = shares(fleet.durations)
    assert median_s >= 12 * LATENCY_S
    assert slowest_s <= 1.5 * median_s
    middle_s, late_s, _ = shares(fleet.queue_s)
    assert (middle_s > 0) == waits
    assert late_s <= 2 * middle_s
    if not waits:  # fair, and not slow either: the window doubles
        assert max(fleet.began.values()) < 14 * LATENCY_S


@pytest.mark.exhaustive
def test_episodes_that_begin_late_are_played_like_those_that_began_early(tmp_path: Path) -> None:
    fleet = Fleet("a", episodes=3_000, width=500, length=8)
    sail(tmp_path, fleet)
    median_s, _, slowest_s = shares(fleet.durations)
    assert len(fleet.ended) == 3_000
    assert slowest_s <= 1.5 * median_s


def pausing() -> Provides:
    """A provider that for a moment turns everybody away for a minute."""

    async def answer(now: float) -> HttpResponse:
        if PAUSE_AT <= now < PAUSE_AT + LATENCY_S:
            return HttpResponse(status=429, headers={"retry-after": f"{PAUSE_S:g}"}, body=b"{}")
        return await steady(now)

    return answer


def rate(fleet: Fleet) -> float:
    """Steps per second while the other lane is paused, or would be."""
    begin, end = PAUSE_AT + 1, PAUSE_AT + PAUSE_S
    return sum(begin <= at < end for at in fleet.answered) / (end - begin)


@pytest.fixture(scope="module", params=[None, 55 * BOUND], ids=["no budget", "a budget that binds"])
def budget(request: pytest.FixtureRequest) -> int | None:
    """The second one has room for little more than the requests of both lanes together."""
    found: int | None = request.param
    return found


def both(run: Path, provides: Provides, budget: int | None) -> tuple[float, float]:
    """Steps per second of a lane whose provider is `provides`, and of a steady one beside it."""
    other = Fleet("other", episodes=35, width=35, length=50, provides=provides)
    mine = Fleet("mine", episodes=15, width=15, length=300)
    sail(run, other, mine, budget=budget)
    assert (len(other.ended), len(mine.ended)) == (35, 15)
    return rate(other), rate(mine)


@pytest.mark.exhaustive
def test_a_lane_that_is_paused_for_a_minute_leaves_another_ones_rate_alone(tmp_path: Path, budget: int | None) -> None:
    _, undisturbed = both(tmp_path / "steady", steady, budget)
    paused, beside = both(tmp_path / "paused", pausing(), budget)
    assert paused == 0
    assert undisturbed > 50
    assert abs(beside - undisturbed) < 0.03 * undisturbed


async def locked(now: float) -> HttpResponse:
    """A provider that does not know the key."""
    await asyncio.sleep(LATENCY_S)
    return HttpResponse(status=401, headers={}, body=b'{"error":{"message":"Incorrect API key provided."}}')


def test_a_lane_that_ends_leaves_the_others_to_complete(tmp_path: Path) -> None:
    wrong = Fleet("wrong", episodes=500, width=200, length=5, provides=locked)
    right = Fleet("right", episodes=300, width=100, length=5)
    sail(tmp_path, wrong, right, budget=10**16)
    assert len(right.ended) == 300
    assert right.context is not None
    assert wrong.context is not None
    assert dict(right.context.ended) == {"complete": 300}
    assert wrong.ended == {}
    assert "SOME_KEY" in wrong.context.lane_stop.message
    assert len(wrong.sent) <= FIRST
    assert max(wrong.sent) < LATENCY_S
    assert not right.context.stopping


@pytest.mark.exhaustive
def test_episodes_are_built_lazily_and_forgotten(tmp_path: Path) -> None:
    alive: list[int] = []

    def positions() -> int:
        # By type: asking some objects of other tests for their class has side effects.
        return sum(type(one) is Position for one in gc.get_objects())

    async def counting(now: float) -> HttpResponse:
        await asyncio.sleep(LATENCY_S)
        if now > 1.0 + len(alive):
            alive.append(positions() - others)
        return OK

    gc.collect()
    others = positions()
    fleet = Fleet("a", episodes=4_000, width=100, length=4, provides=counting)
    sail(tmp_path, fleet)
    assert fleet.built == 4_000
    assert fleet.most_at_once <= 100
    assert len(alive) > 20
    assert max(alive) <= 101
