"""What a sweep will cost and how long it will take, without a request.

A run that has begun speaks for itself: what its episodes took, its forecast of the others and the rate of its requests
are those of `status`. Otherwise each cell (agent x suite) is played in this process by a policy in place of the agent
(`pilot.py`). Real models differ: the figures of another run can be used instead, and scale the stand-ins of cells
that it lacks (`pilot.py`). A cell names its basis.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evalkit.engine.forecast import DOUBT, LEAST_SPREAD, Forecast, around, asks_per_step, beyond, spread_of
from evalkit.engine.freezing.freeze import Resolved, lane_shares
from evalkit.engine.planning.answerable import question_plan
from evalkit.engine.planning.machines import WorkersPlan, workers_plan
from evalkit.engine.planning.pilot import NOTHING, REQUESTS, Basis, Figures, PlayedAgent, Sampled, agent_of, sample
from evalkit.engine.planning.planned import ITSELF, RATE, STAND_IN, THIS_PROCESS, CellPlan, LanePlan, Plan, QuestionPlan
from evalkit.engine.resume import LoggedProgress
from evalkit.engine.servers import capacity
from evalkit.engine.stand_in import Sample, plays_itself, stand_in_of
from evalkit.engine.universe import Choice, cells
from evalkit.frozen.manifest import Manifest
from evalkit.spec.model import Limits
from evalkit.store.reading.totals import CellTotals
from evalkit.text import many

WIDTH = "width"
"""What takes a lane's time where its requests in flight do."""
ASSUMED_REPLY_S = 2.0
"""Seconds that a reply takes if nothing better is known; `plan` reports this assumption."""
SCALED_DOUBT = 0.3
"""Relative standard deviation of a cell's mean where other cells of a run speak for it. Chosen."""

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

    basis: Basis = NOTHING
    """A run with figures to be used."""
    held: Mapping[str, LoggedProgress] = field(default_factory=dict)
    """Episodes of the run that the spec would resume."""
    begun: Begun | None = None
    """That run's own figures; used unless there is a `basis`."""
    spent: int = 0
    """Pico-dollars that it has spent."""
    reply_s: Mapping[str, float] = field(default_factory=dict)
    """Assumed seconds per reply, by lane."""
    cpu_s: float | None = None
    """CPU seconds of one request, as that run has taken them; None: not known."""
    spread: float | None = None
    """Standard deviation of a pair's differences, as a share of the range of scores, where the run has scores of what
    the sweep asks."""


class _Owed(NamedTuple):
    """The remaining part of a cell."""

    ended: int
    fresh: int
    begun: tuple[LoggedProgress, ...]
    longest: int
    """Requests of the longest episode that is known."""

    @property
    def total(self) -> int:
        return self.ended + self.left

    @property
    def left(self) -> int:
        """Episodes to be played, or continued."""
        return self.fresh + len(self.begun)


class _EpisodeEstimate(NamedTuple):
    """One whole episode of a cell: figures, pico-dollars; relative standard deviations of an episode and the mean."""

    mean: Figures
    cost: float
    spread: float
    doubt: float
    basis: str


class _Rest(NamedTuple):
    """The remaining part of a cell: figures, pico-dollars with their 95 % range."""

    figures: Figures
    low: float
    cost: float
    high: float


NOTHING_LEFT = _Rest(Figures(0.0, 0.0, 0.0), 0.0, 0.0, 0.0)


async def plan_sweep(
    resolved: Resolved, choice: Choice, *, requests: float = REQUESTS, known: PriorKnowledge | None = None
) -> Plan:
    """Play samples of the cells, about `requests` requests in all, and estimate the rest. Writes nothing."""
    known = known or PriorKnowledge()
    manifest, cell_of = resolved.manifest, cells(resolved.manifest)
    suites = [suite for suite in manifest.suites.values() if choice.takes_suite(suite)]
    agents = [agent for agent in manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    pairs = [
        Sampled(agent, suite, cell_of[agent.name, suite.environment])
        for suite in suites
        for agent in agents
        if suite.environment in agent.packs
    ]
    owed = _owed(manifest, pairs, known.held)
    wanted = [pair for pair in pairs if pair.agent.provider and (known.begun is None or owed[pair.place].left)]
    samples = await sample(resolved, wanted, requests)
    plans = [
        _plan_cell(pair, owed[pair.place], samples.get(pair.place, []), known, agent_of(resolved, pair.cell))
        for pair in pairs
    ]
    rates = {} if known.begun is None else known.begun.rates
    named = {agent.lane: known.basis.reply_s(agent) for agent in agents}
    reply_s = {cell.lane: known.reply_s.get(cell.lane) or named[cell.lane] or ASSUMED_REPLY_S for cell in plans}
    lanes = [_plan_lane(resolved, lane, plans, reply_s[lane], known.spent, rates.get(lane)) for lane in sorted(reply_s)]
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
        simulated=resolved.manifest.simulated,
        question=_question(resolved, plans, known),
        workers=_workers(resolved, lanes, plans, reply_s, known),
    )


def _workers(
    resolved: Resolved,
    lanes: Sequence[LanePlan],
    plans: Sequence[CellPlan],
    reply_s: Mapping[str, float],
    known: PriorKnowledge,
) -> WorkersPlan | None:
    """How many processes the limits keep busy."""
    busy = [lane for lane in lanes if lane.requests]
    rates = {
        lane.lane: lane.requests / max(_paced(resolved, lane.lane, plans, reply_s[lane.lane]).values()) for lane in busy
    }
    shared = [(share.members, share.requests / share.seconds) for share in _shared(resolved, busy)]
    return workers_plan(rates, shared, resolved.sweep.workers, known.cpu_s)


def _question(resolved: Resolved, plans: Sequence[CellPlan], known: PriorKnowledge) -> QuestionPlan | None:
    sweep = resolved.sweep
    if sweep.decide is None:
        return None
    money = None if sweep.budget is None else max(0, sweep.budget - known.spent)
    return question_plan(resolved.manifest, sweep.decide, plans, known.spread, money)


def _owed(manifest: Manifest, pairs: Sequence[Sampled], held: Mapping[str, LoggedProgress]) -> dict[Place, _Owed]:
    """By place. By the suite's full name: a `Choice` of a base name would take its variants as well."""
    known: dict[Place, list[LoggedProgress]] = {}
    for episode in held.values():
        if episode.replicate < manifest.replicates:
            known.setdefault((episode.agent, episode.suite), []).append(episode)
    owed = {}
    for pair in pairs:
        own = known.get(pair.place, [])
        begun = tuple(episode for episode in own if not episode.ended)
        total = len(pair.suite.instances) * manifest.replicates
        longest = max((episode.steps for episode in own), default=0)
        owed[pair.place] = _Owed(len(own) - len(begun), total - len(own), begun, longest)
    return owed


def _plan_cell(
    pair: Sampled, owed: _Owed, samples: Sequence[Sample], known: PriorKnowledge, played: PlayedAgent
) -> CellPlan:
    agent, suite = pair.agent, pair.suite
    free, stand_in = not agent.provider, stand_in_of(agent, suite.environment)
    itself = plays_itself(agent, suite.environment)
    if free:
        estimate = _EpisodeEstimate(Figures(0.0, 0.0, 0.0), 0.0, 0.0, 0.0, THIS_PROCESS)
        rest = NOTHING_LEFT
    elif known.begun is not None:
        estimate = _own_estimate(pair, known.begun, itself=itself)
        rest = _own_rest(pair, owed, estimate, known.begun.forecast)
    else:
        estimate = _estimate(pair, samples, known.basis, played, itself=itself)
        played_all = itself and len(samples) == owed.total == owed.fresh and not any(one.cut for one in samples)
        exact = played_all and known.basis.cell(agent, suite.name) is None
        rest = _estimated_rest(owed, estimate, exact=exact)
    seen = known.basis.cell(agent, suite.name)
    chain = seen.chain if seen is not None else owed.longest if owed.ended else 0
    flaws = [played.too_long(one) for one in samples]
    return CellPlan(
        agent=agent.name,
        suite=suite.name,
        lane=agent.lane,
        stand_in=stand_in,
        basis=estimate.basis,
        episodes=owed.left,
        ended=owed.ended,
        played=len(samples),
        requests=rest.figures.requests,
        tokens_in=rest.figures.tokens_in,
        tokens_out=rest.figures.tokens_out,
        cost_low=rest.low,
        cost=rest.cost,
        cost_high=rest.high,
        limit=_limit(owed, estimate, rest, samples),
        one=estimate.cost,
        chain=0 if free else chain or max((one.requests for one in samples), default=0),
        longest_prompt=max((one.longest_prompt for one in samples), default=0),
        dearest=max((played.dearest(one) for one in samples), default=0),
        context_tokens=played.own.context_tokens,
        too_long=min((flaw for flaw in flaws if flaw is not None), default=None),
    )


def _limit(owed: _Owed, estimate: _EpisodeEstimate, rest: _Rest, samples: Sequence[Sample]) -> float | None:
    """Pico-dollars if every remaining episode takes as many requests as its environment allows, each as dear as they
    are on average, prompts as long as they grow to be; None if the environment sets no limit."""
    if not rest.cost:
        return 0.0
    most = [one.most for one in samples if one.most is not None]
    if len(most) < len(samples) or not samples:
        return None
    times = sum(most) / len(most) / max(1.0, estimate.mean.requests) * sum(one.growth for one in samples) / len(samples)
    spent = sum(episode.cost for episode in owed.begun)
    return max(rest.cost, owed.left * estimate.cost * times - spent)


def _own_estimate(pair: Sampled, begun: Begun, *, itself: bool) -> _EpisodeEstimate:
    """What one episode takes by the forecast of the run, and by the tokens of its requests."""
    forecast, place = begun.forecast, pair.place
    whole, logged, ended = forecast.whole(*place), begun.logged.get(place), forecast.ended(*place)
    tokens_in, tokens_out, asks = whole.tokens_in, whole.tokens_out, asks_per_step(pair.agent, logged)
    if logged is not None and logged.rows:
        sent = logged.rows if pair.agent.code is None else logged.rows - logged.steps
        tokens_in, tokens_out = (
            asks * whole.requests * tokens / max(1, sent) for tokens in (logged.tokens_in, logged.tokens_out)
        )
    basis, prior = ITSELF if itself else STAND_IN, forecast.priors.get(place)
    if ended:
        basis = _count_words(ended, begun.name)
    elif not itself and prior is not None and prior.requests and forecast.knows(pair.agent.name):
        basis = f"stand-in x {whole.requests / prior.requests:.2g}: its other suites in {begun.name}"
    figures = Figures(asks * whole.requests, tokens_in, tokens_out)
    return _EpisodeEstimate(figures, whole.cost, 0.0, 0.0, basis)


def _own_rest(pair: Sampled, owed: _Owed, estimate: _EpisodeEstimate, forecast: Forecast) -> _Rest:
    """As `status` has it."""
    place, mean, steps = pair.place, estimate.mean, forecast.whole(*pair.place).requests
    going = [forecast.rest(*place, cost=episode.cost, requests=episode.steps) for episode in owed.begun]
    cost = owed.fresh * estimate.cost + sum(going)
    left = owed.fresh * steps + sum(max(1.0, steps - episode.steps) for episode in owed.begun)
    _, middle, high = forecast.owed(*place, owed.left)
    factor = high / middle if middle else 1.0
    share = left / steps if steps else 0.0
    requests = left * (mean.requests / steps if steps else 1.0)
    return _Rest(Figures(requests, share * mean.tokens_in, share * mean.tokens_out), cost / factor, cost, cost * factor)


def _estimated_rest(owed: _Owed, estimate: _EpisodeEstimate, *, exact: bool) -> _Rest:
    left = owed.fresh + sum(_part(estimate, episode) for episode in owed.begun)
    cost = left * estimate.cost
    deviation = 0.0 if exact else math.sqrt(left * estimate.spread**2 + (left * estimate.doubt) ** 2) * estimate.cost
    low, _, high = around(cost, deviation)
    return _Rest(Figures(*(left * figure for figure in estimate.mean)), low, cost, high)


def _estimate(
    pair: Sampled, samples: Sequence[Sample], basis: Basis, played: PlayedAgent, *, itself: bool
) -> _EpisodeEstimate:
    """What one episode takes: from the run if it has the cell, else from the stand-in, scaled if the run allows it."""
    agent, suite, count = pair.agent, pair.suite.name, len(samples)
    costs = [played.cost(one) for one in samples]
    sampled = Figures(
        sum(one.requests for one in samples) / count,
        sum(one.tokens_in for one in samples) / count,
        sum(one.tokens_out for one in samples) / count,
    )
    cost, spread = sum(costs) / count, spread_of(costs)
    seen = basis.cell(agent, suite)
    if seen is not None:
        paid, doubt = basis.cost(agent, seen.mean, seen), seen.spread / math.sqrt(seen.episodes)
        return _EpisodeEstimate(seen.mean, paid, seen.spread, doubt, _count_words(seen.episodes, basis.name))
    doubt = spread / math.sqrt(count)
    if itself:
        return _EpisodeEstimate(sampled, cost, spread, doubt, ITSELF)
    # What a basis' priors know of code is its number of steps, not its requests.
    scale = basis.scale(agent, suite) if agent.code is None else None
    if scale is None:
        return _EpisodeEstimate(sampled, cost, spread, math.hypot(doubt, DOUBT), STAND_IN)
    factors, words = scale
    mean = Figures(*(figure * factor for figure, factor in zip(sampled, factors, strict=True)))
    before = basis.cost(agent, sampled, None)
    paid = cost * basis.cost(agent, mean, None) / before if before else 0.0
    return _EpisodeEstimate(
        mean, paid, spread, math.hypot(doubt, SCALED_DOUBT), f"stand-in x {factors.tokens_in:.2g}: {words}"
    )


def _count_words(count: int, run: str) -> str:
    return f"{many(count, 'episode')} of {run}"


def _part(estimate: _EpisodeEstimate, progress: LoggedProgress) -> float:
    """The remaining part of a started episode, as a fraction of an episode."""
    if estimate.mean.requests <= 0:
        return 1.0
    return beyond(
        1.0, max(LEAST_SPREAD, math.hypot(estimate.spread, estimate.doubt)), progress.steps / estimate.mean.requests
    )


def _plan_lane(
    resolved: Resolved, lane: str, plans: Sequence[CellPlan], reply_s: float, spent: int, rate: float | None
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


def _paced(resolved: Resolved, lane: str, plans: Sequence[CellPlan], reply_s: float) -> dict[str, float]:
    """Seconds that a lane's limits per minute, and its requests in flight, require."""
    in_lane = [cell for cell in plans if cell.lane == lane]
    requests = sum(cell.requests for cell in in_lane)
    return _bounds(_limits(resolved, lane), in_lane) | {
        WIDTH: requests * reply_s / max(1, _width(resolved, lane, in_lane))
    }


def _width(resolved: Resolved, lane: str, in_lane: Sequence[CellPlan]) -> float:
    """Requests that may be in flight."""
    most = _limits(resolved, lane).in_flight or math.inf
    return min(resolved.sweep.width, sum(cell.episodes for cell in in_lane), most)


def _limits(resolved: Resolved, lane: str) -> Limits:
    """Of all its servers together; none for policies in this process."""
    endpoint = next((one for one in resolved.endpoints.values() if one.lane == lane), None)
    return Limits() if endpoint is None else capacity(resolved, endpoint)


def _in_flight(resolved: Resolved, plans: Sequence[CellPlan], spent: int) -> int | None:
    """Requests that the budget allows in flight at once, in all lanes together; None: no bound."""
    dearest = max((cell.dearest for cell in plans if cell.episodes), default=0)
    if resolved.sweep.budget is None or not dearest:
        return None
    return max(0, resolved.sweep.budget - spent) // dearest


def _shared(resolved: Resolved, lanes: Sequence[LanePlan]) -> list[LanePlan]:
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
