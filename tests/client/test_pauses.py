import asyncio
import re

import pytest

from evalkit.client.lanes.health import MOST_PAUSE_S, too_long, why_ended
from evalkit.errors import LaneClosed
from tests.client.test_client import OK, Scene, refused
from tests.support.virtual_clock import run_virtual


@pytest.mark.parametrize(
    ("wait_s", "left_s", "ends"),
    [
        (0.0, float("inf"), False),
        (MOST_PAUSE_S, float("inf"), False),
        (MOST_PAUSE_S + 1, float("inf"), True),
        (300.0, 301.0, False),
        (300.0, 299.0, True),
    ],
)
def test_a_pause_is_too_long_beyond_an_hour_or_the_deadline(wait_s: float, left_s: float, ends: bool) -> None:
    assert too_long(wait_s, left_s) is ends


def test_the_words_say_who_how_long_why_and_when_to_run_again() -> None:
    assert why_ended("acme/m", 5 * 3600 + 720, 0.0, "slow down.") == (
        "acme/m: its provider asks to wait 5 h 12 min, longer than evalkit waits for a provider (slow down). "
        "Its episodes remain: run again at about 1970-01-01 05:12 UTC."
    )
    assert "wait 10 min, later than the run's deadline" in why_ended("acme/m", 600.0, 0.0, "no")


@pytest.mark.parametrize(("said_s", "deadline_s"), [(20_000, float("inf")), (600, 300.0)], ids=["hours", "deadline"])
def test_a_lane_that_is_told_to_wait_too_long_ends_at_once_for_all_who_wait(said_s: int, deadline_s: float) -> None:
    async def play() -> None:
        scene = Scene(refused(429, retry_after=str(said_s)), OK)
        scene.lane.deadline = deadline_s
        resting = asyncio.ensure_future(scene.lane.rest(10_000.0))
        await asyncio.sleep(0.0)
        with pytest.raises(LaneClosed, match="asks to wait") as flaw:
            await scene.asker.ask(scene.question)
        assert re.search(r"run again at about \d{4}-\d\d-\d\d \d\d:\d\d UTC", str(flaw.value))
        with pytest.raises(LaneClosed, match="asks to wait"):
            await resting
        with pytest.raises(LaneClosed, match="asks to wait"):
            await scene.asker.ask(scene.question)
        assert asyncio.get_running_loop().time() < 10
        assert len(scene.script.sent) == 1
        assert (scene.lane.stats().in_flight, scene.budget.stats().reserved) == (0, 0)

    run_virtual(play())


def test_a_shorter_wait_is_obeyed() -> None:
    async def play() -> None:
        scene = Scene(refused(429, retry_after="600"), OK)
        scene.lane.deadline = 1000.0
        assert (await scene.asker.ask(scene.question)).attempts == "rate_limit,ok"
        assert scene.script.sent[1][0] - scene.script.sent[0][0] == pytest.approx(600.5)

    run_virtual(play())
