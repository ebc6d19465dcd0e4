"""Which episodes an estimate may stand on: a partial run is never the mean of what happens to be finished.

Short episodes end first and are often the good ones. So a cell (one agent on one suite) is estimated from the longest
prefix of its admission order whose episodes have all ended, and says what lies outside it.

An episode that the provider refused is left out as if it were not planned, while it remains refused: nobody knows what
the model would have scored. It is counted, and the mean is told as it would be with any score of it (`if_refused`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from evalkit.envs.suite_rows import MOST_LINES
from evalkit.frozen.instances import ManifestInstance, admission, laid
from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.frozen.void import Void
from evalkit.results.episodes import EpisodeResult

if TYPE_CHECKING:
    from evalkit.stats.intervals import Interval

ORACLE = "oracle"
"""The policy that plays the optimum."""


class BegunInstance(NamedTuple):
    """An instance, without its line."""

    id: str
    digest: str
    stratum: str


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
    begun: tuple[tuple[BegunInstance, EpisodeResult | None], ...] = ()
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
        return sum(map(attrgetter("finished"), self.episodes))

    @property
    def remaining(self) -> int:
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
        return self.remaining == len(self.refused)

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
    known: dict[tuple[str, str], list[EpisodeResult]] = {}
    names: dict[str, set[str]] = {}
    for result in results:
        known.setdefault((result.agent, result.suite), []).append(result)
        names.setdefault(result.suite, set()).add(result.instance)
    # Once for all agents and replicates: the order is the same.
    orders = {suite.name: _Order(manifest, suite, names.get(suite.name, ())) for suite in manifest.suites.values()}
    return [
        _cell(manifest, suite, agent, known.get((agent, suite.name), ()), voids, orders[suite.name])
        for suite, agent in planned_cells(manifest)
    ]


def planned_cells(manifest: Manifest) -> list[tuple[ManifestSuite, str]]:
    """(suite, agent's name) of every cell, suites and agents in the spec's order."""
    return [
        (suite, agent.name)
        for suite in manifest.suites.values()
        for agent in manifest.agents.values()
        if suite.environment in agent.packs
    ]


class _Order:
    """The order in which a suite's instances are admitted, as far as a run has come."""

    def __init__(self, manifest: Manifest, suite: ManifestSuite, names: Collection[str]) -> None:
        """`names`: of the instances that the log knows."""
        self.own = laid(suite.instances)
        self.place_of = self.own.find(list(names))
        """By id of an instance that the log knows: its place in the list."""
        left = dict.fromkeys(self.place_of.values())
        self.places = list[int]()
        """The first ones admitted, up to the last that the log knows."""
        for place in admission(self.own, manifest.order.key) if left else ():
            self.places.append(place)
            left.pop(place, None)
            if not left:
                break
        rank_of = {place: rank for rank, place in enumerate(self.places)}
        self.rank_of = {name: rank_of[place] for name, place in self.place_of.items()}
        """By id: its place in the order."""

    def up_to(self, names: Collection[str]) -> Sequence[BegunInstance]:
        """Those up to the last of these: of a large suite in the order of admission, else as they are listed."""
        if len(self.own) > MOST_LINES:
            places: Sequence[int] = self.places[: max(map(self.rank_of.__getitem__, names), default=-1) + 1]
        else:
            places = range(max(map(self.place_of.__getitem__, names), default=-1) + 1)
        ids, digests, strata, codes = self.own.ids, self.own.digests, list(self.own.strata), self.own.codes()
        return [BegunInstance(ids[place], digests[place], strata[codes[place]]) for place in places]


def _cell(
    manifest: Manifest,
    suite: ManifestSuite,
    agent: str,
    known: Sequence[EpisodeResult],
    voids: Mapping[str, Void],
    order: _Order,
) -> Cell:
    count, rank_of = len(suite.instances), order.rank_of
    by_place = {episode.replicate * count + rank_of[episode.instance]: episode for episode in known}
    places = sorted(by_place)
    episodes = [by_place[place] for place in places]
    struck = [episode for episode in episodes if episode.finished and episode.id in voids]
    gone = {episode.id for episode in struck}
    prefix = list[EpisodeResult]()
    for number, (place, one) in enumerate(zip(places, episodes, strict=True)):
        aside = one.refused or one.id in gone
        if number != place or not (aside or one.finished):
            break  # one before it is still to be played, or it is
        if not aside:
            prefix.append(one)
    first = {episode.instance: episode for episode in episodes if episode.replicate == 0}
    return Cell(
        agent=agent,
        suite=suite,
        pack=manifest.packs[manifest.agents[agent].packs[suite.environment]].name,
        planned=count * manifest.replicates - len(gone),
        episodes=tuple(episode for episode in episodes if episode.id not in gone),
        prefix=tuple(prefix),
        refused=tuple(episode for episode in episodes if episode.refused),
        voided=tuple((episode, voids[episode.id].reason) for episode in struck),
        begun=tuple(
            (instance, episode if episode is not None and episode.finished else None)
            for instance in order.up_to(first)
            if (episode := first.get(instance.id)) is None or not (episode.refused or episode.id in gone)
        ),
        exact=manifest.agents[agent].policy == ORACLE,
    )
