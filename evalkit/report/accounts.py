"""The tables about what was done and what it took: completeness, money, speed.

They count everything the log and the ledger hold, also of episodes that no score is based on: it was paid for.
"""

from collections.abc import Iterator, Mapping, Sequence

from evalkit.money import show_usd
from evalkit.report import queries
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, packs_of, where
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.store.files.record import REFUSED
from evalkit.store.manifest import Manifest
from evalkit.store.reading.unmetered import UnmeteredRows, together

ASK_COLUMNS = ("agent", "attempts", "latency_s", "queue_s")
"""What of the requests of agents that are code money and speed ask for."""

LOG_COLUMNS = ("agent", "attempts", "cost", "tokens_in", "tokens_out")
"""What of all rows, superseded ones included, money asks for."""


def completeness_table(source: RunData) -> Table:
    """Suite by agent: what is planned, how it ended, what remains, and what the estimates are based on."""
    cells = source.cells
    struck = any(cell.voided for cell in cells)
    refused = any(cell.refused for cell in cells)
    query = _completeness_query(cells, struck, refused)
    return Table(
        name="completeness",
        title="Completeness",
        columns=(
            *where(cells),
            AGENT,
            Column(key="planned", title="Planned", kind="count", unit="episodes"),
            Column(key="ended", title="Ended", kind="count", unit="episodes"),
            Column(key="owed", title="Remaining", kind="count", unit="episodes"),
            Column(key="begun", title="Begun", kind="count", unit="episodes"),
            *([Column(key="refused", title="Refused", kind="count", unit="episodes")] if refused else []),
            Column(key="prefix", title="Used", kind="count", unit="episodes"),
            Column(key="outside", title="Left out", kind="count", unit="episodes"),
            Column(key="endings", title="Endings", kind="counts", unit="episodes"),
            *([Column(key="void", title="Void", kind="counts", unit="episodes")] if struck else []),
        ),
        rows=tuple(row for _, row in source.by_cell(query, cells)),
        packs=packs_of(cells),
        notes=(
            "ended: by the agent or its environment, and scored; remaining: not played yet, or stopped by an error",
            "begun: remaining, with steps in the log; used: the first episodes, up to the first that has not ended; "
            "scores use these",
            "left out: ended after that one; what ends early is often good, so no estimate uses them",
            *(["of the begun, refused: the provider refused a request, and no score is made of that"] * refused),
            *(["void: excluded, with a reason; in no other column and no score, but paid for"] if struck else []),
        ),
        query=query,
    )


def _completeness_query(cells: Sequence[Cell], struck: bool, refused: bool) -> str:
    voids = [_tallies("voids", "void_reason", "void")] if struck else []
    more = " left join voids using (suite, agent)" if struck else ""
    lines = (
        "with counted as (",
        "    select suite, agent, count(*) filter (where void) as void, count(*) filter (where finished) as ended,",
        "        count(*) filter (where not finished and not void) as begun, count(*) filter (where used) as prefix",
        *([f"        , count(*) filter (where ending = '{REFUSED}') as refused"] if refused else []),
        "    from episodes group by suite, agent",
        "),",
        ",\n".join((_tallies("endings", "ending", "finished"), *voids)),
        f"select {', '.join(queries.place(cells))}, planned - coalesce(counted.void, 0) as planned,",
        "    coalesce(ended, 0) as ended, planned - coalesce(counted.void, 0) - coalesce(ended, 0) as owed,",
        f"    coalesce(begun, 0) as begun,{' coalesce(refused, 0) as refused,' if refused else ''}",
        "    coalesce(prefix, 0) as prefix, coalesce(ended - prefix, 0) as outside,",
        f"    coalesce(endings.n, map {{}}) as endings{', coalesce(voids.n, map {}) as void' if struck else ''}",
        f"from cells left join counted using (suite, agent) left join endings using (suite, agent){more}",
        "order by place",
    )
    return "\n".join(lines)


def _tallies(name: str, word: str, keep: str) -> str:
    """A subquery: by suite and agent, a map from words to how many episodes, the most frequent first."""
    lines = (
        f"{name} as (",
        "    select suite, agent, map_from_entries(list((word, n) order by n desc, word)) as n",
        f"    from (select suite, agent, {word} as word, count(*) as n",
        f"        from episodes where {keep} group by all) group by suite, agent",
        ")",
    )
    return "\n".join(lines)


def money_table(source: RunData) -> Table:
    """By agent: requests, tokens, cost of replies, and charges for attempts that nobody saw the end of; where replies
    came without usage, how many and at what cost.

    Of the source it asks for `steps`, `log` (with `LOG_COLUMNS`) and `ledger`; where an agent is code, for `asks` (with
    `ASK_COLUMNS`).
    """
    manifest = source.manifest
    unmetered = {row.pop("agent"): UnmeteredRows(**row) for row in source.rows(_UNSAID)}
    unsaid = any(rows.replies for rows in unmetered.values())
    query = _MONEY_UNMETERED if unsaid else _MONEY
    left_out = "replies of episodes played again"
    if source.coded:
        left_out += ", and of requests that have not led to a step yet"
        query = query.replace(_REPLIES, _REPLIES_OF_ASKS)
    replayed = source.rows(_REPLAYED)[0]["cost"]
    unpriced = [agent.name for agent in manifest.agents.values() if agent.price is None]
    return Table(
        name="money",
        title="Money",
        columns=(
            AGENT,
            Column(key="requests", title="Requests", kind="count", unit="answered requests"),
            Column(key="tokens_in", title="Tokens in", kind="tokens", unit="tokens"),
            Column(key="tokens_cached_read", title="Cached", kind="tokens", unit="tokens"),
            Column(key="tokens_out", title="Tokens out", kind="tokens", unit="tokens"),
            Column(key="cost_pico_usd", title="Cost", kind="usd", unit="1e-12 USD"),
            Column(key="cost_per_episode_pico_usd", title="Per episode", kind="usd", unit="1e-12 USD"),
            Column(key="charged_pico_usd", title="Charged", kind="usd", unit="1e-12 USD"),
            Column(key="unconfirmed_pico_usd", title="Unconfirmed", kind="usd", unit="1e-12 USD"),
            *(_UNMETERED_COLUMNS if unsaid else ()),
        ),
        rows=tuple(source.rows(query)),
        packs=packs_of(source.cells),
        notes=(
            "cost: of replies, at the prices fixed when the agent joined; per episode: mean over those that ended",
            "charged: attempts of unknown cost, at their worst case; unconfirmed: the worst case of what was in flight "
            "at crashes",
            *(_unmetered_notes(unmetered, manifest)),
            *([f"cost includes {show_usd(replayed)} for {left_out}"] if replayed else []),
            *([f"no price known, counted as free: {', '.join(unpriced)}"] if unpriced else []),
        ),
        query=query,
    )


_UNMETERED_COLUMNS = (
    Column(key="unmetered", title="No usage", kind="count", unit="replies"),
    Column(key="unmetered_pico_usd", title="At worst", kind="usd", unit="1e-12 USD"),
)


def _unmetered_notes(unmetered: Mapping[str, UnmeteredRows], manifest: Manifest) -> Iterator[str]:
    told = together(unmetered, manifest)
    if told.replies:
        yield f"{told.unsaid()}; in the cost, in no usage: replies whose provider did not say what they used"
    if told.doubtful:
        yield told.doubts()
    for agent, rows in unmetered.items():
        if rows.estimated:
            yield (
                f"tokens of {agent}: {rows.tokens_in:,} in and {rows.tokens_out:,} out are estimated from the text "
                f"of {rows.estimated:,} replies"
            )


_UNSAID = """select agent, count(*) filter (where said <> 'doubtful') as replies,
    coalesce(sum(cost) filter (where said <> 'doubtful'), 0) as cost,
    count(*) filter (where said = 'doubtful') as doubtful,
    coalesce(sum(cost) filter (where said = 'doubtful'), 0) as doubtful_cost,
    count(*) filter (where said = 'estimated') as estimated,
    coalesce(sum(tokens_in) filter (where said = 'estimated'), 0) as tokens_in,
    coalesce(sum(tokens_out) filter (where said = 'estimated'), 0) as tokens_out
from (select *, regexp_extract(attempts, '[^,]*$') as said from log)
where said in ('unmetered', 'estimated', 'doubtful') group by agent order by agent"""

_REPLAYED = """select coalesce((select sum(cost) from log), 0) - coalesce((select sum(cost) from steps), 0) as cost"""

_MONEY = """with moved as (
    select if(agent in (select name from agents), agent, '(unassigned)') as agent,
        sum(case kind when 'charge' then amount when 'release' then -amount else 0 end) as charged,
        sum(if(kind = 'crash', amount, 0)) as unconfirmed
    from ledger group by 1
),
everybody as (
    select name as agent, place from agents
    union all select agent, 1 + (select count(*) from agents) from moved
    where agent = '(unassigned)' and (charged <> 0 or unconfirmed <> 0)
),
replies as (
    select agent,
        count(*) filter (where regexp_matches(attempts, '(^|,)(ok|unmetered|estimated|doubtful)$')) as requests,
        sum(tokens_in) as tokens_in,
        sum(tokens_cached_read) as tokens_cached_read, sum(tokens_out) as tokens_out
    from steps group by agent
),
paid as (select agent, sum(cost) as cost from log group by agent),
ended as (select agent, sum(cost) as cost, count(*) as n from episodes where finished group by agent)
select if(grouping(everybody.agent) = 1, 'all', everybody.agent) as agent,
    coalesce(sum(requests), 0) as requests, coalesce(sum(tokens_in), 0) as tokens_in,
    coalesce(sum(tokens_cached_read), 0) as tokens_cached_read, coalesce(sum(tokens_out), 0) as tokens_out,
    coalesce(sum(paid.cost), 0) as cost_pico_usd,
    round_even(sum(ended.cost) / sum(ended.n), 0)::bigint as cost_per_episode_pico_usd,
    coalesce(sum(charged), 0) as charged_pico_usd, coalesce(sum(unconfirmed), 0) as unconfirmed_pico_usd
from everybody left join replies using (agent) left join paid using (agent) left join ended using (agent)
    left join moved using (agent)
group by grouping sets ((everybody.agent, place), ())
qualify grouping(everybody.agent) = 0 or count(*) over () > 2
order by grouping(everybody.agent), place"""

_REPLIES = "    from steps group by agent\n),\npaid as"
_REPLIES_OF_ASKS = """    from (
        select agent, if(agent in (select agent from asks), '', attempts) as attempts,
            tokens_in, tokens_cached_read, tokens_out from steps
        union all select agent, attempts, 0, 0, 0 from asks
    ) group by agent
),
paid as"""
"""Tokens of a step are those of its asks too; what was answered are the asks."""

_MONEY_UNMETERED = _MONEY.replace(
    "\nended as (",
    """
unsaid as (
    select agent, count(*) as n, sum(cost) as cost from log
    where regexp_matches(attempts, '(^|,)(unmetered|estimated)$') group by agent
),
ended as (""",
).replace(
    """ as unconfirmed_pico_usd
from everybody""",
    """ as unconfirmed_pico_usd,
    coalesce(sum(unsaid.n), 0) as unmetered, coalesce(sum(unsaid.cost), 0) as unmetered_pico_usd
from everybody left join unsaid using (agent)""",
)


def speed_table(source: RunData) -> Table:
    """By agent: how long replies took and waited, and the attempts that brought none.

    Of the source it asks for `steps`; where an agent is code, for `asks` (with `ASK_COLUMNS`).
    """
    query = _SPEED_OF_ASKS if source.coded else _SPEED
    return Table(
        name="speed",
        title="Speed",
        columns=(
            AGENT,
            Column(key="requests", title="Requests", kind="count", unit="answered requests"),
            Column(key="latency_median_s", title="Latency", kind="seconds", unit="s"),
            Column(key="latency_p99_s", title="p99", kind="seconds", unit="s"),
            Column(key="queue_median_s", title="Queue", kind="seconds", unit="s"),
            Column(key="queue_p99_s", title="p99", kind="seconds", unit="s"),
            Column(key="failed", title="Failed", kind="count", unit="attempts"),
            Column(key="failures", title="By kind", kind="counts", unit="attempts"),
        ),
        rows=tuple(source.rows(query)),
        packs=packs_of(source.cells),
        notes=(
            "latency: median and 99th percentile of successful attempts; queue: time spent waiting for limits",
            "failed: attempts that failed before a step succeeded; those of steps that never did are in events.jsonl",
        ),
        query=query,
    )


_SPEED = """with vain as (
    select agent, sum(n) as failed, map_from_entries(list((word, n) order by n desc, word)) as failures
    from (
        select agent, word, count(*) as n
        from (select agent, unnest(string_split(attempts, ',')) as word from steps)
        where word not in ('ok', 'unmetered', 'estimated', 'doubtful')
        group by all
    ) group by agent
),
answered as (
    select agent, count(*) as requests,
        quantile_cont(latency_s, 0.5) as latency_median_s, quantile_cont(latency_s, 0.99) as latency_p99_s,
        quantile_cont(queue_s, 0.5) as queue_median_s, quantile_cont(queue_s, 0.99) as queue_p99_s
    from steps where regexp_matches(attempts, '(^|,)(ok|unmetered|estimated|doubtful)$') group by agent
)
select name as agent, coalesce(requests, 0) as requests, latency_median_s, latency_p99_s, queue_median_s, queue_p99_s,
    coalesce(failed, 0)::bigint as failed, coalesce(failures, map {}) as failures
from agents left join answered on answered.agent = name left join vain on vain.agent = name order by place"""


_SPEED_OF_ASKS = _SPEED.replace(" from steps", " from requests").replace(
    "with vain as (",
    """with requests as (
    select agent, attempts, latency_s, queue_s from steps where agent not in (select agent from asks)
    union all select agent, attempts, latency_s, queue_s from asks
),
vain as (""",
)


_QUERY = """with priced as (
    select agent, place, tokens_in, tokens_cached_read, tokens_cached_write, price,
        if(coalesce((price->>'$.over')::bigint, 0) > 0 and tokens_in > (price->>'$.over')::bigint, 'over_', '') as rate
    from steps join agents on agents.name = agent
),
summed as (
    select agent, place, price, rate, sum(tokens_in) as tokens_in, sum(tokens_cached_read) as tokens_cached_read,
        sum(tokens_cached_write) as tokens_cached_write
    from priced group by all
),
rated as (
    select *, coalesce((price->>('$.' || rate || 'input'))::bigint, free) as input,
        coalesce((price->>('$.' || rate || 'cached_read'))::bigint, free) as cached_read,
        coalesce((price->>('$.' || rate || 'cached_write'))::bigint, free) as cached_write
    from (select *, if(price is null, null, 0) as free from summed)
)
select agent, sum(tokens_in) as tokens_in, sum(tokens_cached_read) as tokens_cached_read,
    100.0 * sum(tokens_cached_read) / sum(tokens_in) as read_share, sum(tokens_cached_write) as tokens_cached_write,
    sum(tokens_cached_read * (input - cached_read) + tokens_cached_write * (input - cached_write)) as saved_pico_usd
from rated group by agent, place having sum(tokens_cached_read + tokens_cached_write) > 0 order by place"""


def caching_tables(source: RunData) -> tuple[Table, ...]:
    """By agent whose provider cached anything: its share of input tokens, and the saving in USD. None if none did.

    Of the source it asks for `steps`, with `agent` and the three counts of input tokens.
    """
    rows = source.rows(_QUERY)
    if not rows:
        return ()
    table = Table(
        name="caching",
        title="Prompt caching",
        columns=(
            AGENT,
            Column(key="tokens_in", title="Tokens in", kind="tokens", unit="tokens"),
            Column(key="tokens_cached_read", title="Read", kind="tokens", unit="tokens"),
            Column(key="read_share", title="Share", kind="percent", unit="% of tokens in"),
            Column(key="tokens_cached_write", title="Written", kind="tokens", unit="tokens"),
            Column(key="saved_pico_usd", title="Saved", kind="usd", unit="1e-12 USD"),
        ),
        rows=tuple(rows),
        packs=packs_of(source.cells),
        notes=(
            "read: input tokens that the provider took from its prompt cache; written: those it put there",
            "saved: what the same tokens would have cost without a cache, minus what they cost; negative if writing "
            "cost more than reading saved",
        ),
        query=_QUERY,
    )
    return (table,)
