"""What the ended episodes of a run show about other episodes: tokens, requests, reply time, and the spread of scores.

A cell of the run is used directly. For other cells, the run's agents are compared with their stand-ins, and the ratio
scales the new cell's stand-in: the ratio of the agent itself on other suites, else of its model's family, else of all
agents on the same suite, else of all.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evalkit.dialogue import Usage
from evalkit.engine.forecast import SPREAD, Prior
from evalkit.engine.freezing.freeze import Resolved, endpoint_name
from evalkit.engine.stand_in import (
    PlayedCode,
    Sample,
    Till,
    TooLong,
    admitted,
    play_sample,
    price_of,
    role_of,
    stand_in_of,
)
from evalkit.engine.universe import AgentSetup
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.money import Price
from evalkit.results.episodes import EpisodeResult
from evalkit.wire.table import DIALECTS

BETWEEN, WITHIN = 0.4, 0.3
"""Standard deviations of scores if nothing is known: of instances' means, and of replicates of an instance. Chosen:
together 0.5, the highest for values from 0 to 1."""


class Figures(NamedTuple):
    """One episode."""

    requests: float
    tokens_in: float
    tokens_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCell:
    """One agent on one suite, over the episodes that have ended."""

    episodes: int
    mean: Figures
    cost: float
    """Pico-dollars of an episode at the prices of that run."""
    spread: float
    """Standard deviation of an episode's cost over its mean."""
    chain: int
    """Requests of the longest episode."""
    reply_s: float
    """Seconds a reply took on average."""
    between: float
    """Standard deviation of the scores' instance means, replicates' noise taken off."""
    within: float
    """Standard deviation of a score around its instance's mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """A run as a basis for predictions. Empty if there is none."""

    name: str = ""
    cells: Mapping[tuple[str, str], SeenCell]
    agents: Mapping[str, ManifestAgent]
    against: Mapping[tuple[str, str], Figures]
    """By cell: real figures over the stand-in's."""

    def twin(self, agent: ManifestAgent) -> str:
        """The run's agent that equals this one: by name, else by what it is and reads, else by its model; empty if
        none."""
        if agent.name in self.agents:
            return agent.name
        models = [(name, candidate) for name, candidate in self.agents.items() if candidate.provider]
        same = [name for name, candidate in models if candidate.identity == agent.identity]
        same += [
            name for name, candidate in models if (candidate.provider, candidate.model) == (agent.provider, agent.model)
        ]
        return same[0] if same else ""

    def cell(self, agent: ManifestAgent, suite: str) -> SeenCell | None:
        """The run's figures for that agent on that suite."""
        return self.cells.get((self.twin(agent), suite))

    def scale(self, agent: ManifestAgent, suite: str) -> tuple[Figures, str] | None:
        """The ratio of an agent to its stand-in on a suite that the run lacks, and its source, as text."""
        twin = self.twin(agent)
        kin = {name for name, candidate in self.agents.items() if _kin(candidate, agent)}
        looks = (
            (
                f"its other suites in {self.name}",
                [figures for (name, _), figures in self.against.items() if name == twin],
            ),
            (f"models like it in {self.name}", [figures for (name, _), figures in self.against.items() if name in kin]),
            (
                f"others on the suite in {self.name}",
                [figures for (_, of_suite), figures in self.against.items() if of_suite == suite],
            ),
            (f"the agents of {self.name}", list(self.against.values())),
        )
        for words, group in looks:
            if group:
                # Geometric: twice as much in one and half as much in another average to 1.
                means = (math.exp(math.fsum(map(math.log, column)) / len(group)) for column in zip(*group, strict=True))
                return Figures(*means), words
        return None

    def cost(self, agent: ManifestAgent, mean: Figures, seen: SeenCell | None) -> float:
        """Pico-dollars of an episode of such figures at the agent's price; with the run's share of cached prompts."""
        price = price_of(agent)
        list_cost = _list_cost(agent, mean)
        if seen is None or not list_cost:
            return list_cost
        twin = self.agents[self.twin(agent)]
        known = _list_cost(twin, seen.mean)
        same = price == price_of(twin)
        return seen.cost if same else list_cost * (seen.cost / known if known and seen.cost else 1.0)

    def reply_s(self, agent: ManifestAgent) -> float | None:
        """Seconds a reply took: of the agent, else of its model's family; None if unknown."""
        twin = self.twin(agent)
        for names in ({twin}, {name for name, candidate in self.agents.items() if _kin(candidate, agent)}):
            cells = [cell for (name, _), cell in self.cells.items() if name in names]
            replies = sum(cell.episodes * cell.mean.requests for cell in cells)
            seconds = sum(cell.reply_s * cell.episodes * cell.mean.requests for cell in cells)
            if replies and seconds:
                return seconds / replies
        return None

    def scatter(self, agent: ManifestAgent, suite: str) -> tuple[float, float] | None:
        """(between, within) of the scores of a cell, weighted by its size; None if unknown."""
        seen = self.cell(agent, suite)
        if seen is None:
            return None
        share = SCATTER_WEIGHT / (SCATTER_WEIGHT + seen.episodes)
        return (
            math.sqrt(share * BETWEEN**2 + (1 - share) * seen.between**2),
            math.sqrt(share * WITHIN**2 + (1 - share) * seen.within**2),
        )


SCATTER_WEIGHT = 3.0
"""Episodes that the default spread counts as: a few that all reached the optimum do not show that all will."""

NOTHING = Basis(cells={}, agents={}, against={})


def family(model: str) -> str:
    """The family of a model's name: `gpt` of `gpt-5-mini`, `claude` of `anthropic/claude-sonnet-5-5`."""
    match = re.match(r"[A-Za-z]+", model.rpartition("/")[2])
    return match.group().lower() if match else model


def basis_of(name: str, manifest: Manifest, results: Iterable[EpisodeResult], priors: Iterable[Prior]) -> Basis:
    """A run's ended episodes as a basis; `priors`: the stand-ins' play of its cells."""
    by_cell: dict[tuple[str, str], list[EpisodeResult]] = {}
    for result in results:
        if result.finished:
            by_cell.setdefault((result.agent, result.suite), []).append(result)
    cells = {cell_key: _seen(episodes) for cell_key, episodes in by_cell.items()}
    against = {}
    for prior in priors:
        seen = cells.get((prior.agent, prior.suite))
        if manifest.agents[prior.agent].code is not None:
            continue  # its code decides how often it asks, which says nothing about its models
        if seen is not None and min(seen.mean) > 0 and min(prior.requests, prior.tokens_in, prior.tokens_out) > 0:
            against[prior.agent, prior.suite] = Figures(
                seen.mean.requests / prior.requests,
                seen.mean.tokens_in / prior.tokens_in,
                seen.mean.tokens_out / prior.tokens_out,
            )
    return Basis(name=name, cells=cells, agents=manifest.agents, against=against)


def _seen(episodes: Sequence[EpisodeResult]) -> SeenCell:
    count, replies = len(episodes), sum(episode.steps for episode in episodes)
    cost = sum(episode.cost for episode in episodes) / count
    variance = (
        sum((episode.cost - cost) ** 2 for episode in episodes) / (count - 1) if count > 1 else (SPREAD * cost) ** 2
    )
    between, within = scatter_of(episodes)
    return SeenCell(
        episodes=count,
        mean=Figures(
            replies / count,
            sum(episode.tokens_in for episode in episodes) / count,
            sum(episode.tokens_out for episode in episodes) / count,
        ),
        cost=cost,
        spread=math.sqrt(variance) / cost if cost else 0.0,
        chain=max(episode.steps for episode in episodes),
        reply_s=sum(episode.latency_s for episode in episodes) / max(1, replies),
        between=between,
        within=within,
    )


def scatter_of(episodes: Iterable[EpisodeResult]) -> tuple[float, float]:
    """(between instances, within them): standard deviations of scores, from the analysis of variance of one factor."""
    scores: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.score is not None:
            scores.setdefault(episode.instance, []).append(episode.score)
    means = [sum(values) / len(values) for values in scores.values()]
    free = sum(len(values) - 1 for values in scores.values())
    if len(means) < 2:
        return BETWEEN, WITHIN
    off = sum((value - mean) ** 2 for mean, values in zip(means, scores.values(), strict=True) for value in values)
    within = off / free if free else 0.0
    centre = sum(means) / len(means)
    spread = sum((mean - centre) ** 2 for mean in means) / (len(means) - 1)
    noise = within * sum(1 / len(values) for values in scores.values()) / len(means)
    return math.sqrt(max(0.0, spread - noise)), math.sqrt(within)


def _list_cost(agent: ManifestAgent, mean: Figures) -> float:
    """At list prices, without a cache; the prompts taken to be of one length."""
    usage = Usage(input=round(mean.tokens_in / mean.requests), output=round(mean.tokens_out / mean.requests))
    return price_of(agent).of(usage) * mean.requests


def _kin(candidate: ManifestAgent, agent: ManifestAgent) -> bool:
    return bool(candidate.provider) and family(candidate.model) == family(agent.model)


# The stand-ins' play that a plan rests on: a bounded number of requests, shared between agents who read the same.

REQUESTS = 1000
"""Requests that all samples of a plan together may take; a count, not a time, so that plans repeat exactly. Chosen: it
takes about half a second of CPU time."""
LEAST_REQUESTS = 16
"""What each conversation gets at least."""
NEAR = 0.8
"""A conversation that is expected to fill more than this share of a model's context is played to its end."""


class Sampled(NamedTuple):
    """A cell whose play is wanted."""

    agent: ManifestAgent
    suite: ManifestSuite
    cell: AgentSetup

    @property
    def place(self) -> tuple[str, str]:
        """Agent and suite."""
        return self.agent.name, self.suite.name


class PlayedModel(NamedTuple):
    """What a plan must know of the model behind an agent."""

    till: Till
    price: Price
    context_tokens: int | None
    """None: unknown."""
    max_tokens: int


class PlayedAgent(NamedTuple):
    """What a plan must know of the models of an agent."""

    models: Mapping[str, PlayedModel]
    """By role; of a model that plays alone, under an empty name. The first is the agent's own."""
    code: PlayedCode | None

    @property
    def own(self) -> PlayedModel:
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


def agent_of(resolved: Resolved, cell: AgentSetup) -> PlayedAgent:
    """The models that play a cell, and the code that asks them."""
    agent = cell.agent
    if agent.code is None:
        return PlayedAgent({"": _model_of(resolved, cell, agent, agent.name)}, None)
    roles = agent.code.roles
    models = {
        role: _model_of(resolved, cell, role_of(agent, role), endpoint_name(agent.name, role, roles)) for role in roles
    }
    code = next(spec.code for spec in resolved.sweep.agents if spec.name == agent.name)
    assert code is not None
    return PlayedAgent(models, PlayedCode(code=code, tills={role: model.till for role, model in models.items()}))


def _model_of(resolved: Resolved, cell: AgentSetup, agent: ManifestAgent, name: str) -> PlayedModel:
    """The model behind an endpoint's name; of a policy in this process, one that costs nothing."""
    endpoint = resolved.endpoints.get(name)
    till = Till(dialect=DIALECTS["openai_chat"])
    if endpoint is not None:
        till = Till(dialect=DIALECTS[endpoint.provider.dialect], quirks=endpoint.model.quirks)
    return PlayedModel(
        till=till,
        price=price_of(agent),
        context_tokens=None if endpoint is None else endpoint.model.context_tokens,
        max_tokens=cell.sampling.max_tokens,
    )


async def sample(resolved: Resolved, wanted: Sequence[Sampled], requests: float) -> dict[tuple[str, str], list[Sample]]:
    """Samples of each wanted cell, by agent and suite, from about `requests` requests in all.

    Agents who read the same, and whose stand-in is the same, share one conversation and differ in price alone.
    """
    groups: dict[tuple[object, ...], list[Sampled]] = {}
    for member in wanted:
        agent, suite, cell = member
        till = agent_of(resolved, cell).own.till
        coded = agent.name if agent.code is not None else ""
        stand_in = stand_in_of(agent, suite.environment)
        itself = agent.model if stand_in == agent.model else ""
        read = (cell.kit.pack.digest, cell.kit.notes, cell.sampling, till.dialect.name, till.quirks)
        groups.setdefault((suite.name, stand_in, itself, agent.script, coded, *read), []).append(member)
    samples = {}
    for number, members in enumerate(groups.values()):
        share = requests / (len(groups) - number)
        played, found = await _play(resolved, members, max(LEAST_REQUESTS, share))
        requests = max(0.0, requests - played)
        samples.update({member.place: found for member in members})
    return samples


async def _play(resolved: Resolved, members: Sequence[Sampled], share: float) -> tuple[int, list[Sample]]:
    """(requests, episodes). A first episode that is longer than the share is cut; later ones are played to their end,
    since to leave out those that take long would make all seem short."""
    agent, suite, cell = members[0]
    agents = [agent_of(resolved, member.cell) for member in members]
    first = agents[0]
    stand_in, played, samples = stand_in_of(agent, suite.environment), 0, list[Sample]()
    for episode in admitted(resolved.manifest, cell, suite):
        most = None if samples or share == float("inf") else round(share)
        one = await play_sample(episode, stand_in, first.own.till, most, first.code)
        played += len(one.asked)
        if one.cut and any(member.may_outgrow(one) for member in agents):
            one = await play_sample(episode, stand_in, first.own.till, None, first.code)
            played += len(one.asked)
        samples.append(one)
        if one.cut or played >= share:
            break
    return played, samples
