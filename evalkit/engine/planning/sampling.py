"""The stand-ins' play that a plan rests on: a bounded number of requests, shared between agents who read the same."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from evalkit.money import Price
from evalkit.store.manifest import ManifestAgent, ManifestSuite
from evalkit.wire.table import DIALECTS

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
