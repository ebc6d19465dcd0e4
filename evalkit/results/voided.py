"""Episodes that are void: which are meant by a choice, and what tables say of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.errors import UsageError, nearest
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.results.show import EpisodeKey, find_episode
from evalkit.text import many, visible

if TYPE_CHECKING:
    from evalkit.results.cells import Cell

ASKED_FOR = 10_000
"""Instances of a suite that a misspelt one is compared with."""
REASONS_NAMED = 3
"""Reasons that one note tells."""
NOTES = 20
"""Cells that get a note of their own."""
REASON_BOUND = 200
"""Characters of a reason in a note."""

_PLACE = ("episode", "agent", "suite", "instance", "replicate")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeChoice:
    """Which episodes are meant; empty: any."""

    agent: str = ""
    suite: str = ""
    """A suite, or a base suite with all that was varied of it."""
    instance: str = ""
    episode: str = ""
    """An id, the beginning of one, or `agent:suite:instance:replicate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEpisode(EpisodeKey):
    """An episode of the log."""

    ending: str
    """Empty while it continues."""


def choose(run: Path, wanted: EpisodeChoice) -> list[LoggedEpisode]:
    """The episodes of the log that are meant, by agent, suite, instance and replicate.

    Raises UsageError for a name that the run lacks, RunError for an episode that it lacks or that is not the only one
    meant, CorruptLogError.
    """
    from evalkit.store.reading.reader import scan

    manifest = read_manifest(run)
    _check(manifest, wanted)
    table = scan(run, (*_PLACE, "ending"))
    # By episode and step: an episode's last row says how it ended.
    rows = table.group_by(list(_PLACE), use_threads=False).aggregate([("ending", "last")]).to_pylist()
    known = [
        LoggedEpisode(id=row["episode"], ending=row["ending_last"], **{name: row[name] for name in _PLACE[1:]})
        for row in rows
    ]
    if wanted.episode:
        only = find_episode(known, wanted.episode).id
        known = [episode for episode in known if episode.id == only]
    bases = {suite.name: suite.base for suite in manifest.suites.values()}
    matching = (
        episode
        for episode in known
        if wanted.agent in ("", episode.agent)
        and wanted.suite in ("", episode.suite, bases.get(episode.suite))
        and wanted.instance in ("", episode.instance)
    )
    return sorted(matching, key=lambda episode: (episode.agent, episode.suite, episode.instance, episode.replicate))


def _check(manifest: Manifest, wanted: EpisodeChoice) -> None:
    suites = {suite.name for suite in manifest.suites.values()} | {suite.base for suite in manifest.suites.values()}
    suites_wanted = [suite for suite in manifest.suites.values() if wanted.suite in ("", suite.name, suite.base)]
    for option, name, valid in (("agent", wanted.agent, set(manifest.agents)), ("suite", wanted.suite, suites)):
        if name and name not in valid:
            raise UsageError(f"--{option}: the run has no {option} {name!r}.{nearest(name, valid)}")
    name = wanted.instance
    if name and not manifest.targets((suite.name, name) for suite in suites_wanted):
        examples = {instance.id for suite in suites_wanted for instance in suite.instances[:ASKED_FOR]}
        raise UsageError(f"--instance: the run has no instance {name!r}.{nearest(name, examples)}")


def void_notes(cells: Iterable["Cell"]) -> list[str]:
    """What a table must say of episodes that are void: how many, of whom, why."""
    struck = [cell for cell in cells if cell.voided]
    notes = [
        f"void: {cell.agent} on {cell.suite.name}: {many(len(cell.voided), 'episode')} left out: {_reasons(cell)}"
        for cell in struck
    ]
    more = len(notes) - NOTES
    return notes if more <= 0 else [*notes[:NOTES], f"void: {more:,} more rows; see the table of completeness"]


def reasons(cell: "Cell") -> dict[str, int]:
    """Why episodes of a cell are void, with how many, frequent ones first."""
    counted = Counter(reason for _, reason in cell.voided)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _reasons(cell: "Cell") -> str:
    counted: Sequence[tuple[str, int]] = list(reasons(cell).items())
    words = [visible(reason[:REASON_BOUND]) + (f" ({count:,})" if counted[1:] else "") for reason, count in counted]
    more = len(words) - REASONS_NAMED
    return "; ".join(words[:REASONS_NAMED]) + (f"; {more:,} more reasons" if more > 0 else "")
