"""All figures of a run: each appears only where the run has what it shows."""

from pathlib import Path

from evalkit.report.extras.record import all_extras
from evalkit.report.figure import Figure
from evalkit.report.figures.curves import curve_figures
from evalkit.report.figures.money import latency_figures, money_figures
from evalkit.report.figures.progress import progress_figures
from evalkit.report.figures.scores import score_figures
from evalkit.report.figures.varied import varied_figures
from evalkit.report.report import Report
from evalkit.report.run_data import RunData


def figures(report: Report) -> tuple[Figure, ...]:
    """The figures that stand on a report alone, in reading order."""
    agents = tuple(report.manifest.agents)
    tables = {table.name: table for table in report.tables}
    drawn = [
        *progress_figures(agents, tables["completeness"]),
        *score_figures(agents, tables["scores"]),
        *varied_figures(agents, tables),
    ]
    source = RunData(report.manifest, report.cells)
    extras_here = all_extras(report.cells)
    for name, draw in dict.fromkeys(pair for extras in extras_here for pair in extras.table_figures):
        drawn += draw(agents, tables[name]) if name in tables else ()
    for build in dict.fromkeys(extras.cell_figures for extras in extras_here if extras.cell_figures):
        drawn += build(agents, source)
    return (
        *drawn,
        *money_figures(agents, tables["scores"], source),
        *latency_figures(agents, tables["speed"]),
    )


def run_figures(run: Path, report: Report) -> tuple[Figure, ...]:
    """All figures of a run directory: those of its report, and the curves over periods, which read its facts."""
    return (*figures(report), *curve_figures(run, tuple(report.manifest.agents), report.cells))
