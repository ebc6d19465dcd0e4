"""A planted key, and every way in which an endpoint may throw it back."""

import asyncio
import logging
import traceback
from collections.abc import Callable

import pytest
from aiohttp import web

from evalkit.client.ask import Question
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.open import endpoint_of, open_transport
from evalkit.client.request import request_template
from evalkit.client.transport import Transport
from evalkit.dialogue import Message, Sampling
from evalkit.errors import EvalkitError
from evalkit.money import FREE, PicoUsd
from evalkit.spec.model import Limits, Model, Provider, ServerSpec
from evalkit.store.files.record import LedgerRecord
from evalkit.wire.http import HttpResponse

KEY = "sk-planted-0123456789"


class Disk:
    """A ledger that is written at once."""

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        assert KEY not in repr(record)
        if then is not None:
            then()

    async def durable(self) -> None:
        return None


class Tried:
    """A transport that tells once an attempt has come to an end."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self.once = transport, asyncio.Event()

    def __repr__(self) -> str:
        return repr(self._transport)

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        try:
            return await self._transport.send(body, request_id)
        finally:
            self.once.set()


async def throw_back(request: web.Request) -> web.Response:
    """Whatever the model's name asks for, with the key in it."""
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    kind = (await request.json())["model"]
    if kind == "redirect":
        return web.Response(status=307, headers={"Location": f"http://x.example/?key={KEY}"})
    if kind == "reason":
        return web.Response(status=401, reason=f"bad key {KEY}")
    return web.json_response(
        {"error": {"message": f"Incorrect API key provided: {KEY}", "code": KEY}}, status=int(kind)
    )


async def failure(kind: str) -> tuple[EvalkitError, str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", throw_back)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1] if kind != "nobody" else 9
    provider = Provider(
        name="acme", dialect="openai_chat", servers=(ServerSpec(url=f"http://127.0.0.1:{port}/v1"),), key_env="ACME_KEY"
    )
    lane = Lane("acme/m", limits=Limits(), width=4)
    budget = Budget(budget=None, spent=PicoUsd(0), ledger=Disk(), session="s")
    try:
        async with open_transport(provider) as transport:
            asker = ModelAsker(
                request_template(
                    "a",
                    provider=provider,
                    model=Model(name=kind, price=None, limits=Limits()),
                    sampling=Sampling(),
                    price=FREE,
                ),
                lane=lane,
                budget=budget,
                transport=(tried := Tried(endpoint_of(transport, provider, kind))),
            )
            parts: list[bytes] = []
            asker.join(parts, (Message(role="user", text="hello"),))
            asking = asyncio.ensure_future(
                asker.ask(Question(episode="e", step=0, seed=1, tools=asker.encode_tools(()), messages=parts))
            )
            if kind == "nobody":
                await tried.once.wait()
                lane.end(EvalkitError("stopped"))
            with pytest.raises(EvalkitError) as flaw:
                await asking
            return flaw.value, repr(lane.stats()) + repr(transport) + repr(asker) + repr(vars(asker))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", ["400", "401", "403", "404", "redirect", "reason", "nobody"])
def test_a_planted_key_never_comes_out(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    flaw, shown = asyncio.run(failure(kind))
    assert KEY not in "".join(traceback.format_exception(flaw, chain=True))
    assert KEY not in shown
    assert KEY not in caplog.text
