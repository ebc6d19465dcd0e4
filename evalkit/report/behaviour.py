"""The tables about how agents went about it and what answered as them: behaviour, refused calls, served versions.

The first two are based on the episodes that scores are. A model behind an alias can be replaced at any hour. Where an
agent's replies came from several versions, its scores are those of a mixture; the table says from when to when each
served, and what the episodes that it played alone scored. That is a description: versions served at different times and
on different episodes, so no test is made of it. Of an agent that is code, what its models replied is told by role.
"""

from collections.abc import Sequence
from datetime import datetime

from evalkit.envs.table import one_chats, score_unit, shares_of
from evalkit.report import queries
from evalkit.report.run_data import Row, RunData
from evalkit.report.scores import AGENT, METRICS, cell_table, litmus_of, packs_of
from evalkit.report.tables import Column, Table, columns_of


def behaviour_table(source: RunData) -> Table:
    """Suite by agent: the secondary metrics that its environment has, and how it used its turns."""
    cells = source.cells
    played = [cell.suite.environment for cell in cells]
    shares = shares_of(played)
    titles = {**METRICS, **{name: share.title for name, share in shares.items()}}
    metric_names = {name for cell in cells for episode in cell.prefix for name in episode.metrics}
    metrics = [name for name in titles if name in metric_names]
    chats = one_chats(played)
    divided = not cells or not set(played) <= set(chats)
    acting = f"environment not in ({', '.join(map(queries.text, chats))})" if chats else "true"
    figures = (
        *(queries.mean(name, queries.metric(name), scale=100) for name in metrics),
        queries.inside("silent", f"sum(no_action) filter (where {acting})"),
        queries.inside("acted", f"sum(periods) filter (where {acting})"),
        queries.derived("no_action", "100 * sum(silent) / sum(acted)"),
        queries.inside("all_steps", "sum(steps)"),
        queries.inside("all_periods", "sum(periods)"),
        queries.derived("turns_per_period", "sum(all_steps) / sum(all_periods)"),
        queries.count("unresponsive", "ending = 'unresponsive'"),
        queries.count("episodes"),
    )
    notes = (
        "best so far: % of accepted actions better than all before; exploration: % that were new"
        + "".join(f"; {share.title.lower()}: {share.about}" for name, share in shares.items() if name in metrics),
        "no action: % of periods without an accepted action; unresponsive: episodes that ended because of them; "
        "turns: per period",
    )
    return cell_table(
        source,
        cells,
        name="behaviour",
        title="Behaviour",
        query=queries.by_cell(cells, figures, keep=""),
        columns=(
            *columns_of("percent", "% of actions", **{name: titles[name] for name in metrics}),
            *[Column(key="no_action", title="No action", kind="percent", unit="% of periods")] * divided,
            Column(key="turns_per_period", title="Turns", kind="number", unit="turns per period"),
            *[Column(key="unresponsive", title="Unresponsive", kind="count", unit="episodes")] * divided,
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        notes=lambda _: notes if divided else ("turns: per episode",),
    )


def refusals_table(source: RunData) -> Table:
    """By agent: the outcomes of its tool calls, and replies without one."""
    return Table(
        name="refusals",
        title="Refused calls",
        columns=(
            AGENT,
            Column(key="replies_without_call", title="No call", kind="count", unit="replies"),
            Column(key="calls", title="Calls", kind="count"),
            Column(key="refused", title="Refused", kind="percent", unit="% of calls"),
            Column(key="outcomes", title="By kind", kind="counts", unit="calls"),
        ),
        rows=tuple(source.rows(_REFUSALS)),
        packs=packs_of(source.cells),
        notes=(
            "over the episodes that scores are based on; no call: replies without a tool call; refused: calls with "
            "another outcome than `ok`",
        ),
        query=_REFUSALS,
    )


_REFUSALS = """with counted as (
    select agent, outcome, sum(calls)::bigint as n
    from (select agent, unnest(outcomes, recursive := true) from episodes where used) group by all
),
silent as (select agent, sum(without_call) as n from episodes where used group by agent)
select name as agent, coalesce(any_value(silent.n), 0) as replies_without_call,
    coalesce(sum(counted.n), 0) as calls,
    100 * coalesce(sum(counted.n) filter (where outcome <> 'ok'), 0) / nullif(calls, 0) as refused,
    coalesce(map_from_entries(list((outcome, counted.n) order by counted.n desc, outcome)
        filter (where outcome <> 'ok')), map {}) as outcomes
from agents left join silent on silent.agent = name left join counted on counted.agent = name
group by name, place order by place"""


SERVED_COLUMNS = ("episode", "agent", "served_model", "fingerprint", "started_at")
"""What of the log `versions` reads."""

SERVED_ASK_COLUMNS = (*SERVED_COLUMNS, "base_take", "facts")
"""What of requests of agents that are code."""

DRIFT = "drift: "
"""What a note of an agent that drifted begins with."""


def versions(source: RunData) -> list[Row]:
    """What answered, by agent in order of names, each in order of its first reply; replies without a name left out.

    `agent`, `role` (of an agent that is code: which of its models), `served_model`, `fingerprint`, `first` and `last`
    (date and time, UTC), `versions` (of the same agent and role), and the figures of the table. Of the source it asks
    for `steps`, with `SERVED_COLUMNS`; where an agent is code, for `asks` (with `SERVED_ASK_COLUMNS`).
    """
    return source.rows(_versions_query(source))


def played_times(source: RunData) -> dict[str, tuple[datetime, datetime]]:
    """By agent: when its first and its last request began, UTC. Of the source it asks for `steps`, as `versions`."""
    rows = source.rows("select agent, min(asked_at) as first, max(asked_at) as last from steps group by agent")
    return {row["agent"]: (row["first"], row["last"]) for row in rows}


def drift_notes(versions: Sequence[Row]) -> tuple[str, ...]:
    """One line for each agent, or role of one that is code, that more than one version answered for."""
    by_role: dict[tuple[str, str], list[Row]] = {}
    for version in versions:
        by_role.setdefault((version["agent"], version["role"]), []).append(version)
    return tuple(
        f"{DRIFT}{agent}{role and f' ({role})'} was served by {len(several)} versions; "
        f"the first change was seen {several[1]['first']}"
        for (agent, role), several in by_role.items()
        if len(several) > 1
    )


def drift_tables(source: RunData) -> tuple[Table, ...]:
    """The versions of the agents that drifted, with their scores; none if nobody did."""
    query = _versions_query(source, "where v.versions > 1")
    rows = source.rows(query)
    if not rows:
        return ()
    unit = score_unit(litmus_of(source.cells))
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
            *drift_notes(rows),
            "scores of episodes that one version answered alone, all suites together; described, not tested: versions "
            "served at other times and on other episodes",
            "all ended episodes count here, also those after one that has not ended, which other tables leave out",
        ),
        query=query,
    )
    return (table,)


def _versions_query(source: RunData, which: str = "") -> str:
    return _VERSIONS.format(asked=_ASKED if source.coded else "", which=which)


_ASKED = """
    union all select agent, role, episode, served_model, fingerprint, asked_at
    from (select * from asks qualify line = max(line) over (partition by episode))"""
"""The steps of agents that are code name no model: their requests do, those of the episode's last take."""

_VERSIONS = """with answers as (
    select agent, '' as role, episode, served_model, fingerprint, asked_at from steps{asked}
),
named as (
    select agent, role, episode, served_model, fingerprint, count(*) as replies, min(asked_at) as first,
        max(asked_at) as last
    from answers where served_model <> '' or fingerprint <> '' group by all
),
versions as (
    select agent, role, served_model, fingerprint, min(first) as first, max(last) as last, sum(replies) as replies,
        count(*) as episodes, count(*) over (partition by role, agent) as versions
    from named group by agent, role, served_model, fingerprint
),
alone as (
    select n.agent, n.role, n.served_model, n.fingerprint, e.suite, e.instance,
        favg(e.score order by e.replicate) as score, count(*) as n
    from (select * from named qualify count(*) over (partition by role, episode) = 1) n join episodes e using (episode)
    where e.finished group by all
),
marked as (
    select *, count(*) over (partition by agent, role, suite, instance)
        = (select count(*) from versions v where v.agent = alone.agent and v.role = alone.role) as everybody from alone
)
select v.agent, v.role, v.served_model, v.fingerprint,
    coalesce(strftime(v.first, '%Y-%m-%d %H:%M:%S'), '') as first,
    coalesce(strftime(v.last, '%Y-%m-%d %H:%M:%S'), '') as last, any_value(v.versions) as versions,
    any_value(v.replies) as replies, any_value(v.episodes) as episodes, coalesce(sum(n), 0) as alone,
    100 * favg(m.score order by suite, instance) as score, count(*) filter (where everybody) as shared,
    100 * favg(m.score order by suite, instance) filter (where everybody) as shared_score
from versions v left join marked m on m.agent = v.agent and m.role = v.role and m.served_model = v.served_model
    and m.fingerprint = v.fingerprint
{which}
group by v.agent, v.role, v.served_model, v.fingerprint, v.first, v.last
order by v.agent, v.role, v.first, v.served_model, v.fingerprint"""
