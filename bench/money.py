"""How much of a budget becomes ended episodes, and how close the books are to the provider's bill.

python -m bench.money                    # all situations, in a minute or two of CPU
python -m bench.money --only reasoning   # those whose name holds a word
python -m bench.money --seeds 5          # each so often, with other draws
python -m bench.money --wide             # lanes begin as wide as they may be, as with `in_flight.start`

Admission, budget, lanes, client, retries and episodes are those of a run; time is virtual, so a night takes seconds.
The transport stands in for the provider: it draws how long an episode takes and how much a reply writes, and keeps the
bill. A sweep has twice the episodes that its budget pays for.

`best` is shown where one episode is a large part of the budget: what becomes ended episodes if it is known beforehand
what every attempt costs, in the same order, with the same bound of every request. Admission does not know that. It
starts an episode where the money does for its forecast with a margin, and then for the bound of its last request.
"""

import argparse
import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from bench.lookup import LOOKUP, Instance
from bench.turns import TOOL
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.request import RequestTemplate
from evalkit.engine.admit.admission import Admission
from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.admit.backlogs import LaneBacklog
from evalkit.engine.episode import LaneContext, next_question
from evalkit.engine.forecast import Forecast, Prior
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.scheduler import LaneJob, play_lanes
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.environment import Kit, Pack
from evalkit.errors import LaneClosed
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import ManifestAgent, ManifestSuite
from evalkit.money import PicoUsd, Price
from evalkit.spec.model import Limits, Model, Provider
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from tests.sim.loop import SimLoop

LEAST_SHARE = 0.93
"""Of a budget, in ended episodes."""
MOST_BOOKS = 1.01
KNOWN_EPISODES = 50
"""Of the largest budget that is compared with one that is spent by knowing all costs."""
"""Books over bill where nothing fails."""
PER_TOKEN = 3.7
"""Bytes, of what is read."""
JSON = {"content-type": "application/json"}
CALL = '"tool_calls": [{"id": "c%d", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """How an agent plays, and at what price."""

    turns: tuple[int, int]
    """Fewest and most requests of an episode; evenly drawn."""
    grows: int
    """Bytes that a turn adds to the chat."""
    writes: float
    """Tokens of a reply on average, reasoning included; drawn with a long tail."""
    max_tokens: int
    usd: tuple[float, float]
    """Per million tokens, read and written."""
    foreseen: float = 1.0
    """What the stand-in takes of it, in money."""


SHORT = Agent(turns=(5, 20), grows=900, writes=120, max_tokens=4096, usd=(3, 15))
CHEAP = replace(SHORT, usd=(0.25, 1.25), foreseen=0.5)
DEAR = replace(SHORT, usd=(15, 75), foreseen=2.0)
LONG = Agent(turns=(150, 300), grows=700, writes=150, max_tokens=8192, usd=(3, 15))
REASONING = Agent(turns=(5, 20), grows=900, writes=2000, max_tokens=32_768, usd=(1.25, 10), foreseen=0.2)

CASTS: Mapping[str, tuple[Agent, ...]] = {
    "one lane": (SHORT,),
    "three prices": (CHEAP, SHORT, DEAR),
    "long episodes": (LONG,),
    "reasoning": (REASONING,),
    "reasoning and short": (REASONING, CHEAP),
}
FAULTS = {"429": 0.03, "500": 0.01, "timeout": 0.005}
"""Shares of requests. Of the last two a half was billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One night."""

    cast: str
    episodes: int
    """That the budget pays for."""
    width: int
    faults: bool
    wide: bool = False
    """Whether lanes begin as wide as they may be."""

    @property
    def name(self) -> str:
        return f"{self.cast}, {self.episodes:,} episodes, width {self.width}{', faults' if self.faults else ''}"


def situations() -> Iterator[Situation]:
    """All of them. Long episodes are not played by the thousand."""
    for cast, episodes, width, faults in product(CASTS, (50, 500, 5000), (64, 512), (False, True)):
        if (cast != "long episodes" or episodes < 500) and (episodes < 5000 or width == 512):
            yield Situation(cast=cast, episodes=episodes, width=width, faults=faults)


@dataclass(slots=True)
class Drawn:
    """One episode before it is played: tokens written by request."""

    writes: list[int]


def drawn(agent: Agent, name: str, seed: int) -> Drawn:
    """The same each time."""
    draws = random.Random(f"{seed} {name}")
    scale = math.log(agent.writes) - 0.5
    count = draws.randint(*agent.turns)
    return Drawn([min(agent.max_tokens, max(1, int(draws.lognormvariate(scale, 1.0)))) for _ in range(count)])


class Payee:
    """A transport that answers after a while, and keeps the bill."""

    def __init__(self, agent: Agent, name: str, seed: int, *, faults: bool) -> None:
        self._agent, self._name, self._seed, self._faults = agent, name, seed, faults
        self._drawn: dict[str, Drawn] = {}
        self._bound = template_of(name, agent).bound
        self.bill = 0
        self.price = price_of(agent)
        self.attempts: dict[str, list[tuple[int, int]]] = {}
        """By episode: (bound, what the books have for it) of each attempt."""

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The reply to one request, or what becomes of it instead."""
        episode, step, _ = request_id.split("/")
        draws = random.Random(f"{self._seed} {self._name} {request_id}")
        if episode not in self._drawn:
            self._drawn[episode] = drawn(self._agent, episode, self._seed)
        writes = self._drawn[episode].writes
        read, written, last = math.ceil(len(body) / PER_TOKEN), writes[int(step)], int(step) == len(writes) - 1
        await asyncio.sleep(written / 100 + draws.uniform(0.2, 1.0))
        kind = self._kind(draws.random())
        cost, bound = read * self.price.input + written * self.price.output, self._bound(len(body))
        if not kind or (kind != "429" and draws.random() < 0.5):
            self.bill += cost
        books = bound if kind in ("500", "timeout") else 0 if kind else cost
        self.attempts.setdefault(episode, []).append((bound, books))
        if kind == "timeout":
            return HttpResponse(headers={}, failure="timeout", detail="drawn")
        if kind:
            return HttpResponse(status=int(kind), headers=JSON, body=b'{"error": {"message": "drawn"}}')
        said = '"content": "42"' if last else '"content": "", ' + CALL % int(step)
        text = (
            f'{{"id": "r", "model": "m", "choices": [{{"index": 0, "message": {{"role": "assistant", {said}}}, '
            f'"finish_reason": "{"stop" if last else "tool_calls"}"}}], '
            f'"usage": {{"prompt_tokens": {read}, "completion_tokens": {written}}}}}'
        )
        if last:
            del self._drawn[episode]
        return HttpResponse(status=200, headers=JSON, body=text.encode())

    def _kind(self, at: float) -> str:
        for kind, share in FAULTS.items() if self._faults else ():
            at -= share
            if at < 0:
                return kind
        return ""


@dataclass(slots=True)
class Books:
    """A log and a ledger that keep what is paid for."""

    steps: Counter[str] = field(default_factory=Counter)
    charges: Counter[str] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    ended: set[str] = field(default_factory=set)

    def append(self, record: StepRecord) -> None:
        """A step."""
        self.steps[record.episode] += record.cost
        if record.ending:
            self.ended.add(record.episode)

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        """A movement of money."""
        if then is not None:
            then()
        if record.kind == "charge":
            self.charges[record.episode] += record.amount
            self.by_reason[record.reason] += record.amount

    async def durable(self) -> None:
        """At once."""

    async def room(self) -> None:
        """At once."""

    def event(self, kind: str, **facts: object) -> None:
        """An internal error must not pass for a cheap episode."""
        assert facts.get("why") != "internal_error", (kind, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What became of a budget, in pico-dollars."""

    budget: int
    steps: int
    charges: Mapping[str, int]
    """By reason."""
    ended: int
    """Steps of episodes that have ended."""
    ended_charges: int
    """Charges for failed attempts at these."""
    episodes: int
    unfinished: int
    unfinished_cost: int
    reserved: int
    bound: int
    """The most that one request was bounded by."""
    bill: int
    cpu_s: float
    attempts: Mapping[str, Sequence[tuple[int, int]]]
    """By episode: (bound, cost) of each, in pico-dollars."""
    best: float = math.nan
    """The share that becomes ended episodes if all costs are known beforehand."""

    @property
    def share(self) -> float:
        """Of the budget, in ended episodes, with what failed on the way to their ends."""
        return (self.ended + self.ended_charges) / self.budget

    @property
    def spent(self) -> int:
        """Steps and charges: the books."""
        return self.steps + sum(self.charges.values())


def price_of(agent: Agent) -> Price:
    """Without a cache."""
    read, written = (round(one * 10**6) for one in agent.usd)
    return Price(input=read, output=written, cached_read=read, cached_write=read)


def instance_of(agent: Agent) -> Instance:
    """One conversation of an agent: only its length matters."""
    return Instance(system="s" * 2000, prompt="p" * 1000, tool=TOOL, result="r" * max(1, agent.grows - 250))


class _Given(PlannedEpisode, frozen=True, kw_only=True):
    """An episode whose instance is at hand."""

    @property
    def instance(self) -> Instance:
        found: Instance = self.target.line["instance"]
        return found


def planned(name: str, agent: Agent, count: int) -> Iterator[PlannedEpisode]:
    """The episodes of one agent, in order."""
    said = ManifestAgent(
        name=name,
        identity=name,
        lane=name,
        provider="null",
        model="m",
        policy="",
        script="",
        overrides={},
        sampling={},
        packs={},
        pack="none",
        notes=False,
        tags=(),
    )
    sampling = replace(LOOKUP.defaults, max_tokens=agent.max_tokens)
    kit = Kit(pack=Pack(name="none", digest="", texts={}))
    cell = AgentSetup(agent=said, env=LOOKUP, kit=kit, sampling=sampling, key="")
    suite = ManifestSuite(
        name="s", base="s", axes={}, environment="lookup", environment_version=1, digest="", instances=()
    )
    line = {"instance": instance_of(agent)}
    for number in range(count):
        target = ManifestInstance(id=str(number), digest=str(number), stratum="", line=line)
        yield _Given(
            id=f"{name}-{number}",
            cell=cell,
            suite=suite,
            target=target,
            replicate=0,
            index=0,
            cell_key=(said.name, suite.name),
        )


def template_of(name: str, agent: Agent) -> RequestTemplate:
    """Its requests."""
    return RequestTemplate(
        agent=name,
        provider=Provider(name="null", dialect="openai_chat"),
        model=Model(name="m", price=None, limits=Limits()),
        dialect=DIALECTS["openai_chat"],
        sampling=replace(LOOKUP.defaults, max_tokens=agent.max_tokens),
        price=price_of(agent),
    )


async def _cost(name: str, agent: Agent, count: int, seed: int) -> float:
    """What an episode takes on average, without faults: played with money enough."""
    books = await _play({name: agent}, count, 64, None, seed, faults=False)
    return books.steps / count


def known(attempts: Mapping[str, Sequence[tuple[int, int]]], cast: Sequence[str], each: int, budget: int) -> float:
    """The share of a budget that becomes ended episodes where every cost is known beforehand: lanes take turns, each in
    its order, and one ends when its next episode does not fit, with each attempt's bound. `each`: episodes of a
    lane."""
    spent, begun, playing = 0, dict.fromkeys(cast, 0), list(cast)
    while playing:
        lane = min(playing, key=begun.__getitem__)
        after = spent if begun[lane] < each else budget
        for bound, cost in attempts.get(f"{lane}-{begun[lane]}", ()):
            after = after + cost if after + bound <= budget else budget + 1
        if begun[lane] == each or after > budget:
            playing.remove(lane)
        else:
            spent, begun[lane] = after, begun[lane] + 1
    return spent / budget


async def night(situation: Situation, seed: int) -> Night:
    """A sweep, until its money is at an end."""
    cast = {f"a{number}": agent for number, agent in enumerate(CASTS[situation.cast])}
    each = -(-situation.episodes // len(cast))
    means = {name: await _cost(name, agent, min(each, 300), seed) for name, agent in cast.items()}
    budget = round(sum(means.values()) * each)
    one = await _play(
        cast, 2 * each, situation.width, budget, seed, faults=situation.faults, wide=situation.wide, means=means
    )
    if situation.episodes > KNOWN_EPISODES:
        return one
    whole = await _play(cast, 2 * each, situation.width, None, seed, faults=situation.faults)
    return replace(one, best=known(whole.attempts, tuple(cast), 2 * each, budget))


async def _play(
    cast: Mapping[str, Agent],
    each: int,
    width: int,
    money: int | None,
    seed: int,
    *,
    faults: bool,
    wide: bool = False,
    means: Mapping[str, float] | None = None,
) -> Night:
    began, books = time.process_time(), Books()
    budget = Budget(budget=None if money is None else PicoUsd(money), spent=PicoUsd(0), ledger=books, session="bench")
    stop = Stop()
    lanes = {name: Lane(name, limits=Limits(), width=width, trial=True, start=width if wide else None) for name in cast}
    providers = {name: Payee(agent, name, seed, faults=faults) for name, agent in cast.items()}
    backlogs = {
        name: LaneBacklog(
            name=name,
            todo=planned(name, agent, each),
            total=each,
            planned=each,
            ended=0,
            fresh=Counter({(name, "s"): each}),
            bound=partial(budget.largest, name),
        )
        for name, agent in cast.items()
    }
    seats = Holdings(episodes={}, rows={})
    templates = {name: template_of(name, agent) for name, agent in cast.items()}

    def first_bound(episode: PlannedEpisode) -> int:
        template = templates[episode.cell.agent.name]
        return template.worst_case(next_question(seats.activate(episode), template))

    admitter = None
    if means is not None:
        admission = Admission(
            Forecast([_prior(name, agent, means[name]) for name, agent in cast.items()]),
            list(backlogs.values()),
            stats=budget.stats,
            clock=asyncio.get_running_loop().time,
            first_bound=first_bound,
        )
        admitter = AdmissionQueue(admission)
    stop.listen(partial(_wake, lanes, budget, admitter))
    jobs = []
    for name in cast:
        asker = ModelAsker(templates[name], lane=lanes[name], budget=budget.of(name, name), transport=providers[name])
        jobs.append(
            LaneJob(
                name=name,
                width=min(width, each),
                episodes=each,
                planned=each,
                done_before=0,
                todo=backlogs[name].todo,
                activate=seats.activate,
                asker=partial(_same, asker),
                context=LaneContext(log=books, worker="bench", stop=stop, lane=lanes[name]),
                lane=lanes[name],
                admitter=admitter,
            )
        )
    await play_lanes(jobs)
    open_ones = {name for name in {*books.steps, *books.charges} if name not in books.ended}
    return Night(
        budget=money or 0,
        steps=books.steps.total(),
        charges=books.by_reason,
        ended=sum(cost for name, cost in books.steps.items() if name in books.ended),
        ended_charges=sum(cost for name, cost in books.charges.items() if name in books.ended),
        episodes=len(books.ended),
        unfinished=len(open_ones),
        unfinished_cost=sum(books.steps[name] + books.charges[name] for name in open_ones),
        reserved=budget.stats().reserved,
        bound=max(budget.largest(name) for name in cast),
        bill=sum(provider.bill for provider in providers.values()),
        attempts={name: rows for provider in providers.values() for name, rows in provider.attempts.items()},
        cpu_s=time.process_time() - began,
    )


def _same(asker: ModelAsker, _: PlannedEpisode) -> ModelAsker:
    return asker


def _wake(lanes: Mapping[str, Lane], budget: Budget, admitter: AdmissionQueue | None) -> None:
    for lane in lanes.values():
        lane.end(LaneClosed("over"))
    if admitter is not None:
        admitter.end()
    budget.end(LaneClosed("over"))


def _prior(name: str, agent: Agent, mean: float) -> Prior:
    return Prior(
        agent=name,
        suite="s",
        stand_in="knuth",
        played=4,
        cost=mean * agent.foreseen,
        requests=sum(agent.turns) / 2,
        tokens_in=0.0,
        tokens_out=0.0,
    )


def played(situation: Situation, seed: int) -> Night:
    """One night in a loop of its own."""
    loop = SimLoop(0.0, lambda: None)
    try:
        return loop.run_until_complete(night(situation, seed))
    finally:
        loop.close()


HEAD = (
    f"{'':54}{'budget':>9}{'spent':>8}{'ended':>8}{'best':>7}{'(steps)':>9}{'unfinished':>12}{'left':>7}{'bound':>7}"
    f"{'reserved':>9}{'books/bill':>11}{'CPU':>7}"
)


def line(name: str, nights: list[Night]) -> tuple[str, bool]:
    """One row, on average over the seeds; and whether its promises are kept."""

    def mean(part: Callable[[Night], float]) -> float:
        return sum(part(one) for one in nights) / len(nights)

    share, ratio = mean(lambda one: one.share), mean(lambda one: one.spent / one.bill)
    faulty, best = any(one.charges for one in nights), mean(lambda one: one.best)
    kept = share >= LEAST_SHARE and (faulty or ratio <= MOST_BOOKS)
    row = (
        f"{name:54}{mean(lambda one: one.budget / 1e12):8.2f}${mean(lambda one: one.spent / one.budget):8.1%}"
        f"{share:8.1%}{'' if math.isnan(best) else f'{best:.1%}':>7}{mean(lambda one: one.ended / one.budget):9.1%}"
        f"{mean(lambda one: one.unfinished):5.1f}{mean(lambda one: one.unfinished_cost / one.budget):7.1%}"
        f"{mean(lambda one: 1 - one.spent / one.budget):7.1%}{mean(lambda one: one.bound / one.budget):7.1%}"
        f"{mean(lambda one: one.reserved / one.budget):9.1%}{ratio:11.3f}{mean(lambda one: one.cpu_s):6.1f}s"
    )
    return row, kept


def main() -> bool:
    """Measure and print; whether every promise is kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.money")
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=5000, help="episodes of a budget")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--wide", action="store_true")
    given = parser.parse_args()
    print(HEAD)
    good = True
    for situation in situations():
        if given.only in situation.name and situation.episodes <= given.most:
            one = replace(situation, wide=given.wide)
            row, kept = line(one.name, [played(one, seed) for seed in range(given.seeds)])
            print(row + ("" if kept else "  short"), flush=True)
            good &= kept
    return good


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
