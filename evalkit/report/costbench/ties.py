"""Which runs took an optimal path that is not the reference's: what its exact match counts as a failure.

Up to 7 % of instances have several paths of the same cost; the reference compares with one of them. Source:
specification, section 6.4.
"""

from collections.abc import Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.costbench.planning_cells import counted
from evalkit.report.costbench.planning_queries import COUNTED
from evalkit.report.run_data import place
from evalkit.report.scores import AGENT, packs_of, where
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell

MOST_NAMED = 40


def ties_tables(cells: Sequence[Cell]) -> tuple[Table, ...]:
    """One row a cell in which some run was optimal on another path than the reference's; none where there is none."""
    rows = [row for cell in cells if (row := _row(cell)) is not None]
    if not rows:
        return ()
    shown = [cell for cell in cells if _tied(cell)]
    table = Table(
        name="planning_ties",
        title="Optimal on another path than the reference's",
        columns=(
            *where(shown),
            AGENT,
            Column(key="runs", title="Runs", kind="count"),
            Column(key="instances", title="Instances", kind="count"),
            Column(key="which", title="Which"),
        ),
        rows=tuple(rows),
        packs=packs_of(shown),
        notes=("as cheap as the reference's path, or optimal from where it was taken; not the same calls",),
        query=_query(shown),
    )
    return (table,)


def _query(cells: Sequence[Cell]) -> str:
    tied = f"{COUNTED} and metrics['exact_any'] = 1 and metrics['exact'] = 0"
    lines = (
        f"-- which: the first {MOST_NAMED} of these instances by name",
        f"select {', '.join(queries.place(cells))}, count(*) as runs, count(distinct instance) as instances",
        f"from episodes where used and {queries.suites(cells)} and {tied} group by all order by all",
    )
    return "\n".join(lines)


def _row(cell: Cell) -> dict[str, Any] | None:
    tied = _tied(cell)
    if not tied:
        return None
    ids = sorted(set(tied))
    rest = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return {
        **place(cell),
        "runs": len(tied),
        "instances": len(ids),
        "which": ", ".join(ids[:MOST_NAMED]) + rest,
    }


def _tied(cell: Cell) -> list[str]:
    """Instances of the runs that were optimal and not exact."""
    return [
        episode.instance
        for episode in cell.prefix
        if counted(episode) and episode.metrics["exact_any"] and not episode.metrics["exact"]
    ]
