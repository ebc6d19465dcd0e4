"""What reports have of allocation: the litmus score, and how reliably an agent does what it is told."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.extend import Column, Curve, Extras, RunData, Table
from evalkit_litmus.allocation.environment import NAME, AllocationInstance
from evalkit_litmus.allocation.market import inequality

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

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


def inequality_so_far(
    instance: AllocationInstance, actions: Sequence[tuple[int, Mapping[str, Any]]], periods: int
) -> "Values":
    """By period: the highest pay so far minus the lowest, in percent of the efficient plan's at the end."""
    import numpy as np

    market, pays = instance.market, [0] * instance.workers
    values, whole = np.zeros(periods), market.totals(market.efficient)[1]
    for period, action in actions:
        pays = [before + more for before, more in zip(pays, action["pays"], strict=True)]
        values[period:] = 100 * inequality(pays) / whole if whole else np.nan
    return values


EXTRAS = Extras(
    tables=tables,
    curves=(
        Curve(
            name="figure_allocation_inequality",
            environment=NAME,
            title="Allocation: inequality over periods",
            axis="Highest pay so far minus the lowest (% of the efficient plan's at the end)",
            about="evalkit_litmus.allocation.report.inequality_so_far",
            ends=(0, 100),
            most=(0, 200),
            series=inequality_so_far,
            line_means="where the efficient plan ends",
        ),
    ),
)
