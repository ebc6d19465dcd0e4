"""The gateway: requests of any client become asks of the seat, in three dialects, whole and streamed."""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

import evalkit
from evalkit.dialogue import Message, Reply, Sampling, Tool
from evalkit.integrations.gateway.server import FORMATS, Gateway
from evalkit.seats import AgentFn
from evalkit.serve.formats import BASE_PATH
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS

INSTANCE = ("scheduling/basic", "seed-0")
MODELS = {"main": "simulated/knuth"}


def a_body(dialect: str, messages: tuple[Message, ...], tools: tuple[Tool, ...], **more: Any) -> bytes:
    """What a client of that dialect sends."""
    speaks, parts = DIALECTS[dialect], list[bytes]()
    speaks.join(parts, messages)
    body = speaks.body(
        speaks.head("main", Sampling(max_tokens=1000, tool_choice="required"), Quirks()),
        speaks.encode_tools(tools),
        parts,
        None,
    )
    return orjson.dumps({**orjson.loads(body), **more}) if more else body


async def posted(gate: Gateway, dialect: str, body: bytes, key: str = "") -> tuple[int, bytes]:
    base = gate.base_url(dialect, key).removesuffix(FORMATS[dialect].sdk_path) + BASE_PATH
    async with (
        aiohttp.ClientSession() as session,
        session.post(base + DIALECTS[dialect].path_of("main"), data=body) as response,
    ):
        return response.status, await response.read()


def read(dialect: str, body: bytes) -> Reply:
    return DIALECTS[dialect].decode(body)


def played(code: AgentFn) -> evalkit.Episode:
    suite, instance = INSTANCE
    return evalkit.play(code, evalkit.suite(suite, instances=[instance])[0], models=MODELS)


def through(dialect: str, **more: Any) -> AgentFn:
    """An agent that asks what the environment shows, over HTTP."""

    @evalkit.agent(version=1)
    async def outside(seat: evalkit.Seat) -> None:
        async with evalkit.gateway(seat) as gate:
            while not seat.ending:
                status, body = await posted(gate, dialect, a_body(dialect, seat.messages, seat.tools, **more))
                assert status == 200, body
                await seat.act(read(dialect, body))

    return outside


@evalkit.agent(version=1)
async def inside(seat: evalkit.Seat) -> None:
    while not seat.ending:
        await seat.act(await seat.ask())


@cache
def expected_of_all() -> evalkit.Episode:
    return played(inside)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("dialect", FORMATS)
def test_an_agent_outside_plays_as_one_inside(dialect: str) -> None:
    episode, expected = played(through(dialect)), expected_of_all()
    assert episode.ending == expected.ending == "stable"
    assert episode.score == expected.score
    assert episode.facts == expected.facts


@evalkit.agent(version=1, parallel=3)
async def many_at_once(seat: evalkit.Seat) -> None:
    """Requests that are equal, and others, at once and more than may be in flight; then what is wrong."""
    async with evalkit.gateway(seat) as gate:
        bodies = [
            a_body("openai_chat", (Message(role="user", text=f"Say {number // 2}."),), seat.tools)
            for number in range(10)
        ]
        answers = await asyncio.gather(*(posted(gate, "openai_chat", body) for body in bodies))
        assert [status for status, _ in answers] == [200] * 10
        assert len({orjson.loads(body)["id"] for _, body in answers}) == 10
        await posted(gate, "openai_chat", bodies[0], key="critic")
        for body in (
            b"",
            b"[]",
            b'{"model":"main"}',
            b"{" * 10_000,
            a_body("openai_chat", seat.messages, seat.tools, model="x"),
        ):
            status, told = await posted(gate, "openai_chat", body)
            assert status == 400, told
            assert orjson.loads(told)["error"]["message"]
        elsewhere = Gateway(url=gate.url + "x")
        assert (await posted(elsewhere, "openai_chat", bodies[0]))[0] == 404
        status, told = await posted(
            gate, "openai_chat", a_body("openai_chat", seat.messages, seat.tools, max_tokens=10**9)
        )
        assert (status, b"max_tokens" in told) == (400, True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await posted(gate, "openai_chat", bodies[0])
    while not seat.ending:
        await seat.act(await seat.ask())


@pytest.mark.exhaustive
def test_requests_at_once_each_have_their_address(tmp_path: Path) -> None:
    spec = {
        "budget_usd": "1",
        "agents": [{"name": "many", "agent": "many", "models": MODELS}],
        "suites": [{"name": INSTANCE[0], "instances": [INSTANCE[1]]}],
    }
    run = evalkit.run(spec, name="many", directory=tmp_path, agents={"many": many_at_once})
    assert (run.reason, run.ended) == ("complete", 1)
    rows = run.sql("select key, n from asks where step = 0 and key <> '' order by key, n").to_pylist()
    keys = [row["key"] for row in rows]
    assert len(rows) == 11
    assert sum(key.startswith("critic/") for key in keys) == 1
    assert sorted(row["n"] for row in rows if "/" not in row["key"]) == [0] * 5 + [1] * 5


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_stream_says_the_same(dialect: str) -> None:
    seen: list[Mapping[str, Any]] = []

    @evalkit.agent(version=1)
    async def both(seat: evalkit.Seat) -> None:
        async with evalkit.gateway(seat) as gate:
            plain = a_body(dialect, seat.messages, seat.tools)
            _, whole = await posted(gate, dialect, plain)
            _, stream = await posted(gate, dialect, a_body(dialect, seat.messages, seat.tools, stream=True))
            assert stream.startswith((b"data: ", b"event: "))
            seen.append({"whole": read(dialect, whole), "stream": stream})
            while not seat.ending:
                await seat.act(await seat.ask())

    assert played(both).ending == "stable"
    for call in seen[0]["whole"].calls:
        assert call.name.encode() in seen[0]["stream"]


def test_keys_and_dialects_that_cannot_be_are_refused() -> None:
    gate = Gateway(url="http://127.0.0.1:1/g/token")
    assert gate.base_url("anthropic_messages", "critic") == "http://127.0.0.1:1/g/token/critic"
    for words in ({"dialect": "morse"}, {"dialect": "gemini"}, {"key": "a/b"}, {"key": "v1"}):
        with pytest.raises(evalkit.AgentError, match="gateway"):
            gate.base_url(**words)


def test_another_site_is_refused() -> None:
    statuses = []

    @evalkit.agent(version=1)
    async def outside(seat: evalkit.Seat) -> None:
        async with evalkit.gateway(seat) as gate:
            for headers in ({"Host": "evil"}, {"Host": "127.0.0.1:1@evil"}, {"Origin": "http://127.0.0.1:1@evil"}):
                async with aiohttp.ClientSession() as session:
                    url = gate.base_url("openai_chat") + "/chat/completions"
                    async with session.post(url, data=b"{}", headers=headers) as response:
                        statuses.append(response.status)
        await inside(seat)

    played(outside)
    assert statuses == [403, 403, 403]


def test_what_was_asked_through_it_is_not_asked_again(tmp_path: Path) -> None:
    fails = [True]

    @evalkit.agent(version=1, parallel=2)
    async def shaky(seat: evalkit.Seat) -> None:
        async with evalkit.gateway(seat) as gate:
            while not seat.ending:
                body = a_body("openai_chat", seat.messages, seat.tools)
                answers = await asyncio.gather(*(posted(gate, "openai_chat", body, key=key) for key in ("", "second")))
                if seat.step == 2 and fails:
                    raise RuntimeError(fails.pop())
                await seat.act(read("openai_chat", answers[0][1]))

    spec = {
        "budget_usd": "1",
        "agents": [{"name": "shaky", "agent": "shaky", "models": MODELS}],
        "suites": [{"name": INSTANCE[0], "instances": [INSTANCE[1]]}],
    }
    first, second = (evalkit.run(spec, name="shaky", directory=tmp_path, agents={"shaky": shaky}) for _ in range(2))
    assert (first.ended, second.ended, second.reason) == (0, 1, "complete")
    rows = second.sql("select step, key, n, count(*) as rows from asks group by all").to_pylist()
    steps = second.sql("select count(*) as steps from steps").to_pylist()[0]["steps"]
    assert [row["rows"] for row in rows] == [1] * 2 * steps
