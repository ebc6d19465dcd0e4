"""Everything that answers in a run: one endpoint per provider, one lane per (provider, model), one asker per agent and
environment. Simulated providers of the run are started here and end with it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalkit.client.ask import Asker, SendPermission
from evalkit.client.budget import OUTSIZE, Budget
from evalkit.client.client import ModelAsker
from evalkit.client.keys import servers_of, short_names
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.shared import Pool
from evalkit.client.lanes.window import FIRST
from evalkit.client.open import endpoint_of, open_transport, stream_endpoint_of, transport_of
from evalkit.client.outside import OutsideAsker, PolicyAsker
from evalkit.client.request import RequestTemplate, request_template
from evalkit.client.transport import HttpTransport
from evalkit.engine.agents.playing import CodePlayer
from evalkit.engine.agents.roles import RoleAskers
from evalkit.engine.episode import ActiveEpisode, Player, next_question
from evalkit.engine.freezing.freeze import Endpoint, ResolvedSweep, endpoint_name, lane_shares
from evalkit.engine.options import Launch, Stop
from evalkit.engine.servers import limits_over
from evalkit.engine.universe import AgentSetup, Choice, PlannedEpisode
from evalkit.errors import LaneClosed, UsageError
from evalkit.frozen.manifest import Manifest, ManifestCode
from evalkit.money import FREE, PicoUsd, Price, Tier
from evalkit.policy.table import find_policy, player
from evalkit.spec.model import Provider, ServerSpec
from evalkit.store.events import read_events

# How many requests a run's lanes had in flight, remembered for its next start.
#
# The notes are events of the run: nothing depends on them. Where they are missing, a lane finds its window anew.

KIND = "windows"
"""Of the event: `lanes`, the requests that each lane was allowed in flight."""
MOST = 10**6
"""No lane is wider; an edited file may say anything."""
GROWN = 2.0
"""Noted again once it has grown or shrunk by this factor, so that a killed run remembers it nearly."""


@dataclass(slots=True, kw_only=True)
class WindowNotes:
    """What was noted of a session's lanes."""

    lanes: Mapping[str, Lane]
    event: Callable[..., None]
    """Adds an event to the run."""
    noted: dict[str, int] = field(default_factory=dict)

    def look(self, *, last: bool = False) -> None:
        """Note the lanes whose window has changed much since; `last`: at all."""
        changed = {name: size for name, size in self._sizes() if self._is_new(name, size, last)}
        if changed:
            self.noted |= changed
            self.event(KIND, lanes=changed)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for name, lane in self.lanes.items():
            size = lane.proven()
            if size:
                yield name, size

    def _is_new(self, name: str, size: int, last: bool) -> bool:
        before = self.noted.get(name)
        if before is None or last:
            return size != before
        return not before / GROWN < size < before * GROWN


def remembered(run: Path) -> dict[str, int]:
    """Requests that each lane was last allowed in flight; none where no session has noted any. Raises StorageError."""
    found: dict[str, int] = {}
    for event in read_events(run, KIND):
        lanes = event.get("lanes")
        for name, size in lanes.items() if isinstance(lanes, dict) else ():
            if type(size) is int and 0 < size <= MOST:
                found[name] = size
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPart:
    """What one of several processes has of a run's lanes."""

    widths: Mapping[str, int]
    """By lane, episodes that it may have in flight."""
    workers: int
    urls: Mapping[str, str]
    """Of providers that another process has started for this call."""


@dataclass(slots=True, kw_only=True)
class Endpoints:
    """Everything that answers in a run."""

    resolved: ResolvedSweep
    manifest: Manifest
    """The run's: its prices are those that were frozen when an agent joined it."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    """Of models; policies need none."""
    pools: dict[str, Pool] = field(default_factory=dict)
    """The limits that several lanes share, by name."""
    transports: dict[str, tuple[HttpTransport, ...]] = field(default_factory=dict)
    """By provider, those of its servers."""
    tiered: dict[tuple[str, Tier], tuple[HttpTransport, ...]] = field(default_factory=dict)
    """The same by provider and tier, of those that were asked for."""
    urls: dict[str, str] = field(default_factory=dict)
    """By provider that runs for this call alone."""
    budget: Budget | None = None
    askers: dict[tuple[str, str], Asker] = field(default_factory=dict)
    """By agent and environment."""
    players: dict[tuple[str, str], CodePlayer] = field(default_factory=dict)
    """The same of agents that are code."""
    outside: OutsideAsker | None = None
    """Of agents that are played from outside."""
    permission: SendPermission | None = None
    """To send, where another process may take the run over."""

    def asker(self, episode: PlannedEpisode) -> Asker | Player:
        """What plays an episode."""
        cell = episode.cell
        if cell.agent.policy:
            return self._policy(episode)
        key = cell.agent.name, cell.env.name
        if cell.agent.code is not None:
            if key not in self.players:
                self.players[key] = CodePlayer(self._role_askers(cell, cell.agent.code))
            return self.players[key]
        if key not in self.askers:
            self.askers[key] = self._model(cell, self.template(cell))
        return self.askers[key]

    def first_bound(self, active: ActiveEpisode) -> PicoUsd:
        """The most that the next request of an episode can cost; of code, if it asks what the environment shows."""
        template = self.template(active.episode.cell)
        return template.worst_case(next_question(active, template))

    def expected_bound(self, active: ActiveEpisode, budget: int | None) -> PicoUsd:
        """What must be left for the next request of an episode: the most that it can cost, or that its opening did if
        it is out of the ordinary: it is then set aside, and the others need no room for it."""
        template = self.template(active.episode.cell)
        question = next_question(active, template)
        body_bytes = len(template.body(question))
        bound, usual = template.bound(body_bytes), template.usual_bound(question, body_bytes)
        return usual if bound > OUTSIZE * usual or (budget is not None and bound > budget) else bound

    def end(self, stop: Stop) -> None:
        """The run stops: whoever waits for a limit or for money leaves. Requests in flight may still be answered."""
        error = LaneClosed(stop.message or f"The run stops ({stop.reason}).")
        for lane in self.lanes.values():
            lane.end(error)
        if self.budget is not None:
            self.budget.end(error)

    def endpoint(self, cell: AgentSetup, role: str) -> str:
        """The name of the endpoint of a role; of the agent's own model for the empty one."""
        roles = cell.agent.code.roles if cell.agent.code is not None else ()
        return endpoint_name(cell.agent.name, role, roles) if role else cell.agent.name

    def _role_askers(self, cell: AgentSetup, code: ManifestCode) -> RoleAskers:
        spec = next(spec for spec in self.resolved.sweep.agents if spec.name == cell.agent.name)
        assert spec.code is not None

        def make(role: str, overrides: Mapping[str, Any]) -> Asker:
            return self._model(cell, self.template(cell, role, overrides), role)

        return RoleAskers(
            code=spec.code,
            lanes={role: part.lane for role, part in code.roles.items()},
            params=code.params,
            max_tokens=cell.sampling.max_tokens,
            make=make,
        )

    def _policy(self, episode: PlannedEpisode) -> Asker:
        agent, env = episode.cell.agent, episode.cell.env.name
        policy = find_policy(agent.policy, env)
        if policy is not None and policy.outside is not None and self.outside is not None:
            return self.outside
        if policy is not None and policy.oracle is not None:
            play = player(agent.policy, env, instance=episode.instance)
            return PolicyAsker(agent.policy, play, episode.cell.sampling)
        if (agent.name, env) not in self.askers:
            play = player(agent.policy, env, script=agent.script)
            self.askers[agent.name, env] = PolicyAsker(agent.policy, play, episode.cell.sampling)
        return self.askers[agent.name, env]

    def _model(self, cell: AgentSetup, template: RequestTemplate, role: str = "") -> ModelAsker:
        assert self.budget is not None
        endpoint = self.resolved.endpoints[self.endpoint(cell, role)]
        provider, model = endpoint.provider, endpoint.model
        ways = {
            tier: [
                (
                    endpoint_of(server, provider, model.name),
                    None if endpoint.stream == "off" else stream_endpoint_of(server, provider, model),
                )
                for server in self._servers(provider, tier)
            ]
            for tier in endpoint.tiers
        }
        (transport, streams), *others = ways[endpoint.tiers[0]]
        return ModelAsker(
            template,
            lane=self.lanes[endpoint.lane],
            budget=self.budget.of(endpoint.lane, cell.agent.name),
            transport=transport,
            streams=streams,
            others=others,
            by_tier=ways,
            permission=self.permission,
        )

    def _servers(self, provider: Provider, tier: Tier) -> tuple[HttpTransport, ...]:
        """Those of a provider, for requests of a tier."""
        key = provider.name, tier
        if key not in self.tiered:
            own = self.transports[provider.name]
            self.tiered[key] = tuple(transport_of(server, provider, tier) for server in own)
        return self.tiered[key]

    def template(self, cell: AgentSetup, role: str = "", overrides: Mapping[str, Any] = {}) -> RequestTemplate:
        """The requests of an agent, or of one of its roles."""
        agent = self.manifest.agents[cell.agent.name]
        endpoint = self.resolved.endpoints[self.endpoint(cell, role)]
        part = agent if agent.code is None or not role else agent.code.roles[role]
        return request_template(
            cell.agent.name,
            provider=endpoint.provider,
            model=endpoint.model,
            sampling=cell.sampling.with_overrides(overrides),
            price=FREE if part.price is None else Price(**part.price),
            stream=endpoint.stream,
            tiers=endpoint.tiers,
            tier_prices={tier: Price(**price) for tier, price in part.tier_prices.items()},
            cache=endpoint.cache,
        )


async def open_endpoints(
    resolved: ResolvedSweep,
    manifest: Manifest,
    choice: Choice,
    stack: AsyncExitStack,
    *,
    launch: Launch | None,
    directory: Path,
    part: WorkerPart | None = None,
) -> Endpoints:
    """Open an endpoint for each provider and a lane for each model that the chosen agents use; `stack` closes them.

    `part`: of the run's lanes, where other processes play the rest.

    Raises UsageError if a key is missing, EvalkitError where a simulated provider does not start.
    """
    endpoints = Endpoints(resolved=resolved, manifest=manifest)
    windows = remembered(directory)
    pools = endpoints.pools
    chosen = resolved.chosen(choice.agents).values()
    servers: dict[str, tuple[ServerSpec, ...]] = {}
    for endpoint in chosen:
        provider, lane = endpoint.provider, endpoint.lane
        if provider.name not in endpoints.transports:
            url = ""
            if provider.simulate is not None and part is not None:
                url = part.urls[provider.name]
            elif provider.simulate is not None:
                if launch is None:
                    raise UsageError(
                        f"provider {provider.name!r} is started by `evalkit run`; for this command it needs a url."
                    )
                # Starting waits for the first line of output, so it is not done on the event loop.
                url = await asyncio.to_thread(stack.enter_context, launch(provider, directory))
            endpoints.urls |= {provider.name: url} if url else {}
            servers[provider.name] = (ServerSpec(url=url),) if url else servers_of(provider)
            endpoints.transports[provider.name] = tuple(
                [
                    await stack.enter_async_context(open_transport(provider, url=server.url))
                    for server in servers[provider.name]
                ]
            )
        if lane not in endpoints.lanes:
            there = servers[provider.name]
            endpoints.lanes[lane] = _lane(resolved, endpoint, there, pools, windows.get(lane), part)
    return endpoints


def _lane(
    resolved: ResolvedSweep,
    endpoint: Endpoint,
    servers: Sequence[ServerSpec],
    pools: dict[str, Pool],
    last_window: int | None,
    part: WorkerPart | None,
) -> Lane:
    """A model's lane; `pools` are the shared limits of all lanes, by name. It starts as wide as it last was."""
    name, shares = endpoint.lane, lane_shares(resolved, endpoint)
    limits = limits_over(resolved, name, servers)
    start, width = last_window, resolved.sweep.width
    if part is not None:
        width, start = max(1, part.widths.get(name, 0)), max(1, (start or FIRST) // part.workers)
    shared = []
    for share in shares:
        if share.name not in pools:
            pools[share.name] = Pool(share.name, limits=share.limits)
        shared.append(pools[share.name])
    named = [replace(server, url=called) for server, called in zip(servers, short_names(servers), strict=True)]
    lane = Lane(name, limits=limits, width=width, shared=shared, trial=True, start=start, servers=named)
    if resolved.sweep.deadline_s is not None:
        lane.deadline = asyncio.get_running_loop().time() + resolved.sweep.deadline_s
    return lane
