"""A provider of the tests' own that answers or refuses each request as a test says, and runs beside it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.playing.sweeps import run_sweep
from evalkit.seats import AgentFn
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
replicates = {replicates}
width = {width}
[[agents]]
name = "m"
provider = "acme"
model = "m-1"
[[suites]]
name = "pricing/basic"
instances = {instances}
vary = {{ periods = [1] }}
{more}
"""
FOUR = ("seed-0", "seed-3", "seed-6", "seed-9")

_PRICES = json.dumps({"prices_dict_str": '{"Product_1": 20}'})

Answer = tuple[int, str]
"""Status and body."""
Decide = Callable[[str, int, int], Answer | None]
"""(episode, step, how many requests came before) -> what to refuse it with; None: it is answered."""


def error(text: str, code: str = "", kind: str = "invalid_request_error") -> str:
    """An error as most providers write it."""
    return json.dumps({"error": {"message": text, "code": code, "type": kind}})


def reply(step: int) -> str:
    """A reply in words to an episode's first request, prices to the others: so an episode takes two, and scores 50 of
    100 on average."""
    calls = [{"id": f"c{step}", "type": "function", "function": {"name": "set_prices", "arguments": _PRICES}}]
    said = {"role": "assistant", "content": "Let me see."} if step == 0 else {"role": "assistant", "tool_calls": calls}
    choice = {"message": said, "finish_reason": "stop" if step == 0 else "tool_calls"}
    return json.dumps({"model": "m-1", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})


@dataclass
class Refusing:
    """The provider."""

    decide: Decide
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Of each request, its episode and step."""

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        episode, step, *_ = request.headers["X-Client-Request-Id"].split("/")
        episode = episode.partition(".")[0]
        before, _ = len(self.seen), self.seen.append((episode, int(step)))
        refused = self.decide(episode, int(step), before)
        status, body = refused or (200, reply(int(step)))
        return web.Response(status=status, body=body.encode(), content_type="application/json")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/{tail:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


def sweep_of(folder: Path, url: str, text: str, agents: Mapping[str, AgentFn] = {}) -> ResolvedSweep:
    """The sweep of this text, with `url` as the provider `acme`."""
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "acme.toml").write_text(PROVIDER.format(url=url))
    (folder / "mine.toml").write_text(text)
    return resolve(read_sweep(folder / "mine.toml", agents=agents))


def sweep_text(*, replicates: int = 3, width: int = 1, instances: tuple[str, ...] = FOUR, more: str = "") -> str:
    """A sweep of one model on a small suite."""
    return SWEEP.format(replicates=replicates, width=width, instances=list(instances), more=more)


def play(
    folder: Path, decide: Decide, text: str | None = None, agents: Mapping[str, AgentFn] = {}
) -> tuple[RunOutcome, Refusing]:
    """Play the sweep in `folder` (the working directory) into `folder / run`."""

    async def both() -> tuple[RunOutcome, Refusing]:
        provider = Refusing(decide)
        async with provider.listening() as url:
            resolved = sweep_of(folder, url, sweep_text() if text is None else text, agents)
            outcome = await run_sweep(resolved, RunOptions(directory=folder / "run"), lambda view: None)
        return outcome, provider

    return asyncio.run(both())
