"""Everything that answers in a run: one endpoint per provider, one lane per (provider, model), one asker per agent and
environment. Simulated providers of the run are started here and end with it.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.client.ask import Asker
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.keys import check_key, read_key, url_of
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.shared import Pool
from evalkit.client.local import PolicyAsker
from evalkit.client.open import endpoint_of, open_transport, stream_endpoint_of
from evalkit.client.redact import Redactor
from evalkit.client.request import RequestTemplate, request_template
from evalkit.client.transport import HttpTransport
from evalkit.dialogue import Reply, Request
from evalkit.engine.episode import ActiveEpisode, next_question
from evalkit.engine.freezing.freeze import Endpoint, Resolved, lane_limits, lane_shares
from evalkit.engine.universe import Choice, PlannedEpisode
from evalkit.engine.windows import remembered
from evalkit.errors import UsageError
from evalkit.money import FREE, PicoUsd, Price
from evalkit.policy.table import find_policy, player
from evalkit.seeds import Stream
from evalkit.spec.model import Provider
from evalkit.store.manifest import Manifest

Launch = Callable[[Provider, Path], AbstractContextManager[str]]


def check_keys(resolved: Resolved, choice: Choice) -> None:
    """Raises UsageError if a key is missing that the chosen agents need, or a variable of a provider's URL."""
    for name, endpoint in resolved.endpoints.items():
        if not choice.agents or name in choice.agents:
            check_key(endpoint.provider)
            url_of(endpoint.provider)


@dataclass(slots=True, kw_only=True)
class Endpoints:
    """Everything that answers in a run."""

    resolved: Resolved
    manifest: Manifest
    """The run's: its prices are those that were frozen when an agent joined it."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    """Of models; policies need none."""
    transports: dict[str, HttpTransport] = field(default_factory=dict)
    """By provider."""
    budget: Budget | None = None
    askers: dict[tuple[str, str], Asker] = field(default_factory=dict)
    """By agent and environment."""

    def asker(self, episode: PlannedEpisode) -> Asker:
        """The asker for an episode."""
        cell = episode.cell
        if cell.agent.policy:
            return self._policy(episode)
        key = cell.agent.name, cell.env.name
        if key not in self.askers:
            assert self.budget is not None
            self.askers[key] = self._model(episode, self.budget)
        return self.askers[key]

    def worst_case(self, active: ActiveEpisode) -> PicoUsd:
        """The most that the next request of an episode can cost."""
        template = self._template(active.episode)
        return template.worst_case(next_question(active, template))

    def _policy(self, episode: PlannedEpisode) -> Asker:
        agent, env = episode.cell.agent, episode.cell.env.name
        policy = find_policy(agent.policy, env)
        if policy is not None and policy.oracle is not None:
            # An episode that cannot be played is noticed when it starts: it asks nobody.
            play = _nobody if episode.target.flaw else player(agent.policy, env, instance=episode.instance)
            return PolicyAsker(agent.policy, play, episode.cell.sampling)
        if (agent.name, env) not in self.askers:
            play = player(agent.policy, env, script=agent.script)
            self.askers[agent.name, env] = PolicyAsker(agent.policy, play, episode.cell.sampling)
        return self.askers[agent.name, env]

    def _model(self, episode: PlannedEpisode, budget: Budget) -> ModelAsker:
        agent = episode.cell.agent
        endpoint, transport = self.resolved.endpoints[agent.name], self.transports[agent.provider]
        streams = None
        if endpoint.stream != "off":
            streams = stream_endpoint_of(transport, endpoint.provider, endpoint.model)
        return ModelAsker(
            self._template(episode),
            lane=self.lanes[agent.lane],
            budget=budget.of(agent.lane, agent.name),
            transport=endpoint_of(transport, endpoint.provider, endpoint.model.name),
            streams=streams,
        )

    def _template(self, episode: PlannedEpisode) -> RequestTemplate:
        agent = episode.cell.agent
        endpoint, price = self.resolved.endpoints[agent.name], self.manifest.agents[agent.name].price
        return request_template(
            agent.name,
            provider=endpoint.provider,
            model=endpoint.model,
            sampling=episode.cell.sampling,
            price=FREE if price is None else Price(**price),
            stream=endpoint.stream,
        )


async def open_endpoints(
    resolved: Resolved,
    manifest: Manifest,
    choice: Choice,
    stack: AsyncExitStack,
    *,
    launch: Launch | None,
    directory: Path,
) -> Endpoints:
    """Open an endpoint for each provider and a lane for each model that the chosen agents use; `stack` closes them.

    Raises UsageError if a key is missing, EvalkitError where a simulated provider does not start.
    """
    endpoints = Endpoints(resolved=resolved, manifest=manifest)
    windows = remembered(directory)
    pools: dict[str, Pool] = {}
    chosen = {
        name: endpoint for name, endpoint in resolved.endpoints.items() if not choice.agents or name in choice.agents
    }
    redactor = Redactor(*(read_key(endpoint.provider) for endpoint in chosen.values()))
    for name, endpoint in chosen.items():
        provider, agent = endpoint.provider, resolved.manifest.agents[name]
        if provider.name not in endpoints.transports:
            url = ""
            if provider.simulate is not None:
                if launch is None:
                    raise UsageError(
                        f"provider {provider.name!r} is started by `evalkit run`; for this command it needs a url."
                    )
                # Starting waits for the first line of output, so it is not done on the event loop.
                url = await asyncio.to_thread(stack.enter_context, launch(provider, directory))
            endpoints.transports[provider.name] = await stack.enter_async_context(
                open_transport(provider, url=url, redactor=redactor)
            )
        if agent.lane not in endpoints.lanes:
            endpoints.lanes[agent.lane] = _lane(resolved, endpoint, agent.lane, pools, windows.get(agent.lane))
    return endpoints


def _lane(resolved: Resolved, endpoint: Endpoint, name: str, pools: dict[str, Pool], last_window: int | None) -> Lane:
    """A model's lane; `pools` are the shared limits of all lanes, by name. It starts as wide as its limits say or as it
    last was, whichever is more."""
    limits, shares = lane_limits(resolved, name), lane_shares(resolved, endpoint)
    starts = [one.start for one in (limits, *(share.limits for share in shares)) if one.start is not None]
    start = max([*starts[:1], *([last_window] if last_window else [])], default=None)
    shared = []
    for share in shares:
        if share.name not in pools:
            pools[share.name] = Pool(share.name, limits=share.limits)
        shared.append(pools[share.name])
    lane = Lane(name, limits=limits, width=resolved.sweep.width, shared=shared, canary=True, start=start)
    if resolved.sweep.deadline_s is not None:
        lane.deadline = asyncio.get_running_loop().time() + resolved.sweep.deadline_s
    return lane


def _nobody(request: Request, draws: Stream) -> Reply:
    del request, draws
    raise AssertionError("an episode that cannot be begun has asked")
