"""A fault in every reply, or a request that fails for ever, is not paid for without end; short waits are kept."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from evalkit.client.ask import Answer
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.health import GIVE_UP_S, MOST_PAID
from evalkit.client.retry import ATTEMPTS
from evalkit.errors import EpisodeRefused, EpisodeUnavailable, EvalkitError, LaneClosed
from evalkit.wire.http import HttpResponse
from tests.client.test_client import OK, Scene, failed, refused
from tests.support.each_case import check_each
from tests.support.virtual_clock import run_virtual


async def asked(scene: Scene, episodes: int) -> list[Answer | EvalkitError]:
    """What each of so many episodes comes to, which ask at the same time."""

    async def one(number: int) -> Answer | EvalkitError:
        try:
            return await scene.asker.ask(replace_episode(scene, number))
        except EvalkitError as flaw:
            return flaw

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(episodes)]
    return [task.result() for task in tasks]


def replace_episode(scene: Scene, number: int) -> Any:
    question = scene.question
    return type(question)(
        episode=f"ep{number}",
        step=question.step,
        seed=question.seed,
        tools=question.tools,
        messages=question.messages,
    )


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(play())


BROKEN = HttpResponse(
    status=200,
    headers={},
    body=b'{"choices":[{"finish_reason":"network_error","message":{"content":"I was ab"}}]}',
)


def test_a_fault_in_every_reply_ends_its_lane_after_a_few_and_names_the_remedy() -> None:
    cases = {
        "truncated": (failed("truncated", 200), "answers in a row could not be read"),
        "broken off": (BROKEN, "answers in a row could not be read"),
        "no HTTP": (failed("truncated"), "answers in a row could not be read"),
        "unreadable": (HttpResponse(status=200, headers={}, body=b"<html>"), "answers in a row could not be read"),
    }

    def check(case: tuple[HttpResponse, str]) -> None:
        response, words = case
        for episodes in (4, 40):

            async def play(episodes: int = episodes) -> None:
                scene = Scene(response, budget=10**12)
                scene.template = replace(scene.template, stream="auto")
                scene.asker = ModelAsker(scene.template, lane=scene.lane, budget=scene.budget, transport=scene.script)
                ends = await asked(scene, episodes)
                closed = [end for end in ends if isinstance(end, LaneClosed)]
                assert closed
                assert f"{MOST_PAID} {words}" in str(closed[0])
                assert ('`stream = "off"`' in str(closed[0])) == (response.body != b"<html>")
                # Those in flight when the first failed come on top: the lane lets few in before it knows a reply.
                assert len(scene.script.sent) <= MOST_PAID + 10
                assert len(scene.disk.of("charge")) == len(scene.script.sent)
                assert asyncio.get_running_loop().time() < GIVE_UP_S

            played(play)

    check_each(cases.items(), check)


def test_replies_in_between_keep_a_lane_going() -> None:
    async def play() -> None:
        scene = Scene(*[response for _ in range(3 * MOST_PAID) for response in (failed("truncated", 200), OK)])
        for _ in range(3 * MOST_PAID):
            assert (await scene.asker.ask(scene.question)).attempts == "truncated,ok"

    played(play)


def test_an_outage_whose_probes_may_be_billed_is_probed_seldom_and_its_end_is_still_seen() -> None:
    for response in (failed("reset"), refused(500), failed("timeout")):

        async def play(response: HttpResponse = response) -> None:
            scene = Scene(response, budget=10**12)
            ends = await asked(scene, 30)
            assert all(isinstance(end, EpisodeUnavailable | LaneClosed) for end in ends)
            assert any(isinstance(end, LaneClosed) and "had no reply" in str(end) for end in ends)
            # Until it counts as down those in flight fail together; then there are few probes.
            assert len(scene.disk.of("charge")) <= 30 + MOST_PAID
            assert asyncio.get_running_loop().time() > 600

        async def back(response: HttpResponse = response) -> None:
            scene = Scene(*[response] * 16, OK, budget=10**12)
            ends = await asked(scene, 30)
            assert all(isinstance(end, Answer) for end in ends)

        played(play)
        played(back)


def test_a_request_that_fails_for_ever_is_given_up_after_its_attempts_probes_included() -> None:
    async def play() -> None:
        scene = Scene(refused(500))
        with pytest.raises((EpisodeUnavailable, LaneClosed)):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) <= ATTEMPTS

    played(play)


class Poisoned:
    """Refuses one episode's requests with a free 503 and answers all others; from `down` on it answers nobody."""

    def __init__(self, scene: Scene, down: float = math.inf, until: float = math.inf) -> None:
        self.script, self.down, self.until, self.refused = scene.script, down, until, list[float]()

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        now = asyncio.get_running_loop().time()
        if request_id.startswith("ep0/") or self.down <= now < self.until:
            self.refused.append(now)
            return refused(503)
        return await self.script.send(body, request_id)


def test_a_request_that_is_refused_for_nothing_for_ever_is_given_up_alone_and_an_outage_is_waited_for() -> None:
    def poisoned(episodes: int, down: float, until: float) -> tuple[list[Answer | EvalkitError], list[float]]:
        async def play() -> tuple[list[Answer | EvalkitError], list[float]]:
            scene = Scene(OK)
            server = Poisoned(scene, down, until)
            scene.asker = ModelAsker(scene.template, lane=scene.lane, budget=scene.budget, transport=server)
            return await asked(scene, episodes), server.refused

        return run_virtual(play())

    for episodes in (1, 6):
        (lost, *others), refused_at = poisoned(episodes, math.inf, math.inf)
        assert isinstance(lost, EpisodeUnavailable)
        assert f"{ATTEMPTS} attempts" in str(lost)
        assert len(refused_at) == ATTEMPTS
        assert all(isinstance(end, Answer) for end in others)
    (lost, *others), refused_at = poisoned(6, 0.0, 600.0)
    assert isinstance(lost, EpisodeUnavailable)
    assert all(isinstance(end, Answer) for end in others)
    assert len(refused_at) > 5 * ATTEMPTS


def test_a_server_that_asks_to_come_back_at_once_is_asked_with_pauses() -> None:
    past = {"retry_after": "Wed, 21 Oct 2026 07:27:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    cases: dict[str, dict[str, str]] = {
        "ms": {"retry_after_ms": "0"},
        "zero": {"retry_after": "0"},
        "negative": {"retry_after": "-1"},
        "tiny": {"retry_after": "0.001"},
        "past": past,
        "unix, past": {"retry_after": "1795900000", "date": "Sun, 29 Nov 2026 07:28:00 GMT"},
    }

    def check(headers: dict[str, str]) -> None:
        async def play() -> None:
            scene = Scene(*[refused(429, **headers)] * 5, OK)
            answer = await scene.asker.ask(scene.question)
            assert answer.attempts == "rate_limit," * 5 + "ok"
            times = [at for at, _, _ in scene.script.sent]
            assert all(later - before >= 0.5 + scene.script.latency_s for before, later in pairwise(times))
            assert times[-1] > 10

        played(play)

    check_each(cases.items(), check)


def test_a_request_above_the_accounts_limit_is_set_aside_and_the_others_go_on() -> None:
    words = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 342389. The input must be reduced."

    async def play() -> None:
        scene = Scene(refused(429, words, "rate_limit_exceeded"), OK)
        with pytest.raises(EpisodeUnavailable, match="Limit 30000, Requested 342389"):
            await scene.asker.ask(scene.question)
        assert (await scene.asker.ask(scene.question)).attempts == "ok"
        assert scene.budget.stats().spent < scene.bound

    played(play)


def test_a_refusal_in_unknown_words_means_the_window_where_little_of_it_is_left() -> None:
    def ending(window: int | None, message: str, status: int = 400) -> str:
        async def play() -> str:
            scene = Scene(refused(status, message))
            scene.template = replace(scene.template, model=replace(scene.template.model, context_tokens=window))
            scene.asker = ModelAsker(scene.template, lane=scene.lane, budget=scene.budget, transport=scene.script)
            with pytest.raises(EpisodeRefused) as said:
                await scene.asker.ask(scene.question)
            return said.value.kind

        return run_virtual(play())

    # The request has some 200 bytes, and 50 tokens may be written.
    assert ending(100, "Fehler: zu lang, Länge") == "context_length"
    assert ending(100, "") == "context_length"
    assert ending(100, "Too large.", 413) == "context_length"
    assert ending(100_000, "Fehler: zu lang, Länge") == "bad_request"
    assert ending(None, "Fehler: zu lang, Länge") == "bad_request"
    assert ending(100, "'temperature' is above the limit") == "bad_request"
    assert ending(100, "Unknown role.") == "bad_request"
