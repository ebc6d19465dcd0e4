"""Figures of CostBench beside those of varied parameters: coverage of the plan, and how hard blocks are to adapt to.

Source: figure 4 and section 5.2 of the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import bounds, suite_of, told_apart
from evalkit.report.figures.panels import Panels
from evalkit.report.figures.scores import MOST_ROWS, at_most
from evalkit.report.tables import Table
from evalkit.report.vega import spec_of

COVERAGE = {
    "coverage": "Built-in counter (% of 2^(N-1))",
    "judged_coverage": "Judge (% of 2^(N-1))",
    "listed_coverage": "Judge, as listed (% of 2^(N-1))",
}


def coverage_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `coverage` drawn; nothing where no text holds a path."""
    rows = [
        {
            "x": setting,
            "agent": row["agent"],
            "panel": "",
            "measure": title,
            "cell": "",
            "value": row[key],
            **bounds(row[f"{key}_interval"]),
            "runs": row["planned_runs" if key == "coverage" else f"{key.partition('_')[0]}_runs"],
        }
        for key, title in COVERAGE.items()
        for row, setting in zip(table.rows, told_apart(table.rows), strict=True)
        if row.get(key) is not None
    ]
    if not any(row["value"] for row in rows):
        return ()
    kept, left = at_most(rows, MOST_ROWS, "x")
    panels = Panels(agents, kept, "Suite")
    words = ["Distinct complete paths in the first text of a run, with 95 % interval", *panels.words]
    return (_figure("figure_coverage", table, spec_of(panels.dots(), table.title, words), left),)


def adaptation_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `adaptation` drawn: by kind of block, how far the agents' paths and the optimal one change."""
    settings = {suite_of(row): row.get("axis:block") for row in table.rows}
    short = None not in settings.values() and len(set(settings.values())) == len(settings)
    rows = [
        {
            "x": str(row["axis:block"]) if short else setting,
            "agent": row["agent"],
            "panel": "",
            "measure": "Change of path (0 = same, 1 = all of it)",
            "cell": "",
            "value": row["ned"],
            **bounds(row["ned_interval"]),
            "runs": row["pairs"],
            "reference": row["truth_change"],
        }
        for row, setting in zip(table.rows, told_apart(table.rows), strict=True)
        if row["ned"] is not None
    ]
    if not rows:
        return ()
    kept, left = at_most(rows, MOST_ROWS, "x")
    panels = Panels(agents, kept, "Block", (0, 1))
    words = [
        "Normalised edit distance of paths with blocks from paths without",
        "Dot: the agent's, with its 95 % interval; bar: the optimal path's",
        *panels.words,
    ]
    return (_figure("figure_adaptation", table, spec_of(panels.dots(), table.title, words), left),)


def _figure(name: str, table: Table, spec: Mapping[str, Any], left: tuple[str, ...]) -> Figure:
    drawn = replace(table, name=name)
    return Figure(name=name, title=table.title, spec=spec, table=drawn, query=table.query, notes=(*left, *table.notes))
