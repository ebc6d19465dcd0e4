"""What reports have of pricing: profits and prices over periods."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.pricing.instance import market_of, optimum_of
from evalkit.envs.pricing.optimum import solve
from evalkit.report.charts.pricing import pricing_figures, pricing_lines
from evalkit.report.environments import markets
from evalkit.report.extras.record import Charts, Curve, Extras, PeriodStanding
from evalkit.report.figures.curves import standing_of
from evalkit.report.figures.econ import runs_figures
from evalkit.report.markets.econ import econ_tables
from evalkit.report.periods import Action, alone, by_period

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

NAME = "pricing"


def profit_shares(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Pricing: each period's profit over that of the best prices; NaN without prices."""
    best = optimum_of(instance).profit
    return by_period(actions, periods, lambda action: sum(action["profits"]) / best)


def price_ratios(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Pricing: price over the best price of the period, as the geometric mean over products; NaN without prices."""
    market = market_of(instance)
    costs, markup = np.array(market.costs), solve(market).markup
    values = np.full(periods, np.nan)
    for period, action in actions:
        prices = np.array(action["prices"])
        if period < periods and (prices > 0).all():
            best = np.array(market.drift.alphas(period)) * (costs + markup)
            values[period] = float(np.exp(np.log(prices / best).mean()))
    return values


EXTRAS = Extras(
    place=22,
    tables=econ_tables,
    table_figures=markets.TABLE_FIGURES,
    cell_figures=runs_figures,
    standing=PeriodStanding(values=profit_shares, hold=alone),
    curves=(
        Curve(
            name="figure_periods_pricing",
            environment=NAME,
            title="Pricing: profit over periods",
            axis="Profit of the period (% of optimum)",
            about="periods.standing of pricing",
            ends=(0, 100),
            most=(-200, 120),
            series=standing_of(NAME),
        ),
        Curve(
            name="figure_prices",
            environment=NAME,
            title="Pricing: prices over periods",
            axis="Price / best price of the period",
            about="environments.pricing.price_ratios",
            ends=(0.5, 1.5),
            most=(0, 4),
            series=price_ratios,
            line=1.0,
        ),
    ),
    errors=markets.errors(NAME),
    charts=Charts(figures=pricing_figures, lines=pricing_lines),
)
