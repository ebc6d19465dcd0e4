"""Curves over periods (EconAgentBench): how good what an agent did was in each period, as a mean over episodes.

What a log holds of each action is set against the instance's optimum by the environments' own functions, episode by
episode. A band holds the middle half of the episodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from evalkit.report.cells import Cell
from evalkit.report.figures.figure import MOST_MARKS, Figure
from evalkit.report.figures.marks import by_agent, clean, data, in_order, reach, spec_of, tooltip
from evalkit.report.figures.theme import WIDTH
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table
from evalkit.report.views import open_views

if TYPE_CHECKING:
    import numpy.typing as npt

    from evalkit.report.figures.marks import Drawing

    Values = npt.NDArray[np.float64]

MOST_EPISODES = 720
"""Episodes of a run whose facts are read; the first of each cell, equally many."""

MOST_SUITES = 6

Action = tuple[int, Mapping[str, Any]]
"""(period, what the log says of the action)."""

Series = Callable[[Any, Sequence[Action], int], "Values"]
"""(instance, actions in order, periods) -> a value by period; NaN where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One figure of curves: an environment's."""

    name: str
    environment: str
    title: str
    axis: str
    """The value's title with its unit."""
    about: str
    ends: tuple[float, float]
    series: Series
    most: tuple[float, float]
    """Ends of the axis at most: one episode's absurd price must not flatten all others."""
    middle: str = "mean"
    """What the line is: `mean`, or `median` where values have no bound."""
    line: float | None = None
    """Where the optimum lies, if the axis does not end there."""


def procurement_so_far(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """The value of the best feasible plan so far, in % of the optimum; 0 before there is one."""
    from evalkit.env.procurement.instance import optimum_of
    from evalkit.env.procurement.market import workers_of

    values = np.zeros(periods)
    for period, action in actions:
        if action["feasible"] and period < periods:
            values[period] = 100 * workers_of(action["totals"]) / optimum_of(instance).workers
    return np.maximum.accumulate(values)


def scheduling_quality(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Score of the last assignment accepted by each period's end, in %: 100 is stable, 0 as good as random."""
    from evalkit.env.scheduling.instance import expected_of

    above, below = expected_of(instance)
    values = np.zeros(periods)
    for period, action in actions:
        values[period:] = 100 * (1 - action["blocking"] * below / above) if action["blocking"] else 100
    return values


def pricing_profit(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Profit of each period in % of the best prices'; 0 without prices."""
    from evalkit.env.pricing.instance import optimum_of

    values = np.zeros(periods)
    for period, action in actions:
        if period < periods:
            values[period] = 100 * sum(action["profits"]) / optimum_of(instance).profit
    return values


def pricing_prices(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Price over the best price of the period, as the geometric mean over products; NaN without prices."""
    from evalkit.env.pricing.instance import market_of
    from evalkit.env.pricing.optimum import solve

    market = market_of(instance)
    costs, markup = np.array(market.costs), solve(market).markup
    values = np.full(periods, np.nan)
    for period, action in actions:
        prices = np.array(action["prices"])
        if period < periods and (prices > 0).all():
            best = np.array(market.drift.alphas(period)) * (costs + markup)
            values[period] = float(np.exp(np.log(prices / best).mean()))
    return values


CURVES = (
    Curve(
        name="figure_periods_procurement",
        environment="procurement",
        title="Procurement: best plan over periods",
        axis="Value of the best plan so far (% of optimum)",
        about="procurement_so_far",
        ends=(0, 100),
        most=(0, 105),
        series=procurement_so_far,
    ),
    Curve(
        name="figure_periods_scheduling",
        environment="scheduling",
        title="Scheduling: quality of matching over periods",
        axis="Score of the last assignment (100 = stable)",
        about="scheduling_quality",
        ends=(0, 100),
        most=(-100, 105),
        series=scheduling_quality,
    ),
    Curve(
        name="figure_periods_pricing",
        environment="pricing",
        title="Pricing: profit over periods",
        axis="Profit of the period (% of optimum)",
        about="pricing_profit",
        ends=(0, 100),
        most=(-200, 120),
        series=pricing_profit,
    ),
    Curve(
        name="figure_prices",
        environment="pricing",
        title="Pricing: prices over periods",
        axis="Price / best price of the period",
        about="pricing_prices",
        ends=(0.5, 1.5),
        most=(0, 4),
        middle="median",
        series=pricing_prices,
        line=1.0,
    ),
)

_QUERY = """\
select suite, agent, instance, replicate, period, facts->'$.action' as action
from steps where environment = '{environment}' and (facts->'$.action') is not null
    and episode in (select episode from episodes where used)
order by suite, agent, replicate, instance, period
-- value: evalkit.report.figures.curves.{function} of an episode's instance and these actions;
-- {middle} and quartiles (25 %, 75 %) over the first {each} episodes of each suite and agent"""


_ACTIONS = """\
select episode, period, facts->'$.action' as action
from steps where episode in ({listed}) and contains(facts, '"action":') order by episode, step"""


def curve_figures(run: Path, agents: Sequence[str], cells: Sequence[Cell]) -> tuple[Figure, ...]:
    """The curves of the environments that the run has. Reads the facts of at most `MOST_EPISODES` episodes."""
    mine = [cell for cell in cells if cell.prefix and any(one.environment == cell.suite.environment for one in CURVES)]
    if not mine:
        return ()
    each = max(1, MOST_EPISODES // len(mine))
    actions = _actions(run, (one.id for cell in mine for one in cell.prefix[:each]))
    found = []
    for curve in CURVES:
        group = [cell for cell in mine if cell.suite.environment == curve.environment]
        if group:
            found.append(_figure(agents, curve, group, actions, each))
    return tuple(found)


def _actions(run: Path, episodes: Iterable[str]) -> dict[str, list[Action]]:
    """By episode: its actions in order."""
    listed = ", ".join(f"'{name}'" for name in episodes)  # digests, made by us
    table = open_views(run).sql(_ACTIONS.format(listed=listed))
    found: dict[str, list[Action]] = {}
    columns = (table.column(name).to_pylist() for name in ("episode", "period", "action"))
    for episode, period, text in zip(*columns, strict=True):
        if text is not None:
            found.setdefault(episode, []).append((period, orjson.loads(text)))
    return found


def _figure(
    agents: Sequence[str], curve: Curve, cells: Sequence[Cell], actions: Mapping[str, Sequence[Action]], each: int
) -> Figure:
    rows = [row for cell in cells for row in _rows(curve, cell, actions, each)]
    table = Table(
        name=curve.name,
        title=curve.title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="period", title="Period", kind="count"),
            Column(key="value", title=curve.middle.capitalize(), kind="fine", unit=curve.axis),
            Column(key="low", title="25 %", kind="fine", unit=curve.axis),
            Column(key="high", title="75 %", kind="fine", unit=curve.axis),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        query=_QUERY.format(environment=curve.environment, function=curve.about, each=each, middle=curve.middle),
    )
    drawn, notes = _thinned(rows)
    cut = [cell for cell in cells if len(cell.prefix) > each]
    if cut:
        notes += (f"of the first {each:,} episodes of each agent and suite",)
    low, high = curve.most
    if any(not low <= row[key] <= high for row in drawn for key in ("value", "low", "high")):
        notes += (f"what is below {low:g} or above {high:g} is cut off; all is in the table",)
    words = [curve.axis, f"Line: {curve.middle} over episodes; band: the middle half of them"]
    spec = spec_of(_chart(agents, curve, clean(drawn)), curve.title, words)
    return Figure(name=curve.name, title=curve.title, spec=spec, table=table, query=table.query, notes=notes)


def _rows(curve: Curve, cell: Cell, actions: Mapping[str, Sequence[Action]], each: int) -> Iterator[dict[str, Any]]:
    """Mean and quartiles by period of a cell's first episodes, up to the end of the longest."""
    from evalkit.env.table import ENVIRONMENTS

    load = ENVIRONMENTS[curve.environment].load
    lines = {one.id: one.line for one in cell.suite.instances}
    played = cell.prefix[:each]
    loaded = {name: load(lines[name]) for name in dict.fromkeys(one.instance for one in played)}
    periods = max(instance.periods for instance in loaded.values())
    values = np.array([curve.series(loaded[one.instance], actions.get(one.id, ()), periods) for one in played])
    for period in range(periods):
        there = values[:, period]
        there = there[np.isfinite(there)]
        if len(there):
            low, middle, high = np.quantile(there, (0.25, 0.5, 0.75)).tolist()
            yield {
                "suite": cell.suite.name,
                "agent": cell.agent,
                "period": period,
                "value": float(there.mean()) if curve.middle == "mean" else middle,
                "low": low,
                "high": high,
                "episodes": len(there),
            }


def _thinned(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What of the rows is drawn: the first suites, and every so many periods; with notes where that is not all."""
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    kept = [row for row in rows if row["suite"] in suites[:MOST_SUITES]]
    stride = -(-len(kept) // MOST_MARKS)
    notes = []
    if len(suites) > MOST_SUITES:
        notes.append(f"drawn: the first {MOST_SUITES} of {len(suites)} suites; all are in the table")
    if stride > 1:
        kept = [row for row in kept if not row["period"] % stride]
        notes.append(f"drawn: one period in {stride}; all are in the table")
    digits = 4
    return [{**row, **{key: round(row[key], digits) for key in ("value", "low", "high")}} for row in kept], tuple(notes)


def _chart(agents: Sequence[str], curve: Curve, rows: Sequence[dict[str, Any]]) -> "Drawing":
    import altair as alt

    shown, suites = in_order(agents, rows), list(dict.fromkeys(row["suite"] for row in rows))
    look = by_agent(agents, shown, lines=True)
    low, high = reach(rows, ("value", "low", "high"), *curve.ends)
    low, high = max(low, curve.most[0]), min(high, curve.most[1])
    # Marks far outside would be clipped as well, but the drawing of PNGs does not survive them.
    beyond = 0.2 * (high - low)
    near = {f"{key}_at": f"clamp(datum.{key}, {low - beyond}, {high + beyond})" for key in ("value", "low", "high")}
    scale = alt.Scale(domain=[low, high], nice=False)
    x = alt.X("period:Q", title="Period", axis=alt.Axis(grid=False))
    base = alt.Chart().transform_calculate(**near).encode(x=x, color=look["color"])
    tips = tooltip(
        suite="Suite",
        agent="Agent",
        period="Period",
        value=f"{curve.middle.capitalize()}|.2f",
        low="25 %|.2f",
        high="75 %|.2f",
        episodes="Episodes|,",
    )
    y = alt.Y("value_at:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    layers = [
        base.mark_area(clip=True, opacity=0.16).encode(y=alt.Y("low_at:Q", title=None), y2="high_at:Q"),
        base.mark_line(clip=True, strokeWidth=1.6).encode(y=y, strokeDash=look["strokeDash"]),
        base.mark_point(clip=True, size=60, opacity=0, filled=True).encode(
            y=alt.Y("value_at:Q", title=None), tooltip=tips
        ),
    ]
    if curve.line is not None:
        rule = alt.Chart().mark_rule(strokeDash=[4, 3], opacity=0.6)
        layers.insert(0, rule.encode(y=alt.YDatum(curve.line, title=None)))
    head = alt.Header(title=None, labelOrient="top", labelAnchor="start")
    drawing = alt.layer(*layers).properties(width=WIDTH, height=120)
    panels: alt.FacetChart = drawing.facet(
        data=data(rows), row=alt.Row("suite:N", sort=suites, header=head), spacing=10
    )
    return panels
