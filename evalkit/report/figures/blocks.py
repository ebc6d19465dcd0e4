"""Figures of CostBench beside those of varied parameters: coverage of the plan, and how hard blocks are to adapt to.

Source: figure 4 and section 5.2 of the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalkit.report.figures.figure import Figure
from evalkit.report.figures.marks import spec_of, suite_of
from evalkit.report.figures.panels import Panels
from evalkit.report.tables import Table

COVERAGE = {"coverage": "Built-in counter (% of 2^(N-1))", "judged_coverage": "Judge (% of 2^(N-1))"}

CHANGES = {
    "truth_change": ("Change of the optimal path (0 = same, 1 = all of it)", "truth_instances"),
    "ned": ("Change of the agent's path (0 = same, 1 = all of it)", "pairs"),
}


def coverage_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `coverage` drawn; nothing where no text holds a path."""
    rows = [
        {
            "x": suite_of(row),
            "agent": row["agent"],
            "panel": "",
            "measure": title,
            "cell": "",
            "value": row[key],
            "low": None,
            "high": None,
            "runs": row["judged_runs" if key == "judged_coverage" else "planned_runs"],
        }
        for key, title in COVERAGE.items()
        for row in table.rows
        if row.get(key) is not None
    ]
    if not any(row["value"] for row in rows):
        return ()
    drawing = Panels(agents, rows, "Suite").dots()
    return (_figure("figure_coverage", table, spec_of(drawing, table.title, ["Paths in the first text of a run"])),)


def adaptation_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `adaptation` drawn: one row a kind of block."""
    settings = {suite_of(row): row.get("axis:block") for row in table.rows}
    short = None not in settings.values() and len(set(settings.values())) == len(settings)
    rows = [
        {
            "x": str(row["axis:block"]) if short else suite_of(row),
            "agent": row["agent"],
            "panel": "",
            "measure": title,
            "cell": "",
            "value": row[key],
            "low": None,
            "high": None,
            "runs": row[runs],
        }
        for key, (title, runs) in CHANGES.items()
        for row in table.rows
        if row[key] is not None
    ]
    if not rows:
        return ()
    drawing = Panels(agents, rows, "Block", (0, 1)).dots()
    words = ["Normalised edit distance between paths without and with blocks"]
    return (_figure("figure_adaptation", table, spec_of(drawing, table.title, words)),)


def _figure(name: str, table: Table, spec: Mapping[str, Any]) -> Figure:
    drawn = replace(table, name=name)
    return Figure(name=name, title=table.title, spec=spec, table=drawn, query=table.query, notes=table.notes)
