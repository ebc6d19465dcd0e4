"""The stand-ins' play that a plan rests on: a bounded number of requests, shared between agents who read the same."""

from collections.abc import Sequence
from typing import NamedTuple

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.stand_in import Sample, Till, admitted, play_sample, price_of, stand_in_of
from evalkit.engine.universe import AgentSetup
from evalkit.money import Price
from evalkit.store.manifest import ManifestAgent, ManifestSuite
from evalkit.wire.table import DIALECTS

REQUESTS = 1500
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


def model_of(resolved: Resolved, cell: AgentSetup) -> PlayedModel:
    """The model that plays a cell; of a policy in this process, one that costs nothing."""
    endpoint = resolved.endpoints.get(cell.agent.name)
    till = Till(dialect=DIALECTS["openai_chat"])
    if endpoint is not None:
        till = Till(dialect=DIALECTS[endpoint.provider.dialect], quirks=endpoint.model.quirks)
    return PlayedModel(
        till=till,
        price=price_of(cell.agent),
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
        till = model_of(resolved, cell).till
        stand_in = stand_in_of(agent, suite.environment)
        itself = agent.model if stand_in == agent.model else ""
        read = (cell.kit.pack.digest, cell.kit.notes, cell.sampling, till.dialect.name, till.quirks)
        groups.setdefault((suite.name, stand_in, itself, agent.script, *read), []).append(member)
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
    models = [model_of(resolved, member.cell) for member in members]
    stand_in, played, samples = stand_in_of(agent, suite.environment), 0, list[Sample]()
    for episode in admitted(resolved.manifest, cell, suite):
        most = None if samples or share == float("inf") else round(share)
        one = await play_sample(episode, stand_in, models[0].till, most)
        played += len(one.asked)
        if one.cut and any(_may_outgrow(one, model) for model in models):
            one = await play_sample(episode, stand_in, models[0].till)
            played += len(one.asked)
        samples.append(one)
        if one.cut or played >= share:
            break
    return played, samples


def _may_outgrow(sample: Sample, model: PlayedModel) -> bool:
    return model.context_tokens is not None and (sample.longest_prompt + model.max_tokens > NEAR * model.context_tokens)
