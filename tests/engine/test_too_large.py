"""An episode whose next request can never be paid for is set aside alone; the others are played, at each start."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.sweep import read_sweep

PROVIDER = """
dialect = "openai_chat"
url = "{url}"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
SWEEP = """
replicates = 2
width = 4
budget_usd = {budget}
[[agents]]
name = "m"
provider = "acme"
model = "m-1"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [1] }}
"""
EPISODES = 4
LONG = "x" * 400_000
"""Fewer bytes than `max_tokens` tokens could be, and dearer to send back than the budget."""


@asynccontextmanager
async def rambling() -> AsyncIterator[str]:
    """A provider whose model rambles in the first episode that asks: its address."""
    asked: dict[str, None] = {}

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        episode, step, _ = request.headers["X-Client-Request-Id"].split("/")
        asked[episode] = None
        text = LONG if step == "0" and episode == next(iter(asked)) else "hm"
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 5}})

    app = web.Application(client_max_size=2**30)
    app.router.add_post("/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("workers", [1, 2])
def test_one_long_reply_sets_its_episode_aside_and_the_others_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.chdir(tmp_path)

    def swept(url: str, budget: str) -> ResolvedSweep:
        Path("providers").mkdir(exist_ok=True)
        Path("providers/acme.toml").write_text(PROVIDER.format(url=url))
        Path("mine.toml").write_text(SWEEP.format(budget=budget))
        return resolve(read_sweep(Path("mine.toml")))

    async def play(url: str, budget: str, limit: int | None = None) -> RunOutcome:
        options = RunOptions(directory=tmp_path / "run", limit=limit)
        resolved = swept(url, budget)
        resolved = replace(resolved, sweep=replace(resolved.sweep, workers=workers))
        return await run_sweep(resolved, options, lambda view: None)

    async def main() -> None:
        async with rambling() as url:
            first = await play(url, "0.30", limit=1)
            assert (first.ended, first.remaining) == (0, EPISODES)
            for _ in range(2):
                again = await play(url, "0.30")
                assert (again.ended, again.remaining, again.exit_code, again.reason) == (EPISODES - 1, 1, 3, "deferred")
                (words,) = [text for text in again.messages if "too_large" in text]
                assert words.startswith("acme/m-1: 1 set aside (`too_large`): the next request of an episode may cost")
                assert "the other episodes go on" in words
            rich = await play(url, "3")
            assert (rich.ended, rich.remaining, rich.exit_code) == (EPISODES, 0, 0)

    asyncio.run(main())
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["why"] for event in events if event["kind"] == "deferred"] == ["too_large"] * 3
