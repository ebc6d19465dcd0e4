"""evalkit as a measured client: its own engine, client, limits, budget and durable step log.

The same code path as a sweep: lanes, players, askers and store are those of `evalkit run`; only the environment is the
benchmark's (one tool, stop at a text). `bench/job.py` says what it is asked to do.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.job import (
    BASE_URL,
    CONC,
    EPISODES,
    MODEL,
    OUT,
    RESUME,
    STREAM,
    SYSTEM,
    TOOL_DESCRIPTION,
    TOOL_NAME,
    TOOL_PARAMETERS,
    TOOL_TEXT,
    folder_bytes,
    prompt,
    report,
    start,
)
from bench.lookup import LOOKUP, Instance
from evalkit.client.ask import Asker
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.open import endpoint_of, open_transport, stream_endpoint_of
from evalkit.client.request import request_template
from evalkit.dialogue import Tool
from evalkit.engine.episode import LaneContext
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings, read_holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.spending.money import open_row
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.environment import Kit, Pack
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import ManifestAgent, ManifestSuite
from evalkit.money import PicoUsd, Price
from evalkit.spec.identity import episode_id, episode_key
from evalkit.spec.model import Limits, Model, Provider, ServerSpec
from evalkit.store.writing.writer import Store, open_store

PRICE = Price(input=10**6, output=4 * 10**6, cached_read=10**6, cached_write=10**6)
BUDGET = PicoUsd(10**16)
PROVIDER = Provider(name="stub", dialect="openai_chat", servers=(ServerSpec(url=BASE_URL),))
WIDE = Limits(requests_per_minute=6e7, input_tokens_per_minute=6e10, output_tokens_per_minute=6e10)
"""Limits that never bind: their arithmetic is paid for, as in a real sweep."""


def _cell() -> AgentSetup:
    agent = ManifestAgent(
        name="stub",
        identity="stub",
        lane="stub/model",
        provider="stub",
        model=MODEL,
        policy="",
        script="",
        overrides={},
        sampling={},
        packs={},
        pack="none",
        notes=False,
        tags=(),
    )
    kit = Kit(pack=Pack(name="none", digest="", texts={}))
    return AgentSetup(
        agent=agent,
        env=LOOKUP,
        kit=kit,
        sampling=LOOKUP.defaults,
        key=episode_key("stub", {}, "", "lookup", 1),
    )


class _Given(PlannedEpisode, frozen=True, kw_only=True):
    """An episode whose instance is at hand: the manifest's line holds it."""

    @property
    def instance(self) -> Instance:
        found: Instance = self.target.line["instance"]
        return found


def _episode(number: int, cell: AgentSetup, suite: ManifestSuite, tool: Tool) -> PlannedEpisode:
    instance = Instance(system=SYSTEM, prompt=prompt(number), tool=tool, result=TOOL_TEXT)
    target = ManifestInstance(id=str(number), digest=str(number), stratum="", line={"instance": instance})
    return _Given(
        id=episode_id(cell.key, str(number), 0),
        cell=cell,
        suite=suite,
        target=target,
        replicate=0,
        index=0,
        cell_key=(cell.agent.name, suite.name),
    )


def _job(store: Store, asker: Asker, lane: Lane, holdings: Holdings) -> LaneJob:
    tool = Tool(name=TOOL_NAME, description=TOOL_DESCRIPTION, parameters=TOOL_PARAMETERS)
    cell = _cell()
    suite = ManifestSuite(
        name="lookup", base="lookup", axes={}, environment="lookup", environment_version=1, digest="", instances=()
    )
    planned = (_episode(number, cell, suite, tool) for number in range(EPISODES))
    context = LaneContext(log=store, worker="bench", stop=Stop())
    return LaneJob(
        name="stub/model",
        width=min(CONC, EPISODES),
        episodes=EPISODES,
        planned=EPISODES,
        done_before=0,
        todo=(episode for episode in planned if not holdings.ended(episode)),
        activate=holdings.activate,
        asker=lambda _: asker,
        context=context,
        lane=lane,
    )


async def main() -> None:
    """Play all episodes; report what the harness asks for."""
    run, name = Path(OUT) / "run", "bench-resumed" if RESUME else "bench"
    with open_store(run, session=name) as store:
        holdings = read_holdings(run, frozenset(), store.found) if RESUME else Holdings(episodes={}, rows={})
        before = sum(bool(episode.ending) for episode in holdings.episodes.values())
        async with open_transport(PROVIDER) as transport:
            lane = Lane("stub/model", limits=WIDE, width=CONC)
            budget = Budget(budget=BUDGET, spent=PicoUsd(0), ledger=store, session=name)
            model = Model(name=MODEL, price=PRICE, limits=WIDE)
            asker = ModelAsker(
                request_template(
                    "stub",
                    provider=PROVIDER,
                    model=model,
                    sampling=LOOKUP.defaults,
                    price=PRICE,
                    stream="on" if STREAM else "off",
                ),
                lane=lane,
                budget=budget,
                transport=endpoint_of(transport, PROVIDER, MODEL),
                streams=stream_endpoint_of(transport, PROVIDER, model),
            )
            store.enter(open_row(name))
            await store.durable()
            job = _job(store, asker, lane, holdings)
            start()
            pacing = asyncio.create_task(_pace(store, lane))
            await play_lanes([job])
            pacing.cancel()
            budget.close()
            await store.durable()
            answered = job.context.ended.get("answered", 0) + before
            report(answered, ended=job.context.ended, log_bytes=folder_bytes(run))


async def _pace(store: Store, lane: Lane) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 0.25
        await asyncio.sleep(0.25)
        lane.late(loop.time() - due)
        store.pace(lane.stats().median_latency_s)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
