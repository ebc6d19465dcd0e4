"""Curves over periods (EconAgentBench): what stood at the end of each period, over the episodes of a suite.

What a log holds of each action is set against the instance's optimum by `report/periods.py`, episode by episode. The
line is the median and the band holds the middle half of the episodes, so the line is always within it. Every agent has
a panel of its own: agents that do the same would hide each other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.report import vega
from evalkit.report.extras.record import Curve, Series, all_extras, extras_of
from evalkit.report.figure import MOST_MARKS, Figure
from evalkit.report.figures.marks import SHORT, by_agent, in_order
from evalkit.report.periods import ACTIONS, Action, logged_actions, standing
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table
from evalkit.report.views import open_views
from evalkit.results.cells import Cell

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

MOST_EPISODES = 720
"""Episodes of a run whose facts are read; the first of each cell, equally many."""

MOST_SUITES = 6

MOST_COLUMNS = 3
"""Agents beside each other."""

TOTAL, HEIGHT, GAP = vega.WIDTH + 60, 80, 14
"""Width of the panels of a row together, height of one, space between two; in pixels."""


def standing_of(environment: str) -> Series:
    """What stands at the end of each period, in percent of the optimum."""
    return lambda instance, actions, periods: 100 * standing(environment, instance, actions, periods)


_QUERY = """\
select suite, agent, instance, replicate, period, facts->'$.action' as action
from steps where environment = '{environment}' and (facts->'$.action') is not null
    and episode in (select episode from episodes where used)
order by suite, agent, replicate, instance, period
-- value: {function}, of an episode's instance and these actions;
-- median, quartiles (25 %, 75 %) and mean over the first {each} episodes of each suite and agent"""


def curve_figures(run: Path, agents: Sequence[str], cells: Sequence[Cell]) -> tuple[Figure, ...]:
    """The curves of the environments that the run has. Reads the facts of at most `MOST_EPISODES` episodes."""
    curve_cells = [cell for cell in cells if cell.prefix and extras_of(cell.suite.environment).curves]
    if not curve_cells:
        return ()
    per_cell = max(1, MOST_EPISODES // len(curve_cells))
    actions = _actions(run, (episode.id for cell in curve_cells for episode in cell.prefix[:per_cell]))
    figures = []
    for curve in (curve for extras in all_extras(curve_cells) for curve in extras.curves):
        group = [cell for cell in curve_cells if cell.suite.environment == curve.environment]
        rows = [row for cell in group for row in _rows(curve, cell, actions, per_cell)]
        # Without a number there is nothing to draw: prices of agents that never set one.
        if rows:
            figures.append(_figure(agents, curve, group, rows, per_cell))
    return tuple(figures)


def _function(curve: Curve) -> str:
    return f"evalkit.report.{curve.about}" if curve.environment in OWN_ENVIRONMENTS else curve.about


def _actions(run: Path, episodes: Iterable[str]) -> dict[str, list[Action]]:
    """By episode: its actions in order."""
    listed = ", ".join(f"'{name}'" for name in episodes)  # digests, made by us
    return dict(logged_actions(open_views(run).sql(ACTIONS.format(among=f" and episode in ({listed})"))))


def _figure(
    agents: Sequence[str], curve: Curve, cells: Sequence[Cell], rows: Sequence[dict[str, Any]], per_cell: int
) -> Figure:
    table = Table(
        name=curve.name,
        title=curve.title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="period", title="Period", kind="count"),
            Column(key="value", title="Median", kind="fine", unit=curve.axis),
            Column(key="low", title="25 %", kind="fine", unit=curve.axis),
            Column(key="high", title="75 %", kind="fine", unit=curve.axis),
            Column(key="mean", title="Mean", kind="fine", unit=curve.axis),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        query=_QUERY.format(environment=curve.environment, function=_function(curve), each=per_cell),
    )
    drawn, notes = _thinned(rows)
    cut = [cell for cell in cells if len(cell.prefix) > per_cell]
    if cut:
        notes += (f"of the first {per_cell:,} episodes of each agent and suite",)
    low, high = curve.most
    words = [curve.axis, f"Line: median over episodes; band: the middle half of them; dashed: {curve.line_means}"]
    if any(not low <= row[key] <= high for row in drawn for key in _DRAWN):
        words.append(f"Triangle: it goes on below {low:g} or above {high:g}")
        notes += ("what a triangle stands for is in the table",)
    spec = vega.spec_of(_chart(agents, curve, vega.clean(drawn)), curve.title, words)
    return Figure(name=curve.name, title=curve.title, spec=spec, table=table, query=table.query, notes=notes)


def _rows(curve: Curve, cell: Cell, actions: Mapping[str, Sequence[Action]], per_cell: int) -> Iterator[dict[str, Any]]:
    """Median, quartiles and mean by period of a cell's first episodes, up to the end of the longest."""
    load = ENVIRONMENTS[curve.environment].load
    lines = {name: target.line for name, target in cell.targets.items()}
    played = cell.prefix[:per_cell]
    loaded = {name: load(lines[name]) for name in dict.fromkeys(episode.instance for episode in played)}
    periods = max(instance.periods for instance in loaded.values())
    values = np.array(
        [curve.series(loaded[episode.instance], actions.get(episode.id, ()), periods) for episode in played]
    )
    for period in range(periods):
        finite = values[:, period]
        finite = finite[np.isfinite(finite)]
        if len(finite):
            low, middle, high = np.quantile(finite, (0.25, 0.5, 0.75)).tolist()
            yield {
                "suite": cell.suite.name,
                "agent": cell.agent,
                "period": period,
                "value": middle,
                "low": low,
                "high": high,
                "mean": float(finite.mean()),
                "episodes": len(finite),
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
    return [{**row, **{key: round(row[key], digits) for key in _DRAWN}} for row in kept], tuple(notes)


_DRAWN = ("value", "low", "high")


def _chart(agents: Sequence[str], curve: Curve, rows: vega.Rows) -> vega.Spec:
    shown, suites = in_order(agents, rows), list(dict.fromkeys(row["suite"] for row in rows))
    columns = 2 if len(shown) == 4 else min(MOST_COLUMNS, len(shown))
    width = (TOTAL - GAP * (columns - 1)) // columns
    panel = {**_panel(agents, curve, rows), "width": width, "height": HEIGHT}
    head = {"labelFontWeight": "normal", "labelExpr": SHORT, "labelLimit": width}
    title = {"fontSize": 12, "fontWeight": 600, "anchor": "start", "frame": "group", "offset": 6, "limit": TOTAL}
    blocks = []
    for suite in suites:
        suite_rows = [row for row in rows if row["suite"] == suite]
        block = vega.panels(suite_rows, panel, "agent", shown, columns=columns, spacing=GAP, head=head)
        blocks.append({"title": {"text": suite, **title}, **block})
    return {"vconcat": blocks, "spacing": 18}


def _panel(agents: Sequence[str], curve: Curve, rows: vega.Rows) -> vega.Spec:
    """One agent on one suite."""
    low, high = vega.reach(rows, _DRAWN, *curve.ends)
    low, high = max(low, curve.most[0]), min(high, curve.most[1])
    room = 0.05 * (high - low)
    # Marks far outside would be clipped as well, but the drawing of PNGs does not survive them.
    beyond = 0.2 * (high - low)
    near = [{"calculate": f"clamp(datum.{key}, {low - beyond}, {high + beyond})", "as": f"{key}_at"} for key in _DRAWN]
    base = {
        # The last label of a panel and the first of the next would touch.
        "x": vega.whole("period", "Period", scale={"nice": False}, axis={"tickCount": 5, "labelFlush": True}),
        "color": by_agent(agents, in_order(agents, rows), legend=False)["color"],
    }
    # With room on both sides, so that no line at an end is cut lengthwise.
    y = vega.number("value_at", scale=vega.scaled([low - room, high + room]), axis={"tickCount": 4})
    shown = vega.tips(
        suite="Suite",
        agent="Agent",
        period="Period",
        value="Median|.2f",
        low="25 %|.2f",
        high="75 %|.2f",
        mean="Mean|.2f",
        episodes="Episodes|,",
    )

    def over(test: str, shape: str, height: float) -> vega.Spec:
        level = {**base, "y": {"datum": height, "title": None}}
        return vega.mark("point", level, where=test, filled=True, shape=shape, size=18, opacity=1)

    hover = {**base, "y": vega.number("value_at"), "tooltip": shown}
    layers = [
        vega.mark("area", {**base, "y": vega.number("low_at"), "y2": {"field": "high_at"}}, clip=True, opacity=0.22),
        vega.mark("rule", {"y": {"datum": curve.line, "title": None}}, rows=[{}], strokeDash=[4, 3], opacity=0.6),
        vega.mark("line", {**base, "y": y}, clip=True, strokeWidth=1.5),
        vega.mark("point", hover, clip=True, size=60, opacity=0, filled=True),
        over(f"datum.low < {low - room}", "triangle-down", low - room / 2),
        over(f"datum.high > {high + room}", "triangle-up", high + room / 2),
    ]
    return {"transform": near, "layer": layers}
