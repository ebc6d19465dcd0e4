"""Which runs took an optimal path that is not the reference's: what its exact match counts as a failure.

Up to 7 % of instances have several paths of the same cost; the reference compares with one of them. Source:
specification, section 6.4.
"""

from collections.abc import Sequence

from evalkit.report import queries
from evalkit.report.costbench.planning_queries import COUNTED
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, packs_of, where
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell

MOST_NAMED = 40


_TIED = f"used and {COUNTED} and metrics['exact_any'] = 1 and metrics['exact'] = 0"


def ties_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """One row a cell in which some run was optimal on another path than the reference's; none if there is none."""
    if not cells:
        return ()
    tied = {(row["suite"], row["agent"]) for row in source.rows(" ".join((_CELLS, _TIED, "group by all")))}
    shown = [cell for cell in cells if (cell.suite.name, cell.agent) in tied]
    if not shown:
        return ()
    query = _query(shown)
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
        rows=tuple(row for _, row in source.by_cell(query, shown)),
        packs=packs_of(shown),
        notes=("as cheap as the reference's path, or optimal from where it was taken; not the same calls",),
        query=query,
    )
    return (table,)


_CELLS = "select suite, agent from episodes where"


def _query(cells: Sequence[Cell]) -> str:
    lines = (
        f"select {', '.join(queries.place(cells))}, runs, len(names) as instances,",
        f"    array_to_string(names[:{MOST_NAMED}], ', ')",
        f"        || if(len(names) > {MOST_NAMED}, ' and ' || (len(names) - {MOST_NAMED}) || ' more', '') as which",
        "from cells join (",
        "    select suite, agent, count(*) as runs, list(distinct instance order by instance) as names",
        f"    from episodes where {_TIED} group by all",
        f") using (suite, agent) where {queries.suites(cells)} order by place",
    )
    return "\n".join(lines)
