"""What reports have of pricing: profits and prices over periods, and an episode drawn: prices beside the best ones,
what they earned, and what was lost on the way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.pricing.instance import PricingInstance, market_of, optimum_of
from evalkit.envs.pricing.optimum import best_prices, solve
from evalkit.report.charts import drawing
from evalkit.report.environments.markets import market_extras
from evalkit.report.extras import Charts, Curve, PeriodStanding
from evalkit.report.periods import Action, alone, by_period
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import Figure, mark, number, panels, scaled, span, tips
from evalkit.results.moves import Move
from evalkit.text import many

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

MOST_PRODUCTS = 12
"""Products whose prices are drawn; the query has all."""

BESIDE = 2
"""Products side by side."""

MOST_PERIODS = 400
"""Periods of which every price is drawn; of more, every second one, or fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPeriod:
    """One period: what was set and earned, and what could have been."""

    period: int
    prices: tuple[float, ...] | None
    """By product; None: none were set."""
    best: tuple[float, ...]
    """By product: the prices that earn the most in this period."""
    profit: float
    """As it was shown, all products together; 0 where no prices were set."""
    lost: float
    """The best profit less this one."""
    regret: float
    """Lost so far, this period included."""
    counted: bool
    """Whether the score counts it."""


def priced(target: PricingInstance, moves: Sequence[Move]) -> tuple[PricedPeriod, ...]:
    """The periods that were begun; of an episode that has ended all, since the score counts them all."""
    market, best = market_of(target), optimum_of(target).profit
    actions = {move.period: move.facts["action"] for move in moves if "action" in move.facts}
    ended = bool(moves) and bool(moves[-1].ending)
    number = target.periods if ended else max((move.period for move in moves), default=-1) + 1
    periods, regret = [], 0.0
    for period in range(number):
        action = actions.get(period)
        profit = fsum(action["profits"]) if action else 0.0
        regret += best - profit
        periods.append(
            PricedPeriod(
                period=period,
                prices=tuple(action["prices"]) if action else None,
                best=best_prices(market, period),
                profit=profit,
                lost=best - profit,
                regret=regret,
                counted=period >= target.periods - target.counted,
            )
        )
    return tuple(periods)


def pricing_figures(target: PricingInstance, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """Prices, profits and regret over periods."""
    periods = priced(target, moves)
    if not periods:
        return ()
    return (_prices(target, episode, periods), _profits(target, episode, periods), _regret(target, episode, periods))


def pricing_lines(target: PricingInstance, moves: Sequence[Move]) -> dict[int, str]:
    """A line a period: what it earned."""
    best = optimum_of(target).profit
    lines = {}
    for period in priced(target, moves):
        if period.prices is not None:
            lines[period.period] = f"profit {period.profit:,.2f} of {best:,.2f} ({100 * period.profit / best:.1f} %)"
    return lines


_OPTIMUM = "optimum: evalkit.envs.pricing.optimum, solve and best_prices, from the instance (view instances, line)"
_PROFIT = "list_sum((facts->'$.action.profits')::double[]) as profit"


def _prices(target: PricingInstance, episode: str, periods: Sequence[PricedPeriod]) -> Figure:
    names = market_of(target).products
    shown = min(len(names), MOST_PRODUCTS)
    every = -(-len(periods) // MOST_PERIODS)
    drawn = [
        {"period": period.period, "product": names[i], "who": who, "price": prices[i]}
        for period in periods[::every]
        for who, prices in ((drawing.PLAYED, period.prices), (drawing.BEST, period.best))
        if prices is not None
        for i in range(shown)
    ]
    charged = [price for period in periods for price in (period.prices or ())[:shown]]
    ends = span(charged, 0.0, max(max(period.best[:shown]) for period in periods), far=1.0, top=True)
    where = {
        "x": drawing.numbered("period", periods[-1].period),
        "y": number("price", "Price", scale=scaled(ends, clamp=True)),
        "color": drawing.compared(),
        "tooltip": tips(period="Period|d", product="Product", who="Of", price="Price|,.3f"),
    }
    lines = [
        mark("line", where, where=f"datum.who == '{who}'", point={"size": 12}, strokeWidth=1.3, clip=True)
        for who in (drawing.BEST, drawing.PLAYED)  # where both are the same, the agent's is seen
    ]
    if shown > 1:
        small = {"layer": lines, "width": (drawing.WIDTH - 40) // BESIDE, "height": 90}
        spec = panels(drawn, small, "product", names[:shown], columns=BESIDE, spacing=12)
    else:
        spec = drawing.plot(*lines, rows=drawn)
    rows = [
        {
            "period": period.period,
            "product": name,
            "price": period.prices[i] if period.prices else None,
            "best": period.best[i],
        }
        for period in periods[::every]
        for i, name in enumerate(names[:shown])
    ]
    notes = [
        "What was charged for a unit beside the price that earns the most in that period, in the game's currency.",
        *((f"drawn: the first {shown} of {len(names):,} products",) if shown < len(names) else ()),
        *((f"drawn: every {every}. period",) if every > 1 else ()),
        *drawing.edge_note(drawing.beyond(charged, ends), "prices"),
    ]
    return drawing.period_figure(
        episode,
        ["facts->'$.action.prices' as prices"],
        [_OPTIMUM],
        [Column(key="product", title="Product"), *columns_of("fine", price="Price", best="Best")],
        name="prices",
        title="Prices beside the best ones",
        spec=spec,
        rows=rows,
        notes=notes,
    )


def _profits(target: PricingInstance, episode: str, periods: Sequence[PricedPeriod]) -> Figure:
    best = optimum_of(target).profit
    drawn = [{"period": period.period, "profit": period.profit} for period in periods if period.prices is not None]
    idle = [{"period": period.period, "profit": 0.0} for period in periods if period.prices is None]
    ends = span([period.profit for period in periods], 0.0, best, far=1.0, top=True)
    first, last = target.periods - target.counted, periods[-1].period
    x = drawing.numbered("period", last)
    at = {"x": x, "y": number("profit", "Profit a period", scale=scaled(ends, clamp=True))}
    shaded = [{"from": first, "to": last}] if first <= last else []
    earned = {**at, "color": drawing.OWN, "tooltip": tips(period="Period|d", profit="Profit|,.2f")}
    none = {**at, "tooltip": tips(period="Period without prices|d")}
    spec = drawing.plot(
        mark("rect", {"x": {**x, "field": "from"}, "x2": {"field": "to"}}, rows=shaded, opacity=0.07),
        *drawing.rule(best, f"optimum {best:,.2f}"),
        mark("line", earned, point={"size": 14}, strokeWidth=1.3),
        mark("point", none, rows=idle, shape="cross", size=30, angle=45),
        rows=drawn,
    )
    counted = [period.profit for period in periods if period.counted]
    notes = [
        f"What each period earned, all products together; the best prices earn {best:,.2f} in every period.",
        f"shaded: the last {target.counted:,} of {target.periods:,} periods, which make the score; cross: no prices",
        *drawing.edge_note(drawing.beyond([period.profit for period in periods], ends), "profits"),
    ]
    if len(counted) == target.counted:
        notes.append(f"score: {100 * fsum(counted) / (target.counted * best):.2f} = counted profits / the best ones")
    rows = [
        {"period": period.period, "profit": period.profit, "best": best, "counted": "yes" if period.counted else "no"}
        for period in periods
    ]
    return drawing.period_figure(
        episode,
        [_PROFIT],
        [_OPTIMUM],
        [*columns_of("number", profit="Profit", best="Best"), Column(key="counted", title="Counted")],
        name="profits",
        title="Profit against the best profit",
        spec=spec,
        rows=rows,
        notes=notes,
    )


def _regret(target: PricingInstance, episode: str, periods: Sequence[PricedPeriod]) -> Figure:
    best = optimum_of(target).profit
    rows = [{"period": period.period, "lost": period.lost, "regret": period.regret} for period in periods]
    everything = best * len(periods)
    where = drawing.over_periods(periods[-1].period, "regret", "Profit lost so far")
    where["tooltip"] = tips(period="Period|d", lost="Lost in it|,.2f", regret="Lost so far|,.2f")
    spec = drawing.plot(mark("area", where, line={"strokeWidth": 1.5}, opacity=0.25), rows=rows)
    notes = [
        "The best profit less what was earned, added up: where it is flat, nothing is lost any more.",
        f"{periods[-1].regret:,.2f} of {everything:,.2f} ({100 * periods[-1].regret / everything:.1f} %)"
        f" in {many(len(periods), 'period')}",
        "profits are shown, and counted, with two decimals: the best prices may seem to lose or win that little",
    ]
    running = "regret: the running sum of the best profit - profit over all periods; one without prices earns 0"
    return drawing.period_figure(
        episode,
        [_PROFIT],
        [_OPTIMUM, running],
        columns_of("number", lost="Lost in it", regret="Lost so far"),
        name="regret",
        title="Regret",
        spec=spec,
        rows=rows,
        notes=notes,
    )


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


EXTRAS = market_extras(
    NAME,
    22,
    PeriodStanding(values=profit_shares, hold=alone),
    Charts(figures=pricing_figures, lines=pricing_lines),
    ("Pricing: profit over periods", "Profit of the period (% of optimum)", (-200, 120)),
    curves=(
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
)
