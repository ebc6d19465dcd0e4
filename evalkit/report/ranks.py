"""How far behaviour and score rank agents alike: Spearman's correlation over agents, for each measure of behaviour.

The numbers are those of the figures of score against behaviour (`figures/behaviour.py`), an environment each.
"""

from collections.abc import Sequence

from evalkit.report.figures.behaviour import LEAST_RANKED, MEASURES, behaviour_figures, spearman
from evalkit.report.scores import packs_of
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell


def ranks_table(agents: Sequence[str], tables: Sequence[Table], cells: Sequence[Cell]) -> Table:
    """One row a measure of an environment; without rows where no environment has agents enough.

    agents  all of the run, in the manifest's order
    tables  the report's, made of the same cells
    cells   as of `behaviour_figures`
    """
    rows = []
    queries = []
    titles = {column.key: column.bare for table in tables if table.name in MEASURES for column in table.columns}
    for figure in behaviour_figures(agents, {table.name: table for table in tables}, cells):
        for measure in dict.fromkeys(row["measure"] for row in figure.table.rows):
            dots = [row for row in figure.table.rows if row["measure"] == measure]
            ranks = spearman([row["value"] for row in dots], [row["score"] for row in dots])
            if ranks is not None:
                keys = {"environment": figure.name.removeprefix("figure_behaviour_"), "measure": titles[measure]}
                rows.append(keys | {"rho": ranks.rho, "low": ranks.low, "high": ranks.high, "agents": ranks.n})
        queries.append(figure.query)
    return Table(
        name="figure_behaviour",
        title="Score against behaviour: rank correlation over agents",
        columns=(
            Column(key="environment", title="Environment", group=True),
            Column(key="measure", title="Measure"),
            Column(key="rho", title="Spearman's rho", kind="fine"),
            Column(key="low", title="95 % from", kind="fine"),
            Column(key="high", title="to", kind="fine"),
            Column(key="agents", title="Agents", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            f"from {LEAST_RANKED} agents on, over the suites that all agents of the environment played",
            "an oracle is left out: it sees what is hidden",
            "95 %: Fisher's interval with the error of Bonett and Wright, rough with a dozen agents; none where ranks "
            "agree wholly",
            "agents are no random sample: a correlation describes these agents",
        ),
        query="\n\n".join(queries),
    )
