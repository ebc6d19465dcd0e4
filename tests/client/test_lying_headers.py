"""Whatever a server says of time and of what is left: waits are finite, none is longer than an hour, and a lane that
would have to wait longer ends with words."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson
import pytest

from evalkit.client.lanes.health import MOST_PAUSE_S
from evalkit.client.retry import TOTAL_S
from evalkit.errors import EpisodeUnavailable, LaneClosed
from evalkit.wire.allowance import LONGEST_S, date_of, instant_of, seconds_of, span_of, until_s
from evalkit.wire.dialect import Dialect
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from evalkit.wire.verdicts import LONGEST_WAIT_S, read_wait_s
from tests.client.test_client import OK, Scene
from tests.support.each_case import check_each
from tests.support.virtual_clock import run_virtual
from tests.support.virtual_fleet import OK as PLAYED
from tests.support.virtual_fleet import Fleet, sail

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
TIMES = (
    *("9" * 400, "9" * 5000, "0." + "9" * 400, "9999999", "9999999s", "86400", "3601", "1e308", "1e999", "1e-308"),
    *("nan", "inf", "-inf", "infinity", "-5", "-0", "+7", "0", "", " ", "1_000", "0x10", "٣٤", "१s", "³", "5 s", "1e"),
    *("999999999999999h", "1d" * 500, "1h" * 500, "9" * 400 + "d", "2d", "1h0m1s", "-1s", "1.s", ".5s", "1s1", "\x00"),
    *("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "Wed, 21 Oct 2026 08:28:01 GMT", DATE),
    *("Wed, 21 Oct 9999999999999999999999 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 +99999999999999999999"),
    *("Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359", "Wed, 21 Oct 2026 07:28:99 GMT"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z"),
    *("2026-10-21T08:28:01Z", "2026-10-21T07:28:01", "2026-10-21", "2026-W43-3T07:28:01Z", "1792567681"),
)
"""What may stand where a time should."""

LEFT = (
    *(("60", "0"), ("1", "0"), ("1000", "0"), ("1000", "40"), ("0", "0"), ("-1", "-1"), ("1", "-1"), ("1", "2")),
    *(("1e300", "0"), ("1e-300", "0"), ("0.5", "0"), ("nan", "nan"), ("inf", "0"), ("9" * 400, "0"), ("", "")),
    *(("999999999999999", "0"), ("999999999999999", "1"), ("1000000000000000", "0"), ("٦٠", "٠"), ("6_0", "0")),
)
"""(limit, what remains of it)."""


def test_durations_are_finite_and_bounded() -> None:
    check_each([(text[:80], text) for text in TIMES], judge_duration)


def judge_duration(text: str) -> None:
    now = date_of(DATE)
    for found in (seconds_of(text), seconds_of(text, 0.001), span_of(text), until_s(instant_of(text), now)):
        assert found is None or 0 <= found <= LONGEST_S
    for name in ("retry-after", "retry-after-ms"):
        found = read_wait_s({name: text, "date": DATE})
        assert found is None or 0 <= found <= LONGEST_WAIT_S
        found = read_wait_s({name: DATE, "date": text})
        assert found is None or 0 <= found <= LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("9" * 400, LONGEST_S), ("9999999", LONGEST_S), ("1e308", LONGEST_S), ("-5", 0.0), (" 7 ", 7.0), ("+7", 7.0)]
    + [(text, None) for text in ("nan", "inf", "٣٤", "1_000", "", "0x10")]
    + [
        ("9" * 5000, LONGEST_S),
        ("0." + "0" * 5000 + "1", 0.0),
        ("1" * 999 + "e9", LONGEST_S),
        ("1e" + "9" * 5000, None),
    ],
)
def test_a_number_of_seconds_is_read_as_written_and_bounded(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def lies(dialect: Dialect) -> Iterator[Mapping[str, str]]:
    """Headers of good replies with every time and every figure."""
    for time in TIMES:
        for limit, left in LEFT:
            for what in ("requests", "tokens"):
                if dialect.name == "anthropic_messages":
                    start = f"anthropic-ratelimit-{what}-"
                    yield {"date": DATE, start + "limit": limit, start + "remaining": left, start + "reset": time}
                else:
                    named = (("limit", limit), ("remaining", left), ("reset", time))
                    yield {f"x-ratelimit-{name}-{what}": value for name, value in named}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_what_headers_say_is_left_is_sensible_or_not_heeded(dialect: Dialect) -> None:
    for headers in lies(dialect):
        for said in dialect.allowances(headers):
            if said is not None:
                assert 1 <= said.limit < 1e15
                assert 0 <= said.remaining <= said.limit
                assert 0 <= said.reset_s <= LONGEST_S


async def asked(scene: Scene, times: int) -> tuple[float, str]:
    """(the longest that a question took, why the lane ended)."""
    clock = asyncio.get_running_loop().time
    longest = 0.0
    for _ in range(times):
        began = clock()
        try:
            await scene.asker.ask(scene.question)
        except LaneClosed as flaw:
            return longest, str(flaw)
        except EpisodeUnavailable:
            pass
        finally:
            longest = max(longest, clock() - began)
    return longest, ""


@pytest.mark.exhaustive
def test_no_lie_about_what_is_left_makes_a_lane_wait_for_more_than_an_hour() -> None:
    async def main() -> None:
        ended = 0
        for headers in lies(DIALECTS["openai_chat"]):
            scene = Scene(HttpResponse(status=200, headers=headers, body=OK.body), budget=None)
            scene.asker._allowances = DIALECTS["openai_chat"].allowances
            longest, why = await asked(scene, 5)
            assert longest <= MOST_PAUSE_S + 5, headers
            assert not why or ("its headers say that its limit on" in why and "run again at about 20" in why)
            ended += bool(why)
        assert ended > 50

    run_virtual(main())


@pytest.mark.parametrize(
    ("limit", "reset", "ends"),
    [
        *(("1000", "9" * 400, True), ("1000", "9999999s", True), ("1", "3601s", True), ("10", "24h", True)),
        *(("1", "3599s", False), ("60", "60s", False), ("1000", "24h", False)),
    ],
)
def test_a_lane_ends_with_words_where_a_request_would_wait_for_more_than_an_hour(
    limit: str, reset: str, ends: bool
) -> None:
    async def main() -> None:
        left = {"limit": limit, "remaining": "0", "reset": reset}
        headers = {f"x-ratelimit-{name}-requests": value for name, value in left.items()}
        scene = Scene(HttpResponse(status=200, headers=headers, body=OK.body))
        _, why = await asked(scene, 3)
        assert bool(why) is ends
        stats = scene.lane.stats()
        if ends:
            assert "longer than evalkit waits for a provider" in why
            assert "(its headers say that its limit on requests is used up)" in why
            assert stats.ended == why
        slow = not ends and limit != "60"
        assert ("its limit on requests was nearly used up" in scene.lane.notice) is slow

    run_virtual(main())


def test_what_remains_of_a_limit_that_never_comes_back_may_be_used() -> None:
    async def main() -> None:
        lying = {"x-ratelimit-limit-requests": "1000", "x-ratelimit-reset-requests": "9" * 400}
        responses = [
            HttpResponse(status=200, headers={**lying, "x-ratelimit-remaining-requests": str(left)}, body=OK.body)
            for left in (3, 2, 1, 0)
        ]
        scene = Scene(*responses)
        _, why = await asked(scene, 9)
        assert "used up" in why
        assert len(scene.script.sent) == 4

    run_virtual(main())


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
def test_no_wait_that_a_refusal_asks_for_is_longer_than_an_hour(status: int, name: str) -> None:
    async def main() -> None:
        for text in TIMES:
            headers = {"date": DATE, name: text}
            scene = Scene(HttpResponse(status=status, headers=headers, body=b'{"error":{"message":"Slow down."}}'))
            longest, why = await asked(scene, 1)
            assert longest <= TOTAL_S + MOST_PAUSE_S, text
            waits = read_wait_s(headers)
            asked_to_wait = "its provider asks to wait" in why
            assert asked_to_wait is (waits is not None and waits > MOST_PAUSE_S), text
            assert asked_to_wait or not why or "no answer for 15 minutes" in why

    run_virtual(main())


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_no_wait_that_a_body_asks_for_is_beyond_a_day(dialect: Dialect) -> None:
    values: list[object] = [*TIMES, None, 5, [], {"seconds": 9}, True]
    check_each([(str(value)[:80], value) for value in values], lambda value: judge_wait(dialect, value))


def judge_wait(dialect: Dialect, text: object) -> None:
    delays = [text, f"{text}s", text]
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": one} for one in delays]
    body = orjson.dumps({"error": {"code": 429, "message": "Slow down.", "details": details}})
    waits = dialect.judge(HttpResponse(status=429, headers={}, body=body)).wait_s
    assert waits is None or 0 <= waits <= LONGEST_WAIT_S


def test_a_run_whose_provider_lies_ends_with_its_words(tmp_path: Path) -> None:
    lying = {f"x-ratelimit-{name}-requests": value for name, value in (("limit", "500"), ("remaining", "0"))}

    async def reply(_: float) -> HttpResponse:
        return HttpResponse(status=200, headers={**lying, "x-ratelimit-reset-requests": "9" * 400}, body=PLAYED.body)

    fleet = Fleet(name="a", episodes=20, width=4, length=3, provides=reply)
    sail(tmp_path / "run", fleet)
    assert fleet.context is not None
    assert "its limit on requests is used up" in fleet.context.lane_stop.message
    assert fleet.context.ended.keys() == {"stopped"}
    assert len(fleet.sent) <= 4
