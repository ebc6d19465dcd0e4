"""The first replies: how soon a lane has many requests in flight where the user, the last session or the provider has
said how many. Replies take 20 seconds, under virtual time."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.window import FIRST
from evalkit.engine import endpoints
from evalkit.engine.endpoints import WindowNotes, remembered
from evalkit.spec.model import Limits
from evalkit.store.events import FILE
from evalkit.wire.http import HttpResponse
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served
from tests.support.virtual_clock import run_virtual
from tests.support.virtual_fleet import OK, Fleet, sail

REPLY_S = 20.0
MANY = 512


async def slow(now: float) -> HttpResponse:
    del now
    await asyncio.sleep(REPLY_S)
    return OK


class Announcing:
    """A slow provider that says how many requests it takes in a minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.recent: deque[float] = deque()

    async def __call__(self, now: float) -> HttpResponse:
        self.recent.append(now)
        await asyncio.sleep(REPLY_S)
        while self.recent[0] <= now + REPLY_S - 60:
            self.recent.popleft()
        left = max(0, self.per_minute - len(self.recent))
        headers = {
            "x-ratelimit-limit-requests": str(self.per_minute),
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{60 * (1 - left / self.per_minute):.3f}s",
        }
        return HttpResponse(status=200, headers=headers, body=OK.body)


def when_in_flight(fleet: Fleet, many: int) -> float:
    """Seconds until so many requests were in flight at once."""
    return next(now for now, before in zip(fleet.sent[many - 1 :], fleet.sent, strict=False) if now - before < REPLY_S)


def a_fleet(**more: Any) -> Fleet:
    return Fleet("a", **{"episodes": 2 * MANY, "width": MANY, "length": 6, "trial": True, "provides": slow, **more})


@pytest.mark.exhaustive
def test_many_are_in_flight_within_two_round_trips_if_an_earlier_session_had_them(tmp_path: Path) -> None:
    cautious, told = a_fleet(), a_fleet(start=MANY)
    sail(tmp_path / "cautious", cautious)
    sail(tmp_path / "told", told)
    assert when_in_flight(told, MANY) <= 2 * REPLY_S
    assert when_in_flight(cautious, MANY) >= 6 * REPLY_S
    assert len(told.ended) == len(cautious.ended) == 2 * MANY


@pytest.mark.exhaustive
def test_a_provider_that_announces_its_limits_is_used_at_once(tmp_path: Path) -> None:
    fleet = a_fleet(provides=Announcing(3 * MANY))
    sail(tmp_path, fleet)
    assert when_in_flight(fleet, MANY) <= 2 * REPLY_S
    few = a_fleet(provides=Announcing(90), episodes=60, length=2)
    sail(tmp_path / "few", few)
    early = [at for at in few.sent if at < 2 * REPLY_S]
    most = max(sum(at - REPLY_S < other <= at for other in early) for at in early)
    assert FIRST < most <= 40  # 1.5 a second, for twenty seconds, and a little growth


def test_a_session_starts_with_the_window_that_the_last_one_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int | None] = []

    class Watched(Lane):
        def __init__(self, name: str, *, start: int | None = None, **more: Any) -> None:
            starts.append(start)
            super().__init__(name, start=start, **more)

    monkeypatch.setattr(endpoints, "Lane", Watched)
    run = tmp_path / "run"
    go_served(resolved(tmp_path, served(replicates=6, width=24)), run)
    assert starts == [None, None]
    lanes = remembered(run)
    assert lanes.keys() == {"simulated/knuth", "simulated/random"}
    assert all(FIRST < size <= 24 for size in lanes.values()), lanes  # the last replies may find a narrower one
    starts.clear()
    go_served(resolved(tmp_path, served(replicates=7, width=40)), run)
    assert starts == [lanes["simulated/knuth"], lanes["simulated/random"]]
    starts.clear()
    (run / FILE).unlink()
    go_served(resolved(tmp_path, served(replicates=8, width=24)), run)
    assert starts == [None, None]


def test_a_killed_session_has_noted_its_windows_as_they_grew() -> None:
    events: list[dict[str, int]] = []

    class Sized:
        size = 0

        def proven(self) -> int:
            return self.size

    lane: Any = Sized()
    notes = WindowNotes(lanes={"a/b": lane}, event=lambda kind, *, lanes: events.append(lanes))
    for lane.size in (0, 8, 12, 16, 20, 31, 32, 20, 16):
        notes.look()
    assert events == [{"a/b": size} for size in (8, 16, 32, 16)]
    lane.size = 17
    notes.look(last=True)
    notes.look(last=True)
    assert events[4:] == [{"a/b": 17}]


def test_a_lane_tells_its_window_once_replies_have_shown_it() -> None:
    async def told() -> int:
        return Lane("a/b", limits=Limits(), width=50, start=20).proven()

    assert run_virtual(told()) == 0


@pytest.mark.parametrize(
    "lanes",
    [None, [], {"a/b": "many"}, {"a/b": -1}, {"a/b": True}, {"a/b": 1e3}, {"a/b": 10**9}, {"a/b": 0}],
)
def test_a_note_that_makes_no_sense_is_left_out(tmp_path: Path, lanes: object) -> None:
    good = {"kind": "windows", "lanes": {"a/b": 7, "c/d": 9}}
    lines = [good, {"kind": "windows", "lanes": lanes}, {"kind": "windows"}]
    (tmp_path / FILE).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert remembered(tmp_path) == {"a/b": 7, "c/d": 9}
    assert remembered(tmp_path / "none") == {}
