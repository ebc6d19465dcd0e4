"""What the providers' prompt caches did for a run: tokens read from them and written to them, and what that saved."""

from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table

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
            "saved: what the same tokens would have cost uncached, less what they cost, at the frozen prices; below "
            "zero where writing cost more than reading saved",
        ),
        query=_QUERY,
    )
    return (table,)
