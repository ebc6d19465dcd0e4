"""Which attempts are streamed, and what is remembered of those that failed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from evalkit.client.ask import Answer, Question
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.request import RequestTemplate
from evalkit.client.retry import LONG_TOKENS, may_be_long
from evalkit.dialogue import Message, Reply, Sampling, Usage
from evalkit.errors import EpisodeRefused
from evalkit.money import PicoUsd, Price
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.model import Limits, Model, Provider, StreamSetting
from evalkit.store.files.record import LedgerRecord
from evalkit.wire.http import Failure, HttpResponse
from evalkit.wire.openai_chat import OPENAI_CHAT
from tests.support.virtual_clock import run_virtual

SHORT, LONG = Sampling(max_tokens=50), Sampling(max_tokens=50, effort="high")
OK = HttpResponse(
    status=200, headers={}, body=SERVED_OPENAI_CHAT.encode_reply(Reply(text="42", usage=Usage(input=9, output=2)))
)


def failed(failure: Failure) -> HttpResponse:
    return HttpResponse(headers={}, failure=failure)


def refused(status: int, message: str) -> HttpResponse:
    return HttpResponse(status=status, headers={}, body=orjson.dumps({"error": {"message": message}}))


NO_STREAMS = refused(400, "Your organization must be verified to stream this model.")


class Ledger:
    """Rows of money, and no disk."""

    def __init__(self) -> None:
        self.rows: list[LedgerRecord] = []

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        self.rows.append(record)
        if then is not None:
            then()

    async def durable(self) -> None:
        await asyncio.sleep(0)


class Endpoint:
    """Answers from a list that it shares, and says in what way it was asked."""

    def __init__(self, way: str, asked: list[str], responses: list[HttpResponse]) -> None:
        self._way, self._asked, self._responses = way, asked, responses

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        assert b'"stream"' not in body, "the endpoint itself asks for the stream"
        self._asked.append(self._way)
        await asyncio.sleep(0.5)
        return self._responses.pop(0)


class Scene:
    """Agents of one lane, at an endpoint for replies in one piece and one for streams."""

    def __init__(self, *responses: HttpResponse) -> None:
        self.asked: list[str] = []
        self.left = list(responses)
        self.lane = Lane("acme/m", limits=Limits(), width=10)
        self.ledger = Ledger()
        self.budget = Budget(budget=PicoUsd(10**9), spent=PicoUsd(0), ledger=self.ledger, session="s")

    async def ask(self, stream: StreamSetting, sampling: Sampling = SHORT) -> Answer:
        template = RequestTemplate(
            agent="a",
            provider=Provider(name="acme", dialect="openai_chat"),
            model=Model(name="m", price=None, limits=Limits()),
            dialect=OPENAI_CHAT,
            sampling=sampling,
            price=Price(input=10, output=100, cached_read=1, cached_write=1),
            stream=stream,
        )
        asker = ModelAsker(
            template,
            lane=self.lane,
            budget=self.budget,
            transport=Endpoint("whole", self.asked, self.left),
            streams=None if stream == "off" else Endpoint("stream", self.asked, self.left),
        )
        messages: list[bytes] = []
        asker.join(messages, (Message(role="user", text="hello"),))
        return await asker.ask(Question(episode="ep", step=3, seed=99, tools=b"", messages=messages))


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(play())


@pytest.mark.parametrize(
    ("stream", "sampling", "way"),
    [
        ("off", LONG, "whole"),
        ("on", SHORT, "stream"),
        ("auto", SHORT, "whole"),
        ("auto", LONG, "stream"),
    ],
)
def test_a_setting_decides_and_auto_streams_what_may_be_long(
    stream: StreamSetting, sampling: Sampling, way: str
) -> None:
    async def play() -> None:
        scene = Scene(OK)
        assert (await scene.ask(stream, sampling)).attempts == "ok"
        assert scene.asked == [way]

    played(play)


@pytest.mark.parametrize(
    ("sampling", "long"),
    [
        (Sampling(max_tokens=LONG_TOKENS), False),
        (Sampling(max_tokens=LONG_TOKENS + 1), True),
        (Sampling(effort="low"), True),
        (Sampling(effort="none"), False),
        (Sampling(effort="0"), False),
        (Sampling(effort="1024"), True),
        (Sampling(extra='{"thinking":{"type":"enabled"}}'), True),
        (Sampling(extra='{"reasoning":{"max_tokens":9}}'), True),
        (Sampling(extra='{"top_k":4}'), False),
    ],
)
def test_a_reply_may_be_long_if_the_model_reasons_or_may_write_much(sampling: Sampling, long: bool) -> None:
    assert may_be_long(sampling) is long


@pytest.mark.parametrize(
    "silence", [failed("timeout"), failed("reset"), refused(524, "A timeout"), refused(504, "Too late")]
)
def test_after_silence_a_lane_streams(silence: HttpResponse) -> None:
    async def play() -> None:
        scene = Scene(silence, OK, OK, OK)
        assert (await scene.ask("auto")).attempts.endswith(",ok")
        await scene.ask("auto")
        await scene.ask("off")
        assert scene.asked == ["whole", "stream", "stream", "whole"]
        # It may have been billed.
        assert [row.kind for row in scene.ledger.rows].count("charge") == 1

    played(play)


@pytest.mark.parametrize("other", [refused(429, "Slow down"), refused(500, "Lost it"), failed("connect")])
def test_after_another_failure_it_does_not(other: HttpResponse) -> None:
    async def play() -> None:
        scene = Scene(other, OK)
        await scene.ask("auto")
        assert scene.asked == ["whole", "whole"]

    played(play)


def test_a_lane_whose_streams_are_refused_goes_on_without_and_pays_nothing() -> None:
    async def play() -> None:
        scene = Scene(NO_STREAMS, OK, OK, failed("reset"), OK)
        assert (await scene.ask("auto", LONG)).attempts == "no_stream,ok"
        assert not [row for row in scene.ledger.rows if row.kind == "charge"]
        await scene.ask("auto", LONG)
        await scene.ask("auto", LONG)
        assert scene.asked == ["stream", "whole", "whole", "whole", "whole"]

    played(play)


def test_another_refusal_and_one_of_a_stream_that_was_set_on_end_the_episode() -> None:
    async def play() -> None:
        scene = Scene(refused(400, "max_tokens: too large"))
        with pytest.raises(EpisodeRefused, match="too large"):
            await scene.ask("auto", LONG)
        scene = Scene(NO_STREAMS)
        with pytest.raises(EpisodeRefused, match="verified"):
            await scene.ask("on")

    played(play)


@pytest.mark.parametrize("failure", ["timeout", "reset", "truncated", "oversize"])
def test_a_stream_that_breaks_is_charged_at_its_bound_each_time(failure: Failure) -> None:
    async def play() -> None:
        scene = Scene(failed(failure), OK)
        assert (await scene.ask("on")).attempts == f"{failure},ok"
        charges = [row.amount for row in scene.ledger.rows if row.kind == "charge"]
        assert len(charges) == 1
        assert charges[0] > 50 * 100

    played(play)
