"""The tables about what was done and what it took: completeness, money, speed.

They count everything the log and the ledger hold, also of episodes that no score is based on: it was paid for.
"""

from collections.abc import Iterator

from evalkit.money import show_usd
from evalkit.report import queries
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, cell_table, packs_of
from evalkit.report.tables import Column, Table, columns_of
from evalkit.store.files.record import REFUSED
from evalkit.store.reading.unmetered import UnmeteredReplies

ASK_COLUMNS = ("agent", "attempts", "latency_s", "queue_s")
"""What of the requests of agents that are code money and speed ask for."""

LOG_COLUMNS = ("agent", "attempts", "cost", "saved", "tier", "tokens_in", "tokens_out")
"""What of all rows, superseded ones included, money asks for."""


def completeness_table(source: RunData) -> Table:
    """Suite by agent: what is planned, how it ended, what remains, and what the estimates are based on."""
    cells = source.cells
    struck = any(cell.voided for cell in cells)
    refused = any(cell.refused for cell in cells)
    voids = ",\n" + _TALLIES.format(name="voids", word="void_reason", keep="void")
    query = _COMPLETENESS.format(
        counted=f"\n        , count(*) filter (where ending = '{REFUSED}') as refused" if refused else "",
        endings=_TALLIES.format(name="endings", word="ending", keep="finished"),
        voids=voids if struck else "",
        places=", ".join(queries.place(cells)),
        refused=" coalesce(refused, 0) as refused," if refused else "",
        void=", coalesce(voids.n, map {}) as void" if struck else "",
        joined=" left join voids using (suite, agent)" if struck else "",
    )
    return cell_table(
        source,
        cells,
        name="completeness",
        title="Completeness",
        query=query,
        columns=(
            *columns_of("count", "episodes", planned="Planned", ended="Ended", remaining="Remaining", begun="Begun"),
            *columns_of("count", "episodes", **{"refused": "Refused"} if refused else {}),
            *columns_of("count", "episodes", prefix="Used", outside="Left out"),
            *columns_of("counts", "episodes", endings="Endings", **{"void": "Void"} if struck else {}),
        ),
        notes=lambda _: (
            "ended: by the agent or its environment, and scored; remaining: not played yet, or stopped by an error",
            "begun: remaining, with steps in the log; used: the first episodes, up to the first that has not ended; "
            "scores use these",
            "left out: ended after that one; what ends early is often good, so no estimate uses them",
            *(["of the begun, refused: the provider refused a request, and no score is made of that"] * refused),
            *(["void: excluded, with a reason; in no other column and no score, but paid for"] if struck else []),
        ),
    )


_COMPLETENESS = """with counted as (
    select suite, agent, count(*) filter (where void) as void, count(*) filter (where finished) as ended,
        count(*) filter (where not finished and not void) as begun, count(*) filter (where used) as prefix{counted}
    from episodes group by suite, agent
),
{endings}{voids}
select {places}, planned - coalesce(counted.void, 0) as planned,
    coalesce(ended, 0) as ended, planned - coalesce(counted.void, 0) - coalesce(ended, 0) as remaining,
    coalesce(begun, 0) as begun,{refused}
    coalesce(prefix, 0) as prefix, coalesce(ended - prefix, 0) as outside,
    coalesce(endings.n, map {{}}) as endings{void}
from cells left join counted using (suite, agent) left join endings using (suite, agent){joined}
order by place"""

_TALLIES = """{name} as (
    select suite, agent, map_from_entries(list((word, n) order by n desc, word)) as n
    from (select suite, agent, {word} as word, count(*) as n
        from episodes where {keep} group by all) group by suite, agent
)"""
"""A subquery: by suite and agent, a map from words to how many episodes, the most frequent first."""


def money_table(source: RunData) -> Table:
    """By agent: requests, tokens, cost of replies, and charges for attempts that nobody saw the end of; where replies
    came without usage, how many and at what cost.

    Of the source it asks for `steps`, `log` (with `LOG_COLUMNS`) and `ledger`; where an agent is code, for `asks` (with
    `ASK_COLUMNS`).
    """
    unmetered = UnmeteredReplies(**source.rows(_UNSAID)[0])
    query = _MONEY_UNMETERED if unmetered.replies else _MONEY
    tiers = source.rows(_OTHER_TIERS)[0]["n"] > 0
    if tiers:
        query = query.replace(*_BY_TIER).replace(*_WITH_TIERS).replace(*_JOINED_TIERS)
    left_out = "replies of episodes played again"
    if source.coded:
        left_out += ", and of requests that have not led to a step yet"
        query = query.replace(_REPLIES, _REPLIES_OF_ASKS)
    replayed = source.rows(_REPLAYED)[0]["cost"]
    return Table(
        name="money",
        title="Money",
        columns=(
            AGENT,
            Column(key="requests", title="Requests", kind="count", unit="answered requests"),
            *columns_of(
                "tokens", "tokens", tokens_in="Tokens in", tokens_cached_read="Cached", tokens_out="Tokens out"
            ),
            *columns_of(
                "usd",
                "1e-12 USD",
                cost_pico_usd="Cost",
                cost_per_episode_pico_usd="Per episode",
                charged_pico_usd="Charged",
                unconfirmed_pico_usd="Unconfirmed",
            ),
            *(_TIER_COLUMNS if tiers else ()),
            *(_UNMETERED_COLUMNS if unmetered.replies else ()),
        ),
        rows=tuple(source.rows(query)),
        packs=packs_of(source.cells),
        notes=(
            "cost: of replies, at the prices fixed when the agent joined; per episode: mean over those that ended",
            "charged: attempts of unknown cost, at their worst case; unconfirmed: the worst case of what was in flight "
            "at crashes",
            *(
                ["by tier: replies by the tier that served them; standard alone: what they would have cost by it"]
                * tiers
            ),
            *_unmetered_notes(unmetered),
            *([f"cost includes {show_usd(replayed)} for {left_out}"] if replayed else []),
        ),
        query=query,
    )


_TIER_COLUMNS = (
    Column(key="tiers", title="By tier", kind="counts", unit="replies"),
    Column(key="standard_pico_usd", title="Standard alone", kind="usd", unit="1e-12 USD"),
)

_UNMETERED_COLUMNS = (
    Column(key="unmetered", title="No usage", kind="count", unit="replies"),
    Column(key="unmetered_pico_usd", title="At worst", kind="usd", unit="1e-12 USD"),
)


def _unmetered_notes(told: UnmeteredReplies) -> Iterator[str]:
    if told.replies:
        yield f"{told.unsaid()}; in the cost, in no usage: replies whose provider did not say what they used"
    if told.doubtful:
        yield told.doubts()


_UNSAID = """select count(*) filter (where said = 'unmetered') as replies,
    coalesce(sum(cost) filter (where said = 'unmetered'), 0) as cost,
    count(*) filter (where said = 'doubtful') as doubtful,
    coalesce(sum(cost) filter (where said = 'doubtful'), 0) as doubtful_cost
from (select cost, regexp_extract(attempts, '[^,]*$') as said from log)"""

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
        count(*) filter (where regexp_matches(attempts, '(^|,)(ok|unmetered|doubtful)$')) as requests,
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
    where regexp_matches(attempts, '(^|,)unmetered$') group by agent
),
ended as (""",
).replace(
    """ as unconfirmed_pico_usd
from everybody""",
    """ as unconfirmed_pico_usd,
    coalesce(sum(unsaid.n), 0) as unmetered, coalesce(sum(unsaid.cost), 0) as unmetered_pico_usd
from everybody left join unsaid using (agent)""",
)


_OTHER_TIERS = "select count(*) as n from log where tier not in ('', 'standard') or saved <> 0"
_BY_TIER = (
    "\nended as (",
    """
tiered as (
    select coalesce(agent, '') as agent, map_from_entries(list((word, n) order by n desc, word)) as tiers,
        sum(standard) as standard
    from (
        select agent, if(tier = '', 'not named', tier) as word, sum(cost + saved) as standard,
            count(*) filter (where regexp_matches(attempts, '(^|,)(ok|unmetered|doubtful)$')) as n
        from log group by rollup (word, agent) having grouping(word) = 0
    ) where n > 0 group by agent
),
ended as (""",
)
"""Also of all agents together, under an empty name."""
_WITH_TIERS = (
    """ as unconfirmed_pico_usd""",
    """ as unconfirmed_pico_usd,
    coalesce(if(grouping(everybody.agent) = 1, (select tiers from tiered where agent = ''), any_value(tiered.tiers)),
        map {}) as tiers,
    coalesce(sum(tiered.standard), 0) as standard_pico_usd""",
)
_JOINED_TIERS = (
    "left join ended using (agent)",
    "left join ended using (agent)\n    left join tiered on tiered.agent = everybody.agent",
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
            *columns_of(
                "seconds",
                "s",
                latency_median_s="Latency",
                latency_p99_s="p99",
                queue_median_s="Queue",
                queue_p99_s="p99",
            ),
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
        where word not in ('ok', 'unmetered', 'doubtful')
        group by all
    ) group by agent
),
answered as (
    select agent, count(*) as requests,
        quantile_cont(latency_s, 0.5) as latency_median_s, quantile_cont(latency_s, 0.99) as latency_p99_s,
        quantile_cont(queue_s, 0.5) as queue_median_s, quantile_cont(queue_s, 0.99) as queue_p99_s
    from steps where regexp_matches(attempts, '(^|,)(ok|unmetered|doubtful)$') group by agent
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
            *columns_of("tokens", "tokens", tokens_in="Tokens in", tokens_cached_read="Read"),
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
