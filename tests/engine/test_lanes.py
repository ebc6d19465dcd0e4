"""Limits used fully and never broken, under virtual time and through the whole engine: minutes of a provider that
counts, that goes away and comes back, that only slows down, or whose model never acts."""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.client.lanes.slow_start import BARREN_EPISODES, TRIAL_EPISODES
from evalkit.serve import limits as served
from evalkit.spec.model import Limits, SharedLimits
from evalkit.wire.http import HttpResponse
from tests.support.virtual_fleet import OK, USAGE, Fleet, Provides, sail, says

RPM = 600
REPLY_S = 1.0
BUSY = Limits(requests_per_minute=RPM)
REFUSED = HttpResponse(status=429, headers={}, body=b'{"error":{"message":"Rate limit reached."}}')


class Minutes:
    """A server that counts requests by minutes, in one of three ways, and says what is left."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.refused = 0
        self._recent: deque[float] = deque()
        self._bucket = served.bucket(RPM, 1.0, 0.0)

    def admits(self, now: float) -> HttpResponse | None:
        """None if the request is one too many."""
        if self.way == "bucket":
            self._bucket.refill(now)
            left, reset_s = int(self._bucket.level), self._bucket.full_in_s
        else:
            # A whole minute begins at any time: here at the seventh second.
            since = now - 60.0 if self.way == "sliding" else (now - 7.0) // 60.0 * 60.0 + 7.0
            while self._recent and self._recent[0] < since:
                self._recent.popleft()
            left, reset_s = RPM - len(self._recent), since + 60.0 - now if self.way == "fixed" else 60.0
        if left < 1:
            self.refused += 1
            return None
        self._bucket.take(1.0)
        self._recent.append(now)
        headers = {
            "x-ratelimit-limit-requests": str(RPM),
            "x-ratelimit-remaining-requests": str(left - 1),
            "x-ratelimit-reset-requests": f"{reset_s:.3f}s",
        }
        return HttpResponse(status=200, headers=headers, body=OK.body)

    async def __call__(self, now: float) -> HttpResponse:
        await asyncio.sleep(0.05 + 0.2 * (now * 7.0 % 1.0))  # on its way, some longer than others
        reply = self.admits(asyncio.get_running_loop().time())
        if reply is None:
            return REFUSED
        await asyncio.sleep(REPLY_S)
        return reply


def rate(times: list[float], begin: float, end: float) -> float:
    """Requests between two moments as a part of what the limit allows."""
    return sum(begin <= at < end for at in times) * 60.0 / (end - begin) / RPM


def most_in_a_minute(times: list[float]) -> int:
    """The most requests of any sixty seconds; `times` ascend."""
    return max(bisect_left(times, at + 60.0) - place for place, at in enumerate(times))


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["bucket", "fixed", "sliding"])
def test_a_limited_lane_keeps_its_limit_for_minutes_and_is_never_above_it(tmp_path: Path, way: str) -> None:
    server = Minutes(way)
    fleet = Fleet("a", episodes=64, width=64, length=32, provides=server, limits=BUSY)
    sail(tmp_path, fleet)
    assert rate(fleet.sent, 10.0, 190.0) >= 0.97
    assert server.refused == 0
    assert most_in_a_minute(fleet.sent) <= RPM


def test_a_limit_on_tokens_is_used_as_fully_by_long_and_short_prompts_together(tmp_path: Path) -> None:
    tpm = 6 * RPM * USAGE.input / 10

    async def answer(now: float) -> HttpResponse:
        del now
        await asyncio.sleep(REPLY_S)
        return OK

    fleet = Fleet("a", episodes=64, width=64, length=20, provides=answer, limits=Limits(input_tokens_per_minute=tpm))
    sail(tmp_path, fleet)
    assert 0.97 <= rate(fleet.sent, 60.0, 190.0) * RPM * USAGE.input / tpm <= 1.0


AWAY: dict[str, HttpResponse] = {
    "connect": HttpResponse(headers={}, failure="connect", detail="refused"),
    "429": REFUSED,
    "503": HttpResponse(status=503, headers={}, body=b"{}"),
    "500": HttpResponse(status=500, headers={}, body=b"{}"),
}


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("players", [15, 64, 300])
def test_soon_after_an_outage_the_limit_is_used_as_before(tmp_path: Path, how: str, players: int) -> None:
    begin, end = 60.0, 180.0
    during: list[float] = []

    async def answer(now: float) -> HttpResponse:
        if begin <= now < end:
            during.append(now)
            await asyncio.sleep(0.02)
            return AWAY[how]
        await asyncio.sleep(REPLY_S)
        return OK

    length = 1_500 // players
    fleet = Fleet("a", episodes=players, width=players, length=length, provides=answer, limits=BUSY)
    sail(tmp_path, fleet)
    assert len(fleet.ended) == players, "an outage of two minutes costs no episode"
    assert rate(fleet.sent, end + 10.0, end + 20.0) >= 0.95 * rate(fleet.sent, 20.0, begin)
    assert rate(fleet.sent, end + 4.0, end + 14.0) >= 0.95 * rate(fleet.sent, 20.0, begin)
    assert len(during) < 0.1 * RPM * 2, "probes, not everybody's retries"


class Slots:
    """A server that refuses nobody: so many requests are worked at, the others wait, and the client waits so long."""

    def __init__(self, slots: int, *, work_s: float, patience_s: float) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._work_s = work_s
        self._patience_s = patience_s
        self.inside: list[tuple[float, int]] = []
        self.answered: list[float] = []
        self.timed_out: list[float] = []
        self._now_inside = 0

    async def __call__(self, now: float) -> HttpResponse:
        self._now_inside += 1
        self.inside.append((now, self._now_inside))
        try:
            # What nobody waits for any more is worked at all the same.
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self._work())), self._patience_s)
        except TimeoutError:
            self.timed_out.append(now)
            return HttpResponse(headers={}, failure="timeout", detail="no whole reply")
        finally:
            self._now_inside -= 1
        self.answered.append(asyncio.get_running_loop().time())
        return OK

    async def _work(self) -> None:
        async with self._slots:
            await asyncio.sleep(self._work_s)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("slots", "patience_s"), [(16, 10.0), (64, 6.0), (30, 20.0)])
def test_a_server_that_only_slows_down_is_not_overdriven(tmp_path: Path, slots: int, patience_s: float) -> None:
    server = Slots(slots, work_s=2.0, patience_s=patience_s)
    length = 200 * slots // 400
    fleet = Fleet("local", episodes=400, width=400, length=max(length, 1), provides=server)
    sail(tmp_path, fleet)
    whole, settled = server.answered[-1], 0.25 * server.answered[-1]
    wide = [count for at, count in server.inside if settled < at < 0.9 * whole]
    assert slots <= max(wide) <= 3 * slots + 2
    assert sum(settled < at < 0.9 * whole for at in server.answered) >= 0.9 * (0.9 * whole - settled) * slots / 2.0
    assert len(server.timed_out) < 0.01 * len(server.answered)
    assert not [at for at in server.timed_out if at > settled]


def playing(fleet: Fleet, at: float) -> int:
    """Episodes that had begun and not ended."""
    return sum(began <= at < fleet.ended.get(name, 1e9) for name, began in fleet.began.items())


def answering(text: Callable[[float], str]) -> Provides:
    async def answer(now: float) -> HttpResponse:
        await asyncio.sleep(REPLY_S)
        return says(text(now))

    return answer


def test_a_lane_opens_once_one_of_its_episodes_has_acted(tmp_path: Path) -> None:
    provides = answering(lambda now: "on" if now >= 2.0 else "well")
    fleet = Fleet("a", episodes=100, width=100, length=10, provides=provides, trial=True)
    sail(tmp_path, fleet)
    assert [playing(fleet, at) for at in (0.5, 2.5)] == [TRIAL_EPISODES] * 2
    assert playing(fleet, 3.5) > TRIAL_EPISODES
    assert len(fleet.ended) == 100
    assert fleet.lane is not None
    assert not fleet.lane.notice


def test_a_lane_that_never_acts_stays_narrow_and_says_so(tmp_path: Path) -> None:
    fleet = Fleet("a", episodes=40, width=40, length=5, provides=answering(lambda _: "well"), trial=True)
    sail(tmp_path, fleet)
    assert len(fleet.ended) == 40, "their scores are data"
    assert max(playing(fleet, at) for at in fleet.sent) <= TRIAL_EPISODES
    assert fleet.lane is not None
    assert f"first {BARREN_EPISODES} episodes ended without a valid action" in fleet.lane.notice
    events = [orjson.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    told: list[dict[str, Any]] = [event for event in events if event["kind"] == "no_valid_action"]
    assert [(one["lane"], one["detail"]) for one in told] == [("a", fleet.lane.notice)]


@pytest.mark.exhaustive
def test_lanes_that_share_a_limit_share_it_evenly_and_never_break_it(tmp_path: Path) -> None:
    shared = (SharedLimits(name="p", limits=BUSY),)
    many = Fleet("many", episodes=500, width=500, length=4, shared=shared)
    few = Fleet("few", episodes=12, width=12, length=60, shared=shared)
    sail(tmp_path, many, few)
    both = sorted(many.sent + few.sent)
    assert rate(both, 20.0, 120.0) >= 0.97
    assert most_in_a_minute(both) <= RPM
    assert 0.45 <= rate(few.sent, 20.0, 120.0) <= 0.5
