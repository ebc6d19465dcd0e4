"""Whether a provider changed what it serves while a run continued: the model's name or its fingerprint, by agent.

A model behind an alias can be replaced at any hour. Where an agent's replies came from several versions, its scores are
those of a mixture; the table says from when to when each served, and what the episodes that it played alone scored.
That is a description: versions served at different times and on different episodes, so no test is made of it.
Of an agent that is code, what its models replied is told by role.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evalkit.envs.known import score_unit
from evalkit.report.run_data import RunData
from evalkit.report.scores import litmus_of
from evalkit.report.tables import Column, Table, columns_of

COLUMNS = ("episode", "agent", "served_model", "fingerprint", "started_at")
"""What of the log it reads."""

ASK_COLUMNS = ("episode", "agent", "ask_line", "facts", "served_model", "fingerprint", "started_at")
"""What of requests of agents that are code."""

DRIFT = "drift: "
"""What a note of an agent that drifted begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One thing that answered as an agent."""

    agent: str
    role: str = ""
    """Of an agent that is code: which of its models."""
    served_model: str
    fingerprint: str
    first: str
    """When its first reply was asked for: date and time, UTC."""


def versions(source: RunData) -> list[Version]:
    """What answered, by agent in order of names, each in order of its first reply; replies without a name left out.

    Of the source it asks for `steps`, with `COLUMNS`; where an agent is code, for `asks` (with `ASK_COLUMNS`).
    """
    return [Version(**row) for row in source.rows(_sql(_VERSIONS, source))]


def drift_notes(versions: Sequence[Version]) -> tuple[str, ...]:
    """One line for each agent, or role of one that is code, that more than one version answered for."""
    by_role: dict[tuple[str, str], list[Version]] = {}
    for version in versions:
        by_role.setdefault((version.agent, version.role), []).append(version)
    return tuple(
        f"{DRIFT}{agent}{role and f' ({role})'} was served by {len(several)} versions; "
        f"the first change was seen {several[1].first}"
        for (agent, role), several in by_role.items()
        if len(several) > 1
    )


def drift_tables(source: RunData) -> tuple[Table, ...]:
    """The versions of the agents that drifted, with their scores; none if nobody did."""
    notes = drift_notes(versions(source))
    if not notes:
        return ()
    query, unit = _sql(_QUERY, source), score_unit(litmus_of(source.cells))
    rows = source.rows(query)
    table = Table(
        name="drift",
        title="Served versions",
        columns=(
            Column(key="agent", title="Agent", group=True),
            *([Column(key="role", title="Role")] if source.coded else []),
            *columns_of(served_model="Served model", fingerprint="Fingerprint", first="First (UTC)", last="Last (UTC)"),
            *columns_of("count", replies="Replies", episodes="Episodes"),
            Column(key="alone", title="alone", kind="count", unit="scored episodes that no other version answered in"),
            Column(key="score", title="Score of these", kind="score", unit=unit),
            Column(key="shared", title="Shared", kind="count", unit="instances that every version scored"),
            Column(key="shared_score", title="Score on shared", kind="score", unit=unit),
        ),
        rows=tuple(rows),
        packs=tuple(dict.fromkeys(source.manifest.agents[row["agent"]].pack for row in rows)),
        notes=(
            *notes,
            "scores of episodes that one version answered alone, all suites together; described, not tested: versions "
            "served at other times and on other episodes",
            "all ended episodes count here, also those after one that has not ended, which other tables leave out",
        ),
        query=query,
    )
    return (table,)


def _sql(query: str, source: RunData) -> str:
    """A query as the source's agents need it."""
    if source.coded:
        return query.format(
            answers=_ANSWERS,
            source="answers",
            role=" role,",
            n_role=" n.role,",
            v_role=" v.role,",
            alone_role=" and v.role = alone.role",
            m_role=" and m.role = v.role",
        )
    return query.format(answers="", source="steps", role="", n_role="", v_role="", alone_role="", m_role="")


_ANSWERS = """answers as (
    select agent, '' as role, episode, served_model, fingerprint, asked_at from steps
    union all select agent, role, episode, served_model, fingerprint, asked_at
    from (select * from asks qualify line = max(line) over (partition by episode))
),
"""
"""The steps of agents that are code name no model: their requests do, those of the episode's last take."""

_NAMED = """with {answers}named as (
    select agent,{role} episode, served_model, fingerprint, count(*) as replies, min(asked_at) as first,
        max(asked_at) as last
    from {source} where served_model <> '' or fingerprint <> '' group by all
),
versions as (
    select agent,{role} served_model, fingerprint, min(first) as first, max(last) as last, sum(replies) as replies,
        count(*) as episodes, count(*) over (partition by{role} agent) as versions
    from named group by agent,{role} served_model, fingerprint
)"""

_VERSIONS = "\n".join(
    (
        _NAMED,
        """\
select agent,{role} served_model, fingerprint, coalesce(strftime(first, '%Y-%m-%d %H:%M:%S'), '') as first
from versions order by agent,{role} versions.first, served_model, fingerprint""",
    )
)

_QUERY = "\n".join(
    (
        f"{_NAMED},",
        """\
alone as (
    select n.agent,{n_role} n.served_model, n.fingerprint, e.suite, e.instance,
        favg(e.score order by e.replicate) as score, count(*) as n
    from (select * from named qualify count(*) over (partition by{role} episode) = 1) n join episodes e using (episode)
    where e.finished group by all
),
marked as (
    select *, count(*) over (partition by agent,{role} suite, instance)
        = (select count(*) from versions v where v.agent = alone.agent{alone_role}) as everybody from alone
)
select v.agent,{v_role} v.served_model, v.fingerprint,
    coalesce(strftime(v.first, '%Y-%m-%d %H:%M:%S'), '') as first,
    coalesce(strftime(v.last, '%Y-%m-%d %H:%M:%S'), '') as last,
    any_value(v.replies) as replies, any_value(v.episodes) as episodes, coalesce(sum(n), 0) as alone,
    100 * favg(m.score order by suite, instance) as score, count(*) filter (where everybody) as shared,
    100 * favg(m.score order by suite, instance) filter (where everybody) as shared_score
from versions v left join marked m on m.agent = v.agent{m_role} and m.served_model = v.served_model
    and m.fingerprint = v.fingerprint
where v.versions > 1
group by v.agent,{v_role} v.served_model, v.fingerprint, v.first, v.last
order by v.agent,{v_role} v.first, v.served_model, v.fingerprint""",
    )
)
