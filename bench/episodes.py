"""What a whole CostBench episode costs this process: static, length 8, engine, budget and durable log included.

The transport is a table in memory. It hands back the bytes of the reply that an agent of atomic calls gives at that
step, made beforehand: eight calls and an answer, as the reference was measured. Everything else is the path of a real
sweep: environment, encoding, lane, budget, decoding, log.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.request import request_template
from evalkit.dialogue import Request, Usage
from evalkit.engine.episode import LaneContext
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.universe import Choice, PlannedEpisode, cells, episodes
from evalkit.envs.replay import advance, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.money import PicoUsd
from evalkit.policy.conversation import answer
from evalkit.policy.table import player
from evalkit.replies import encode_reply
from evalkit.seeds import derive
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.model import AgentSpec, Limits, SuiteUse, Sweep
from evalkit.store.writing.writer import open_store
from evalkit.wire.http import HttpResponse

EPISODES = 400
WIDTH = 64
LENGTH = 8
MOST_MS = 3.0
REFERENCE_MS = 700.0
"""CPU of one episode of this length in the reference, model excluded (specification, section 10)."""
PRICE = PicoUsd(10**16)
WIDE = Limits(requests_per_minute=6e7, input_tokens_per_minute=6e10, output_tokens_per_minute=6e10)


def main() -> bool:
    """Measure and print; whether the promise is kept."""
    with tempfile.TemporaryDirectory() as folder:
        resolved = _sweep(Path(folder))
        todo = list(episodes(resolved.manifest, list(resolved.manifest.agents.values()), Choice()))
        replies = {episode.id: _atomic(episode) for episode in todo}
        began = time.process_time()
        asyncio.run(_play(resolved, todo, replies, Path(folder) / "run"))
        spent = (time.process_time() - began) * 1e3 / len(todo)
    steps = sum(map(len, replies.values())) / len(replies)
    print(f"{'CPU an episode':44}{'reference':>12}{'measured':>12}{'promise':>12}")
    name = f"CostBench, static, N = {LENGTH}, {steps:.1f} steps"
    print(f"{name:44}{f'{REFERENCE_MS:.0f} ms':>12}{f'{spent:.2f} ms':>12}{f'<= {MOST_MS:.0f} ms':>12}")
    return spent <= MOST_MS


def _sweep(folder: Path) -> ResolvedSweep:
    """A sweep over fresh instances, as a user would write it."""
    suite = folder / "fresh.jsonl"
    made = ENVIRONMENTS["costbench"].generate({"length": LENGTH}, EPISODES, 1)
    suite.write_bytes(b"\n".join(orjson.dumps(dict(line)) for line in made))
    agent = AgentSpec(name="model", provider="simulated", model="replanner")
    sweep = Sweep(name="bench", source="bench", agents=(agent,), suites=(SuiteUse(name=str(suite)),))
    return resolve(sweep)


def _atomic(episode: PlannedEpisode) -> list[bytes]:
    """The bodies that the provider of an agent who sees only the atomic tools sends, step by step."""
    env, found = episode.cell.env, []
    # Not `episode.instance`: what is worked out for that one must be paid for in what is measured.
    position = begin(env, env.load(episode.target.line), episode.cell.kit)
    play = player("replanner", env.name)
    while not position.ending:
        request = Request(
            messages=tuple(position.messages),
            tools=position.tools[:LENGTH],
            sampling=episode.cell.sampling,
            seed=derive(episode.id, position.step),
        )
        reply = answer("replanner", play, request)
        advance(env, position, reply, encode_reply(reply))
        billed = replace(reply, usage=Usage(input=1000, output=100), model="m", response_id="r")
        found.append(SERVED_OPENAI_CHAT.encode_reply(billed))
    return found


class _Memory:
    """A transport that answers at once."""

    def __init__(self, replies: Mapping[str, list[bytes]]) -> None:
        self._replies = replies

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The reply to the step that the id names."""
        del body
        episode, step, _ = request_id.split("/")
        await asyncio.sleep(0)
        return HttpResponse(status=200, headers={}, body=self._replies[episode][int(step)])


async def _play(
    resolved: ResolvedSweep, todo: list[PlannedEpisode], replies: Mapping[str, list[bytes]], run: Path
) -> None:
    with open_store(run, session="bench") as store:
        lane = Lane("bench", limits=WIDE, width=WIDTH)
        endpoint = resolved.endpoints["model"]
        cell = next(iter(cells(resolved.manifest).values()))
        assert endpoint.model.price is not None
        asker = ModelAsker(
            request_template(
                "model",
                provider=endpoint.provider,
                model=endpoint.model,
                sampling=cell.sampling,
                price=endpoint.model.price,
            ),
            lane=lane,
            budget=Budget(budget=PRICE, spent=PicoUsd(0), ledger=store, session="bench"),
            transport=_Memory(replies),
        )
        context = LaneContext(log=store, worker="bench", stop=Stop())
        nothing = Holdings(episodes={}, rows={})
        job = LaneJob(
            name="bench",
            width=WIDTH,
            episodes=len(todo),
            planned=len(todo),
            done_before=0,
            todo=iter(todo),
            activate=nothing.activate,
            asker=lambda _: asker,
            context=context,
            lane=lane,
        )
        await play_lanes([job])
        assert sum(context.ended.values()) == len(todo), context.ended


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
