"""All figures of a run: each appears only where the run has what it shows."""

from pathlib import Path

from evalkit.report.figures.behaviour import behaviour_figures
from evalkit.report.figures.blocks import adaptation_figures, coverage_figures
from evalkit.report.figures.curves import curve_figures
from evalkit.report.figures.econ import ladder_figures, runs_figures
from evalkit.report.figures.figure import Figure
from evalkit.report.figures.money import latency_figures, money_figures
from evalkit.report.figures.progress import progress_figures
from evalkit.report.figures.scores import score_figures
from evalkit.report.figures.varied import varied_figures
from evalkit.report.report import Report


def figures(report: Report) -> tuple[Figure, ...]:
    """The figures that stand on a report alone, in reading order."""
    agents = tuple(report.manifest.agents)
    tables = {table.name: table for table in report.tables}
    found = [
        *progress_figures(agents, tables["completeness"]),
        *score_figures(agents, tables["scores"]),
        *varied_figures(agents, tables),
    ]
    for name, build in (
        ("coverage", coverage_figures),
        ("adaptation", adaptation_figures),
        ("econ_scores", ladder_figures),
    ):
        found += build(agents, tables[name]) if name in tables else ()
    return (
        *found,
        *runs_figures(agents, report.cells),
        *behaviour_figures(agents, tables, [cell for cell in report.cells if not cell.exact]),
        *money_figures(agents, tables["scores"], report.cells),
        *latency_figures(agents, tables["speed"]),
    )


def run_figures(run: Path, report: Report) -> tuple[Figure, ...]:
    """All figures of a run directory: those of its report, and the curves over periods, which read its facts."""
    return (*figures(report), *curve_figures(run, tuple(report.manifest.agents), report.cells))
