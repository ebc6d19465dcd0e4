"""What a gate compares with: an agent that is played beside the new ones, or a run with stored scores.

The agent is one of the sweep, or one that another run has frozen. A stored side was played at another hour: what has
changed at the provider since is in the difference, and no test can tell it from the agents; so words say how old the
scores are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evalkit.engine.freezing.freeze import ResolvedSweep, with_old_agent
from evalkit.engine.freezing.keeping import shared
from evalkit.engine.universe import cells
from evalkit.errors import RunError, UsageError, nearest
from evalkit.frozen.instances import laid
from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.void import read_voids
from evalkit.playing.specs import run_directory
from evalkit.report.behaviour import SERVED_COLUMNS, played_times
from evalkit.report.run_data import RunData
from evalkit.results.derived import read_run
from evalkit.results.episodes import EpisodeResult
from evalkit.spec.identity import suite_digest
from evalkit.text import span

STORED = "baseline "
"""Before the name of an old agent that is not played: no agent's name has a space."""


OLD = "@baseline"
"""After the name of an old agent of another run that is played again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The old side."""

    label: str
    """As it was named."""
    manifest: Manifest | None = None
    """Of its run; None: it is played."""
    episodes: Mapping[tuple[str, str], Sequence[EpisodeResult]] = field(default_factory=dict)
    """Its scored episodes, by agent and suite."""
    played: Mapping[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """By agent, when."""

    @property
    def agents(self) -> tuple[str, ...]:
        """That it has."""
        return (self.label,) if self.manifest is None else tuple(self.manifest.agents)

    def age(self, now: datetime) -> str:
        """How old its scores are, in words; empty if they are not stored, or nobody knows."""
        last = max((end for _, end in self.played.values()), default=None)
        return "" if last is None else span(max(0.0, (now - last.replace(tzinfo=UTC)).total_seconds()))


def read_baseline(against: str, resolved: ResolvedSweep, *, scores: bool = True) -> Baseline:
    """An agent of the sweep by its name; else a run, or an archive, with its scores or without. Raises UsageError,
    RunError, CorruptLogError, StorageError."""
    if against in resolved.manifest.agents:
        return Baseline(label=against)
    try:
        with _opened(against) as directory:
            if not scores:
                return Baseline(label=against, manifest=read_manifest(directory))
            manifest, steps, results = read_run(directory, SERVED_COLUMNS)
            voids = read_voids(directory)
    except RunError as flaw:
        if Path(against).exists():
            raise
        raise UsageError(
            f"--against {against}: no agent of the sweep, no run and no archive has this name."
            f"{nearest(against, resolved.manifest.agents)} {flaw}"
        ) from flaw
    episodes: dict[tuple[str, str], list[EpisodeResult]] = {}
    for one in results:
        if one.score is not None and one.id not in voids:
            episodes.setdefault((one.agent, one.suite), []).append(one)
    played = played_times(RunData(manifest, (), {"steps": steps}))
    return Baseline(label=against, manifest=manifest, episodes=episodes, played=played)


@contextmanager
def _opened(against: str) -> Iterator[Path]:
    if Path(against).is_file():
        from evalkit.report.exports.archive import opened_archive

        with opened_archive(Path(against)) as run:
            yield run
    else:
        yield run_directory(against)


def paired(baseline: Baseline, resolved: ResolvedSweep, chosen: Sequence[str]) -> list[tuple[str, str]]:
    """(old, new) agents: those chosen by `NEW=OLD`, else those of one name; beside an agent of the sweep all others.
    Raises UsageError."""
    new = list(resolved.manifest.agents)
    if not chosen and baseline.manifest is None:
        pairs = [(baseline.label, name) for name in new if name != baseline.label]
    elif not chosen:
        pairs = [(name, name) for name in new if name in baseline.agents]
    else:
        pairs = [_chosen(words, new, baseline) for words in chosen]
    if not pairs or any(old == name for old, name in pairs if baseline.manifest is None):
        raise UsageError(
            f"gate: no agent of the sweep ({', '.join(new)}) has a partner in {baseline.label} "
            f"({', '.join(baseline.agents)}). Name both: --agent NEW=OLD."
        )
    return pairs


def _chosen(words: str, new: Sequence[str], baseline: Baseline) -> tuple[str, str]:
    # A name may have the character itself: `gpt@effort=low`.
    splits = [(words[:at], words[at + 1 :]) for at, char in enumerate(words) if char == "="]
    for name, old in splits:
        if name in new and old in baseline.agents:
            return old, name
    name, _, old = words.rpartition("=")
    if not splits or name in new:
        hint = nearest(old, baseline.agents) if splits else ""
        raise UsageError(f"--agent {words}: expected NEW=OLD, with an agent of {baseline.label}.{hint}")
    raise UsageError(f"--agent {words}: the sweep has no agent {name!r}.{nearest(name, new)}")


def in_turns(
    baseline: Baseline, resolved: ResolvedSweep, pairs: Sequence[tuple[str, str]]
) -> tuple[ResolvedSweep, list[tuple[str, str]], tuple[str, ...]]:
    """(the sweep with a run's old agents beside its own, the pairs with the names that these have there, what has not
    changed, in words). Raises UsageError.

    An old agent is played as its run has frozen it, and only in the environments where it differs from its partner.
    """
    assert baseline.manifest is not None
    was, now = cells(baseline.manifest), cells(resolved.manifest)
    differing: dict[str, set[str]] = {old: set() for old, _ in pairs}
    asked, alike = list[tuple[str, str]](), list[str]()
    for old, new in pairs:
        both = [name for name in resolved.manifest.agents[new].packs if (old, name) in was]
        same = [name for name in both if was[old, name].key == now[new, name].key]
        if same:
            where = f" in {', '.join(same)}" if same != both else ""
            alike.append(
                f"{new} has the model, sampling and prompts of {old} in {baseline.label}, so it was not played{where}"
            )
        if same != both or not both:
            asked.append((f"{old}{OLD}", new))
            differing[old].update(set(both) - set(same))
    for old, environments in differing.items():
        if environments:
            resolved = with_old_agent(resolved, f"{old}{OLD}", baseline.manifest, old, environments)
    for words in shared(resolved.manifest):
        raise UsageError(f"gate: {words}.")
    return resolved, asked, tuple(alike)


def narrowed_to(
    baseline: Baseline, resolved: ResolvedSweep, pairs: Sequence[tuple[str, str]]
) -> tuple[ResolvedSweep, dict[str, dict[str, dict[str, list[float]]]]]:
    """(the sweep with the instances and replicates alone that a stored side has scores of, these scores by its name in
    the pairs, suite and instance of the sweep). Raises UsageError if it has none."""
    if baseline.manifest is None:
        return resolved, {}
    manifest = resolved.manifest
    replicates = min(manifest.replicates, baseline.manifest.replicates)
    scores = {old: _by_digest(baseline, old) for old, _ in pairs}
    suites, stored = (
        dict[str, ManifestSuite](),
        {f"{STORED}{old}": dict[str, dict[str, list[float]]]() for old in scores},
    )
    for suite in manifest.suites.values():
        own = laid(suite.instances)
        places = list(range(len(own)))
        for old, by_suite in scores.items():
            known = by_suite.get(suite.name, {})
            shared = [at for at in places if len(known.get(own.digests[at], ())) >= replicates]
            if shared:
                places = shared
                stored[f"{STORED}{old}"][suite.name] = {
                    own.ids[at]: known[own.digests[at]][:replicates] for at in shared
                }
        if any(suite.name in kept for kept in stored.values()):
            suites[suite.name] = suite if len(places) == len(own) else _only(suite, places)
    if not suites:
        raise UsageError(
            f"gate: {baseline.label} has no scored instance of the sweep's suites ({', '.join(manifest.suites)}) for "
            f"{', '.join(scores)}, so nothing can be compared."
        )
    narrow = msgspec.structs.replace(manifest, suites=suites, replicates=replicates)
    return replace(resolved, manifest=narrow), stored


def _by_digest(baseline: Baseline, agent: str) -> dict[str, dict[str, list[float]]]:
    """By suite and digest of an instance: the scores of its replicates."""
    assert baseline.manifest is not None
    found: dict[str, dict[str, list[float]]] = {}
    for suite in baseline.manifest.suites.values():
        episodes = sorted(baseline.episodes.get((agent, suite.name), ()), key=lambda one: one.replicate)
        own = laid(suite.instances)
        places = own.find([one.instance for one in episodes])
        for one in episodes:
            if one.score is not None and one.instance in places:
                known = found.setdefault(suite.name, {})
                known.setdefault(own.digests[places[one.instance]], []).append(one.score)
    return found


def _only(suite: ManifestSuite, places: Sequence[int]) -> ManifestSuite:
    kept = tuple(suite.instances[at] for at in places)
    digest = suite_digest((one.id, one.digest) for one in kept)
    return msgspec.structs.replace(suite, instances=kept, digest=digest, read_from="")
