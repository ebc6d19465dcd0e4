"""The provider over real HTTP, as a client meets it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from evalkit.errors import EvalkitError, UsageError
from evalkit.serve import server
from evalkit.serve.launch import simulated
from evalkit.serve.server import listening
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.serve.asking import body
from tests.support.patience import PATIENCE_S

Talk = Callable[[aiohttp.ClientSession, str, Double], Awaitable[Any]]


def talk(options: dict[str, Any], what: Talk) -> Any:
    """Whatever `what` finds out at a provider with these options."""

    async def both() -> Any:
        simulator = Double(options_from(options), asyncio.get_running_loop().time())
        async with listening(simulator) as url, aiohttp.ClientSession() as session:
            return await what(session, url, simulator)

    return asyncio.run(both())


async def ask(session: aiohttp.ClientSession, url: str, request_id: str = "e/0/0") -> tuple[int, bytes]:
    headers = {"X-Client-Request-Id": request_id}
    async with session.post(f"{url}/chat/completions", data=body(), headers=headers) as response:
        return response.status, await response.read()


def lines(bill: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bill.read_bytes().splitlines()]


def after(
    first: Callable[[], Awaitable[None]], perform: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """What a server does, once something else has come true."""

    async def performed(*parts: Any) -> Any:
        await first()
        return await perform(*parts)

    return performed


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def left_once_asked(asking: Awaitable[Any], simulator: Double) -> None:
    """Ask, and give up at some time after the request has arrived and before an answer has come."""
    task = asyncio.ensure_future(asking)
    await until(lambda: simulator.totals.requests > 0)
    await asyncio.sleep(0.1)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_many_at_once_are_answered_after_their_latency_and_billed_in_order_of_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill = tmp_path / "bill.jsonl"

    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> tuple[float, list[Any], Any]:
        began = time.monotonic()
        everybody = partial(until, lambda: simulator.totals.in_flight == 40)
        monkeypatch.setattr(server, "_perform", after(everybody, server._perform))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(session, url, f"e{i}/0/0")) for i in range(40)]
        took = time.monotonic() - began
        return took, [task.result() for task in tasks], simulator.totals

    took, answers, totals = talk({"latency": "200ms", "bill": str(bill)}, what)
    assert took >= 0.2
    assert {status for status, _ in answers} == {200}
    assert len({content for _, content in answers}) == 1
    assert (totals.requests, totals.in_flight, totals.max_in_flight) == (40, 0, 40)
    found = lines(bill)
    assert [line["n"] for line in found] == list(range(1, 41))
    assert {line["request_id"] for line in found} == {f"e{i}/0/0" for i in range(40)}
    assert sum(line["cost"] for line in found) == totals.bill > 0


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("reset", aiohttp.ClientConnectionError),
        ("truncated", aiohttp.ClientPayloadError),
        ("stall", None),
    ],
)
def test_a_broken_answer_reaches_the_client_as_what_it_is(
    fault: str, failure: type[Exception] | None, tmp_path: Path
) -> None:
    bill = tmp_path / "bill.jsonl"

    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> tuple[int, int]:
        if failure is None:
            await left_once_asked(ask(session, url), simulator)
        else:
            with pytest.raises(failure):
                await ask(session, url)
        await until(lambda: not simulator.totals.in_flight)
        return simulator.totals.requests, simulator.totals.billed

    requests, billed = talk({f"fault_{fault}": 1, "bill": str(bill)}, what)
    assert requests >= 1
    assert billed == requests
    # aiohttp asks again by itself only where a kept connection breaks; this one was new.
    assert [line["outcome"] for line in lines(bill)] == [fault]


def test_the_bill_has_a_request_whose_client_left_before_its_answer(tmp_path: Path) -> None:
    bill = tmp_path / "bill.jsonl"

    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> list[dict[str, Any]]:
        await left_once_asked(ask(session, url), simulator)
        return lines(bill)

    (line,) = talk({"latency": "1h", "bill": str(bill)}, what)
    assert (line["request_id"], line["billed"], line["status"]) == ("e/0/0", True, 200)


def test_errors_and_limits_come_with_their_headers() -> None:
    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> list[tuple[int, Any]]:
        found = []
        for content in (body(), body(), b"nonsense"):
            async with session.post(f"{url}/chat/completions", data=content) as response:
                await response.read()
                found.append((response.status, response.headers.get("Retry-After")))
        return found

    good, limited, nonsense = talk({"rpm": 1}, what)
    assert (good, limited[0], nonsense) == ((200, None), 429, (400, None))
    assert 1 <= int(limited[1]) <= 60


def test_a_taken_port_and_an_unwritable_bill_are_said_clearly(tmp_path: Path) -> None:
    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> None:
        port = int(url.removesuffix("/v1").rpartition(":")[2])
        with pytest.raises(UsageError, match=rf"cannot listen on 127.0.0.1:{port}"):
            async with listening(Double(options_from({"port": port}), simulator.started_s)):
                pass

    talk({}, what)
    with pytest.raises(UsageError, match="bill: cannot write"):
        talk({"bill": str(tmp_path / "no" / "bill.jsonl")}, what)


def test_a_child_serves_until_the_block_ends_and_appends_to_its_bill(tmp_path: Path) -> None:
    bill = tmp_path / "bill.jsonl"

    async def once(url: str) -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as session:
            return await ask(session, url)

    answers = []
    for _ in range(2):
        with simulated({"bill": str(bill), "latency": "1ms"}) as url:
            answers.append(asyncio.run(once(url)))
        with pytest.raises(aiohttp.ClientConnectionError):
            asyncio.run(once(url))
    assert answers[0] == answers[1]
    assert answers[0][0] == 200
    assert len(lines(bill)) == 2


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="unknown key 'laten'"),
        simulated({"laten": "1s"}),
    ):
        pass
    with (
        pytest.raises(EvalkitError, match=r"did not start \(exit code 2\).*bill: cannot write"),
        simulated({"bill": str(tmp_path / "no" / "b")}),
    ):
        pass


def test_the_child_dies_with_a_parent_that_is_killed() -> None:
    script = (
        "import time\nfrom evalkit.serve.launch import simulated\n"
        "with simulated({}) as url:\n    print(url, flush=True)\n    time.sleep(3600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    url = parent.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    parent.send_signal(signal.SIGKILL)
    parent.wait(PATIENCE_S)
    parent.stdout.close()
    assert gone_within(PATIENCE_S, url)


def gone_within(seconds: float, url: str) -> bool:
    async def alive() -> bool:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(url) as page:
                    return page.status == 404
            except aiohttp.ClientConnectionError:
                return False

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not asyncio.run(alive()):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "evalkit", "simulate", "--latency", "1ms"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("listening on http://127.0.0.1:")
    os.kill(process.pid, number)
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()


@dataclass(frozen=True)
class Read:
    """What came of a stream."""

    first_s: float
    took_s: float
    body: bytes
    failure: str
    """The error that ended it; empty: none did."""


async def read(session: aiohttp.ClientSession, url: str) -> Read:
    """A stream, as far as it comes."""
    began, first, got, failure = time.monotonic(), 0.0, b"", ""
    try:
        asked = body(model="knuth", stream=True)
        async with session.post(f"{url}/chat/completions", data=asked) as response:
            assert (response.status, response.headers["Transfer-Encoding"]) == (200, "chunked")
            assert "Content-Length" not in response.headers
            async for piece in response.content.iter_any():
                first, got = first or time.monotonic(), got + piece
    except aiohttp.ClientError as flaw:
        failure = repr(flaw)
    return Read(first - began if first else 0.0, time.monotonic() - began, got, failure)


def streamed(options: dict[str, Any]) -> Read:
    """A stream of a provider with these options."""

    async def what(session: aiohttp.ClientSession, url: str, simulator: Double) -> Any:
        return await read(session, url)

    return cast(Read, talk(options, what))


def test_a_stream_comes_over_a_part_of_its_latency() -> None:
    at_once, slowly = streamed({}), streamed({"latency": "300ms"})
    assert at_once.body == slowly.body
    assert at_once.body.endswith(b"data: [DONE]\n\n")
    assert slowly.first_s >= 0.15
    assert slowly.took_s >= 0.3
    assert (at_once.failure, slowly.failure) == ("", "")


def test_a_truncated_stream_reaches_the_client_as_what_it_is() -> None:
    whole, broken = streamed({}), streamed({"fault_truncated": 1})
    assert "TransferEncodingError" in broken.failure
    assert whole.body.startswith(broken.body)
    assert 0 < len(broken.body) < len(whole.body)
