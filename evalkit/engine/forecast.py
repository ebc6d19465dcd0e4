"""What an episode is expected to take, and what remains of one that has started: for admission, `plan` and `status`.

A cell (agent x suite) starts with a prior: its stand-in's play, at the agent's price. Episodes that end correct it. The
prior counts as `WEIGHT` episodes, and is first scaled by the ratio of real to expected cost in the agent's other cells.
So a model that costs twice as much as its stand-in is recognised after a few episodes of any suite. The cost is O(1)
per episode.
"""

import math
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from evalkit.dialogue import Usage
from evalkit.engine.stand_in import PLAIN, Sample, admitted, play_sample, price_of, stand_in_of
from evalkit.engine.universe import AgentSetup, Choice, cells
from evalkit.errors import CorruptLogError, StorageError
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.store.disk import read_whole, write_parts_durably
from evalkit.store.json_text import decode
from evalkit.store.reading.totals import CellTotals as Sums

T = TypeVar("T")

FILE = "forecast.json"
MOST_BYTES = 64 << 20
"""Of a file that is read."""
WEIGHT = 3.0
"""Episodes that a prior counts as."""
AGENT_WEIGHT = 2.0
"""Episodes for which an agent is assumed to cost the same as its stand-ins, before its other cells count."""
DOUBT = 0.5
"""Relative standard deviation of a real agent's mean around its stand-in's. Chosen."""
SPREAD = 0.5
"""The same for an episode around its cell's mean, if too few were played to estimate it."""
LEAST_SPREAD = 0.05
STEPS = 800
"""Requests that all priors together are meant to take, and at most each conversation beyond its share; a count, not a
time, so that runs repeat exactly."""
LEAST_STEPS, MOST_EPISODES = 16, 4
"""What each kind of conversation gets at least and at most."""
Z = 1.96


class Expected(NamedTuple):
    """What one whole episode is expected to take; `cost` in pico-dollars. In a forecast, the requests of an agent that
    is code are its steps: `asks_per_step` says how many each of them takes."""

    cost: float
    requests: float
    tokens_in: float
    tokens_out: float


class Range(NamedTuple):
    """An expectation with the 95 % range around it, in pico-dollars."""

    low: float
    expected: float
    high: float


Figure = Annotated[float, msgspec.Meta(ge=0, le=1e24)]
"""What a file may hold: sums of these stay numbers."""


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is expected to take before any of its episodes has ended."""

    agent: str
    suite: str
    stand_in: str
    """The policy whose play it comes from."""
    played: int
    """Episodes of it; the last one perhaps in part."""
    cost: Figure
    """Of an episode, in pico-dollars, as are the other figures of one episode."""
    requests: Figure
    tokens_in: Figure
    tokens_out: Figure
    spread: Figure
    """Standard deviation of an episode's cost over its mean."""
    doubt: Figure = DOUBT
    """The same of the agent's true mean around this one; 0 if the stand-in is the agent itself."""

    @property
    def expected(self) -> Expected:
        """The figures of one episode."""
        return Expected(self.cost, self.requests, self.tokens_in, self.tokens_out)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    cells: tuple[Prior, ...]


@dataclass(slots=True)
class _Seen:
    """The episodes of a cell that have ended."""

    count: int = 0
    cost: float = 0.0
    squares: float = 0.0
    """Sum of the squared costs."""
    requests: float = 0.0


@dataclass(slots=True)
class _Ratio:
    """Ended episodes compared with their priors: sums of real over expected, of cost and of requests."""

    count: int = 0
    cost: float = 0.0
    requests: float = 0.0


class Forecast:
    """Expectations by cell, corrected as episodes end. A cell without a prior starts at zero."""

    def __init__(self, priors: Iterable[Prior] = ()) -> None:
        self.priors: dict[tuple[str, str], Prior] = {(prior.agent, prior.suite): prior for prior in priors}
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._cells: dict[tuple[str, str], _Ratio] = defaultdict(_Ratio)
        self._agents: dict[str, _Ratio] = defaultdict(_Ratio)
        self._whole: dict[tuple[str, str], Expected] = {}
        """What `whole` has said since the last news."""

    def learn(self, agent: str, suite: str, *, cost: int, requests: int) -> None:
        """One episode has ended, with these pico-dollars and requests in total."""
        self.learn_many(agent, suite, 1, cost, float(cost) ** 2, requests)

    def learn_many(self, agent: str, suite: str, count: int, cost: int, squares: float, requests: int) -> None:
        """`count` episodes have ended, with these totals; `squares`: sum of their squared costs."""
        if not count:
            return
        cell_key = agent, suite
        self._whole.clear()
        seen = self._seen.get(cell_key)
        if seen is None:
            seen = self._seen[cell_key] = _Seen()
        seen.count += count
        seen.cost += cost
        seen.squares += squares
        seen.requests += requests
        prior = self.priors.get(cell_key)
        if prior is not None and prior.cost > 0 and prior.requests > 0:
            of_cost, of_requests = cost / prior.cost, requests / prior.requests
            for ratio in (self._cells[cell_key], self._agents[agent]):
                ratio.count += count
                ratio.cost += of_cost
                ratio.requests += of_requests

    def scale(self, agent: str, suite: str, factor: float) -> None:
        """Requests of a cell are so many times as many as its prior counts, and so are their cost and tokens."""
        prior = self.priors.get((agent, suite))
        self._whole.clear()
        if prior is not None:
            cost, tokens_in, tokens_out = (factor * each for each in (prior.cost, prior.tokens_in, prior.tokens_out))
            self.priors[agent, suite] = structs.replace(prior, cost=cost, tokens_in=tokens_in, tokens_out=tokens_out)

    def ended(self, agent: str, suite: str) -> int:
        """How many of the cell's episodes it has learned of."""
        seen = self._seen.get((agent, suite))
        return 0 if seen is None else seen.count

    def knows(self, agent: str) -> bool:
        """Whether an episode of the agent has ended on any suite."""
        return agent in self._agents

    def seen(self, agent: str, suite: str) -> Expected | None:
        """(cost, requests) of an ended episode on average, tokens left 0; None before the first."""
        seen = self._seen.get((agent, suite))
        return None if seen is None else Expected(seen.cost / seen.count, seen.requests / seen.count, 0.0, 0.0)

    def whole(self, agent: str, suite: str) -> Expected:
        """What an episode of the cell is expected to take, from its first request to its last."""
        cell_key = agent, suite
        known = self._whole.get(cell_key)
        if known is None:
            known = self._whole[cell_key] = self._expected(cell_key)
        return known

    def _expected(self, cell_key: tuple[str, str]) -> Expected:
        prior, seen = self.priors.get(cell_key), self._seen.get(cell_key, _Seen())
        if prior is None:
            count = max(1, seen.count)
            return Expected(seen.cost / count, seen.requests / count, 0.0, 0.0)
        of_cost, of_requests = self._elsewhere(cell_key)
        cost = (WEIGHT * prior.cost * of_cost + seen.cost) / (WEIGHT + seen.count)
        requests = (WEIGHT * prior.requests * of_requests + seen.requests) / (WEIGHT + seen.count)
        # Tokens are not estimated separately: they follow the money, or the requests if there is no cost.
        scale = cost / prior.cost if prior.cost else requests / prior.requests if prior.requests else 1.0
        return Expected(cost, requests, prior.tokens_in * scale, prior.tokens_out * scale)

    def rest(self, agent: str, suite: str, *, cost: float, requests: float) -> float:
        """Pico-dollars to finish an episode from its present position: more than 0, unless the cell costs nothing.

        The larger of two estimates: what is left of the expected cost, given that so much was not enough; and what is
        left of the expected requests, each at this episode's own price as far as it is known. At least one request.
        """
        mean, price, count, _, spread, _ = self._figures(agent, suite)
        if mean <= 0:
            # Only the episode itself is known: as much again.
            return float(cost)
        count = max(1.0, count)
        by_cost = beyond(mean, spread, cost)
        dearness = (cost + mean) / (requests + count)
        by_requests = beyond(count, spread, requests) * dearness
        return max(by_cost, by_requests, price)

    def owed(self, agent: str, suite: str, count: int) -> Range:
        """What `count` episodes of the cell that have not begun will cost."""
        mean, _, _, within, _, doubt = self._figures(agent, suite)
        return around(count * mean, math.sqrt(count * within**2 + (count * doubt) ** 2) * mean)

    def _figures(self, agent: str, suite: str) -> tuple[float, float, float, float, float, float]:
        """(mean cost, cost of a request, requests; and over the mean cost the standard deviations of an episode around
        its mean, of an episode around what we take for it, and of the mean itself)."""
        cell_key = agent, suite
        expected, prior, seen = self.whole(agent, suite), self.priors.get(cell_key), self._seen.get(cell_key, _Seen())
        weight = WEIGHT if prior is not None else 1.0
        mean, all_of_it = expected.cost, weight + seen.count
        if mean <= 0:
            return 0.0, 0.0, expected.requests, 0.0, 0.0, 0.0
        scatter = seen.squares - seen.cost**2 / seen.count if seen.count else 0.0
        known = prior.spread if prior is not None else SPREAD
        within = (weight * known**2 + max(0.0, scatter) / mean**2) / all_of_it
        doubt = ((prior.doubt if prior is not None else DOUBT) ** 2 * weight + within) / all_of_it
        total = max(LEAST_SPREAD, math.sqrt(within + doubt))
        return mean, mean / max(1.0, expected.requests), expected.requests, math.sqrt(within), total, math.sqrt(doubt)

    def _elsewhere(self, cell_key: tuple[str, str]) -> tuple[float, float]:
        """The agent's other cells compared with their priors: (of cost, of requests)."""
        agent, own = self._agents.get(cell_key[0], _Ratio()), self._cells.get(cell_key, _Ratio())
        count = AGENT_WEIGHT + agent.count - own.count
        return (
            (AGENT_WEIGHT + agent.cost - own.cost) / count,
            (AGENT_WEIGHT + agent.requests - own.requests) / count,
        )


def beyond(mean: float, spread: float, past: float) -> float:
    """What is expected beyond `past`, of a lognormal amount that is known to be larger than that.

    mean > 0; spread: standard deviation over mean. Chosen: a lognormal tail, since long conversations resend what they
    said before; its remainder never reaches 0, and grows slowly with what was spent. E[X; X > c] = mean * Phi(d + s).
    """
    if past <= 0:
        return mean
    s = math.sqrt(math.log1p(spread**2))
    d = (math.log(mean / past) - s**2 / 2) / s
    if d > -_FAR:
        share = math.erfc(-(d + s) / math.sqrt(2)) / math.erfc(-d / math.sqrt(2))
        return max(mean * share - past, 0.0)
    # Where both tails underflow: Mills' ratio, whose first term is enough out there.
    return max(past * (d / (d + s)) - past, 0.0)


_FAR = 30.0


def around(expected: float, deviation: float) -> Range:
    """The 95 % range of an amount that cannot be negative: as wide by factors below as above."""
    if expected <= 0:
        return Range(0.0, 0.0, 0.0)
    factor = math.exp(Z * math.sqrt(math.log1p((deviation / expected) ** 2)))
    return Range(expected / factor, expected, expected * factor)


async def make_priors(
    manifest: Manifest, choice: Choice | None = None, *, known: Mapping[tuple[str, str], Prior] | None = None
) -> list[Prior]:
    """A prior for each chosen cell that is not `known` already, from about `STEPS` requests of play in this process.

    Agents that read the same, and whose stand-in is the same, share one conversation and differ in price alone.
    """
    chosen, known = choice or Choice(), known or {}
    cell_of = cells(manifest)
    groups: dict[tuple[object, ...], list[tuple[ManifestAgent, ManifestSuite, AgentSetup]]] = {}
    for suite in filter(chosen.takes_suite, manifest.suites.values()):
        for agent in manifest.agents.values():
            if (chosen.agents and agent.name not in chosen.agents) or (agent.name, suite.name) in known:
                continue
            cell = cell_of.get((agent.name, suite.environment))
            if cell is not None and agent.provider:
                key = (suite.name, stand_in_of(agent, suite.environment), cell.kit.pack.digest, agent.notes)
                groups.setdefault((*key, cell.sampling.max_tokens), []).append((agent, suite, cell))
    priors, left = list[Prior](), STEPS
    for number, members in enumerate(groups.values()):
        samples = await _samples(manifest, members[0], max(LEAST_STEPS, left // (len(groups) - number)))
        left = max(0, left - sum(len(sample.asked) for sample in samples))
        priors += [_prior(agent, suite, samples) for agent, suite, _ in members]
    return priors


async def _samples(
    manifest: Manifest, member: tuple[ManifestAgent, ManifestSuite, AgentSetup], steps: int
) -> list[Sample]:
    agent, suite, cell = member
    stand_in, samples = stand_in_of(agent, suite.environment), list[Sample]()
    for episode in admitted(manifest, cell, suite):
        # As for a plan: the first may be cut at its share, and none is left out because it takes long. Without those
        # all would seem short.
        samples.append(await play_sample(episode, stand_in, PLAIN, STEPS if samples else steps))
        steps -= len(samples[-1].asked)
        if steps <= 0 or samples[-1].cut or len(samples) == MOST_EPISODES:
            break
    return samples


def _prior(agent: ManifestAgent, suite: ManifestSuite, samples: list[Sample]) -> Prior:
    # All requests at once, so at the rates of short prompts.
    price, count = replace(price_of(agent), over=0), len(samples)
    costs = [
        price.of(Usage(input=sample.tokens_in, output=sample.tokens_out)) + price.request * (sample.requests - 1)
        for sample in samples
    ]
    mean = sum(costs) / count
    stand_in = stand_in_of(agent, suite.environment)
    return Prior(
        agent=agent.name,
        suite=suite.name,
        stand_in=stand_in,
        played=count,
        cost=mean,
        requests=sum(sample.requests for sample in samples) / count,
        tokens_in=sum(sample.tokens_in for sample in samples) / count,
        tokens_out=sum(sample.tokens_out for sample in samples) / count,
        spread=spread_of(costs),
        doubt=0.0 if agent.provider == "simulated" and agent.model == stand_in and not samples[0].cut else DOUBT,
    )


def spread_of(costs: Sequence[float]) -> float:
    """Standard deviation over mean of episodes' costs; with few of them it is itself uncertain, and the usual value
    counts as one more."""
    count, mean = len(costs), sum(costs) / len(costs)
    if not mean:
        return SPREAD
    scatter = sum((cost - mean) ** 2 for cost in costs) / mean**2
    return math.sqrt((scatter + SPREAD**2) / count)


def alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, such as a policy's play in this process, without a loop."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


async def forecast_run(
    manifest: Manifest, by_cell: Mapping[tuple[str, str], Sums], directory: Path, choice: Choice
) -> Forecast:
    """The forecast at a run's start: priors as the run wrote them once, new cells played now, ended episodes learned.

    Writes `forecast.json` where there are new cells. Raises CorruptLogError.
    """
    known = {(prior.agent, prior.suite): prior for prior in read_priors(directory)}
    new = await make_priors(manifest, choice, known=known)
    if new:
        write_priors(directory, [*known.values(), *new])
    forecast = Forecast([*known.values(), *new])
    learn_all(forecast, manifest, by_cell)
    return forecast


def learn_all(forecast: Forecast, manifest: Manifest, by_cell: Mapping[tuple[str, str], Sums]) -> None:
    """Update a forecast with every ended episode of a run, from its sums by agent and suite; and with how many requests
    a step of an agent that is code takes, from the first one on."""
    for suite in manifest.suites.values():
        for agent in manifest.agents.values():
            sums = by_cell.get((agent.name, suite.name))
            if sums is not None and suite.environment in agent.packs:
                forecast.scale(agent.name, suite.name, asks_per_step(agent, sums))
                forecast.learn_many(
                    agent.name,
                    suite.name,
                    count=sums.ended,
                    cost=sums.ended_cost,
                    squares=sums.ended_squares,
                    requests=sums.ended_steps,
                )


def asks_per_step(agent: ManifestAgent, sums: Sums | None) -> float:
    """Requests of an agent for each step: one of a model."""
    return 1.0 if agent.code is None or sums is None else sums.asks_per_step


def read_priors(directory: Path) -> list[Prior]:
    """The priors with which a run started; none if it wrote none, or if nothing can be made of the file: they are made
    again."""
    path = directory / FILE
    try:
        data = read_whole(path) if path.stat().st_size <= MOST_BYTES else None
        return [] if data is None else list(decode(data, _File, FILE, "").cells)
    except (CorruptLogError, StorageError, OSError):
        return []


def write_priors(directory: Path, priors: Iterable[Prior]) -> None:
    """Write `forecast.json`. It is derived, so a disk that refuses it stops nothing."""
    with suppress(StorageError):
        write_parts_durably(
            directory / FILE, [msgspec.json.format(msgspec.json.encode(_File(version=1, cells=tuple(priors))))]
        )
