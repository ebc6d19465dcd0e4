"""What a sweep will cost and how long it will take, without a request.

Each cell (agent x suite) is played in this process by a policy in place of the agent (`stand_in.py`). Real models
differ: if a run has ended episodes, its figures are used instead, and they scale the stand-ins of cells that it lacks
(`pilot.py`). A cell names its basis.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evalkit.client.budget_state import in_flight_bound
from evalkit.engine.forecast import DOUBT, LEAST_SPREAD, SPREAD, around, beyond
from evalkit.engine.freezing.freeze import Resolved, lane_limits, lane_shares
from evalkit.engine.planning.pilot import NOTHING, Basis, Figures
from evalkit.engine.planning.planned import CellPlan, LanePlan, Plan
from evalkit.engine.resume import LoggedProgress
from evalkit.engine.stand_in import Sample, Till, admitted, play_sample, price_of, stand_in_of
from evalkit.engine.universe import AgentSetup, Choice, cells
from evalkit.spec.model import Limits
from evalkit.store.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.wire.table import DIALECTS

ASSUMED_REPLY_S = 2.0
"""Seconds that a reply takes if nothing better is known; `plan` reports this assumption."""
SCALED_DOUBT = 0.3
"""Relative standard deviation of a cell's mean where other cells of a run speak for it. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorKnowledge:
    """What is known in addition to the sweep."""

    basis: Basis = NOTHING
    """A run with figures to be used."""
    held: Mapping[str, LoggedProgress] = field(default_factory=dict)
    """Episodes of the run that the spec would resume."""
    spent: int = 0
    """Pico-dollars that it has spent."""
    reply_s: Mapping[str, float] = field(default_factory=dict)
    """Assumed seconds per reply, by lane."""


class _Owed(NamedTuple):
    """The remaining part of a cell."""

    ended: int
    fresh: int
    begun: tuple[LoggedProgress, ...]


class _EpisodeEstimate(NamedTuple):
    """One whole episode of a cell: figures, pico-dollars; relative standard deviations of an episode and the mean."""

    mean: Figures
    cost: float
    spread: float
    doubt: float
    basis: str


async def plan_sweep(
    resolved: Resolved, choice: Choice, *, seconds: float, known: PriorKnowledge | None = None
) -> Plan:
    """Play samples of every cell for about `seconds` of CPU time in all, and estimate the rest. Writes nothing."""
    known = known or PriorKnowledge()
    manifest, cell_of = resolved.manifest, cells(resolved.manifest)
    suites = [suite for suite in manifest.suites.values() if choice.takes_suite(suite)]
    agents = [agent for agent in manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    pairs = [(agent, suite) for suite in suites for agent in agents if suite.environment in agent.packs]
    plans = []
    for number, (agent, suite) in enumerate(pairs):
        share = seconds / (len(pairs) - number)
        began = time.process_time()
        cell = cell_of[agent.name, suite.environment]
        owed = _owed(manifest, cell, suite, known.held)
        samples = await _play(manifest, cell, suite, _till(resolved, agent), share)
        plans.append(_plan_cell(agent, suite, owed, samples, known.basis, _context(resolved, agent)))
        seconds = max(0.0, seconds - (time.process_time() - began))
    named = {agent.lane: known.basis.reply_s(agent) for agent in agents}
    reply_s = {cell.lane: known.reply_s.get(cell.lane) or named[cell.lane] or ASSUMED_REPLY_S for cell in plans}
    lanes = [_plan_lane(resolved, lane, plans, reply_s[lane], known.spent) for lane in sorted(reply_s)]
    return Plan(
        name=resolved.sweep.name,
        cells=tuple(plans),
        lanes=(*lanes, *_shared(resolved, lanes)),
        reply_s=reply_s,
        assumed=frozenset(lane for lane in reply_s if not known.reply_s.get(lane) and not named[lane]),
        budget=resolved.sweep.budget,
        spent=known.spent,
        in_flight=_in_flight(resolved, plans, known.spent),
        marks={agent.name: agent.marks for agent in agents},
    )


def _owed(manifest: Manifest, cell: AgentSetup, suite: ManifestSuite, progress: Mapping[str, LoggedProgress]) -> _Owed:
    total = len(suite.instances) * manifest.replicates
    if not progress:
        return _Owed(0, total, ())
    # By the suite's full name: a `Choice` of a base name would take its variants as well.
    place = cell.agent.name, suite.name
    known = [
        episode
        for episode in progress.values()
        if (episode.agent, episode.suite) == place and episode.replicate < manifest.replicates
    ]
    begun = tuple(episode for episode in known if not episode.ending)
    return _Owed(len(known) - len(begun), total - len(known), begun)


async def _play(manifest: Manifest, cell: AgentSetup, suite: ManifestSuite, till: Till, seconds: float) -> list[Sample]:
    stand_in = stand_in_of(cell.agent, suite.environment)
    until, samples = time.process_time() + seconds, list[Sample]()
    for episode in admitted(manifest, cell, suite):
        samples.append(await play_sample(episode, stand_in, till))
        if time.process_time() >= until:
            break
    return samples


def _till(resolved: Resolved, agent: ManifestAgent) -> Till:
    endpoint = resolved.endpoints.get(agent.name)
    if endpoint is None:
        return Till(dialect=DIALECTS["openai_chat"])
    return Till(
        dialect=DIALECTS[endpoint.provider.dialect],
        quirks=endpoint.model.quirks,
        price=price_of(agent),
        context_tokens=endpoint.model.context_tokens,
    )


def _context(resolved: Resolved, agent: ManifestAgent) -> int | None:
    endpoint = resolved.endpoints.get(agent.name)
    return None if endpoint is None else endpoint.model.context_tokens


def _plan_cell(
    agent: ManifestAgent,
    suite: ManifestSuite,
    owed: _Owed,
    samples: Sequence[Sample],
    basis: Basis,
    context: int | None,
) -> CellPlan:
    free, total = not agent.provider, owed.ended + owed.fresh + len(owed.begun)
    stand_in = stand_in_of(agent, suite.environment)
    itself = agent.provider == "simulated" and agent.model == stand_in
    seen = None if free else basis.cell(agent, suite.name)
    estimate = _estimate(agent, suite.name, samples, basis, itself=itself)
    parts = [_rest(estimate, episode) for episode in owed.begun]
    left = owed.fresh + sum(parts)
    cost = left * estimate.cost
    seen_all = itself and len(samples) == total and not owed.ended and not owed.begun and seen is None
    deviation = 0.0 if seen_all else math.sqrt(left * estimate.spread**2 + (left * estimate.doubt) ** 2) * estimate.cost
    low, _, high = around(cost, deviation)
    return CellPlan(
        agent=agent.name,
        suite=suite.name,
        lane=agent.lane,
        stand_in=stand_in,
        basis=estimate.basis,
        episodes=owed.fresh + len(owed.begun),
        ended=owed.ended,
        played=len(samples),
        requests=0.0 if free else left * estimate.mean.requests,
        tokens_in=0.0 if free else left * estimate.mean.tokens_in,
        tokens_out=0.0 if free else left * estimate.mean.tokens_out,
        cost_low=low,
        cost=cost,
        cost_high=high,
        one=estimate.cost,
        chain=0 if free else seen.chain if seen is not None else max(sample.requests for sample in samples),
        longest_prompt=0 if free else max(sample.longest_prompt for sample in samples),
        dearest=max(sample.dearest for sample in samples),
        context_tokens=context,
        too_long=min((sample.too_long for sample in samples if sample.too_long is not None), default=None),
    )


def _estimate(
    agent: ManifestAgent, suite: str, samples: Sequence[Sample], basis: Basis, *, itself: bool
) -> _EpisodeEstimate:
    """What one episode takes: from the run if it has the cell, else from the stand-in, scaled if the run allows it."""
    count = len(samples)
    sampled = Figures(
        sum(sample.requests for sample in samples) / count,
        sum(sample.tokens_in for sample in samples) / count,
        sum(sample.tokens_out for sample in samples) / count,
    )
    cost = sum(sample.cost for sample in samples) / count
    spread = _spread([sample.cost for sample in samples])
    if not agent.provider:
        return _EpisodeEstimate(sampled, 0.0, 0.0, 0.0, "this process")
    seen = basis.cell(agent, suite)
    if seen is not None:
        paid, doubt = basis.cost(agent, seen.mean, seen), seen.spread / math.sqrt(seen.episodes)
        return _EpisodeEstimate(seen.mean, paid, seen.spread, doubt, _count_words(seen.episodes, basis.name))
    doubt = spread / math.sqrt(count)
    if itself:
        return _EpisodeEstimate(sampled, cost, spread, doubt, "the policy itself")
    scale = basis.scale(agent, suite)
    if scale is None:
        return _EpisodeEstimate(sampled, cost, spread, math.hypot(doubt, DOUBT), "stand-in")
    factors, words = scale
    mean = Figures(*(figure * factor for figure, factor in zip(sampled, factors, strict=True)))
    before = basis.cost(agent, sampled, None)
    paid = cost * basis.cost(agent, mean, None) / before if before else 0.0
    return _EpisodeEstimate(
        mean, paid, spread, math.hypot(doubt, SCALED_DOUBT), f"stand-in x {factors.tokens_in:.2g}: {words}"
    )


def _count_words(count: int, run: str) -> str:
    return f"{count:,} episode{'s' if count != 1 else ''} of {run}"


def _spread(costs: Sequence[int]) -> float:
    """Standard deviation over mean, of a sample."""
    mean, count = sum(costs) / len(costs), len(costs)
    if not mean:
        return 0.0
    return math.sqrt(sum((cost - mean) ** 2 for cost in costs) / (count - 1)) / mean if count > 1 else SPREAD


def _rest(estimate: _EpisodeEstimate, progress: LoggedProgress) -> float:
    """The remaining part of a started episode, as a fraction of an episode."""
    if estimate.mean.requests <= 0:
        return 1.0
    return beyond(
        1.0, max(LEAST_SPREAD, math.hypot(estimate.spread, estimate.doubt)), progress.steps / estimate.mean.requests
    )


def _plan_lane(resolved: Resolved, lane: str, plans: Sequence[CellPlan], reply_s: float, spent: int) -> LanePlan:
    in_lane = [cell for cell in plans if cell.lane == lane]
    limits = lane_limits(resolved, lane)
    requests = sum(cell.requests for cell in in_lane)
    bounds = _bounds(limits, in_lane)
    width = min(resolved.sweep.width, sum(cell.episodes for cell in in_lane), limits.in_flight or math.inf)
    in_flight = _in_flight(resolved, plans, spent)
    narrow = "width" if in_flight is None or in_flight >= width else "budget (requests in flight)"
    bounds[narrow] = requests * reply_s / max(1, width if in_flight is None else min(width, in_flight))
    bounds["longest episode"] = (
        max((cell.chain for cell in in_lane if cell.episodes), default=0) * reply_s if requests else 0.0
    )
    return _lane(lane, in_lane, bounds)


def _in_flight(resolved: Resolved, plans: Sequence[CellPlan], spent: int) -> int | None:
    """Requests that the budget allows in flight at once, in all lanes together; None: no bound."""
    dearest = max((cell.dearest for cell in plans if cell.episodes), default=0)
    if resolved.sweep.budget is None or not dearest:
        return None
    return in_flight_bound(max(0, resolved.sweep.budget - spent), dearest)


def _shared(resolved: Resolved, lanes: Sequence[LanePlan]) -> list[LanePlan]:
    """Limits that lanes share, each as a lane of its own."""
    members: dict[str, tuple[Limits, dict[str, LanePlan]]] = {}
    of_lane = {lane.lane: lane for lane in lanes}
    for name, endpoint in resolved.endpoints.items():
        lane = of_lane.get(resolved.manifest.agents[name].lane)
        for share in lane_shares(resolved, endpoint) if lane is not None else ():
            assert lane is not None
            members.setdefault(share.name, (share.limits, {}))[1][lane.lane] = lane
    shared = []
    for name, (limits, own) in members.items():
        bounds = _bounds(limits, list(own.values()))
        if len(own) > 1 and max(bounds.values()) > 0:
            shared.append(_lane(name, list(own.values()), bounds, tuple(own)))
    return shared


def _bounds(limits: Limits, parts: Sequence[CellPlan | LanePlan]) -> dict[str, float]:
    """Seconds that the limits per minute require."""
    return {
        "requests/min": 60 * sum(part.requests for part in parts) / (limits.requests_per_minute or math.inf),
        "input tokens/min": 60 * sum(part.tokens_in for part in parts) / (limits.input_tokens_per_minute or math.inf),
        "output tokens/min": 60
        * sum(part.tokens_out for part in parts)
        / (limits.output_tokens_per_minute or math.inf),
    }


def _lane(
    name: str, parts: Sequence[CellPlan | LanePlan], bounds: Mapping[str, float], members: tuple[str, ...] = ()
) -> LanePlan:
    requests, bound = sum(part.requests for part in parts), max(bounds, key=lambda kind: bounds[kind])
    return LanePlan(
        lane=name,
        requests=requests,
        tokens_in=sum(part.tokens_in for part in parts),
        tokens_out=sum(part.tokens_out for part in parts),
        seconds=bounds[bound],
        bound=bound if requests else "this process",
        members=members,
    )
