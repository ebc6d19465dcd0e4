"""What reports have of scheduling: assignments over periods."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.scheduling.instance import expected_of
from evalkit.envs.scheduling.score import value_of
from evalkit.report.charts.scheduling.scheduling import scheduling_figures, scheduling_lines
from evalkit.report.environments import markets
from evalkit.report.extras.record import Charts, Curve, Extras, PeriodStanding
from evalkit.report.figures.curves import standing_of
from evalkit.report.figures.econ import runs_figures
from evalkit.report.markets.econ import econ_tables
from evalkit.report.periods import Action, by_period, last_so_far

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

NAME = "scheduling"


def assignment_values(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Scheduling: the value of each period's assignment; 0 is as good as random, NaN without one."""
    expected = expected_of(instance)
    return by_period(actions, periods, lambda action: value_of(action["blocking"], expected))


EXTRAS = Extras(
    place=21,
    tables=econ_tables,
    table_figures=markets.TABLE_FIGURES,
    cell_figures=runs_figures,
    standing=PeriodStanding(values=assignment_values, hold=last_so_far),
    curves=(
        Curve(
            name="figure_periods_scheduling",
            environment=NAME,
            title="Scheduling: quality of matching over periods",
            axis="Score of the last assignment (100 = stable)",
            about="periods.standing of scheduling",
            ends=(0, 100),
            most=(-100, 105),
            series=standing_of(NAME),
        ),
    ),
    errors=markets.errors(NAME),
    charts=Charts(figures=scheduling_figures, lines=scheduling_lines),
)
