"""What the environments that are played in periods share: kinds of error, and the figures of their paper.

Scores from basic to hard, and every episode's score beside its exploration. Source: Table 2 and figure 2 of
EconAgentBench (which has the second for prompts in procurement).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from evalkit.report.extras import Charts, Curve, ErrorKind, Extras, Find, PeriodStanding
from evalkit.report.figures.marks import SCORE, Panels, bounds, by_agent, dotted, in_order, names_axis
from evalkit.report.markets.econ import econ_tables
from evalkit.report.markets.econ_queries import ENVIRONMENTS, LEVELS
from evalkit.report.periods import standing as standing_at
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table
from evalkit.report.vega import (
    MOST_MARKS,
    WIDTH,
    Figure,
    Spec,
    clean,
    mark,
    number,
    panels,
    reach,
    scaled,
    spec_of,
    tips,
    word,
)
from evalkit.results.cells import Cell
from evalkit.results.moves import Move


def errors(environment: str) -> tuple[ErrorKind, ...]:
    """The kinds of error that playing in periods brings."""
    kinds: tuple[tuple[str, str, str, Callable[[Move], bool]], ...] = (
        ("reply without a call", "replies", "without_call", _silent),
        ("period without an action", "periods", "no_action", _idle),
        ("unresponsive", "episodes", "ending = 'unresponsive'", lambda move: bool(move.ending)),
    )
    return tuple(
        ErrorKind(name=name, environment=environment, unit=unit, sql=sql, find=_first(holds))
        for name, unit, sql, holds in kinds
    )


def _first(holds: Callable[[Move], bool]) -> Find:
    return lambda _, played: next(((i, None) for i, move in enumerate(played) if holds(move)), None)


def _idle(move: Move) -> bool:
    return move.facts.get("period_end") in ("no_action", "restart")


def _silent(move: Move) -> bool:
    return move.reply is not None and not move.reply.calls


MOST_SUITES = 9

RUN_MEASURES = {"score": SCORE, "exploration": "Exploration (% new actions)"}


def ladder_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """Scores by difficulty from the report's table `econ_scores`, where an agent has played two levels or more."""
    columns = {column.key for column in table.columns}
    axes = [key for key in columns if key.startswith("axis:")]
    varied = [key for key in axes if len({repr(row[key]) for row in table.rows}) > 1]
    plain = [row for row in table.rows if all(row[key] is None for key in varied)]
    rows = [
        {
            "x": row["difficulty"],
            "agent": row["agent"],
            "panel": "",
            "measure": f"{title} (score, 100 = optimum)",
            "cell": "",
            "value": row[name],
            **bounds(row[f"{name}_interval"]),
            "runs": row[f"{name}_runs"],
        }
        for name, title in ENVIRONMENTS.items()
        if name in columns
        for level in LEVELS
        for row in plain
        if row["difficulty"] == level and row[name] is not None
    ]
    # One level says nothing about difficulty.
    levels = {row["measure"]: {other["x"] for other in rows if other["measure"] == row["measure"]} for row in rows}
    rows = [row for row in rows if len(levels[row["measure"]]) > 1]
    if not rows:
        return ()
    title = "Scores by difficulty"
    panels = Panels(agents, rows, "Difficulty")
    return (
        Figure(
            name="figure_difficulty",
            title=title,
            spec=spec_of(panels.lines(), title, ["Mean with its 95 % interval", *panels.words]),
            table=replace(table, name="figure_difficulty"),
            query=table.query,
            notes=table.notes,
        ),
    )


_RUNS_QUERY = """\
select e.suite, e.agent, e.instance, e.replicate, 100 * e.score as score,
    100 * e.metrics['exploration_rate'] as exploration
from episodes e join cells c using (suite, agent) where e.used and e.environment = '{environment}'
order by c.place, e.place"""


def runs_figures(agents: Sequence[str], source: RunData) -> tuple[Figure, ...]:
    """Every episode's score and exploration, an environment a figure; figure 2 of the paper is procurement's."""
    figures = []
    for name, title in ENVIRONMENTS.items():
        own_cells = [cell for cell in source.cells if cell.suite.environment == name and cell.prefix]
        if own_cells:
            figures.append(_runs_figure(agents, source, own_cells, name, f"{title}: every episode"))
    return tuple(figures)


def _runs_figure(agents: Sequence[str], source: RunData, cells: Sequence[Cell], environment: str, title: str) -> Figure:
    query = _RUNS_QUERY.format(environment=environment)
    rows = source.rows(query)
    suites = list(dict.fromkeys(cell.suite.name for cell in cells))[:MOST_SUITES]
    drawn = [cell for cell in cells if cell.suite.name in suites]
    per_row = max(1, MOST_MARKS // (2 * len(drawn)))
    kept: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        if row["suite"] in suites and len(shown := kept.setdefault((row["suite"], row["agent"]), [])) < per_row:
            shown.append(row)
    marks = [
        {**row, "measure": measure, "value": row[measure]}
        for shown in kept.values()
        for row in shown
        for measure in RUN_MEASURES
        if row[measure] is not None
    ]
    fewer = sum(map(len, kept.values())) < len(rows)
    limits = f"drawn: at most {per_row:,} episodes of a row, of the first {len(suites)} suites; all are in the table"
    name = f"figure_runs_{environment}"
    table = Table(
        name=name,
        title=title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="instance", title="Instance"),
            Column(key="replicate", title="Replicate", kind="count"),
            Column(key="score", title="Score", kind="score", unit="100 = optimum"),
            Column(key="exploration", title="Exploration", kind="percent", unit="% of actions"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        query=query,
    )
    subtitle = ["A dot an episode; exploration: % of accepted actions that were new"]
    return Figure(
        name=name,
        title=title,
        spec=spec_of(_runs_chart(agents, clean(marks), environment), title, subtitle),
        table=table,
        query=table.query,
        notes=(limits,) if fewer else (),
    )


def _runs_chart(agents: Sequence[str], rows: Sequence[dict[str, Any]], environment: str) -> Spec:
    for row in rows:
        row["short"] = row["suite"].removeprefix(f"{environment}/")
    shown = in_order(agents, rows)
    suites = list(dict.fromkeys(row["short"] for row in rows))
    sides: list[Spec] = []
    for measure, title in RUN_MEASURES.items():
        measure_rows = [row for row in rows if row["measure"] == measure]
        if not measure_rows:
            continue
        scale = scaled(reach(measure_rows, ("value",), 0, 100))
        where = {
            "x": number("value", title, scale=scale, axis={"tickCount": 5}),
            "y": word("agent", sort=shown, axis=names_axis(labels=not sides)),
            "tooltip": tips(
                suite="Suite", agent="Agent", instance="Instance", replicate="Replicate", value="Value|.2f"
            ),
            **dotted(by_agent(agents, shown, legend=False)),
        }
        dots = mark("point", where, filled=True, size=28, opacity=0.45)
        dots |= {"width": WIDTH // 2 - 10, "height": {"step": 17}}
        # The second side's headings are the first's: blank, so that both are as high.
        head = {"labelExpr": "' '" if sides else "datum.label"}
        sides.append(panels(measure_rows, dots, "short", suites, head=head, spacing=8))
    return {"hconcat": sides, "spacing": 16}


def market_extras(
    name: str,
    place: int,
    standing: PeriodStanding,
    charts: Charts,
    curve: tuple[str, str, tuple[float, float]],
    curves: tuple[Curve, ...] = (),
    kinds: tuple[ErrorKind, ...] = (),
) -> Extras:
    """What reports have of one of these environments.

    curve           of what stands at the end of each period: its title, the axis', and the axis' ends at most
    curves, kinds   further curves, and kinds of error before those that all have
    """
    title, axis, most = curve
    over_periods = Curve(
        name=f"figure_periods_{name}",
        environment=name,
        title=title,
        axis=axis,
        about=f"periods.standing of {name}",
        ends=(0, 100),
        most=most,
        series=lambda instance, actions, periods: 100 * standing_at(name, instance, actions, periods),
    )
    return Extras(
        place=place,
        tables=econ_tables,
        table_figures=(("econ_scores", ladder_figures),),
        cell_figures=runs_figures,
        standing=standing,
        curves=(over_periods, *curves),
        errors=(*kinds, *errors(name)),
        charts=charts,
    )
