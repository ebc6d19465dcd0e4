"""The head of a Ray cluster as a run sees it, without Ray: somebody who listens at an address, and then does not."""

import asyncio
import socket

import pytest

from evalkit.engine.options import Stop
from evalkit.machines import on_ray
from evalkit.machines.on_ray import VARIABLE, RayHead, ray_waits_s
from tests.support.patience import PATIENCE_S
from tests.support.virtual_clock import run_virtual


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "HEAD_LOOK_S", 0.01)


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
    there = [True]

    async def reach(address: str) -> None:
        del address
        if not there[0]:
            raise ConnectionRefusedError

    async def lose() -> tuple[float, float]:
        stop, loop = Stop(), asyncio.get_running_loop()
        watching = loop.create_task(RayHead("node-3:6379").watch(stop))
        await asyncio.sleep(10.005)
        there[0] = False
        while not stop.reason:
            assert not watching.done()
            await asyncio.sleep(0.001)
        stopped = loop.time()
        assert stop.reason == "cluster"
        assert "The head of the Ray cluster (node-3:6379) has not answered for 1 s" in stop.message
        await watching
        return stopped, loop.time()

    monkeypatch.setattr(on_ray, "reach", reach)
    assert run_virtual(lose()) == pytest.approx((11.0, 11.4), abs=0.03)


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
    monkeypatch.setenv(VARIABLE, "2")

    async def reach(address: str) -> None:
        raise ConnectionRefusedError(address)

    async def wait() -> None:
        stop = Stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(RayHead("127.0.0.1:9").watch(stop), 10.0)
        assert not stop.reason

    monkeypatch.setattr(on_ray, "reach", reach)
    run_virtual(wait())


def test_how_long_ray_waits_is_what_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, waits in ((None, 60), ("600", 600), ("soon", 60)):
        monkeypatch.delenv(VARIABLE, raising=False)
        if said is not None:
            monkeypatch.setenv(VARIABLE, said)
        assert ray_waits_s() == waits
