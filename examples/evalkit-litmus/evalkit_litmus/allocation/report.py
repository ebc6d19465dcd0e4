"""What reports have of allocation: the litmus score, and how reliably an agent does what it is told."""

from typing import Any

from evalkit.extend import Column, Extras, RunData, Table

QUERY = """\
with means as (
    select agent, instance, axes,
        favg(metrics['litmus'] order by suite, replicate) as litmus,
        favg(metrics['reliable_efficiency'] order by suite, replicate) as efficiency,
        favg(metrics['reliable_equality'] order by suite, replicate) as equality, count(*) as episodes
    from episodes where used and environment = 'allocation' group by all
)
select agent, favg(litmus order by instance, axes) as litmus,
    (favg(efficiency order by instance, axes) + favg(equality order by instance, axes)) / 2 as reliability,
    favg(efficiency order by instance, axes) as efficiency, favg(equality order by instance, axes) as equality,
    sum(episodes)::bigint as episodes
from means group by agent order by agent"""


def tables(run: RunData) -> tuple[Table, ...]:
    """One table, where anybody has played; none elsewhere."""
    rows: list[dict[str, Any]] = run.rows(QUERY)
    table = Table(
        name="allocation_litmus",
        title="Allocation: efficiency or equality",
        columns=(
            Column(key="agent", title="Agent"),
            Column(key="litmus", title="Litmus", kind="number", unit="1 = efficiency, 0 = equality"),
            Column(key="reliability", title="Reliability", kind="number", unit="1 = does what it is told"),
            Column(key="efficiency", title="Told efficiency", kind="number", unit="revenue, share of the highest"),
            Column(key="equality", title="Told equality", kind="number", unit="1 - inequality, share of the highest"),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(rows),
        packs=tuple(dict.fromkeys(cell.pack for cell in run.cells if cell.suite.environment == "allocation")),
        notes=(
            "litmus: where the plan lies between equal pay (0) and the highest revenue (1), told both aims; mean over "
            "instances",
            "reliability: the mean of the two columns after it; none without both",
        ),
        query=QUERY,
    )
    return (table,) if rows else ()


EXTRAS = Extras(tables=tables)
