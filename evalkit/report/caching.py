"""What the providers' prompt caches did for a run: tokens read from them and written to them, and what that saved."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.money import Price
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.store.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY = """with priced as (
    select agent, tokens_in, tokens_cached_read, tokens_cached_write, price,
        if(coalesce((price->>'$.over')::bigint, 0) > 0 and tokens_in > (price->>'$.over')::bigint, 'over_', '') as rate
    from steps join agents on agents.name = agent
)
select agent, sum(tokens_in) as tokens_in, sum(tokens_cached_read) as tokens_cached_read,
    100.0 * sum(tokens_cached_read) / sum(tokens_in) as read_share, sum(tokens_cached_write) as tokens_cached_write,
    sum(tokens_cached_read * (
            (price->>('$.' || rate || 'input'))::bigint - (price->>('$.' || rate || 'cached_read'))::bigint)
        + tokens_cached_write * (
            (price->>('$.' || rate || 'input'))::bigint - (price->>('$.' || rate || 'cached_write'))::bigint)
    ) as saved_pico_usd
from priced group by agent having sum(tokens_cached_read + tokens_cached_write) > 0 order by agent"""

_SUMMED = ("tokens_in", "tokens_cached_read", "tokens_cached_write")


def caching_tables(manifest: Manifest, cells: Sequence[Cell], steps: "pa.Table") -> tuple[Table, ...]:
    """By agent whose provider cached anything: its share of input tokens, and the saving in USD. None if none did.

    `steps` holds `agent` and the three counts of input tokens.
    """
    from pyarrow import compute

    rows: list[Mapping[str, Any]] = []
    for agent in manifest.agents.values():
        own_steps = steps.filter(compute.equal(steps.column("agent"), agent.name)).select(_SUMMED)
        price = None if agent.price is None else Price(**agent.price)
        tokens = _sums(own_steps)
        if tokens["tokens_cached_read"] or tokens["tokens_cached_write"]:
            share = 100.0 * tokens["tokens_cached_read"] / tokens["tokens_in"]
            saved = None if price is None else _saved(own_steps, price)
            rows.append({"agent": agent.name, **tokens, "read_share": share, "saved_pico_usd": saved})
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
        packs=packs_of(cells),
        notes=(
            "read: input tokens that the provider took from its prompt cache; written: those it put there",
            "saved: what the same tokens would have cost uncached, less what they cost, at the frozen prices; below "
            "zero where writing cost more than reading saved",
        ),
        query=_QUERY,
    )
    return (table,)


def _sums(steps: "pa.Table") -> dict[str, int]:
    from pyarrow import compute

    return {name: compute.sum(steps.column(name), min_count=0).as_py() for name in _SUMMED}


def _saved(steps: "pa.Table", price: Price) -> int:
    """Pico-dollars. A long prompt's tokens have rates of their own, cached or not."""
    from pyarrow import compute

    if not price.over:
        return _saved_at(steps, price.input, price.cached_read, price.cached_write)
    is_long = compute.greater(steps.column("tokens_in"), price.over)
    return _saved_at(
        steps.filter(compute.invert(is_long)), price.input, price.cached_read, price.cached_write
    ) + _saved_at(steps.filter(is_long), price.over_input, price.over_cached_read, price.over_cached_write)


def _saved_at(steps: "pa.Table", plain: int, read: int, write: int) -> int:
    tokens = _sums(steps)
    return tokens["tokens_cached_read"] * (plain - read) + tokens["tokens_cached_write"] * (plain - write)
