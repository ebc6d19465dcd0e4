"""What a sweep varied, drawn, and curves over periods.

One figure a parameter. Numbers make lines, words make dots side by side, seeds make a spread. Cells that differ in
other parameters too stand in panels of their own; suites without blocks join the panels of blocks as `none` and 0.
Source: figures 2, 3, 5, 6 and 8 of CostBench (exact matches and normalised distances); scores elsewhere.

Curves: what a log holds of each action is set against the instance's optimum by `report/periods.py`, episode by
episode. The line is the median and the band holds the middle half of the episodes, so the line is always within it.
Every agent has a panel of its own: agents that do the same would hide each other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.report import vega
from evalkit.report.extras import Curve, all_extras, extras_of
from evalkit.report.figures.marks import SHORT, Panels, axes_in, bounds, by_agent, in_order, numeric
from evalkit.report.periods import ACTIONS, Action, logged_actions
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table, columns_of
from evalkit.report.vega import MOST_MARKS, Figure, spec_of
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
    played = (episode.id for cell in curve_cells for episode in cell.prefix[:per_cell])
    listed = ", ".join(f"'{name}'" for name in played)  # digests, made by us
    actions = dict(logged_actions(open_views(run).sql(ACTIONS.format(among=f" and episode in ({listed})"))))
    figures = []
    for curve in (curve for extras in all_extras(curve_cells) for curve in extras.curves):
        group = [cell for cell in curve_cells if cell.suite.environment == curve.environment]
        rows = [row for cell in group for row in _rows(curve, cell, actions, per_cell)]
        # Without a number there is nothing to draw: prices of agents that never set one.
        if rows:
            figures.append(_figure(agents, curve, group, rows, per_cell))
    return tuple(figures)


def _figure(
    agents: Sequence[str], curve: Curve, cells: Sequence[Cell], rows: Sequence[dict[str, Any]], per_cell: int
) -> Figure:
    function = f"evalkit.report.{curve.about}" if curve.environment in OWN_ENVIRONMENTS else curve.about
    table = Table(
        name=curve.name,
        title=curve.title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="period", title="Period", kind="count"),
            *columns_of("fine", curve.axis, value="Median", low="25 %", high="75 %", mean="Mean"),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        query=_QUERY.format(environment=curve.environment, function=function, each=per_cell),
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


NAMES: Mapping[str, str] = {"seed": "seeds", "block": "blocking"}
"""What figures of these parameters are called; others bear the parameter's name."""

TITLES: Mapping[str, str] = {
    "length": "Path length (steps)",
    "noise": "Noise of composite tools' costs (standard deviation, cost units)",
    "seed": "Seed of the costs",
    "block": "Kind of block",
    "blocks": "Number of blocks",
}

CALM: Mapping[str, Any] = {"block": "none", "blocks": 0}
"""Values of suites that have no such parameter, because nothing happens in them."""

MOST_PANELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedTable:
    """A table that holds measures by suite and agent."""

    prefix: str
    """Of the figures' names."""
    table: Table
    measures: tuple[tuple[str, str, str, str], ...]
    """Columns to draw: key, its interval's key, title with the unit and without."""
    runs: Mapping[tuple[Any, ...], int]
    """By `place_of` a row: the episodes after it."""


def varied_figures(agents: Sequence[str], tables: Mapping[str, Table]) -> tuple[Figure, ...]:
    """One figure for each parameter with two values or more. `agents`: all; `tables`: the report's, by name."""
    return tuple(
        figure
        for source in _varied_sources(tables)
        for axis in dict.fromkeys(axis for row in source.table.rows for axis in axes_in(row).values())
        if (figure := _varied_figure(agents, source, axis)) is not None
    )


def place_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Suite, varied parameters and agent of a row of a report's table."""
    return (row["suite"], row["agent"], *((key, str(row[key])) for key in sorted(axes_in(row))))


def _varied_sources(tables: Mapping[str, Table]) -> Iterable[VariedTable]:
    planned: set[tuple[Any, ...]] = set()
    for name, prefix in (("planning", ""), ("planning_own", "own_")):
        if name in tables:
            titles = {column.key: column for column in tables[name].columns}
            planned |= {place_of(row) for row in tables[name].rows}
            measures = tuple(
                (key, f"{key}_interval", f"{titles[key].bare} ({words}, {titles[key].unit})", titles[key].bare)
                for key, words in (("exact", "higher is better"), ("ned", "edit distance, lower is better"))
            )
            runs = {place_of(row): row["path_runs"] for row in tables["planning_counts"].rows}
            yield VariedTable(prefix=prefix, table=tables[name], measures=measures, runs=runs)
    scores = tables["scores"]
    unit = next(column.unit for column in scores.columns if column.key == "score")
    rest = tuple(row for row in scores.rows if place_of(row) not in planned)
    yield VariedTable(
        prefix="score_",
        table=replace(scores, rows=rest),
        measures=(("score", "interval", f"Score ({unit})", "Score"),),
        runs={place_of(row): row["episodes"] for row in rest},
    )


def _varied_figure(agents: Sequence[str], source: VariedTable, axis: str) -> Figure | None:
    panels = _varied_panels(source, axis)
    if not panels:
        return None
    kept = dict(list(panels.items())[:MOST_PANELS])
    rows = [
        {
            "x": value,
            "agent": row["agent"],
            "panel": panel,
            "measure": measure,
            "cell": f"{panel} · {short}" if len(source.measures) > 1 else panel,
            "value": row[key],
            **bounds(row.get(interval), row.get("unmet") if key == "score" else None),
            "runs": source.runs.get(place_of(row)),
        }
        for panel, members in kept.items()
        for key, interval, measure, short in source.measures
        for value, row in members
        if row[key] is not None
    ]
    if not rows:
        return None
    drawn = {id(row): row for members in panels.values() for _, row in members}
    name = f"figure_{source.prefix}{re.sub('[^a-z0-9_]+', '_', NAMES.get(axis, axis).lower())}"
    title = f"{source.table.title}: {TITLES.get(axis, axis).partition(' (')[0].lower()}"
    table = replace(
        source.table, name=name, title=title, rows=tuple(row for row in source.table.rows if id(row) in drawn)
    )
    seeds = axis.endswith("seed")
    left = f"drawn: {len(kept)} of {len(panels)} panels; all are in the table"
    chart = Panels(agents, rows, TITLES.get(axis, axis))
    drawing = chart.spread() if seeds else chart.lines() if numeric(rows) else chart.dots()
    words = ["Mean and range over seeds"] if seeds else ["Mean with its 95 % interval", *chart.words]
    notes = (*([left] if len(kept) < len(panels) else []), *table.notes)
    return Figure(
        name=name, title=title, spec=spec_of(drawing, title, words), table=table, query=table.query, notes=notes
    )


def _varied_panels(source: VariedTable, axis: str) -> dict[str, list[tuple[Any, Mapping[str, Any]]]]:
    """By what else was varied, in words: (value of the parameter, row); where there are two values or more."""
    blocks = axis in CALM
    panels: dict[tuple[Any, ...], list[tuple[Any, Mapping[str, Any]]]] = {}
    calm: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in source.table.rows:
        axes = {name: row[key] for key, name in axes_in(row).items()}
        value = axes.pop(axis, None)
        plain = tuple((name, str(other)) for name, other in axes.items() if name not in CALM)
        if value is not None:
            others = tuple((name, str(other)) for name, other in axes.items() if name in CALM)
            panels.setdefault((row["suite"], plain, others), []).append((value, row))
        elif blocks and not set(axes) & set(CALM):
            calm.setdefault((row["suite"], plain), []).append(row)
    for (suite, plain, _), members in panels.items():
        members[:0] = [(CALM[axis], row) for row in calm.get((suite, plain), ())]
    # That nothing happens is one more kind of block, but no second number of them.
    least = 3 if axis == "blocks" and calm else 2
    kept = {key: members for key, members in panels.items() if len({str(value) for value, _ in members}) >= least}
    return {_panel_words(key, list(kept)): members for key, members in kept.items()}


def _panel_words(key: tuple[Any, ...], keys: Sequence[tuple[Any, ...]]) -> str:
    """What tells a panel from the others: its suite where they have several, and the parameters that differ."""
    everywhere = set.intersection(*({*key[1], *key[2]} for key in keys))
    differ = [(name, value) for name, value in (*key[1], *key[2]) if (name, value) not in everywhere]
    names = [value if name == "block" else f"{name}={value}" for name, value in differ]
    suite = [key[0]] if len({key[0] for key in keys}) > 1 else []
    return " ".join([*suite, *names])
