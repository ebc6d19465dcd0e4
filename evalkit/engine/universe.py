"""All episodes of a manifest, lazily and in admission order.

Within a lane: all instances get replicate r before any gets r+1; suites and strata are interleaved, so that any prefix
is a balanced sample. Within a stratum instances come in a random order that the manifest's key fixes, so a prefix is a
random sample. Agents that share the lane all play an instance before the next one begins. Episodes of an extension come
after those planned before it, so nothing loses its place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import Any

from msgspec import Struct

from evalkit.dialogue import Sampling
from evalkit.envs.environment import Environment, Kit
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.instances import ManifestInstance, admission, laid
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestExtent, ManifestSuite, load_target
from evalkit.spec.identity import episode_id, episode_key

KEPT = 10_000
"""Up to so many places are computed once for all replicates; more are computed for each replicate, without a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """One agent in one environment: what all its episodes there share."""

    agent: ManifestAgent
    env: Environment[Any, Any]
    kit: Kit
    sampling: Sampling
    key: str


class PlannedEpisode(Struct, frozen=True, kw_only=True):
    """One agent on one instance, one replicate: its place in the run, and how to begin it."""

    id: str
    cell: AgentSetup
    suite: ManifestSuite
    target: ManifestInstance
    replicate: int
    index: int
    """The instance's place in its suite."""
    cell_key: tuple[str, str]
    """Its agent and suite."""

    @property
    def instance(self) -> Any:
        """The environment's own value, read from the manifest's line and kept for the episodes that follow soon."""
        return _load(self.suite.environment, _Target(self.target))


class _Target:
    """An instance of which only the digest is known."""

    __slots__ = ("target",)

    def __init__(self, target: ManifestInstance) -> None:
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Target) and other.target.digest == self.target.digest

    def __hash__(self) -> int:
        return hash(self.target.digest)


@lru_cache(maxsize=4096)
def _load(environment: str, known: _Target) -> Any:
    return load_target(ENVIRONMENTS[environment], known.target)


def cells(manifest: Manifest) -> dict[tuple[str, str], AgentSetup]:
    """The cells of a manifest by (agent, environment)."""
    setups: dict[tuple[str, str], AgentSetup] = {}
    for agent in manifest.agents.values():
        for name, pack_digest in agent.packs.items():
            env = ENVIRONMENTS[name]
            setups[agent.name, name] = AgentSetup(
                agent=agent,
                env=env,
                kit=manifest.kit_of(agent, name),
                sampling=Sampling(**agent.sampling[name]),
                key=episode_key(agent.identity, agent.sampling[name], pack_digest, name, env.version),
            )
    return setups


def placed(manifest: Manifest, suites: Sequence[ManifestSuite]) -> Iterator[tuple[ManifestSuite, int]]:
    """All instances of these suites by their places in them, suites interleaved in proportion to their sizes; lazily.

    No instance is read.
    """
    for _, s, index in merge(*(_places(manifest, s, suite) for s, suite in enumerate(suites)), key=itemgetter(0, 1)):
        yield suites[s], index


def _places(manifest: Manifest, s: int, suite: ManifestSuite) -> Iterator[tuple[float, int, int]]:
    """(how far in the suite, the suite's number, place in the suite)."""
    for i, index in enumerate(admission(suite.instances, manifest.order.key)):
        yield (i + 0.5) / len(suite.instances), s, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The part of a sweep that a command selects."""

    agents: frozenset[str] = frozenset()
    """Empty: all."""
    suites: frozenset[str] = frozenset()
    """Full or base names; empty: all."""
    replicate: int | None = None
    """None: all."""

    def replicates(self, manifest: Manifest) -> range:
        """The replicates that belong to it."""
        most = manifest.replicates
        return range(most) if self.replicate is None else range(self.replicate, min(self.replicate + 1, most))

    def takes_suite(self, suite: ManifestSuite) -> bool:
        """Whether a suite belongs to it."""
        return not self.suites or suite.name in self.suites or suite.base in self.suites


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """A part of a run: what some agents play of some suites."""

    manifest: Manifest
    agents: Sequence[ManifestAgent]
    choice: Choice

    @property
    def suites(self) -> list[ManifestSuite]:
        """In the manifest's order."""
        return [suite for suite in self.manifest.suites.values() if self.choice.takes_suite(suite)]

    @property
    def replicates(self) -> range:
        """Of each of its episodes."""
        return self.choice.replicates(self.manifest)

    @property
    def places(self) -> Iterator[tuple[ManifestAgent, ManifestSuite]]:
        """The agent and its suite."""
        for suite in self.suites:
            for agent in self.agents:
                if suite.environment in agent.packs:
                    yield agent, suite

    def holds(self, agent: str, suite: str, replicate: int) -> bool:
        """Whether an episode is part of it."""
        its_suite = self.manifest.suites.get(suite)
        return (
            its_suite is not None
            and self.choice.takes_suite(its_suite)
            and replicate in self.replicates
            and any(one.name == agent for one in self.agents)
        )


def lanes(manifest: Manifest, choice: Choice) -> dict[str, list[ManifestAgent]]:
    """The agents of each lane, in the spec's order."""
    by_lane: dict[str, list[ManifestAgent]] = {}
    for agent in manifest.agents.values():
        if not choice.agents or agent.name in choice.agents:
            by_lane.setdefault(agent.lane, []).append(agent)
    return by_lane


def episodes(
    manifest: Manifest,
    agents: Sequence[ManifestAgent],
    choice: Choice,
    wanted: Callable[[str], bool] = lambda _: True,
) -> Iterator[PlannedEpisode]:
    """The episodes of the given agents in admission order, lazily; those whose id is `wanted`. No other's instance is
    read."""
    for block in _blocks(manifest, agents, choice):
        suites = [manifest.suites[name] for name in block.players]
        instances = {suite.name: laid(suite.instances) for suite in suites}
        few = sum(len(suite.instances) for suite in suites) <= KEPT
        places = list(placed(manifest, suites)) if few else []
        for replicate in block.replicates:
            if replicate not in choice.replicates(manifest):
                continue
            for suite, index in places or placed(manifest, suites):
                own, target = instances[suite.name], None
                for cell, cell_key in block.players[suite.name]:
                    name = episode_id(cell.key, own.digests[index], replicate)
                    if not wanted(name):
                        continue
                    target = target or own.at(index)
                    yield PlannedEpisode(
                        id=name,
                        cell=cell,
                        suite=suite,
                        target=target,
                        replicate=replicate,
                        index=index,
                        cell_key=cell_key,
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EpisodeBlock:
    """Consecutive replicates in which the same agents play the same suites."""

    replicates: range
    players: Mapping[str, Sequence[tuple[AgentSetup, tuple[str, str]]]]
    """By suite, in the manifest's order: agents, each with the names of agent and suite."""


def _blocks(manifest: Manifest, agents: Sequence[ManifestAgent], choice: Choice) -> Iterator[_EpisodeBlock]:
    """The run as it began, then the additions of each extension."""
    setups = cells(manifest)
    pairs = [
        (suite.name, agent.name, setups[agent.name, suite.environment])
        for suite in manifest.suites.values()
        for agent in agents
        if choice.takes_suite(suite) and (agent.name, suite.environment) in setups
    ]
    earlier: list[ManifestExtent] = []
    for extent in (*manifest.order.before, manifest.extent):
        last = min(extent.replicates, manifest.replicates)
        for first, end in pairwise(sorted({0, last, *(min(past.replicates, last) for past in earlier)})):
            players: dict[str, list[tuple[AgentSetup, tuple[str, str]]]] = {}
            for suite, agent, cell in pairs:
                if extent.holds(agent, suite, first) and not any(past.holds(agent, suite, first) for past in earlier):
                    players.setdefault(suite, []).append((cell, (agent, suite)))
            yield _EpisodeBlock(replicates=range(first, end), players=players)
        earlier.append(extent)


def example_of(manifest: Manifest, choice: Choice) -> str:
    """An episode to look at, as an argument of `show`."""
    for suite in filter(choice.takes_suite, manifest.suites.values()):
        for agent in manifest.agents.values():
            if choice.agents and agent.name not in choice.agents:
                continue
            return f"{agent.name}:{suite.name}:{next(manifest.admitted(suite)).id}:0"
    return ""
