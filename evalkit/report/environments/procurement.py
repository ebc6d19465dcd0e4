"""What reports have of procurement: plans over periods, and plans that cannot be bought."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.procurement.instance import optimum_of
from evalkit.envs.procurement.score import value_of
from evalkit.report.charts.procurement import procurement_figures, procurement_lines
from evalkit.report.environments import markets
from evalkit.report.extras.record import Charts, Curve, ErrorKind, Extras, PeriodStanding, QuotedPlace
from evalkit.report.figures.curves import standing_of
from evalkit.report.figures.econ import runs_figures
from evalkit.report.markets.econ import econ_tables
from evalkit.report.periods import Action, best_so_far, by_period
from evalkit.report.scores import ACCEPTED
from evalkit.results.moves import Move

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

NAME = "procurement"


def plan_values(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Procurement: the value of each period's plan; 0 if it is not feasible, NaN without one."""
    best = optimum_of(instance)

    def worth(action: Mapping[str, Any]) -> float:
        return value_of(int(action["product"]), len(action["totals"]), best) if action["feasible"] else 0.0

    return by_period(actions, periods, worth)


def _bought_nothing(_: Any, played: Sequence[Move]) -> QuotedPlace | None:
    for i, move in enumerate(played):
        action = move.facts.get("action")
        if action is not None and not action["feasible"]:
            accepted = [j for j, call in enumerate(move.facts["calls"]) if call["outcome"] == ACCEPTED]
            return i, accepted[-1]
    return None


EXTRAS = Extras(
    place=20,
    tables=econ_tables,
    table_figures=markets.TABLE_FIGURES,
    cell_figures=runs_figures,
    standing=PeriodStanding(values=plan_values, hold=best_so_far),
    curves=(
        Curve(
            name="figure_periods_procurement",
            environment=NAME,
            title="Procurement: best plan over periods",
            axis="Value of the best plan so far (% of optimum)",
            about="periods.standing of procurement",
            ends=(0, 100),
            most=(0, 105),
            series=standing_of(NAME),
        ),
    ),
    errors=(
        ErrorKind(
            name="plan that cannot be bought",
            environment=NAME,
            unit="plans",
            sql="metrics['plans'] - coalesce(metrics['feasible_plans'], 0)",
            find=_bought_nothing,
        ),
        *markets.errors(NAME),
    ),
    charts=Charts(figures=procurement_figures, lines=procurement_lines),
)
