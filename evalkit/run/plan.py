"""What a sweep will cost and how long it will take, without a request.

Each cell (agent x suite) is played in this process by a policy that stands in for the agent, through the real engine
and the agent's own dialect, so turns and bytes are those of real conversations; tokens are counted as the simulated
provider counts them. Real models differ: the stand-in is named, and a finished run is a better guide.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Request, Sampling, Tool, Usage
from evalkit.errors import UsageError
from evalkit.money import FREE, Price
from evalkit.policy.answer import answer
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.table import POLICIES, player
from evalkit.run.episode import Seat, Stop, Table, play
from evalkit.run.freeze import Resolved, lane_limits
from evalkit.run.resume import Holdings
from evalkit.run.universe import Choice, Episode, episodes
from evalkit.store.manifest import ManifestAgent, ManifestSuite
from evalkit.store.record import StepRecord
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import input_tokens, output_tokens

ASSUMED_REPLY_S = 2.0
"""Seconds a reply takes where nothing better is known; `plan` says that it assumed so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One episode as its stand-in played it."""

    requests: int
    tokens_in: int
    tokens_out: int
    cost: int
    longest_prompt: int
    """Input tokens of its largest request."""
    dearest: int
    """Pico-dollars that its largest request may cost at most: what must be left of a budget for it to be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """One agent on one suite."""

    agent: str
    suite: str
    lane: str
    stand_in: str
    episodes: int
    played: int
    """How many of them the stand-in played; the rest is estimated from these."""
    requests: float
    tokens_in: float
    tokens_out: float
    cost_low: float
    cost: float
    cost_high: float
    """Pico-dollars: the 95 % range that the sample leaves, not what another model would do."""
    chain: int
    """The longest chain of sequential calls among the played episodes."""
    longest_prompt: int
    dearest: int
    """Pico-dollars: the worst case of a single request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    """One lane."""

    lane: str
    requests: float
    tokens_in: float
    tokens_out: float
    seconds: float
    bound: str
    """What takes the time: `requests/min`, `input tokens/min`, `output tokens/min`, `width`, `longest episode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole sweep."""

    name: str
    cells: tuple[CellPlan, ...]
    lanes: tuple[LanePlan, ...]
    reply_s: Mapping[str, float]
    """Seconds a reply is taken to last, by lane."""
    budget: int | None
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """Expected pico-dollars of the whole sweep."""
        return sum(cell.cost for cell in self.cells)

    @property
    def needed(self) -> float:
        """Pico-dollars that a budget must hold: the cost, and room for the last request's worst case."""
        return self.cost + max((cell.dearest for cell in self.cells), default=0)

    def to_json(self) -> dict[str, Any]:
        """The plan with a stable schema: `version` 1, money in USD, times in seconds."""
        usd = 1e-12
        return {
            "version": 1,
            "name": self.name,
            "episodes": sum(cell.episodes for cell in self.cells),
            "requests": round(sum(cell.requests for cell in self.cells)),
            "tokens_in": round(sum(cell.tokens_in for cell in self.cells)),
            "tokens_out": round(sum(cell.tokens_out for cell in self.cells)),
            "usd": {
                "low": sum(cell.cost_low for cell in self.cells) * usd,
                "expected": self.cost * usd,
                "high": sum(cell.cost_high for cell in self.cells) * usd,
            },
            "budget_usd": None if self.budget is None else self.budget * usd,
            "seconds": max((lane.seconds for lane in self.lanes), default=0.0),
            "cells": [
                {
                    "agent": cell.agent,
                    "suite": cell.suite,
                    "lane": cell.lane,
                    "stand_in": cell.stand_in,
                    "episodes": cell.episodes,
                    "played": cell.played,
                    "requests": round(cell.requests),
                    "tokens_in": round(cell.tokens_in),
                    "tokens_out": round(cell.tokens_out),
                    "usd": {"low": cell.cost_low * usd, "expected": cell.cost * usd, "high": cell.cost_high * usd},
                    "longest_chain": cell.chain,
                    "longest_prompt_tokens": cell.longest_prompt,
                }
                for cell in self.cells
            ],
            "lanes": [
                {
                    "lane": lane.lane,
                    "requests": round(lane.requests),
                    "seconds": lane.seconds,
                    "bound": lane.bound,
                    "assumed_reply_s": self.reply_s[lane.lane],
                }
                for lane in self.lanes
            ],
            "marks": {agent: list(marks) for agent, marks in self.marks.items() if marks},
        }


class _Meter:
    """Asks a policy and counts what the request and its reply would cost at a provider."""

    free = True

    def __init__(
        self, name: str, play: PolicyFn, dialect: Dialect, head: bytes, sampling: Sampling, price: Price
    ) -> None:
        self._name, self._play, self._dialect, self._head = name, play, dialect, head
        self._sampling, self._price = sampling, price
        self.requests = self.tokens_in = self.tokens_out = self.cost = self.longest_prompt = self.dearest = 0

    def join(self, parts: list[Any], messages: Sequence[Message]) -> None:
        """Two parts: the messages for the policy, the bytes for the meter."""
        if not parts:
            parts += [], []
        parts[0].extend(messages)
        self._dialect.join(parts[1], messages)

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bytes]:
        return tools, self._dialect.encode_tools(tools)

    async def ask(self, question: Question) -> Answer:
        tools, tools_json = question.tools
        messages, encoded = question.messages
        request = Request(messages=tuple(messages), tools=tools, sampling=self._sampling, seed=question.seed)
        reply = answer(self._name, self._play, request)
        body = self._dialect.body(self._head, tools_json, encoded, question.seed)
        usage = Usage(input=input_tokens(len(body)), output=output_tokens(reply))
        self.requests += 1
        self.tokens_in += usage.input
        self.tokens_out += usage.output
        self.longest_prompt = max(self.longest_prompt, usage.input)
        self.dearest = max(
            self.dearest,
            self._price.worst(
                input_tokens=len(body) + self._dialect.overhead_tokens, output_tokens=self._sampling.max_tokens
            ),
        )
        cost = self._price.of(usage)
        self.cost += cost
        return Answer(reply=reply, cost=cost, latency_s=0.0, queue_s=0.0, attempts="ok", started_at=0.0)


class _NoLog:
    """A log that keeps nothing: `plan` writes nothing."""

    def append(self, record: StepRecord) -> None:
        """Forget it."""

    async def durable(self) -> None:
        """Nothing to wait for."""

    async def room(self) -> None:
        """Never behind."""

    def event(self, kind: str, **facts: object) -> None:
        """An internal error must not pass for a cheap episode."""
        raise UsageError(f"plan: an episode could not be played ({kind}): {facts.get('detail', '')}")


async def plan_sweep(resolved: Resolved, choice: Choice, *, seconds: float, reply_s: Mapping[str, float]) -> Plan:
    """Play samples of every cell for about `seconds` in all, and estimate the rest. Writes nothing.

    `reply_s`: seconds a reply is taken to last, by lane, where it is known.
    """
    manifest = resolved.manifest
    suites = [suite for suite in manifest.suites.values() if choice.takes_suite(suite)]
    agents = [agent for agent in manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    pairs = [(agent, suite) for suite in suites for agent in agents if suite.environment in agent.packs]
    plans = []
    for number, (agent, suite) in enumerate(pairs):
        share = seconds / (len(pairs) - number)
        began = time.process_time()
        plans.append(await _plan_cell(resolved, agent, suite, share))
        seconds = max(0.0, seconds - (time.process_time() - began))
    known = {lane: reply_s.get(lane, ASSUMED_REPLY_S) for lane in {cell.lane for cell in plans}}
    return Plan(
        name=resolved.sweep.name,
        cells=tuple(plans),
        lanes=tuple(_plan_lane(resolved, lane, plans, known[lane]) for lane in sorted(known)),
        reply_s=known,
        budget=resolved.sweep.budget,
        marks={agent.name: agent.marks for agent in agents},
    )


async def _plan_cell(resolved: Resolved, agent: ManifestAgent, suite: ManifestSuite, seconds: float) -> CellPlan:
    manifest = resolved.manifest
    stand_in = _stand_in(agent, suite.environment)
    only = Choice(agents=frozenset({agent.name}), suites=frozenset({suite.name}))
    samples: list[Sample] = []
    until = time.process_time() + seconds
    for episode in episodes(manifest, [agent], only):
        if episode.suite.name != suite.name:
            continue  # a suite's plain name also chooses its variants
        samples.append(await _play_one(resolved, episode, stand_in))
        if time.process_time() >= until:
            break
    total = len(suite.instances) * manifest.replicates
    scale = total / len(samples)
    cost = scale * sum(one.cost for one in samples)
    spread = _spread([one.cost for one in samples], total)
    return CellPlan(
        agent=agent.name,
        suite=suite.name,
        lane=agent.lane,
        stand_in=stand_in,
        episodes=total,
        played=len(samples),
        requests=scale * sum(one.requests for one in samples),
        tokens_in=scale * sum(one.tokens_in for one in samples),
        tokens_out=scale * sum(one.tokens_out for one in samples),
        cost_low=max(0.0, cost - spread),
        cost=cost,
        cost_high=cost + spread,
        chain=max(one.requests for one in samples),
        longest_prompt=max(one.longest_prompt for one in samples),
        dearest=max(one.dearest for one in samples),
    )


def _spread(costs: Sequence[int], total: int) -> float:
    """Half the width of a 95 % range for the sum of `total` episodes of which `costs` have been seen."""
    seen = len(costs)
    if seen >= total:
        return 0.0
    mean = sum(costs) / seen
    variance = sum((cost - mean) ** 2 for cost in costs) / (seen - 1) if seen > 1 else mean**2
    unseen = total - seen
    return 1.96 * math.sqrt(variance * (unseen + unseen**2 / seen))


def _stand_in(agent: ManifestAgent, environment: str) -> str:
    """The policy that plays for an agent: itself, the model's namesake, the agent's choice, or the environment's."""
    for name in (agent.policy, agent.stand_in, agent.model if agent.provider == "simulated" else ""):
        if name and name in POLICIES and POLICIES[name].plays(environment):
            return name
    return STAND_INS[environment]


STAND_INS = {
    "scheduling": "knuth",
    "procurement": "climber",
    "pricing": "learner",
    "costbench": "replanner",
    "errand": "clerk",
}
"""The policy whose conversations are most like a model's, by environment."""


async def _play_one(resolved: Resolved, episode: Episode, stand_in: str) -> Sample:
    agent, cell = episode.cell.agent, episode.cell
    endpoint = resolved.endpoints.get(agent.name)
    dialect = DIALECTS[endpoint.provider.dialect if endpoint else "openai_chat"]
    price = Price(**agent.price) if agent.price else FREE
    quirks = endpoint.model.quirks if endpoint else Quirks()
    policy = player(stand_in, instance=episode.instance, script=agent.script)
    meter = _Meter(stand_in, policy, dialect, dialect.head(agent.model, cell.sampling, quirks), cell.sampling, price)
    stop = Stop()
    table = Table(log=_NoLog(), worker="plan", stop=stop, lane_stop=Stop())
    nothing = Holdings(episodes={}, rows={})

    def sit(one: Episode) -> Seat:
        return nothing.seat(one)

    await play(episode, sit, meter, table)
    free = endpoint is None
    return Sample(
        requests=0 if free else meter.requests,
        tokens_in=0 if free else meter.tokens_in,
        tokens_out=0 if free else meter.tokens_out,
        cost=meter.cost,
        longest_prompt=meter.longest_prompt,
        dearest=meter.dearest,
    )


def _plan_lane(resolved: Resolved, lane: str, plans: Sequence[CellPlan], reply_s: float) -> LanePlan:
    mine = [cell for cell in plans if cell.lane == lane]
    requests = sum(cell.requests for cell in mine)
    tokens_in, tokens_out = sum(cell.tokens_in for cell in mine), sum(cell.tokens_out for cell in mine)
    limits = lane_limits(resolved, lane)
    width = min(resolved.sweep.width, sum(cell.episodes for cell in mine), limits.in_flight or math.inf)
    bounds = {
        "width": requests * reply_s / max(1, width),
        "longest episode": max(cell.chain for cell in mine) * reply_s if requests else 0.0,
        "requests/min": 60 * requests / (limits.requests_per_minute or math.inf),
        "input tokens/min": 60 * tokens_in / (limits.input_tokens_per_minute or math.inf),
        "output tokens/min": 60 * tokens_out / (limits.output_tokens_per_minute or math.inf),
    }
    bound = max(bounds, key=lambda name: bounds[name])
    return LanePlan(
        lane=lane,
        requests=requests,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        seconds=bounds[bound],
        bound=bound if requests else "this process",
    )
