"""Thousands of episodes under virtual time: the engine's own players, lanes, budget and log, and a provider that is a
function in this process. An episode is `length` steps, one a period, whatever it is answered.

Steps at times of their own are commits of their own, thousands of them. The log takes their rows, groups them and says
when they are durable; only its files are left out, which cost more than all else. `tests/sim` has them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.shared import Pool
from evalkit.client.request import request_template
from evalkit.dialogue import Message, Reply, Sampling, Usage
from evalkit.engine.episode import ActiveEpisode, LaneContext
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.environment import Environment, Kit, Observation, Opening, Pack, Score, Texts
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import ManifestSuite
from evalkit.money import PicoUsd, Price
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.identity import episode_id
from evalkit.spec.model import Limits, Model, Provider, SharedLimits
from evalkit.store.files.journal import Appender
from evalkit.store.files.record import StepRecord
from evalkit.store.writing import writer
from evalkit.store.writing.writer import Load, Store, commit, open_store
from evalkit.wire.http import HttpResponse
from tests.support.guessing_runs import an_agent
from tests.support.virtual_clock import run_virtual

LATENCY_S = 0.2
USAGE = Usage(input=60, output=5)


def says(text: str) -> HttpResponse:
    """A reply; `on` is a valid action."""
    reply = Reply(text=text, usage=USAGE, model="m", response_id="r")
    return HttpResponse(status=200, headers={}, body=SERVED_OPENAI_CHAT.encode_reply(reply))


OK = says("on")
PRICE = Price(input=10**6, output=4 * 10**6, cached_read=10**6, cached_write=10**6)
SAMPLING = Sampling(max_tokens=8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """How far an episode has come."""

    length: int
    height: int = 0


def _step(state: Climb, reply: Reply) -> tuple[Climb, Observation]:
    over, acted = state.height + 1 == state.length, reply.text == "on"
    return replace(state, height=state.height + 1), Observation(messages=(), facts={}, new_chat=not over, acted=acted)


LADDER: Environment[int, Climb] = Environment(
    offers=lambda _: 1,
    name="ladder",
    version=1,
    defaults=SAMPLING,
    parameters={},
    texts=Texts(),
    load=lambda line: line["length"],
    describe=lambda length: {"length": length},
    start=lambda length, kit: Climb(length=length),
    opening=lambda state: Opening(messages=(Message(role="user", text=f"Rung {state.height}."),)),
    tools=lambda state: (),
    step=_step,
    period=lambda state: state.height,
    ended=lambda state: "complete" if state.height == state.length else "",
    score=lambda length, facts: Score(value=1.0, solved=True),
    generate=lambda parameters, count, seed: iter(()),
    stratum=lambda length: "",
)


class _Given(PlannedEpisode, frozen=True, kw_only=True):
    """An episode whose instance is at hand."""

    @property
    def instance(self) -> int:
        length: int = self.target.line["length"]
        return length


Provides = Callable[[float], Awaitable[HttpResponse]]
"""Answers a request that was sent at the given time."""


async def steady(now: float) -> HttpResponse:
    """A provider that takes its time and answers."""
    del now
    await asyncio.sleep(LATENCY_S)
    return OK


@dataclass(slots=True)
class Fleet:
    """One lane: what it has to do, and what happened."""

    name: str
    episodes: int
    width: int
    length: int
    provides: Provides = steady
    limits: Limits = field(default_factory=Limits)
    start: int | None = None
    """Requests in flight from the beginning."""
    shared: tuple[SharedLimits, ...] = ()
    trial: bool = False
    sent: list[float] = field(default_factory=list)
    """When each request was sent; all times in virtual seconds."""
    answered: list[float] = field(default_factory=list)
    """When each step was taken into the log."""
    queue_s: list[float] = field(default_factory=list)
    """What each step waited for the lane's limits."""
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    built: int = 0
    most_at_once: int = 0
    """Episodes that were taken from the list and had not ended, at the worst moment."""
    context: LaneContext | None = None
    lane: Lane | None = None

    @property
    def durations(self) -> list[float]:
        """Of all episodes that ended, from their start, queue included."""
        return [end - self.began[name] for name, end in self.ended.items()]

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The lane's transport."""
        now = asyncio.get_running_loop().time()
        self.sent.append(now)
        return await self.provides(now)


class _Noted:
    """The store, with a note of every step."""

    def __init__(self, store: Store, fleet: Fleet) -> None:
        self._store, self._fleet = store, fleet
        self.durable, self.room, self.event = store.durable, store.room, store.event

    def append(self, record: StepRecord) -> None:
        self._store.append(record)
        now = asyncio.get_running_loop().time()
        self._fleet.answered.append(now)
        self._fleet.queue_s.append(record.queue_s)
        if record.ending:
            self._fleet.ended[record.episode] = now


def sail(run: Path, *fleets: Fleet, budget: int | None = None) -> None:
    """Play all lanes at once, in virtual time."""
    run_virtual(_sail(run, fleets, budget))


def sail_with_files(run: Path, *fleets: Fleet, budget: int | None = None) -> None:
    """The same, and the log's files are written."""
    run_virtual(_sail(run, fleets, budget, commits=commit))


def _commit_no_files(journal: Appender, load: Load) -> None:
    """Of a commit the events alone."""
    commit(journal, replace(load, steps=None, entries=()))


async def _sail(
    run: Path,
    fleets: tuple[Fleet, ...],
    limit: int | None,
    *,
    commits: Callable[[Appender, Load], object] = _commit_no_files,
) -> None:
    with mock.patch.object(writer, "commit", commits), open_store(run, session="s", inline=True) as store:
        budget = Budget(budget=None if limit is None else PicoUsd(limit), spent=PicoUsd(0), ledger=store, session="s")
        store.pace(LATENCY_S)
        stop = Stop()
        pools = {one.name: Pool(one.name, limits=one.limits) for fleet in fleets for one in fleet.shared}
        await play_lanes([_job(fleet, store, budget, stop, pools) for fleet in fleets])


def _job(fleet: Fleet, store: Store, budget: Budget, stop: Stop, pools: dict[str, Pool]) -> LaneJob:
    shared = [pools[one.name] for one in fleet.shared]
    lane = Lane(
        fleet.name,
        limits=fleet.limits,
        width=fleet.width,
        shared=shared,
        trial=fleet.trial,
        start=fleet.start,
    )
    fleet.lane = lane
    asker = ModelAsker(
        request_template(
            fleet.name,
            provider=Provider(name=fleet.name, dialect="openai_chat", key_env="SOME_KEY"),
            model=Model(name="m", price=PRICE, limits=fleet.limits),
            sampling=SAMPLING,
            price=PRICE,
        ),
        lane=lane,
        budget=budget,
        transport=fleet,
    )
    context = LaneContext(log=_Noted(store, fleet), worker="s", stop=stop, lane=lane)
    fleet.context = context
    nothing = Holdings(episodes={}, rows={})

    def activate(episode: PlannedEpisode) -> ActiveEpisode:
        fleet.began[episode.id] = asyncio.get_running_loop().time()
        return nothing.activate(episode)

    return LaneJob(
        name=fleet.name,
        width=min(fleet.width, fleet.episodes),
        episodes=fleet.episodes,
        planned=fleet.episodes,
        done_before=0,
        todo=_episodes(fleet),
        activate=activate,
        asker=lambda _: asker,
        context=context,
        lane=lane,
    )


def _episodes(fleet: Fleet) -> Iterator[PlannedEpisode]:
    agent: Any = an_agent(fleet.name, lane=fleet.name)
    kit = Kit(pack=Pack(name="none", digest="", texts={}))
    cell = AgentSetup(agent=agent, env=LADDER, kit=kit, sampling=SAMPLING, key=fleet.name)
    suite = ManifestSuite(
        name="ladder", base="ladder", axes={}, environment="ladder", environment_version=1, digest="", instances=()
    )
    for number in range(fleet.episodes):
        target = ManifestInstance(id=str(number), digest=str(number), stratum="", line={"length": fleet.length})
        fleet.built += 1
        gone = sum(fleet.context.ended.values()) if fleet.context is not None else 0
        fleet.most_at_once = max(fleet.most_at_once, fleet.built - gone)
        yield _Given(
            id=episode_id(cell.key, target.digest, 0),
            cell=cell,
            suite=suite,
            target=target,
            replicate=0,
            index=0,
            cell_key=(cell.agent.name, suite.name),
        )
