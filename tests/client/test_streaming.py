"""Streams over HTTP: what comes is the reply, what breaks has an outcome that counts as billed, and nothing hangs."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from evalkit.client.streaming import JOINING, SUPPORTED, Gathering, Rounds, join_pieces
from evalkit.client.transport import HttpTransport
from evalkit.dialogue import Reply
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.streams import ReplyStream
from evalkit.wire.table import DIALECTS
from tests.support.patience import PATIENCE_S
from tests.support.streaming import every, streamed
from tests.support.virtual_clock import run_virtual
from tests.support.virtual_http import Say, Write, say_to_all

KEY = "sk-planted-0123456789"
NAMES = sorted(DIALECTS)


def body_of(text: str) -> dict[str, Any]:
    """A reply of Chat Completions."""
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 20}
    return {"id": "c", "model": "m", "choices": [choice], "usage": usage}


STREAM = streamed("openai_chat", body_of("It is 42."), every(3))
EVENTS = [event + b"\n\n" for event in STREAM.split(b"\n\n")[:-1]]


class Serving:
    """A server that writes what a test says, and what it was asked."""

    def __init__(self, say: Say, *, kind: str = "text/event-stream", status: int = 200) -> None:
        self._say, self._kind, self._status = say, kind, status
        self.asked: list[tuple[str, Any]] = []
        self.ports: set[int] = set()

    async def __aenter__(self) -> "Serving":
        app = web.Application()
        app.router.add_post("/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path_qs, orjson.loads(await request.read())))
        assert request.transport is not None
        self.ports.add(request.transport.get_extra_info("peername")[1])
        response = web.StreamResponse(status=self._status, headers={"Content-Type": self._kind})
        await response.prepare(request)
        try:
            await self._say(response.write)
        except ConnectionError:
            assert request.transport is None or request.transport.is_closing()
        except _Cut:
            assert request.transport is not None
            request.transport.close()  # once all that was written is sent
        return response


class _Cut(Exception):
    """Break the connection."""


def saying(*pieces: bytes, pause_s: float = 0.0, cut: bool = False) -> Say:
    """Write these."""

    async def say(write: Write) -> None:
        for piece in pieces:
            await write(piece)
            await asyncio.sleep(pause_s)
        if cut:
            raise _Cut

    return say


async def ask(
    url: str, dialect: Dialect = DIALECTS["openai_chat"], *, cap: int = 2**20, **limits: float
) -> HttpResponse:
    form = dialect.stream_form(Quirks())
    timeout_s, silence_s = (limits.get(name, PATIENCE_S) for name in ("timeout_s", "silence_s"))
    transport = HttpTransport(
        url,
        headers={"Authorization": f"Bearer {KEY}"},
        key=KEY,
        timeout_s=timeout_s,
        silence_s=silence_s,
    )
    transport._body_cap = cap
    async with transport:
        return await transport.to(dialect.stream_path_of("m"), form).send(b'{"model":"m"}', "e/0/0")


def outcome(response: HttpResponse, name: str = "openai_chat") -> tuple[Verdict, Reply | None]:
    verdict, reply, _ = DIALECTS[name].understand(response)
    return verdict, reply


def streamed_from(say: Say, *, kind: str = "text/event-stream", status: int = 200, **more: Any) -> HttpResponse:
    async def main() -> HttpResponse:
        async with Serving(say, kind=kind, status=status) as server:
            return await ask(server.url, **more)

    return asyncio.run(main())


def heard(monkeypatch: pytest.MonkeyPatch, *pieces: bytes, pause_s: float, **limits: Any) -> tuple[HttpResponse, float]:
    """What becomes under virtual time of a stream that has a pause after each of its pieces; and after how many
    seconds."""

    async def main() -> tuple[HttpResponse, float]:
        say_to_all(monkeypatch, saying(*pieces, pause_s=pause_s), {"Content-Type": "text/event-stream"})
        return await ask("http://127.0.0.1/v1", **limits), asyncio.get_running_loop().time()

    return run_virtual(main())


@pytest.mark.parametrize("pieces", [[STREAM], EVENTS, [STREAM[i : i + 1] for i in range(len(STREAM))]])
def test_a_stream_is_a_reply_however_it_is_cut(pieces: list[bytes]) -> None:
    response = streamed_from(saying(*pieces))
    _, reply = outcome(response)
    assert reply is not None
    assert (reply.text, reply.usage.output, response.status) == ("It is 42.", 20, 200)


def test_pieces_that_have_come_are_taken_as_one() -> None:
    async def main() -> tuple[list[bytes], int]:
        connection = ResponseHandler(asyncio.get_running_loop())
        connection.connection_made(asyncio.Transport())
        body = aiohttp.StreamReader(connection, 2**16)
        join_pieces(body)
        for piece in (b"a", b"", b"bc", b"d"):
            body.begin_http_chunk_receiving()
            body.feed_data(piece)
            body.end_http_chunk_receiving()
        taken = [await body.readany()]
        later = asyncio.create_task(body.readany())
        await asyncio.sleep(0)
        body.feed_data(b"e")
        body.feed_data(b"f")
        taken.append(await later)
        body.feed_eof()
        return [*taken, await body.readany()], body.total_bytes

    assert JOINING, "aiohttp's reader is built otherwise: see `client/streaming.py`"
    assert asyncio.run(main()) == ([b"abcd", b"ef", b""], 6)


def test_a_request_asks_for_a_stream_at_its_dialects_place() -> None:
    async def main() -> list[tuple[str, Any]]:
        asked = []
        for name in NAMES:
            async with Serving(saying(b"\n")) as server:
                await ask(server.url, DIALECTS[name])
                asked += server.asked
        return asked

    assert dict(zip(NAMES, asyncio.run(main()), strict=True)) == {
        "anthropic_messages": ("/v1/messages", {"stream": True, "model": "m"}),
        "anthropic_bedrock": ("/v1/model/m/invoke", {"model": "m"}),
        "anthropic_vertex": ("/v1/models/m:streamRawPredict", {"stream": True, "model": "m"}),
        "gemini": ("/v1/models/m:streamGenerateContent?alt=sse", {"model": "m"}),
        "gemini_vertex": ("/v1/models/m:streamGenerateContent?alt=sse", {"model": "m"}),
        "openai_chat": (
            "/v1/chat/completions",
            {"stream": True, "stream_options": {"include_usage": True}, "model": "m"},
        ),
        "openai_responses": ("/v1/responses", {"stream": True, "model": "m"}),
    }


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_server_that_does_not_stream_is_understood(kind: str, pieces: int) -> None:
    body = orjson.dumps(body_of("It is 42." * 50))
    size = -(-len(body) // pieces)
    _, reply = outcome(streamed_from(saying(*(body[i : i + size] for i in range(0, len(body), size))), kind=kind))
    assert reply is not None
    assert reply.text == "It is 42." * 50


def test_a_refusal_is_judged_as_ever() -> None:
    body = b'{"error":{"message":"Slow down","code":"rate_limit_exceeded"}}'
    verdict, _ = outcome(streamed_from(saying(body), kind="application/json", status=429))
    assert (verdict.kind, verdict.message, verdict.outcome) == ("rate_limit", "Slow down", "429")


def test_silence_in_the_middle_is_a_timeout() -> None:
    async def say(write: Write) -> None:
        await write(STREAM[:100])
        await asyncio.sleep(PATIENCE_S)

    response = streamed_from(say, silence_s=0.3)
    verdict, _ = outcome(response)
    assert (verdict.kind, verdict.outcome, "stalled" in response.detail) == ("timeout", "timeout", True)


def test_comments_are_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [EVENTS[0], *[b": still thinking\n\n"] * 8, *EVENTS[1:]]
    response, _ = heard(monkeypatch, *pieces, pause_s=0.9, silence_s=1.0)
    assert outcome(response)[1] is not None


def test_the_whole_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    response, took_s = heard(monkeypatch, *[b": still thinking\n\n"] * 10_000, pause_s=0.01, timeout_s=5.0)
    assert (response.failure, "no complete reply" in response.detail) == ("timeout", True)
    assert took_s == pytest.approx(5.0)


def test_a_stream_that_is_cut_is_truncated_and_one_that_ended_is_a_reply() -> None:
    async def main() -> None:
        for place in range(0, len(STREAM) + 1, 9):
            async with Serving(saying(STREAM[:place], cut=True)) as server:
                verdict, reply = outcome(await ask(server.url))
            if reply is None:
                assert verdict.billable
                assert verdict.kind in ("truncated", "reset")
            else:
                assert (reply.text, STREAM[place:].strip()) == ("It is 42.", b"")
        async with Serving(saying(STREAM, cut=True)) as server:
            assert outcome(await ask(server.url))[1] is not None
        async with Serving(saying(STREAM[:-20])) as server:
            assert outcome(await ask(server.url))[0].outcome == "truncated"

    asyncio.run(main())


def test_an_error_in_the_middle_breaks_the_reply_off() -> None:
    error = b'data: {"error":{"message":"Overloaded by %s","code":503}}\n\n' % KEY.encode()
    response = streamed_from(saying(*EVENTS[:2], error))
    verdict, _ = outcome(response)
    assert (verdict.kind, verdict.outcome, verdict.message) == ("overload", "broken_off", "Overloaded by ***")


def test_a_key_that_comes_in_pieces_is_not_in_the_body() -> None:
    response = streamed_from(saying(streamed("openai_chat", body_of(f"Your key is {KEY}."), every(2))))
    assert KEY.encode() not in response.body
    _, reply = outcome(response)
    assert reply is not None
    assert reply.text == "Your key is ***."


def test_a_giant_stream_is_given_up() -> None:
    said = 0

    async def say(write: Write) -> None:
        nonlocal said
        while said < 10**8:
            await write(EVENTS[2] * 100)
            said += len(EVENTS[2]) * 100

    response = streamed_from(say, cap=50_000)
    verdict, _ = outcome(response)
    assert (verdict.outcome, verdict.billable) == ("oversize", True)
    assert said < 10**8  # what the kernel holds for both ends


def test_a_large_reply_is_whole() -> None:
    text = "".join(chr(0x400 + i % 500) for i in range(200_000))
    _, reply = outcome(streamed_from(saying(streamed("openai_chat", body_of(text), every(500)))))
    assert reply is not None
    assert reply.text == text


@pytest.mark.parametrize("tail", [b"", b": that was all\n\n"])
def test_a_connection_is_used_again_after_a_stream(tail: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalkit.client.streaming.TAIL_S", PATIENCE_S)

    async def main() -> set[int]:
        form = DIALECTS["openai_chat"].stream_form(Quirks())
        async with (
            Serving(saying(*EVENTS, *([tail] if tail else []), pause_s=0.001)) as server,
            HttpTransport(server.url, headers={}, key="", timeout_s=PATIENCE_S) as transport,
        ):
            endpoint = transport.to("/chat/completions", form)
            for _ in range(4):
                assert outcome(await endpoint.send(b'{"model":"m"}', "e/0/0"))[1] is not None
            return server.ports

    assert len(asyncio.run(main())) == 1


def test_a_server_that_does_not_end_after_the_end_mark_is_not_waited_for() -> None:
    async def say(write: Write) -> None:
        await write(STREAM)
        await asyncio.sleep(PATIENCE_S)

    assert outcome(streamed_from(say))[1] is not None


def test_a_stream_that_lasts_is_looked_at_seldom_and_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, feed = list[int](), ReplyStream.feed

    def counted(self: ReplyStream, piece: bytes) -> None:
        looks.append(len(piece))
        feed(self, piece)

    monkeypatch.setattr(ReplyStream, "feed", counted)
    pieces = [EVENTS[0], *[b": still thinking\n\n"] * 200, *EVENTS[1:]]
    response, took_s = heard(monkeypatch, *pieces, pause_s=0.005)
    assert outcome(response)[1] is not None
    assert sum(looks) == len(STREAM) + 200 * len(b": still thinking\n\n")
    assert took_s == pytest.approx(0.005 * len(pieces))
    assert len(looks) < 20


def test_a_stream_that_lasts_is_whole_over_sockets_that_are_read_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    joined, join = list[Gathering | None](), Rounds.join

    def counted(self: Rounds, transport: asyncio.BaseTransport, **how: float) -> Gathering | None:
        joined.append(join(self, transport, **how))
        return joined[-1]

    monkeypatch.setattr(Rounds, "join", counted)
    monkeypatch.setattr("evalkit.client.streaming.LEAST_EVENTS", 0.0)  # a round is worth while however slow they come
    response = streamed_from(saying(*EVENTS, pause_s=0.01))
    assert outcome(response)[1] is not None
    assert [one is not None and one.left for one in joined] == [SUPPORTED]


def test_the_end_of_a_stream_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_PAUSE_S", "PAUSE_SHARE", "PAUSE_BYTES"):
        monkeypatch.setattr(f"evalkit.client.streaming.{name}", 1e9)
    response, took_s = heard(monkeypatch, *EVENTS, pause_s=0.01)
    assert outcome(response)[1] is not None
    assert took_s == pytest.approx(0.01 * len(EVENTS))


def test_cancellation_from_outside_is_not_taken_for_a_timeout() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def say(write: Write) -> None:
            await write(STREAM[:50])
            begun.set()
            await asyncio.sleep(PATIENCE_S)

        async with Serving(say) as server:
            task = asyncio.create_task(ask(server.url))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
