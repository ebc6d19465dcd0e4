"""Which episodes an estimate may stand on: a partial run is never the mean of what happens to be finished.

Short episodes end first and are often the good ones. So a cell (one agent on one suite) is estimated from the longest
prefix of its admission order whose episodes have all ended, and says what lies outside it.

An episode that the provider refused is left out as if it were not planned, while it remains refused: nobody knows what
the model would have scored. It is counted, and the mean is told as it would be with any score of it (`if_refused`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, tee
from types import MappingProxyType
from typing import TYPE_CHECKING

from evalkit.envs.suite_rows import MOST_LINES
from evalkit.frozen.instances import ManifestInstance, admission, laid
from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.frozen.void import Void
from evalkit.results.episodes import EpisodeResult

if TYPE_CHECKING:
    from evalkit.stats.intervals import Interval

ORACLE = "oracle"
"""The policy that plays the optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One agent on one suite: what is planned, what the log knows, and what an estimate may stand on."""

    agent: str
    suite: ManifestSuite
    pack: str
    """The prompt pack's name."""
    planned: int
    """Episodes that it is to have; those that are void are not counted."""
    episodes: tuple[EpisodeResult, ...]
    """All that the log knows and that are not void, in admission order."""
    prefix: tuple[EpisodeResult, ...]
    """The longest prefix of the admission order whose episodes have all ended, those that were refused left out: what
    estimates are made of."""
    refused: tuple[EpisodeResult, ...] = ()
    """Those that remain because the provider refused their last request, in admission order."""
    voided: tuple[tuple[EpisodeResult, str], ...] = ()
    """Ended episodes that count for nothing, each with the reason, in admission order."""
    begun: tuple[tuple[ManifestInstance, EpisodeResult | None], ...] = ()
    """The first replicates in admission order up to the last that the log knows, void and refused ones left out:
    (instance, the ended episode; None of one that has not ended)."""
    exact: bool = False
    """Whether its agent plays the optimum: then its mean is not an estimate."""
    intervals: "dict[tuple[float, float], tuple[Interval | None, str, Interval | None]]" = field(
        init=False, compare=False, repr=False, default_factory=dict
    )
    """By the bounds of its scores: the interval of its mean, what kind it is, and the one with instances unlike those
    that were met, once they have been asked for, as more than one table shows them."""

    @property
    def targets(self) -> Mapping[str, ManifestInstance]:
        """Its suite's instances by id; of a large suite those alone that its episodes were of."""
        own = self.suite.instances
        if len(own) <= MOST_LINES:
            return {instance.id: instance for instance in own}
        known = {episode.instance for episode in (*self.episodes, *(episode for episode, _ in self.voided))}
        return {name: own[place] for name, place in laid(own).find(sorted(known)).items()}

    @property
    def ended(self) -> int:
        """Episodes that are scored."""
        return sum(episode.finished for episode in self.episodes)

    @property
    def owed(self) -> int:
        """Episodes that are still to be played, or continued."""
        return self.planned - self.ended

    @property
    def outside(self) -> int:
        """Episodes that have ended, but after one that has not: no estimate uses them."""
        return self.ended - len(self.prefix)

    @property
    def refused_instances(self) -> frozenset[str]:
        """Ids of the instances that one of those is of: comparisons leave them out, on both sides."""
        return frozenset(episode.instance for episode in self.refused)

    @property
    def complete(self) -> bool:
        """Whether no episode remains but those that were refused."""
        return self.owed == len(self.refused)

    @property
    def if_refused(self) -> tuple[float, float] | None:
        """The mean over instances of the episodes that it is estimated from and those that were refused, if all of the
        latter scored 0, and if all scored 1; None if none was refused."""
        if not self.refused:
            return None
        sums: dict[str, list[float]] = {}
        for episode in (*self.prefix, *self.refused):
            known, total, unknown = sums.get(episode.instance, (0, 0.0, 0))
            scored = 0.0 if episode.score is None else episode.score
            sums[episode.instance] = [known + 1, total + scored, unknown + episode.refused]
        low = sum(total / count for count, total, _ in sums.values()) / len(sums)
        return low, low + sum(unknown / count for count, _, unknown in sums.values()) / len(sums)


def cells(
    manifest: Manifest, results: Sequence[EpisodeResult], voids: Mapping[str, Void] = MappingProxyType({})
) -> list[Cell]:
    """Every agent on every suite it plays, suites and agents in the spec's order.

    `voids`: the run's void episodes by id (`frozen/void.py`). One that has ended is left out as if it were not planned.

    Chosen: the prefix is taken within each suite. An agent's admission order, restricted to a suite, is the same
    whatever other suites the run has (all instances get replicate r before any gets r+1, in the manifest's
    order); so a suite that joins a finished run does not take the finished ones' results away.
    """
    known: dict[tuple[str, str], dict[tuple[int, str], EpisodeResult]] = {}
    for result in results:
        known.setdefault((result.agent, result.suite), {})[result.replicate, result.instance] = result
    orders: dict[str, Iterator[tuple[int, int]]] = {}
    found = []
    for suite, agent in planned_cells(manifest):
        # Computed once for all agents, as far as one of them has come.
        orders[suite.name], order = tee(orders.get(suite.name) or _admission(manifest, suite))
        found.append(_cell(manifest, suite, agent, known.get((agent, suite.name), {}), voids, order))
    return found


def planned_cells(manifest: Manifest) -> list[tuple[ManifestSuite, str]]:
    """(suite, agent's name) of every cell, suites and agents in the spec's order."""
    return [
        (suite, agent.name)
        for suite in manifest.suites.values()
        for agent in manifest.agents.values()
        if suite.environment in agent.packs
    ]


def _cell(
    manifest: Manifest,
    suite: ManifestSuite,
    agent: str,
    known: Mapping[tuple[int, str], EpisodeResult],
    voids: Mapping[str, Void],
    order: Iterator[tuple[int, int]],
) -> Cell:
    """`order`: (replicate, place of the instance) in the order of admission."""
    index_of = laid(suite.instances).find([name for _, name in known])
    by_index = {(replicate, index_of[name]): episode for (replicate, name), episode in known.items()}
    episodes, prefix, whole = list[EpisodeResult](), list[EpisodeResult](), True
    for index in islice(order, None if by_index else 0):
        episode = by_index.pop(index, None)
        if episode is not None:
            episodes.append(episode)
        void = episode is not None and episode.finished and episode.id in voids
        aside = void or (episode is not None and episode.refused)
        whole = whole and (aside or (episode is not None and episode.finished))
        if whole and episode is not None and not aside:
            prefix.append(episode)
        if not by_index:
            break  # what comes is still to be played
    struck = [episode for episode in episodes if episode.finished and episode.id in voids]
    gone = {episode.id for episode in struck}
    return Cell(
        agent=agent,
        suite=suite,
        pack=manifest.packs[manifest.agents[agent].packs[suite.environment]].name,
        planned=len(suite.instances) * manifest.replicates - len(gone),
        episodes=tuple(episode for episode in episodes if episode.id not in gone),
        prefix=tuple(prefix),
        refused=tuple(episode for episode in episodes if episode.refused),
        voided=tuple((episode, voids[episode.id].reason) for episode in struck),
        begun=tuple(
            (target, episode if episode is not None and episode.finished else None)
            for target in _first_ones(manifest, suite, known)
            if (episode := known.get((0, target.id))) is None or not (episode.refused or episode.id in gone)
        ),
        exact=manifest.agents[agent].policy == ORACLE,
    )


def _first_ones(
    manifest: Manifest, suite: ManifestSuite, known: Collection[tuple[int, str]]
) -> Sequence[ManifestInstance]:
    """Instances up to the last one whose first replicate is known: of a large suite in the order of admission."""
    if len(suite.instances) <= MOST_LINES:
        reach = max((i for i, instance in enumerate(suite.instances) if (0, instance.id) in known), default=-1)
        return suite.instances[: reach + 1]
    left, targets = sum(replicate == 0 for replicate, _ in known), list[ManifestInstance]()
    for target in islice(manifest.admitted(suite), None if left else 0):
        targets.append(target)
        left -= (0, target.id) in known
        if not left:
            break
    return targets


def _admission(manifest: Manifest, suite: ManifestSuite) -> Iterator[tuple[int, int]]:
    """(replicate, place of the instance), lazily."""
    for replicate in range(manifest.replicates):
        for index in admission(suite.instances, manifest.order.key):
            yield replicate, index
