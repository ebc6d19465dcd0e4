"""The head of a Ray cluster as a run sees it, without Ray: somebody who listens at an address, and then does not."""

import asyncio
import socket

import pytest

from evalkit.engine.episode import Stop
from evalkit.engine.machines import ray_head
from evalkit.engine.machines.ray_head import VARIABLE, RayHead, ray_waits_s
from tests.support.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_head, "LOOK_S", 0.01)


def listening(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=1024)


def address(head: socket.socket) -> str:
    return f"127.0.0.1:{head.getsockname()[1]}"


async def until_silent(head: RayHead, silent: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (head.silent_since is not None) == silent:
                return
            await asyncio.sleep(0.005)


def test_a_head_that_is_lost_stops_the_run_and_then_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2")

    async def lose() -> None:
        stop, loop = Stop(), asyncio.get_running_loop()
        with listening() as there:
            head = RayHead(address(there))
            watching = loop.create_task(head.watch(stop))
            (await loop.run_in_executor(None, there.accept))[0].close()
            where = address(there)
        await until_silent(head, True)
        began = head.silent_since
        assert began is not None
        assert not stop.reason
        while not stop.reason:
            assert not watching.done()
            await asyncio.sleep(0.005)
        assert loop.time() - began >= 1
        assert stop.reason == "cluster"
        assert f"The head of the Ray cluster ({where}) has not answered for 1 s" in stop.message
        await asyncio.wait_for(watching, PATIENCE_S)
        assert loop.time() - began >= 1.4

    asyncio.run(lose())


def test_a_head_that_comes_back_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(10 * PATIENCE_S))

    async def come_back() -> None:
        stop = Stop()
        with listening() as there:
            port, head = there.getsockname()[1], RayHead(address(there))
            watching = asyncio.get_running_loop().create_task(head.watch(stop))
            (await asyncio.get_running_loop().run_in_executor(None, there.accept))[0].close()
        await until_silent(head, True)
        with listening(port):
            await until_silent(head, False)
        await until_silent(head, True)
        assert not stop.reason
        assert not watching.done()
        watching.cancel()

    asyncio.run(come_back())


def test_an_address_that_was_never_reached_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.1")

    async def wait() -> None:
        stop = Stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(RayHead("127.0.0.1:9").watch(stop), 0.5)
        assert not stop.reason

    asyncio.run(wait())


def test_how_long_ray_waits_is_what_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, waits in ((None, 60), ("600", 600), ("soon", 60)):
        monkeypatch.delenv(VARIABLE, raising=False)
        if said is not None:
            monkeypatch.setenv(VARIABLE, said)
        assert ray_waits_s() == waits
