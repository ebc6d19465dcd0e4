"""Several servers of one model, over HTTP: one dies and comes back, one is slow, and the log is that of one server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.status import read_status
from evalkit.engine.view import View
from evalkit.playing.sweeps import run_sweep
from evalkit.results.verify import verify
from evalkit.serve.outcome import ServedOutcome
from evalkit.serve.server import _perform
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.provider.serving import serving
from tests.soak.test_kill import steps
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import served, with_budget

PROVIDER = """
dialect = "openai_chat"
url = [{servers}]
timeout_s = 600

[usd_per_mtok]
input = "1"
output = "4"
source = "simulated money, 2026-01-01"
"""
PORTS = 3
HELD_FROM = 100
"""Requests, of all servers."""


@dataclass(slots=True)
class GpuServer:
    """One simulated provider at a port of its own, which can be ended and started again."""

    port: int
    latency: str = "50ms"
    lives: list[Double] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        options = options_from({"latency": self.latency, "port": self.port})
        _, simulator = await self.stack.enter_async_context(serving(options))
        self.lives.append(simulator)

    async def end(self) -> None:
        await self.stack.aclose()

    @property
    def replies(self) -> int:
        return sum(life.totals.requests for life in self.lives)

    @property
    def bill(self) -> int:
        return sum(life.totals.bill for life in self.lives)


@asynccontextmanager
async def standing(servers: list[GpuServer]) -> AsyncIterator[None]:
    for server in servers:
        await server.start()
    try:
        yield
    finally:
        for server in servers:
            await server.end()


Harm = Callable[[View, list[GpuServer]], Awaitable[None]]


async def calm(view: View, servers: list[GpuServer]) -> None:
    del view, servers


def play(
    sweep: ResolvedSweep, run: Path, servers: list[GpuServer], harm: Harm = calm, *, limit: int | None = None
) -> tuple[RunOutcome, list[View]]:
    """Play beside the servers; `harm` is called with each view, one after the other."""
    views: list[View] = []

    async def both() -> RunOutcome:
        async with standing(servers), asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            running = [True]

            async def disturb() -> None:
                seen = 0
                while running[0]:
                    if len(views) > seen:
                        seen = len(views)
                        await harm(views[-1], servers)
                    await asyncio.sleep(0.01)

            group.create_task(disturb())
            try:
                return await run_sweep(sweep, RunOptions(directory=run, limit=limit), views.append)
            finally:
                running[0] = False

    return asyncio.run(both()), views


def what_was_said(run: Path) -> list[dict[str, object]]:
    """The rows of a log, without how often each was asked."""
    return [{name: value for name, value in row.items() if name != "attempts"} for row in steps(run)]


@pytest.fixture
def ports() -> list[int]:
    sockets = [socket.socket() for _ in range(PORTS)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


def sweep_of(
    folder: Path,
    ports: list[int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    replicates: int,
    width: int,
    periods: int,
    limits: str = "",
) -> ResolvedSweep:
    monkeypatch.chdir(folder)
    (folder / "providers").mkdir(exist_ok=True)
    named = ", ".join(f'{{ url = "http://127.0.0.1:{port}/v1"{limits} }}' for port in ports)
    (folder / "providers" / "simulated.toml").write_text(PROVIDER.format(servers=named))
    return resolved(folder, served(replicates=replicates, width=width, periods=periods))


@pytest.mark.exhaustive
def test_a_server_that_dies_and_comes_back_costs_no_episode_and_no_money_unknown(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sweep_of(tmp_path, ports[:1], monkeypatch, replicates=4, width=12, periods=4)
    alone = GpuServer(ports[0], latency="5ms")
    whole, _ = play(one, tmp_path / "whole", [alone])
    assert whole.exit_code == 0

    servers = [GpuServer(port) for port in ports]
    said, healed = set[str](), asyncio.Event()
    down_s: list[float] = []

    async def held(request: web.BaseRequest, outcome: ServedOutcome) -> web.StreamResponse:
        """In the middle of the run nobody is answered until one server has died and come back."""
        if sum(server.replies for server in servers) >= HELD_FROM:
            await healed.wait()
        return await _perform(request, outcome)

    async def kill_and_heal(view: View, servers: list[GpuServer]) -> None:
        if sum(server.replies for server in servers) >= HELD_FROM and not healed.is_set():
            await servers[1].end()
            while not said:
                await asyncio.sleep(0.01)
                said.update(name for name, own in read_status(tmp_path / "torn").servers.items() if own[1].is_down)
            await servers[1].start()
            healed.set()
        down_s.extend(lane.servers[1].down_s for lane in view.lanes)

    monkeypatch.setattr("evalkit.serve.server._perform", held)
    three = with_budget(sweep_of(tmp_path, ports, monkeypatch, replicates=4, width=12, periods=4), 4 * whole.spent)
    torn, views = play(three, tmp_path / "torn", servers, kill_and_heal)
    assert (torn.reason, torn.exit_code) == ("complete", 0)
    assert what_was_said(tmp_path / "torn") == what_was_said(tmp_path / "whole")
    assert verify(tmp_path / "torn") == []
    assert len(servers[1].lives) == 2
    assert min(server.replies for server in servers) > 10
    assert sum(server.bill for server in servers) <= torn.spent <= 4 * whole.spent
    assert max(down_s) > 0.0
    assert said <= {"simulated/knuth", "simulated/random"}, "`status` says which server is down"
    last = views[-1].lanes[0]
    assert [server.server for server in last.servers] == [f"127.0.0.1:{port}" for port in ports]
    assert len(last.to_json()["servers"]) == PORTS


def test_a_run_goes_on_at_other_servers_than_those_it_began_at(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = sweep_of(tmp_path, ports[:2], monkeypatch, replicates=2, width=8, periods=3)
    begun, _ = play(two, tmp_path / "run", [GpuServer(port) for port in ports[:2]], limit=2)
    assert begun.reason == "limit"
    others = [GpuServer(port, latency="5ms") for port in ports[1:]]
    changed = sweep_of(tmp_path, ports[1:], monkeypatch, replicates=2, width=8, periods=3)
    ended, _ = play(changed, tmp_path / "run", others)
    assert ended.reason == "complete"
    assert verify(tmp_path / "run") == []
    assert min(server.replies for server in others) > 0


def test_a_slow_server_is_asked_less_and_holds_up_nobody_else(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [GpuServer(port, "1ms") for port in ports[:2]]
    asked: list[int] = []

    async def held(request: web.BaseRequest, outcome: ServedOutcome) -> web.StreamResponse:
        """The second server takes as long for its first replies as the first one for many."""
        if request.url.port == ports[1]:
            while servers[0].replies < HELD_FROM:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            asked.append(servers[1].replies)
        return await _perform(request, outcome)

    monkeypatch.setattr("evalkit.serve.server._perform", held)
    sweep = sweep_of(tmp_path, ports[:2], monkeypatch, replicates=4, width=16, periods=4, limits=", in_flight = 6")
    outcome, views = play(sweep, tmp_path / "run", servers)
    assert outcome.reason == "complete"
    assert asked[0] <= 2 * 6, "both lanes have six there"
    for view in views:
        for lane in view.lanes:
            assert all(server.in_flight <= server.window <= 6 for server in lane.servers)


@pytest.mark.exhaustive
def test_workers_share_the_limits_of_each_server(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [GpuServer(port, "30ms") for port in ports[:2]]
    sweep = sweep_of(tmp_path, ports[:2], monkeypatch, replicates=2, width=12, periods=3, limits=", in_flight = 3")
    two = replace(sweep, sweep=replace(sweep.sweep, workers=2))
    outcome, views = play(two, tmp_path / "run", servers)
    assert (outcome.reason, outcome.exit_code) == ("complete", 0)
    assert verify(tmp_path / "run") == []
    for server in servers:
        assert server.replies > 0
        assert server.lives[0].totals.max_in_flight <= 2 * 3, "both lanes have three there"
    told = [lane for view in views for lane in view.lanes if lane.servers]
    assert told
    assert {server.server for lane in told for server in lane.servers} == {f"127.0.0.1:{port}" for port in ports[:2]}
    assert max(server.replies for lane in told for server in lane.servers) > 0
