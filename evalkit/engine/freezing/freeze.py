"""A sweep as a manifest: every file it names is read and checked, and what replay needs is frozen.

A spec extends a run by agents, suites and replicates. A conflict is one agent or suite name with other content; it is
refused before anything is written.
"""

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from msgspec import structs

from evalkit.dialogue import Sampling
from evalkit.engine.freezing.brought import brought, joined, require
from evalkit.engine.freezing.dialect_support import OfferedTools, check_offer, check_words, marks_of, offer_of
from evalkit.engine.freezing.keeping import extended_order, kept, shared
from evalkit.envs.environment import Environment, Pack
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, UsageError
from evalkit.frozen.instances import ManifestInstance, laid
from evalkit.frozen.manifest import (
    SIMULATED,
    Manifest,
    ManifestAgent,
    ManifestCode,
    ManifestOrder,
    ManifestPack,
    ManifestRole,
    ManifestSuite,
)
from evalkit.frozen.suite_file import from_rows
from evalkit.money import FREE, TIERS, Price, Tier
from evalkit.money import STANDARD as USUAL
from evalkit.policy.table import find_policy, is_policy
from evalkit.seeds import derive
from evalkit.spec.agent_code import find_agent, source_digest
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.spec.identity import agent_identity, sampling_fields, suite_digest, variant
from evalkit.spec.model import (
    AgentSpec,
    Limits,
    Model,
    Provider,
    SharedLimits,
    StreamSetting,
    SuiteInstance,
    SuiteUse,
    Sweep,
)
from evalkit.spec.packs import STANDARD, is_file, keys_of, read_pack
from evalkit.spec.suites import Expanded, digests, expand
from evalkit.version import __version__
from evalkit.wire.dialect import CACHE, CacheLife
from evalkit.wire.table import DIALECTS

USUAL_CACHE = "5m"
"""How long a prompt cache lasts, about, if requests do not ask for more."""
MOST_SHARED = 3
"""Names that stand for the same: how many of them an error tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an agent's requests are sent: this may change between resumes and is not part of the manifest's
    identity."""

    provider: Provider
    model: Model
    lane: str
    """The queue that its requests share with those of others."""
    stream: StreamSetting = "auto"
    """Whether the agent's replies are streamed."""
    tiers: tuple[Tier, ...] = (USUAL,)
    """Those that its requests go by, in order of preference."""
    cache: str = USUAL_CACHE
    """How long they ask for the prompt cache to last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSweep:
    """A sweep whose every name has been found and checked."""

    sweep: Sweep
    manifest: Manifest
    endpoints: Mapping[str, Endpoint]
    """By agent, or by agent and role where it is code (`endpoint_name`); agents that are policies have none."""

    def chosen(self, agents: Collection[str]) -> dict[str, Endpoint]:
        """Those that these agents use; of all agents where none is named."""
        return {name: one for name, one in self.endpoints.items() if not agents or name.partition(ROLE)[0] in agents}

    def mixes(self, lane: str) -> bool:
        """Whether a lane's requests may go by several tiers, by what time allows."""
        several = any(one.lane == lane and len(one.tiers) > 1 for one in self.endpoints.values())
        return several and self.sweep.deadline_s is not None


ROLE = "#"
"""Between an agent's name and a role; no name contains it."""


def endpoint_name(agent: str, role: str, roles: Iterable[str]) -> str:
    """The name of a role's endpoint; that of the first role is the agent's own."""
    return agent if role == next(iter(roles), role) else f"{agent}{ROLE}{role}"


def resolve(sweep: Sweep, frozen: Manifest | None = None) -> ResolvedSweep:
    """Read everything the sweep names. Raises UsageError for whatever cannot be run; writes nothing.

    `frozen`: the manifest of the run that is resumed, so that large suites need not be checked again.
    """
    if frozen is not None:
        require(frozen)
    offers: list[OfferedTools] = []
    suites = {suite.name: suite for suite in _suites(sweep, offers, frozen)}
    environments = sorted({suite.environment for suite in suites.values()})
    endpoints: dict[str, Endpoint] = {}
    agents: dict[str, ManifestAgent] = {}
    packs: dict[str, ManifestPack] = {}
    for spec in sweep.agents:
        with _placed(sweep.source, f"agent {spec.name!r}"):
            roles = {role: _endpoint(part, sweep) for role, part in spec.roles.items()}
            own = {endpoint_name(spec.name, role, roles): endpoint for role, endpoint in roles.items() if endpoint}
            endpoints |= own
            agents[spec.name] = _agent(spec, roles, environments, packs, offers)
    manifest = Manifest(
        evalkit=__version__,
        name=sweep.name,
        created_at=time.time(),
        replicates=sweep.replicates,
        agents=agents,
        suites=suites,
        packs=packs,
        order=ManifestOrder(key=derive("admission order", sweep.name)),
        plugins=brought(sweep, environments, [endpoint.provider for endpoint in endpoints.values()]),
    )
    twice = list(islice(shared(manifest), MOST_SHARED))
    if twice:
        raise UsageError(f"{sweep.source}: {'; '.join(twice)}.")
    return ResolvedSweep(sweep=sweep, manifest=manifest, endpoints=endpoints)


def with_old_agent(
    resolved: ResolvedSweep, name: str, run: Manifest, old: str, environments: Collection[str]
) -> ResolvedSweep:
    """The sweep with an agent of another run under a name of its own. In these environments it reads and samples as the
    run has frozen it; where its requests go, and what they cost, is today's.

    Raises UsageError if that cannot be.
    """
    sweep, was = resolved.sweep, run.agents[old]
    if name in resolved.manifest.agents:
        raise UsageError(f"{sweep.source}: the agent {name!r} has the name of an old one: give it another.")
    spec = AgentSpec(
        name=name,
        provider=was.provider,
        model=was.model,
        policy=was.policy,
        script=was.script,
        overrides=was.overrides,
        notes=was.notes,
        tags=was.tags,
    )
    with _placed(sweep.source, f"the old agent {old!r}"):
        if was.code is not None:
            spec = _unchanged(spec, was.code)
        roles = {role: _endpoint(part, sweep) for role, part in spec.roles.items()}
    endpoint = next(iter(roles.values()))
    own = {endpoint_name(name, role, roles): part for role, part in roles.items() if part}
    agent = structs.replace(
        was,
        name=name,
        sampling={name: was.sampling[name] for name in environments},
        packs={name: was.packs[name] for name in environments},
        price=price_fields(FREE if endpoint is None else endpoint.model.price or FREE),
        price_source=_price_source(endpoint),
        tier_prices=_tier_prices(endpoint),
        code=_code(spec, roles),
    )
    packs = {digest: run.packs[digest] for digest in agent.packs.values()}
    sweep, endpoints = replace(sweep, agents=(*sweep.agents, spec)), {**resolved.endpoints, **own}
    played = sorted({suite.environment for suite in resolved.manifest.suites.values()})
    manifest = structs.replace(
        resolved.manifest,
        agents={**resolved.manifest.agents, name: agent},
        packs={**packs, **resolved.manifest.packs},
        plugins=brought(sweep, played, [endpoint.provider for endpoint in endpoints.values()]),
    )
    return ResolvedSweep(sweep=sweep, manifest=manifest, endpoints=endpoints)


def _unchanged(spec: AgentSpec, was: ManifestCode) -> AgentSpec:
    """The agent with its code, if that is what a run has played. Raises UsageError."""
    code = find_agent(was.agent, {}, was.agent)
    if (code.version, source_digest(code)) != (was.version, was.source):
        raise UsageError(
            f"the code of {was.agent} has changed since, and no run holds code: make the old and the new code two "
            "agents of the sweep, or compare with stored scores."
        )
    models = {role: part.lane for role, part in was.roles.items()}
    return replace(spec, agent=was.agent, version=code.version, code=code, models=models, params=was.params)


@contextmanager
def _placed(source: str, place: str) -> Iterator[None]:
    """Errors in what a place of the spec names tell the spec and the place too."""
    try:
        yield
    except UsageError as flaw:
        raise UsageError(f"{source}: {place}: {flaw}") from flaw


def _suites(sweep: Sweep, offers: list[OfferedTools], frozen: Manifest | None) -> Iterator[ManifestSuite]:
    """The sweep's suites, expanded; `offers` gets what tools the requests of each offer."""
    seen: set[str] = set()
    frozen_suites = {} if frozen is None else frozen.suites
    for number, use in enumerate(sweep.suites, 1):
        with _placed(sweep.source, f"suites[{number}]"):
            read_from = digests(use)  # before the lines are read: a file that changes meanwhile is looked into again
            suites = _recognised(frozen_suites, read_from) or [*expand(use)]
        for name, axes, expanded in suites:
            if name in seen:
                raise UsageError(f"{sweep.source}: the suite {name!r} is named twice.")
            seen.add(name)
            if isinstance(expanded, ManifestSuite):
                suite = expanded
            else:
                suite = _suite(use, name, axes, expanded, read_from[name])
            offers.append(offer_of(name, expanded if isinstance(expanded, list) else _samples(suite)))
            version = ENVIRONMENTS[suite.environment].version
            yield structs.replace(suite, environment_version=version, counted_refusals=use.counted_refusals)


def _suite(use: SuiteUse, name: str, axes: Mapping[str, Any], expanded: Expanded, read: str) -> ManifestSuite:
    if isinstance(expanded, list):
        environments = {instance.environment for instance in expanded}
        if len(environments) > 1:
            raise UsageError(f"{use.name}: all instances of a suite must be of one environment.")
        instances: Sequence[ManifestInstance] = tuple(map(_listed, expanded))
    else:
        instances = from_rows(expanded, spread=True)
        environments = {instances[0].line["environment"]}
    own = laid(instances)
    digest = suite_digest(zip(own.ids, own.digests, strict=True))
    return ManifestSuite(
        name=name,
        base=use.name,
        axes=axes,
        environment=environments.pop(),
        environment_version=0,
        digest=digest,
        instances=instances,
        read_from=_read_from(read, digest),
    )


def _recognised(
    frozen: Mapping[str, ManifestSuite], read_from: Mapping[str, str]
) -> list[tuple[str, Mapping[str, Any], Expanded | ManifestSuite]]:
    """A run's suites, if all of them are read from what they were read from when they were frozen; else none."""
    had = {name: frozen[name] for name in read_from if name in frozen}
    if had.keys() < read_from.keys() or not all(_is_read_from(suite, read_from[name]) for name, suite in had.items()):
        return []
    return [(name, suite.axes, suite) for name, suite in had.items()]


def _is_read_from(suite: ManifestSuite, read: str) -> bool:
    return suite.read_from == _read_from(read, suite.digest)


def _read_from(read: str, digest: str) -> str:
    """What says that a suite of this digest was read from this: a digest that was changed since is looked into."""
    return hashlib.sha256(f"{read} {digest}".encode()).hexdigest()


SAMPLES = 64
"""Instances which stand for the others of a large suite, or of one that the run has: of each stratum the first, and
these many."""


def _samples(suite: ManifestSuite) -> list[SuiteInstance]:
    """Instances that stand for the others of a suite."""
    import numpy as np

    firsts = np.unique(laid(suite.instances).codes(), return_index=True)[1].tolist()
    spread = np.linspace(0, len(suite.instances) - 1, SAMPLES, dtype=int).tolist()
    env: Environment[Any, Any] = ENVIRONMENTS[suite.environment]
    return [
        SuiteInstance(
            suite=suite.name,
            id=instance.id,
            environment=suite.environment,
            digest=instance.digest,
            instance=env.load(instance.line),
            stratum=instance.stratum,
            axes=suite.axes,
        )
        for instance in (suite.instances[index] for index in sorted({*firsts, *spread}))
    ]


def _listed(instance: SuiteInstance) -> ManifestInstance:
    env: Environment[Any, Any] = ENVIRONMENTS[instance.environment]
    return ManifestInstance(
        id=instance.id, digest=instance.digest, stratum=instance.stratum, line=dict(env.describe(instance.instance))
    )


def _endpoint(spec: AgentSpec, sweep: Sweep) -> Endpoint | None:
    if spec.policy:
        return None
    provider = read_provider(spec.provider)
    model = find_model(provider, spec.model)
    if model.price is None:
        raise UsageError(
            f"no price is known for {spec.lane}, so no budget could be kept. Add its price to "
            f"providers/{provider.name}.toml (`usd_per_mtok`, or `price_as` for a name of your own); of a server of "
            "your own it is 0."
        )
    chosen = spec.tier or sweep.tiers.get(spec.lane) or sweep.tiers.get(spec.provider) or provider.tier
    sold = [tier for tier in TIERS if tier == USUAL or tier in model.tiers]
    for tier in chosen:
        if tier not in sold:
            raise UsageError(
                f"tier: {spec.lane} is not sold by the tier `{tier}`, as far as a price is known; it is by "
                f"{', '.join(sold)}. If it is, add its price to `tiers` of the model in providers/{provider.name}.toml."
            )
    cache = sweep.caches.get(spec.lane) or sweep.caches.get(spec.provider) or provider.cache or USUAL_CACHE
    lives = (USUAL_CACHE, *lives_of(provider, model))
    if cache not in lives:
        raise UsageError(f"cache: no prompt cache of {spec.lane} lasts {cache!r}, only {', '.join(lives)}.")
    tiers = chosen or (USUAL,)
    return Endpoint(provider=provider, model=model, lane=spec.lane, stream=provider.stream, tiers=tiers, cache=cache)


def _agent(
    spec: AgentSpec,
    roles: Mapping[str, Endpoint | None],
    environments: list[str],
    packs: dict[str, ManifestPack],
    offers: list[OfferedTools],
) -> ManifestAgent:
    endpoint = next(iter(roles.values()))
    sampling: dict[str, dict[str, Any]] = {}
    chosen: dict[str, str] = {}
    marks: list[str] = []
    pack_name = spec.prompts
    for name in environments:
        if not _plays(spec, endpoint, name):
            continue
        env: Environment[Any, Any] = ENVIRONMENTS[name]
        pack = read_pack(spec.prompts, name, variant(spec.tags))
        packs.setdefault(pack.digest, _frozen(pack, spec, name))
        chosen[name] = pack.digest
        if pack.name != STANDARD or len(chosen) == 1:  # of a pack that says something of some environments only
            pack_name = pack.name
        in_force = env.defaults.with_overrides(spec.overrides)
        own = [offer for offer in offers if offer.environment == name]
        for part, asked in zip(spec.roles.values(), roles.values(), strict=True):
            if asked:
                marks += [mark for mark in _check(part, asked, in_force, pack, own) if mark not in marks]
        sampling[name] = sampling_fields(in_force)
    if len(chosen) < len(environments):
        marks.append(f"plays only {', '.join(chosen)}")
    if chosen and spec.policy and (policy := find_policy(spec.policy, next(iter(chosen)))) and policy.outside:
        marks.append("not metered")
    if not chosen:
        raise UsageError(f"the policy {spec.policy or spec.model!r} plays none of the suites.")
    price = FREE if endpoint is None else endpoint.model.price
    return ManifestAgent(
        name=spec.name,
        identity=agent_identity(spec),
        lane=spec.lane,
        provider=spec.provider,
        model=spec.model,
        policy=spec.policy,
        script=spec.script,
        overrides=dict(spec.overrides),
        sampling=sampling,
        packs=chosen,
        pack=pack_name,
        notes=spec.notes,
        tags=spec.tags,
        marks=tuple(marks),
        price=None if price is None else price_fields(price),
        price_source=_price_source(endpoint),
        tier_prices=_tier_prices(endpoint),
        code=_code(spec, roles),
    )


def _code(spec: AgentSpec, roles: Mapping[str, Endpoint | None]) -> ManifestCode | None:
    """What an agent that is code declares, with its models' prices."""
    if spec.code is None:
        return None
    return ManifestCode(
        agent=spec.agent,
        version=spec.code.version,
        parallel=spec.code.parallel,
        roles={
            role: ManifestRole(
                provider=part.provider,
                model=part.model,
                price=None if endpoint.model.price is None else price_fields(endpoint.model.price),
                price_source=_price_source(endpoint),
                tier_prices=_tier_prices(endpoint),
            )
            for (role, part), endpoint in zip(spec.roles.items(), roles.values(), strict=True)
            if endpoint
        },
        params=dict(spec.params),
        source=source_digest(spec.code),
    )


def _tier_prices(endpoint: Endpoint | None) -> dict[Tier, dict[str, int]]:
    return {} if endpoint is None else {tier: price_fields(own) for tier, own in endpoint.model.tiers.items()}


def _price_source(endpoint: Endpoint | None) -> str:
    source = "" if endpoint is None else endpoint.model.price_source
    if endpoint is None or endpoint.provider.simulate is None or SIMULATED in source:
        return source
    return f"{SIMULATED}: {source}"


def _frozen(pack: Pack, spec: AgentSpec, environment: str) -> ManifestPack:
    own = frozenset[str]()
    if pack.name != STANDARD:
        keys = keys_of(spec.prompts, environment)
        own = keys[""] | keys.get(variant(spec.tags), frozenset())
    return ManifestPack(
        name=pack.name,
        digest=pack.digest,
        texts=dict(pack.texts),
        own=tuple(sorted(own)),
        file=pack.name != STANDARD and is_file(spec.prompts),
    )


def _plays(spec: AgentSpec, endpoint: Endpoint | None, environment: str) -> bool:
    """Whether an agent plays an environment: models play all, a policy, also one that is served, only its own."""
    served = endpoint is not None and endpoint.provider.simulate is not None
    policy = spec.policy or (spec.model if served else "")
    return not policy or find_policy(policy, environment) is not None or not is_policy(policy)


def _check(
    spec: AgentSpec, endpoint: Endpoint, sampling: Sampling, pack: Pack, offers: list[OfferedTools]
) -> list[str]:
    """Marks for what of an environment's defaults is not sent; UsageError for what cannot be asked or offered."""
    provider, model = endpoint.provider, endpoint.model
    marks = marks_of(spec, provider, model, sampling)
    for offer in offers:
        check_offer(provider, offer)
        check_words(spec, provider, model, sampling, pack, offer)
    return marks


def lives_of(provider: Provider, model: Model) -> Mapping[str, CacheLife]:
    """How long a model's prompt cache may last beside the usual, by name."""
    return {} if CACHE in model.quirks.refuses else DIALECTS[provider.dialect].caches


def lane_limits(resolved: ResolvedSweep, lane: str) -> Limits:
    """A lane's limits: the sweep's where it sets them, else the catalogue's."""
    if lane in resolved.sweep.limits:
        return resolved.sweep.limits[lane]
    return next((one.model.limits for one in resolved.endpoints.values() if one.lane == lane), Limits())


def lane_shares(resolved: ResolvedSweep, endpoint: Endpoint) -> tuple[SharedLimits, ...]:
    """The limits that a model shares with all others of its provider: the sweep's word on the provider."""
    name = endpoint.provider.name
    limits = resolved.sweep.limits.get(name)
    return () if limits is None else (SharedLimits(name=name, limits=limits),)


def price_fields(price: Price) -> dict[str, int]:
    """A price as plain values; without the rates of long prompts where it has none, and without what requests ask for
    at their own choice."""
    fields = {name: value for name, value in asdict(price).items() if not name.endswith("lasting")}
    return {name: value for name, value in fields.items() if price.over or not name.startswith("over")}


def merge(old: Manifest, new: Manifest, run: str) -> Manifest:
    """The run's manifest extended by what the spec now asks for. Raises RunError naming each conflict.

    Prices, prompts and order stay as they were frozen; agents and suites that the spec no longer names stay in the run.
    """
    new = kept(old, new)
    differing = conflicts(old, new)
    if differing:
        raise RunError(
            f"The spec conflicts with the run in {run}: {'; '.join(differing)}. Nothing was changed. Give the changed "
            f"agent or suite another name, or start another run with `--name {new.name}-2`."
        )
    merged = united(old, new)
    twice = list(islice(shared(merged), MOST_SHARED))
    if twice:
        raise RunError(
            f"The spec asks again, under another name, for what the run in {run} has already: {'; '.join(twice)}. "
            "Nothing was changed."
        )
    return merged


def conflicts(old: Manifest, new: Manifest) -> list[str]:
    """Agents and suites that the two have by the same name with other content, in words."""
    return [*_agent_conflicts(old, new), *_suite_conflicts(old, new)]


def united(old: Manifest, new: Manifest) -> Manifest:
    """The two, which do not conflict, as one; where both say something of an agent, the old one's price stays."""
    agents = dict(old.agents)
    for name, agent in new.agents.items():
        was = old.agents.get(name)
        agents[name] = agent if was is None else _extended(was, agent)
    return Manifest(
        evalkit=old.evalkit,
        name=old.name,
        created_at=old.created_at,
        replicates=max(old.replicates, new.replicates),
        agents=agents,
        suites={**old.suites, **{name: suite for name, suite in new.suites.items() if name not in old.suites}},
        packs={**new.packs, **old.packs},
        order=extended_order(old, new),
        plugins=joined(old, new),
    )


def _extended(was: ManifestAgent, now: ManifestAgent) -> ManifestAgent:
    return structs.replace(
        now,
        sampling={**now.sampling, **was.sampling},
        packs={**now.packs, **was.packs},
        price=was.price,
        price_source=was.price_source,
        tier_prices={**now.tier_prices, **was.tier_prices},
        code=_priced_as(was.code, now.code),
    )


def _priced_as(was: ManifestCode | None, now: ManifestCode | None) -> ManifestCode | None:
    """The code with the prices that were frozen."""
    if was is None or now is None:
        return now
    roles = {
        role: structs.replace(own, tier_prices={**now.roles[role].tier_prices, **own.tier_prices})
        for role, own in was.roles.items()
        if role in now.roles
    }
    return structs.replace(now, roles={**now.roles, **was.roles, **roles})


def _agent_conflicts(old: Manifest, new: Manifest) -> Iterator[str]:
    for name, agent in new.agents.items():
        was = old.agents.get(name)
        if was is None:
            continue
        if was.identity != agent.identity:
            yield f"agent {name!r} is now {_differs(was, agent)}"
            continue
        for env in was.packs.keys() & agent.packs.keys():
            if was.packs[env] != agent.packs[env]:
                yield f"agent {name!r} reads other {env} prompts (pack {agent.pack!r})"
            if dict(was.sampling[env]) != dict(agent.sampling[env]):
                yield f"agent {name!r} samples {env} differently"


def _differs(was: ManifestAgent, now: ManifestAgent) -> str:
    for field in ("provider", "model", "policy", "overrides", "notes", "script"):
        if getattr(was, field) != getattr(now, field):
            return f"another: {field} was {getattr(was, field)!r}, now {getattr(now, field)!r}"
    if was.code and now.code:
        return f"another: {was.code.agent} was {_said(was.code)}; now it is {now.code.agent}, {_said(now.code)}"
    return "another: it was, or is now, tagged as a reasoning model"


def _said(code: ManifestCode) -> str:
    return f"version {code.version}, models {[role.lane for role in code.roles.values()]}, params {dict(code.params)}"


def _suite_conflicts(old: Manifest, new: Manifest) -> Iterator[str]:
    for name, suite in new.suites.items():
        was = old.suites.get(name)
        if was is None:
            continue
        if was.digest != suite.digest:
            yield f"suite {name!r} has other instances ({len(was.instances)} then, {len(suite.instances)} now)"
        elif was.environment_version != suite.environment_version:
            yield f"suite {name!r} was begun with version {was.environment_version} of {suite.environment}"
        elif set(was.counted_refusals) != set(suite.counted_refusals):
            had, has = list(was.counted_refusals), list(suite.counted_refusals)
            yield f"suite {name!r} was begun with counted_refusals = {had}, not {has}"
