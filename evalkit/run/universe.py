"""All episodes of a manifest, lazily and in admission order.

Within a lane: all instances get replicate r before any gets r+1; suites and strata are interleaved, so that any prefix
is a balanced sample; agents that share the lane all play an instance before the next one begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalkit.dialogue import Sampling
from evalkit.env.environment import Environment, Kit
from evalkit.env.table import ENVIRONMENTS
from evalkit.spec.identity import episode_id, episode_key
from evalkit.store.manifest import Manifest, ManifestAgent, ManifestInstance, ManifestSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One agent in one environment: what all its episodes there share."""

    agent: ManifestAgent
    env: Environment[Any, Any]
    kit: Kit
    sampling: Sampling
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One agent on one instance, one replicate: where it belongs, and how to begin it."""

    id: str
    cell: Cell
    suite: ManifestSuite
    target: ManifestInstance
    replicate: int

    @property
    def instance(self) -> Any:
        """The environment's own value, read from the manifest's line and kept for the episodes that follow soon."""
        return _load(self.suite.environment, _Line(self.target.digest, self.target.line))


class _Line:
    """A suite's line that is known by its instance's digest alone."""

    __slots__ = ("digest", "line")

    def __init__(self, digest: str, line: Mapping[str, Any]) -> None:
        self.digest, self.line = digest, line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Line) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=4096)
def _load(environment: str, line: _Line) -> Any:
    return ENVIRONMENTS[environment].load(line.line)


def cells(manifest: Manifest) -> dict[tuple[str, str], Cell]:
    """The cells of a manifest by (agent, environment)."""
    found: dict[tuple[str, str], Cell] = {}
    for agent in manifest.agents.values():
        for name, pack_digest in agent.packs.items():
            env = ENVIRONMENTS[name]
            found[agent.name, name] = Cell(
                agent=agent,
                env=env,
                kit=manifest.kit_of(agent, name),
                sampling=Sampling(**agent.sampling[name]),
                key=episode_key(agent.identity, agent.sampling[name], pack_digest, name, env.version),
            )
    return found


def placed(suites: Sequence[ManifestSuite]) -> list[tuple[ManifestSuite, ManifestInstance]]:
    """All instances of all suites, suites interleaved in proportion to their sizes."""
    order = [
        ((i + 0.5) / len(suite.instances), s, i) for s, suite in enumerate(suites) for i in range(len(suite.instances))
    ]
    return [(suites[s], suites[s].instances[i]) for _, s, i in sorted(order)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which part of a sweep a command is about."""

    agents: frozenset[str] = frozenset()
    """Empty: all."""
    suites: frozenset[str] = frozenset()
    """Full or base names; empty: all."""

    def takes_suite(self, suite: ManifestSuite) -> bool:
        """Whether a suite belongs to it."""
        return not self.suites or suite.name in self.suites or suite.base in self.suites


def lanes(manifest: Manifest, choice: Choice) -> dict[str, list[ManifestAgent]]:
    """The agents of each lane, in the spec's order."""
    found: dict[str, list[ManifestAgent]] = {}
    for agent in manifest.agents.values():
        if not choice.agents or agent.name in choice.agents:
            found.setdefault(agent.lane, []).append(agent)
    return found


def episodes(manifest: Manifest, agents: Sequence[ManifestAgent], choice: Choice) -> Iterator[Episode]:
    """The episodes of the given agents in admission order, lazily."""
    cell = cells(manifest)
    places = placed([suite for suite in manifest.suites.values() if choice.takes_suite(suite)])
    for replicate in range(manifest.replicates):
        for suite, target in places:
            for agent in agents:
                mine = cell.get((agent.name, suite.environment))
                if mine is not None:
                    yield Episode(
                        id=episode_id(mine.key, target.digest, replicate),
                        cell=mine,
                        suite=suite,
                        target=target,
                        replicate=replicate,
                    )
