"""What a sweep will cost and how long it will take, without a request.

The forecast is that of admission and of `status` (`forecast.py`): ended episodes of the run that the spec would resume,
before that a short play of a policy in each agent's place. Lanes take the time that their limits, their width, their
longest episode or this machine's processors need. Real models differ from stand-ins: a cell names its basis.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from evalkit.client.request import writing
from evalkit.engine.forecast import Forecast, asks_per_step, ranged
from evalkit.engine.freezing.freeze import USUAL_CACHE, ResolvedSweep, endpoint_name, lane_shares, lives_of
from evalkit.engine.planning.answerable import question_plan
from evalkit.engine.planning.planned import ITSELF, RATE, STAND_IN, THIS_PROCESS, CellPlan, LanePlan, Plan, QuestionPlan
from evalkit.engine.resume import LoggedProgress
from evalkit.engine.servers import capacity
from evalkit.engine.stand_in import (
    STEPS,
    ChatEncoding,
    PlayedCode,
    Sample,
    SampledCell,
    TooLong,
    play_samples,
    price_of,
    prior_of,
    role_of,
    stand_in_of,
    tier_times,
)
from evalkit.engine.universe import AgentSetup, Choice, cells
from evalkit.frozen.manifest import Manifest, ManifestAgent
from evalkit.money import FLEX, STANDARD, Price
from evalkit.spec.model import Limits
from evalkit.store.reading.totals import ByTier, CellTotals, TierOutlook
from evalkit.text import many, span
from evalkit.wire.dialect import CacheLife
from evalkit.wire.table import DIALECTS

WIDTH = "width"
"""What takes a lane's time where its requests in flight do."""
PROCESSOR = "processor time"
"""The same where this machine's processors do."""
ASSUMED_REPLY_S = 2.0
"""Seconds that a reply takes if nothing better is known; `plan` reports this assumption."""
FLEX_SLOWER = 10.0
"""How many times as long a reply by a cheap tier is assumed to take: providers promise nothing. Google's target is 1 to
15 minutes (https://ai.google.dev/gemini-api/docs/optimization)."""
USUAL_CACHE_S = 300.0
"""How long a prompt cache lasts if requests ask for nothing."""
CPU_S, SIMULATED_CPU_S = 0.0009, 0.0009
"""CPU seconds that a process takes for a request (engine, environment, HTTP, log), and that a provider that is
simulated on the same machine takes beside it, as quickstart shows on two cores."""
NEAR = 0.8
"""A conversation that is expected to fill more than this share of a model's context is played to its end."""

Place = tuple[str, str]
"""Agent and suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What the run that the spec would resume says of its cells, as `status` reads it."""

    name: str
    forecast: Forecast
    logged: Mapping[Place, CellTotals]
    rates: Mapping[str, float]
    """Requests per second by lane; lanes without any are absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorKnowledge:
    """What is known in addition to the sweep."""

    held: Mapping[str, LoggedProgress] = field(default_factory=dict)
    """Episodes of the run that the spec would resume."""
    begun: Begun | None = None
    """That run's own figures."""
    spent: int = 0
    """Pico-dollars that it has spent."""
    tiers: ByTier = field(default_factory=dict)
    """What served its replies."""
    reply_s: Mapping[str, float] = field(default_factory=dict)
    """Assumed seconds per reply, by lane."""
    spread: float | None = None
    """Standard deviation of a pair's differences, as a share of the range of scores, where the run has scores of what
    the sweep asks."""


class _RemainingCell(NamedTuple):
    """The remaining part of a cell."""

    ended: int
    fresh: int
    begun: tuple[LoggedProgress, ...]
    longest: int
    """Requests of the longest episode that is known."""

    @property
    def left(self) -> int:
        """Episodes to be played, or continued."""
        return self.fresh + len(self.begun)


class _PlayedModel(NamedTuple):
    """What a plan must know of the model behind an agent."""

    encoding: ChatEncoding
    price: Price
    context_tokens: int | None
    """None: unknown."""
    max_tokens: int


class _PlayedAgent(NamedTuple):
    """What a plan must know of the models of an agent."""

    models: Mapping[str, _PlayedModel]
    """By role; of a model that plays alone, under an empty name. The first is the agent's own."""
    code: PlayedCode | None

    @property
    def own(self) -> _PlayedModel:
        """The agent's own model."""
        return next(iter(self.models.values()))

    def cost(self, sample: Sample) -> int:
        """Pico-dollars of a sample, each request at its own model's price."""
        return sum(sample.asked_of(role).cost(model.price) for role, model in self.models.items())

    def dearest(self, sample: Sample) -> int:
        """Pico-dollars that the sample's dearest request may cost at most."""
        return max(sample.asked_of(role).dearest(model.price, model.max_tokens) for role, model in self.models.items())

    def too_long(self, sample: Sample) -> TooLong | None:
        """The first request that does not fit its model's context, where that is known."""
        flaws = (
            sample.asked_of(role).too_long(model.context_tokens, model.max_tokens)
            for role, model in self.models.items()
            if model.context_tokens is not None
        )
        return min((flaw for flaw in flaws if flaw is not None), default=None)

    def may_outgrow(self, sample: Sample) -> bool:
        """Whether a longer conversation may not fit."""
        return any(
            model.context_tokens is not None
            and sample.asked_of(role).longest_prompt + model.max_tokens > NEAR * model.context_tokens
            for role, model in self.models.items()
        )


def _agent_of(resolved: ResolvedSweep, cell: AgentSetup) -> _PlayedAgent:
    """The models that play a cell, and the code that asks them."""
    agent = cell.agent
    if agent.code is None:
        return _PlayedAgent({"": _model_of(resolved, cell, agent, agent.name)}, None)
    roles = agent.code.roles
    models = {
        role: _model_of(resolved, cell, role_of(agent, role), endpoint_name(agent.name, role, roles)) for role in roles
    }
    code = next(spec.code for spec in resolved.sweep.agents if spec.name == agent.name)
    assert code is not None
    return _PlayedAgent(
        models, PlayedCode(code=code, encodings={role: model.encoding for role, model in models.items()})
    )


def _model_of(resolved: ResolvedSweep, cell: AgentSetup, agent: ManifestAgent, name: str) -> _PlayedModel:
    """The model behind an endpoint's name; of a policy in this process, one that costs nothing."""
    endpoint = resolved.endpoints.get(name)
    encoding = ChatEncoding(dialect=DIALECTS["openai_chat"])
    if endpoint is not None:
        encoding = ChatEncoding(dialect=DIALECTS[endpoint.provider.dialect], quirks=endpoint.model.quirks)
    return _PlayedModel(
        encoding=encoding,
        price=price_of(agent) if endpoint is None else writing(price_of(agent), endpoint.provider, endpoint.cache),
        context_tokens=None if endpoint is None else endpoint.model.context_tokens,
        max_tokens=cell.sampling.max_tokens,
    )


async def plan_sweep(
    resolved: ResolvedSweep, choice: Choice, *, steps: float = STEPS, known: PriorKnowledge | None = None
) -> Plan:
    """Play samples of the cells, about `steps` requests in all, and forecast the rest. Writes nothing."""
    known = known or PriorKnowledge()
    manifest, cell_of = resolved.manifest, cells(resolved.manifest)
    suites = [suite for suite in manifest.suites.values() if choice.takes_suite(suite)]
    agents = [agent for agent in manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    pairs = [
        SampledCell(agent, suite, cell_of[agent.name, suite.environment])
        for suite in suites
        for agent in agents
        if suite.environment in agent.packs
    ]
    remaining = _remaining(manifest, pairs, known.held)
    played = {pair.place: _agent_of(resolved, pair.cell) for pair in pairs}
    wanted = [pair for pair in pairs if pair.agent.provider and (known.begun is None or remaining[pair.place].left)]
    samples = await play_samples(
        manifest,
        wanted,
        steps=steps,
        spoken=lambda pair: (played[pair.place].own.encoding, played[pair.place].code),
        outgrows=lambda pair, one: played[pair.place].may_outgrow(one),
    )
    begun = known.begun or Begun(
        name="",
        forecast=Forecast(
            prior_of(pair, samples[pair.place], [played[pair.place].cost(one) for one in samples[pair.place]])
            for pair in wanted
        ),
        logged={},
        rates={},
    )
    plans = [
        _plan_cell(pair, remaining[pair.place], samples.get(pair.place, []), begun, played[pair.place])
        for pair in pairs
    ]
    reply_s = {cell.lane: known.reply_s.get(cell.lane, ASSUMED_REPLY_S) for cell in plans}
    lanes = [
        _plan_lane(resolved, lane, plans, reply_s[lane], known.spent, begun.rates.get(lane)) for lane in sorted(reply_s)
    ]
    tiers = tuple(_tiers(resolved, plans, known))
    plans = [_priced_by_tiers(cell, tiers) for cell in plans]
    paces = reply_s | {one.lane: one.reply_s for one in tiers if one.expected and one.reply_s}
    return Plan(
        name=resolved.sweep.name,
        cells=tuple(plans),
        lanes=(*lanes, *_shared(resolved, lanes), *_machine(resolved, lanes, set(known.reply_s))),
        reply_s=reply_s,
        assumed=frozenset(reply_s.keys() - known.reply_s.keys()),
        budget=resolved.sweep.budget,
        own_budgets={agent.name: agent.budget for agent in resolved.sweep.agents if agent.budget is not None},
        spent=known.spent,
        in_flight=_in_flight(resolved, plans, known.spent),
        marks={agent.name: agent.marks for agent in agents},
        simulated=resolved.manifest.simulated,
        question=_question(resolved, plans, known),
        tiers=tiers,
        advice=tuple(_caches(resolved, plans, samples, paces, begun.rates)),
    )


def _tiers(resolved: ResolvedSweep, plans: Sequence[CellPlan], known: PriorKnowledge) -> Iterator[TierOutlook]:
    """By lane that goes by others than the standard tier: price and time by each of its tiers and by the standard one;
    and by the mixture, where there are several and a deadline. A cell's cost is that of the standard tier, or of the
    mixture that has served what has ended."""
    chosen = {one.lane: one for one in resolved.endpoints.values() if one.tiers != (STANDARD,)}
    agents = resolved.manifest.agents
    whole = sum(sums.cost + sums.saved for sums in known.tiers.values())
    dearer = whole / sum(sums.cost for sums in known.tiers.values()) if whole else 1.0  # than the forecast's mixture
    for lane, endpoint in chosen.items():
        in_lane, usual = [cell for cell in plans if cell.lane == lane], known.reply_s.get(lane, ASSUMED_REPLY_S)
        found = list[TierOutlook]()
        for tier in dict.fromkeys((*endpoint.tiers, STANDARD)):
            seen, slower = known.tiers.get(tier), FLEX_SLOWER if tier == FLEX else 1.0
            reply_s = seen.seconds / seen.replies if seen is not None and seen.seconds else usual * slower
            times = [tier_times(agents[cell.agent], tier, cell.tokens_in, cell.tokens_out) for cell in in_lane]
            cost = dearer * sum(cell.cost * factor for cell, factor in zip(in_lane, times, strict=True))
            seconds = _plan_lane(resolved, lane, plans, reply_s, known.spent, None).seconds
            assumed = reply_s == usual * slower and not known.tiers
            found.append(TierOutlook(tier, cost, seconds, lane, assumed, reply_s=reply_s))
        deadline_s, expected = resolved.sweep.deadline_s, found[0]
        if len(endpoint.tiers) > 1 and deadline_s is not None and endpoint.tiers[0] == FLEX:
            slow, quick, *_ = ((one.cost, one.seconds or 0.0, one.reply_s or 0.0) for one in found)
            part = 1.0 if slow[1] <= deadline_s else max(0.0, (deadline_s - quick[1]) / max(1e-9, slow[1] - quick[1]))
            cost, seconds, reply_s = (part * one + (1 - part) * other for one, other in zip(slow, quick, strict=True))
            name = f"mixed by the deadline ({part:.0%} {FLEX})"
            expected = TierOutlook(name, cost, seconds, lane, reply_s=reply_s)
            found.append(expected)
        yield from (one._replace(expected=one is expected) for one in found)


def _priced_by_tiers(cell: CellPlan, tiers: Sequence[TierOutlook]) -> CellPlan:
    """A cell by the tiers that its lane is expected to go by; where episodes have ended, its cost is what they cost."""
    own = [one for one in tiers if one.lane == cell.lane]
    standard = sum(one.cost for one in own if one.tier == STANDARD)
    times = sum(one.cost for one in own if one.expected) / standard if standard else 1.0
    cell = replace(cell, dearest=round(cell.dearest * max(1.0, times)))
    if cell.basis not in (ITSELF, STAND_IN):
        return cell
    cost, low, high, one = (times * part for part in (cell.cost, cell.cost_low, cell.cost_high, cell.one))
    return replace(cell, cost=cost, cost_low=low, cost_high=high, one=one)


def _caches(
    resolved: ResolvedSweep,
    plans: Sequence[CellPlan],
    samples: Mapping[Place, Sequence[Sample]],
    reply_s: Mapping[str, float],
    rates: Mapping[str, float],
) -> Iterator[str]:
    """By lane whose episodes ask so slowly, or so fast, that a prompt cache of another lifetime pays: a sentence."""
    for lane, endpoint in {one.lane: one for one in resolved.endpoints.values() if one.lane in reply_s}.items():
        lives = {USUAL_CACHE: CacheLife(bytes, USUAL_CACHE_S), **lives_of(endpoint.provider, endpoint.model)}
        in_lane = [cell for cell in plans if cell.lane == lane]
        requests = max(1.0, sum(cell.requests for cell in in_lane))
        paced = {"": requests / rates[lane]} if lane in rates else _paced(resolved, lane, plans, reply_s[lane])
        gap_s, costs = max(paced.values()) * _width(resolved, lane, in_lane) / requests, dict.fromkeys(lives, 0.0)
        for name, life in lives.items():
            for cell in in_lane:
                price = price_of(resolved.manifest.agents[cell.agent]).writing(life.write_times)
                for one in samples.get((cell.agent, cell.suite), ()):
                    costs[name] += cell.episodes / cell.played * _prompts(one, price, lost=gap_s > life.seconds)
        best = min(costs, key=lambda name: (costs[name], name != endpoint.cache))
        if costs[best] < costs[endpoint.cache]:
            yield (
                f"{lane}: an episode asks every {span(gap_s)}, and its prompt cache lasts {endpoint.cache}: with "
                f'`cache = "{best}"` in [limits."{lane}"] prompts cost {costs[best] / costs[endpoint.cache]:.2g} times '
                "as much."
            )


def _prompts(sample: Sample, price: Price, *, lost: bool) -> float:
    """Pico-dollars of what is read of and written to a prompt cache; `lost`: that forgets a chat between requests."""
    cost, before = 0, 0
    for one in sample.asked:
        read, before = 0 if lost else min(before, one.tokens_in), one.tokens_in
        cost += read * price.cached_read + (one.tokens_in - read) * (price.cached_write + price.lasting)
    return sample.scale * cost


def _machine(resolved: ResolvedSweep, lanes: Sequence[LanePlan], simulated: set[str]) -> list[LanePlan]:
    """The processors that all lanes share, as a lane of its own; nothing where lanes go at the rate so far."""
    busy = [lane for lane in lanes if lane.requests]
    if len(busy) < 2 or any(lane.bound == RATE for lane in busy):
        return []
    here = sum(lane.requests * (CPU_S + SIMULATED_CPU_S * (lane.lane in simulated)) for lane in busy)
    bounds = {PROCESSOR: here / max(1, resolved.sweep.workers)}
    if bounds[PROCESSOR] <= max(lane.seconds for lane in busy):
        return []
    return [_lane("this machine", busy, bounds, tuple(lane.lane for lane in busy))]


def _question(resolved: ResolvedSweep, plans: Sequence[CellPlan], known: PriorKnowledge) -> QuestionPlan | None:
    sweep = resolved.sweep
    if sweep.decide is None:
        return None
    money = None if sweep.budget is None else max(0, sweep.budget - known.spent)
    return question_plan(resolved.manifest, sweep.decide, plans, known.spread, money)


def _remaining(
    manifest: Manifest, pairs: Sequence[SampledCell], held: Mapping[str, LoggedProgress]
) -> dict[Place, _RemainingCell]:
    """By place. By the suite's full name: a `Choice` of a base name would take its variants as well."""
    known: dict[Place, list[LoggedProgress]] = {}
    for episode in held.values():
        if episode.replicate < manifest.replicates:
            known.setdefault((episode.agent, episode.suite), []).append(episode)
    remaining = {}
    for pair in pairs:
        own = known.get(pair.place, [])
        begun = tuple(episode for episode in own if not episode.ended)
        total = len(pair.suite.instances) * manifest.replicates
        longest = max((episode.steps for episode in own), default=0)
        remaining[pair.place] = _RemainingCell(len(own) - len(begun), total - len(own), begun, longest)
    return remaining


def _plan_cell(
    pair: SampledCell, remaining: _RemainingCell, samples: Sequence[Sample], begun: Begun, played: _PlayedAgent
) -> CellPlan:
    agent, suite, forecast, place = pair.agent, pair.suite, begun.forecast, pair.place
    free, whole = not agent.provider, forecast.whole(*place)
    asks = asks_per_step(agent, begun.logged.get(place))
    going = [forecast.rest(*place, cost=episode.cost, requests=episode.steps) for episode in remaining.begun]
    steps = remaining.fresh * whole.requests + sum(
        max(1.0, whole.requests - episode.steps) for episode in remaining.begun
    )
    share, cost = steps / whole.requests if whole.requests else 0.0, remaining.fresh * whole.cost + sum(going)
    limits = forecast.remaining(*place, remaining.left)
    if not forecast.ended(*place) and _exact(samples, remaining, forecast, place):
        limits = ranged(0.0, 0, 1)
    factor = limits.high / limits.expected if limits.expected else 1.0
    flaws = [played.too_long(one) for one in samples]
    return CellPlan(
        agent=agent.name,
        suite=suite.name,
        lane=agent.lane,
        stand_in=stand_in_of(agent, suite.environment),
        basis=_basis(pair, begun),
        episodes=remaining.left,
        ended=remaining.ended,
        played=len(samples),
        requests=asks * steps,
        tokens_in=share * whole.tokens_in,
        tokens_out=share * whole.tokens_out,
        cost_low=cost / factor,
        cost=cost,
        cost_high=cost * factor,
        one=whole.cost,
        chain=0
        if free
        else remaining.longest
        if remaining.ended
        else max((one.requests for one in samples), default=0),
        longest_prompt=max((one.longest_prompt for one in samples), default=0),
        dearest=max((played.dearest(one) for one in samples), default=0),
        context_tokens=played.own.context_tokens,
        too_long=min((flaw for flaw in flaws if flaw is not None), default=None),
    )


def _basis(pair: SampledCell, begun: Begun) -> str:
    """Where a cell's figures come from, in words."""
    ended, prior = begun.forecast.ended(*pair.place), begun.forecast.priors.get(pair.place)
    if not pair.agent.provider:
        return THIS_PROCESS
    if ended:
        return f"{many(ended, 'episode')} of {begun.name}"
    return ITSELF if prior is not None and prior.itself else STAND_IN


def _exact(samples: Sequence[Sample], remaining: _RemainingCell, forecast: Forecast, place: Place) -> bool:
    """Whether all that is remaining was played, by the policy itself."""
    whole = len(samples) == remaining.fresh == remaining.left and not any(one.cut for one in samples)
    return whole and forecast.proven(*place)


def _plan_lane(
    resolved: ResolvedSweep, lane: str, plans: Sequence[CellPlan], reply_s: float, spent: int, rate: float | None
) -> LanePlan:
    """`rate`: requests per second that the lane has had in the run; None: not known."""
    in_lane = [cell for cell in plans if cell.lane == lane]
    if rate is not None:
        return _lane(lane, in_lane, {RATE: sum(cell.requests for cell in in_lane) / rate})
    requests = sum(cell.requests for cell in in_lane)
    bounds, width = _paced(resolved, lane, plans, reply_s), _width(resolved, lane, in_lane)
    in_flight = _in_flight(resolved, plans, spent)
    if in_flight is not None and in_flight < width:
        del bounds[WIDTH]
        bounds["budget (requests in flight)"] = requests * reply_s / max(1, in_flight)
    bounds["longest episode"] = (
        max((cell.chain for cell in in_lane if cell.episodes), default=0) * reply_s if requests else 0.0
    )
    return _lane(lane, in_lane, bounds)


def _paced(resolved: ResolvedSweep, lane: str, plans: Sequence[CellPlan], reply_s: float) -> dict[str, float]:
    """Seconds that a lane's limits per minute, and its requests in flight, require."""
    in_lane = [cell for cell in plans if cell.lane == lane]
    requests = sum(cell.requests for cell in in_lane)
    return _bounds(_limits(resolved, lane), in_lane) | {
        WIDTH: requests * reply_s / max(1, _width(resolved, lane, in_lane))
    }


def _width(resolved: ResolvedSweep, lane: str, in_lane: Sequence[CellPlan]) -> float:
    """Requests that may be in flight."""
    most = _limits(resolved, lane).in_flight or math.inf
    return min(resolved.sweep.width, sum(cell.episodes for cell in in_lane), most)


def _limits(resolved: ResolvedSweep, lane: str) -> Limits:
    """Of all its servers together; none for policies in this process."""
    endpoint = next((one for one in resolved.endpoints.values() if one.lane == lane), None)
    return Limits() if endpoint is None else capacity(resolved, endpoint)


def _in_flight(resolved: ResolvedSweep, plans: Sequence[CellPlan], spent: int) -> int | None:
    """Requests that the budget allows in flight at once, in all lanes together; None: no bound."""
    dearest = max((cell.dearest for cell in plans if cell.episodes), default=0)
    if resolved.sweep.budget is None or not dearest:
        return None
    return max(0, resolved.sweep.budget - spent) // dearest


def _shared(resolved: ResolvedSweep, lanes: Sequence[LanePlan]) -> list[LanePlan]:
    """Limits that lanes share, each as a lane of its own."""
    members: dict[str, tuple[Limits, dict[str, LanePlan]]] = {}
    of_lane = {lane.lane: lane for lane in lanes}
    for endpoint in resolved.endpoints.values():
        lane = of_lane.get(endpoint.lane)
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
        bound=bound if requests else THIS_PROCESS,
        members=members,
    )
