"""All figures of a run, each only where the run has what it shows; and those of every environment: scores, and what
they cost.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalkit.envs.table import is_litmus
from evalkit.money import simulated_words, usd_number
from evalkit.report import queries, vega
from evalkit.report.extras import all_extras
from evalkit.report.figures.curves import curve_figures, varied_figures
from evalkit.report.figures.marks import bounds, by_agent, dotted, estimates, hollow, in_order, names_axis, suite_of
from evalkit.report.report import Report
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, DOWN_TO, INTERVAL, packs_of
from evalkit.report.tables import Column, Table, marked, method_of, shown
from evalkit.report.vega import Figure


def figures(report: Report) -> tuple[Figure, ...]:
    """The figures that stand on a report alone, in reading order."""
    agents = tuple(report.manifest.agents)
    tables = {table.name: table for table in report.tables}
    drawn = [*score_figures(agents, tables["scores"]), *varied_figures(agents, tables)]
    source = RunData(report.manifest, report.cells)
    extras_here = all_extras(report.cells)
    for name, draw in dict.fromkeys(pair for extras in extras_here for pair in extras.table_figures):
        drawn += draw(agents, tables[name]) if name in tables else ()
    for build in dict.fromkeys(extras.cell_figures for extras in extras_here if extras.cell_figures):
        drawn += build(agents, source)
    return (*drawn, *money_figures(agents, tables["scores"], source))


def run_figures(run: Path, report: Report) -> tuple[Figure, ...]:
    """All figures of a run directory: those of its report, and the curves over periods, which read its facts."""
    return (*figures(report), *curve_figures(run, tuple(report.manifest.agents), report.cells))


MOST_ROWS = 120
"""Dots in one column; more suites are left to the table."""

ROW_HEIGHT = 17

SCORE_TIPS = {
    "suite": "Suite",
    "agent": "Agent",
    "value": "Score|.2f",
    "span": "95 %",
    "instances": "Instances|,",
    "episodes": "Episodes|,",
}


def score_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `scores` drawn; nothing where nobody has a score. `agents`: all, in the manifest's order."""
    score = next(column for column in table.columns if column.key == "score")
    rows: vega.Rows = [
        {
            "suite": suite_of(row),
            "agent": row["agent"],
            "value": row["score"],
            **bounds(row["interval"], row.get("unmet")),
            "instances": row["instances"],
            "episodes": row["episodes"],
            "words": shown(score, row["score"]).replace("-", "−"),
        }
        for row in table.rows
        if row["score"] is not None
    ]
    if not rows:
        return ()
    kept, note = at_most(rows, MOST_ROWS, "suite")
    words = [f"Mean over instances with its 95 % interval; {score.unit}", *hollow(kept)]
    spec = vega.spec_of(_scores_chart(agents, vega.clean(kept), f"Score ({score.unit})"), "Scores", words)
    return (
        Figure(
            name="figure_scores", title="Scores", spec=spec, table=table, query=table.query, notes=(*note, *table.notes)
        ),
    )


def at_most(rows: vega.Rows, most: int, group: str, groups: int = MOST_ROWS) -> tuple[vega.Rows, tuple[str, ...]]:
    """The first groups (at most `groups`) whose rows are at most `most` together, but one at least; and a note on what
    is left out."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row[group]] = sizes.get(row[group], 0) + 1
    kept: list[str] = []
    total = 0
    for name, size in sizes.items():
        if kept and (total + size > most or len(kept) == groups):
            break
        kept.append(name)
        total += size
    if len(kept) == len(sizes):
        return rows, ()
    note = f"drawn: the first {len(kept):,} of {len(sizes):,} settings; all are in the table"
    return [row for row in rows if row[group] in set(kept)], (note,)


def _scores_chart(agents: Sequence[str], rows: vega.Rows, title: str) -> vega.Spec:
    suites, played = list(dict.fromkeys(row["suite"] for row in rows)), in_order(agents, rows)
    by, order = ("agent", played) if len(played) > 1 else ("suite", suites)
    base = {"y": vega.word(by, sort=order, axis=names_axis()), "tooltip": vega.tips(**SCORE_TIPS)}
    x = vega.number("value", title, scale=vega.scaled(vega.reach(rows, ("value", "low", "high", "down"), 0, 100)))
    numbers = {**base, "x": {"value": vega.WIDTH}, "text": vega.word("words")}
    layers = {
        "layer": [
            *estimates(base, "x", x, by_agent(agents, played, legend=False), rows, size=55),
            vega.mark("text", numbers, align="left", dx=8, style="quiet-text"),
        ],
        "width": vega.WIDTH,
        "height": {"step": ROW_HEIGHT},
    }
    if by == "suite":
        return {"data": vega.data(rows), **layers}
    return vega.panels(rows, layers, "suite", suites, spacing=14, apart="y")


MOST_DOTS = 240
MOST_PANELS = 9

_COST = (
    queries.inside("paid", "sum(cost)"),
    queries.inside("episodes", "count(*)"),
    queries.derived("cost_pico_usd", "round_even(sum(paid) / sum(episodes), 0)::bigint"),
)


def money_figures(agents: Sequence[str], scores: Table, source: RunData) -> tuple[Figure, ...]:
    """Cost of an episode against the score, by suite; nothing where all is free. `scores`: the report's table."""
    methods = {
        "score, interval, unmet, kind, episodes": "as of the table scores",
        "frontier": "no agent scores more on the suite for as much, or as much for less",
    }
    query = queries.by_cell(source.cells, _COST, keep="", methods=methods)
    costs = list(source.by_cell(query, source.cells))
    rows = [
        {
            "suite": suite_of(row),
            **{name: row[name] for name in ("agent", "cost_pico_usd")},
            **{name: scored[name] for name in ("score", "interval", "unmet", "kind", "episodes")},
        }
        for (cell, row), scored in zip(costs, scores.rows, strict=True)
        if row["cost_pico_usd"] and scored["score"] is not None and not is_litmus(cell.suite.environment)
    ]
    if not rows:
        return ()
    for suite in {row["suite"] for row in rows}:
        _mark_frontier([row for row in rows if row["suite"] == suite])
    title = "Score against cost"
    table = Table(
        name="figure_cost",
        title=title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="cost_pico_usd", title="Cost an episode", kind="usd", unit="1e-12 USD"),
            Column(key="score", title="Score", kind="score", unit="100 = optimum"),
            INTERVAL,
            method_of(INTERVAL),
            DOWN_TO,
            Column(key="episodes", title="Episodes", kind="count"),
            Column(key="frontier", title="On the frontier"),
        ),
        rows=tuple(rows),
        packs=packs_of(source.cells),
        query=query,
    )
    table = marked(table, source.manifest.simulated)
    marks = [
        {
            **{name: row[name] for name in ("suite", "agent", "score", "episodes", "frontier")},
            "usd": usd_number(row["cost_pico_usd"]),
            **bounds(row["interval"], row.get("unmet")),
        }
        for row in rows
    ]
    kept, notes = at_most(marks, MOST_DOTS, "suite", MOST_PANELS)
    money = simulated_words(source.manifest.simulated)
    words = [
        f"Mean cost of an episode{money}, logarithmic",
        "Mean score with its 95 % interval",
        FRONTIER,
        *hollow(kept),
    ]
    spec = vega.spec_of(_cost_chart(agents, vega.clean(kept)), title, words)
    return (Figure(name="figure_cost", title=title, spec=spec, table=table, query=table.query, notes=notes),)


FRONTIER = "Line: the Pareto frontier, the best score for the money"


def _mark_frontier(rows: Sequence[dict[str, Any]]) -> None:
    """Say of each row of a suite, as `frontier`, whether no other has a better score for as much or less money."""
    best = -math.inf
    for row in sorted(rows, key=lambda row: (row["cost_pico_usd"], -row["score"])):
        row["frontier"] = "yes" if row["score"] > best else "no"
        best = max(best, row["score"])


def _cost_chart(agents: Sequence[str], rows: vega.Rows) -> vega.Spec:
    shown, suites = in_order(agents, rows), list(dict.fromkeys(row["suite"] for row in rows))
    base = {
        "x": vega.number(
            "usd",
            "Cost of an episode (USD)",
            scale={"type": "log", "padding": 12, "nice": False},
            axis={"format": "$.2~r", "values": decades(rows, ("usd",))},
        ),
        "tooltip": vega.tips(
            suite="Suite",
            agent="Agent",
            usd="USD an episode|.4~r",
            score="Score|.2f",
            span="95 %",
            episodes="Episodes|,",
        ),
    }
    # Each panel from 0 to 100, and beyond where its own marks are; with room for those at an end.
    y = vega.number(
        "score",
        scale=vega.scaled(vega.reach(rows, ("score", "low", "high", "down"), 0, 100)) | {"padding": 6},
        axis={"tickCount": 5},
    )
    steps = {"x": base["x"], "y": y, "order": {"field": "usd"}}
    frontier = vega.mark(
        "line",
        steps,
        where="datum.frontier === 'yes'",
        style="quiet",
        fill=None,
        interpolate="step-after",
        strokeWidth=1.2,
        strokeDash=[4, 3],
    )
    layers = [frontier, *estimates(base, "y", y, dotted(by_agent(agents, shown)), rows)]
    return vega.panels(rows, {"layer": layers, "width": vega.WIDTH, "height": 120}, "suite", suites, apart="y")


def decades(rows: vega.Rows, names: Sequence[str]) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 times them where the values span less than two.

    Where no two of these lie among the values: the least and the largest of those.
    """
    values = [row[name] for row in rows for name in names if row[name]]
    least, most = min(values), max(values)
    steps = (1,) if math.log10(most / least) > 2 else (1, 2, 5)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return ticks if sum(least <= tick <= most for tick in ticks) > 1 else sorted({least, most})
