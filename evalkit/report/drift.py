"""Whether a provider changed what it serves while a run went on: the model's name or its fingerprint, by agent.

A model behind an alias can be replaced at any hour. Where an agent's replies came from several versions, its scores are
those of a mixture; the table says from when to when each served, and what the episodes that it played alone scored.
That is a description: versions served at different times and on different episodes, so no test is made of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.report.tables import Column, Table
from evalkit.results.episodes import EpisodeResult
from evalkit.stats.bootstrap import mean_of_instances
from evalkit.store.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("episode", "agent", "served_model", "fingerprint", "started_at")
"""What of the log it reads."""

DRIFT = "drift: "
"""What a note of an agent that drifted begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One thing that answered as an agent."""

    agent: str
    served_model: str
    fingerprint: str
    first_at: float
    last_at: float
    """When its first and its last reply were asked for, seconds since 1970."""
    replies: int
    episodes: frozenset[str]
    """Ids of those in which it answered at least once."""


def versions(steps: "pa.Table") -> list[Version]:
    """What answered, by agent in order of names, each in order of its first reply; replies without a name left out.

    `steps` holds `COLUMNS`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    named = steps.filter(pc.or_(pc.not_equal(steps["served_model"], ""), pc.not_equal(steps["fingerprint"], "")))
    if not named.num_rows:
        return []
    keys = ["agent", "served_model", "fingerprint"]
    plain = pa.table({name: named[name].cast(pa.string()) for name in (*keys, "episode")})
    grouped = (
        plain.append_column("started_at", named["started_at"])
        .group_by(keys)
        .aggregate([("started_at", "min"), ("started_at", "max"), ("started_at", "count"), ("episode", "distinct")])
    )
    served = [
        Version(
            agent=row["agent"],
            served_model=row["served_model"],
            fingerprint=row["fingerprint"],
            first_at=row["started_at_min"],
            last_at=row["started_at_max"],
            replies=row["started_at_count"],
            episodes=frozenset(row["episode_distinct"]),
        )
        for row in grouped.to_pylist()
    ]
    return sorted(
        served, key=lambda version: (version.agent, version.first_at, version.served_model, version.fingerprint)
    )


def drifted(versions: Sequence[Version]) -> dict[str, list[Version]]:
    """The agents that more than one version answered for, with their versions."""
    by_agent: dict[str, list[Version]] = {}
    for version in versions:
        by_agent.setdefault(version.agent, []).append(version)
    return {agent: several for agent, several in by_agent.items() if len(several) > 1}


def drift_notes(versions: Sequence[Version]) -> tuple[str, ...]:
    """One line for each agent that drifted."""
    return tuple(
        f"{DRIFT}{agent} was served by {len(several)} versions; the first change was seen {_time(several[1].first_at)}"
        for agent, several in drifted(versions).items()
    )


def drift_tables(steps: "pa.Table", manifest: Manifest, results: Sequence[EpisodeResult]) -> tuple[Table, ...]:
    """The versions of the agents that drifted, with their scores; none where nobody did.

    `steps` holds `COLUMNS`; `results` are the run's episodes.
    """
    all_versions = versions(steps)
    changed = drifted(all_versions)
    if not changed:
        return ()
    by_id = {result.id: result for result in results}
    table = Table(
        name="drift",
        title="Served versions",
        columns=(
            Column(key="agent", title="Agent", group=True),
            Column(key="served_model", title="Served model"),
            Column(key="fingerprint", title="Fingerprint"),
            Column(key="first", title="First (UTC)"),
            Column(key="last", title="Last (UTC)"),
            Column(key="replies", title="Replies", kind="count"),
            Column(key="episodes", title="Episodes", kind="count"),
            Column(key="alone", title="alone", kind="count", unit="scored episodes that no other version answered in"),
            Column(key="score", title="Score of these", kind="score", unit="100 = optimum"),
            Column(key="shared", title="Shared", kind="count", unit="instances that every version scored"),
            Column(key="shared_score", title="Score on shared", kind="score", unit="100 = optimum"),
        ),
        rows=tuple(row for several in changed.values() for row in _rows(several, by_id)),
        packs=tuple(dict.fromkeys(manifest.agents[agent].pack for agent in changed)),
        notes=(
            *drift_notes(all_versions),
            "scores of episodes that one version answered alone, all suites together; described, not tested: versions "
            "served at other times and on other episodes",
            "all ended episodes count here, those behind a gap too, which other tables leave out",
        ),
        query=_QUERY,
    )
    return (table,)


_QUERY = """with named as (
    select agent, episode, served_model, fingerprint, count(*) as replies, min(asked_at) as first, max(asked_at) as last
    from steps where served_model <> '' or fingerprint <> '' group by all
),
versions as (
    select agent, served_model, fingerprint, min(first) as first, max(last) as last, sum(replies) as replies,
        count(*) as episodes
    from named group by agent, served_model, fingerprint qualify count(*) over (partition by agent) > 1
),
alone as (
    select n.agent, n.served_model, n.fingerprint, e.suite, e.instance, avg(e.score) as score, count(*) as n
    from (select * from named qualify count(*) over (partition by episode) = 1) n join episodes e using (episode)
    where e.finished group by all
),
marked as (
    select *, count(*) over (partition by agent, suite, instance)
        = (select count(*) from versions v where v.agent = alone.agent) as everybody from alone
)
select v.agent, v.served_model, v.fingerprint,
    strftime(v.first, '%Y-%m-%d %H:%M:%S') as first, strftime(v.last, '%Y-%m-%d %H:%M:%S') as last,
    any_value(v.replies) as replies, any_value(v.episodes) as episodes, coalesce(sum(n), 0) as alone,
    100 * avg(m.score) as score, count(*) filter (where everybody) as shared,
    100 * avg(m.score) filter (where everybody) as shared_score
from versions v left join marked m on m.agent = v.agent and m.served_model = v.served_model
    and m.fingerprint = v.fingerprint
group by v.agent, v.served_model, v.fingerprint, v.first, v.last order by v.agent, v.first"""


def _rows(versions: Sequence[Version], by_id: Mapping[str, EpisodeResult]) -> list[dict[str, Any]]:
    """One row a version of one agent."""
    scores = [_scores(version, versions, by_id) for version in versions]
    shared = set.intersection(*(set(own_scores) for own_scores in scores))
    rows = []
    for version, own_scores in zip(versions, scores, strict=True):
        on_shared = {name: own_scores[name] for name in shared}
        rows.append(
            {
                "agent": version.agent,
                "served_model": version.served_model,
                "fingerprint": version.fingerprint,
                "first": _time(version.first_at),
                "last": _time(version.last_at),
                "replies": version.replies,
                "episodes": len(version.episodes),
                "alone": sum(map(len, own_scores.values())),
                "score": 100 * mean_of_instances(own_scores) if own_scores else None,
                "shared": len(shared),
                "shared_score": 100 * mean_of_instances(on_shared) if on_shared else None,
            }
        )
    return rows


def _scores(
    version: Version, versions: Sequence[Version], by_id: Mapping[str, EpisodeResult]
) -> dict[str, list[float]]:
    """By suite and instance: the scores of the episodes that this version answered alone."""
    others = frozenset().union(*(other.episodes for other in versions if other is not version))
    scores: dict[str, list[float]] = {}
    for name in sorted(version.episodes - others):
        episode = by_id.get(name)
        if episode is not None and episode.score is not None:
            scores.setdefault(f"{episode.suite}:{episode.instance}", []).append(episode.score)
    return scores


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S") if np.isfinite(timestamp) else ""
