"""The tables of EconAgentBench (procurement, scheduling, pricing): scores by difficulty, action quality, exploration.

They hold over any run: suites named `.../basic`, `.../medium`, `.../hard` are the paper's difficulties, others keep
their name, and what a sweep varied has a column. `difficulty.py` tests basic against hard,
`variants.py` compares prompts.

Source: Tables 2, 3 and 4 of the paper; specification of the reference, section D.4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.envs.known import is_stationary
from evalkit.report import queries
from evalkit.report.markets.contrasts import difficulty_tables, variant_tables
from evalkit.report.markets.econ_queries import (
    DIFFICULTY,
    ENVIRONMENTS,
    LEVELS,
    axes_columns,
    axes_of,
    beside,
    labels,
    mean_of,
    owed_notes,
    runs,
    without_axes,
)
from evalkit.report.published.papers import as_printed
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, interval_figures, kind_notes, packs_of
from evalkit.report.tables import PROMPTS, Column, Table, columns_of, method_of
from evalkit.results.cells import Cell
from evalkit.stats.bootstrap import LEAST_INSTANCES


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricColumn:
    """One column of a table of secondary metrics, and the count of episodes that it is over."""

    key: str
    title: str
    environment: str
    sql: str
    """Of an episode; null if it is not defined."""
    unit: str = "% of actions"
    about: str = ""
    """What a reader must know of it."""


def econ_tables(source: RunData) -> tuple[Table, ...]:
    """All tables about the paper's environments in a run; none if there are none."""
    market_cells = [cell for cell in source.cells if cell.suite.environment in ENVIRONMENTS]
    if not market_cells:
        return ()
    played = {cell.agent for cell in market_cells if not cell.exact}

    def rivals(row: Mapping[str, Any]) -> object:
        # The optimum itself competes with nobody.
        return [row[key] for key in row if key.startswith("axis:")] if row["agent"] in played else None

    return (
        as_printed(_scores_table(source, market_cells), "econ_2", rivals),
        *difficulty_tables(source, market_cells),
        as_printed(_quality_table(source, market_cells), "econ_3", rivals),
        _exploration_table(source, market_cells),
        *_feasible_tables(source, market_cells),
        *variant_tables(source, market_cells),
    )


def _by_row(cells: Sequence[Cell]) -> list[tuple[dict[str, Any], dict[str, Cell]]]:
    """Cells side by side as in the paper: one row for each agent, difficulty and values of axes, by environment."""
    names = labels(cells)
    order = {label: i for i, label in enumerate(dict.fromkeys((*LEVELS, *names.values())))}
    rows: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Cell]]] = {}
    agents = {name: i for i, name in enumerate(dict.fromkeys(cell.agent for cell in cells))}
    for cell in cells:
        label, axes = names[cell.suite.base], axes_of(cell)
        key = (agents[cell.agent], order[label], tuple(sorted((axis, repr(value)) for axis, value in axes.items())))
        keys = {"agent": cell.agent, "difficulty": label, **axes}
        rows.setdefault(key, (keys, {}))[1][cell.suite.environment] = cell
    # Axes keep the order in which the sweep gave their values.
    return [rows[key] for key in sorted(rows, key=lambda key: key[:2])]


def _placed(rows: Sequence[dict[str, Any]], cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Rows of `beside`, with what the sweep varied as it was given: SQL gives it as text."""
    for row, (keys, _) in zip(rows, _by_row(cells), strict=True):
        yield {**without_axes(row), **keys}


def _present(cells: Sequence[Cell]) -> list[str]:
    played = {cell.suite.environment for cell in cells}
    return [name for name in ENVIRONMENTS if name in played]


def _row_columns(cells: Sequence[Cell]) -> tuple[Column, ...]:
    return (replace(AGENT, group=True), DIFFICULTY, *axes_columns(cells))


def _scores_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """Table 2 of the paper."""
    environments = _present(cells)
    intervals = ", ".join(f"{name}_{of}" for name in environments for of in ("interval", "kind"))
    query = queries.comments({intervals: queries.CHOSEN}) + beside(
        cells, labels(cells), _score_queries(environments), extra=f"arg_min(prompts, place) as {PROMPTS}"
    )
    rows = []
    for row, (_, played) in zip(_placed(source.rows(query), cells), _by_row(cells), strict=True):
        spread: dict[str, Any] = {}
        for name in environments:
            empty = {f"{name}_interval": None, f"{name}_kind": None}
            spread |= interval_figures(played[name], f"{name}_") if name in played else empty
        rows.append({**row, **spread})
    columns = []
    for name in environments:
        columns += [
            Column(key=name, title=ENVIRONMENTS[name], kind="score", unit="100 = optimum"),
            interval := Column(key=f"{name}_interval", title="95 %", kind="interval", unit="100 = optimum"),
            method_of(interval),
        ]
        if is_stationary(name):
            columns.append(Column(key=f"{name}_solved", title="Solved", kind="count", unit="episodes"))
        title = "of" if is_stationary(name) else "Runs"
        columns.append(Column(key=f"{name}_runs", title=title, kind="count", unit="episodes"))
    return Table(
        name="econ_scores",
        title="Scores by environment and difficulty",
        columns=(*_row_columns(cells), *columns, Column(key=PROMPTS, title="Prompts")),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "as Table 2 of the paper: 100 times the mean score, over instances; the mean over runs is the same if all "
            "instances have equally many",
            f"in parentheses: episodes that reached the optimum; 95 %: interval of the mean, from {LEAST_INSTANCES} "
            "instances on",
            *kind_notes(rows, cells, [f"{name}_interval" for name in environments]),
            *owed_notes(cells),
        ),
        query=query,
    )


def _score_queries(environments: Iterable[str]) -> Iterator[queries.QueryColumn]:
    for name in environments:
        yield mean_of(name, name, "score")
        yield runs(f"{name}_runs", name)
        if is_stationary(name):
            yield runs(f"{name}_solved", name, "solved")


_DISTINCT = "round(metrics['exploration_rate'] * metrics['assignments'])"
_AS_CODED = f"{_DISTINCT} / ({_DISTINCT} + 1)"
"""Exploration as the reference's code has it for scheduling: it counts one action that is none."""

QUALITY = (
    MetricColumn(
        key="budget_utilisation",
        title="Budget use",
        environment="procurement",
        sql=queries.metric("budget_utilisation"),
        unit="% of plans",
        about="budget use: % of all plans that were feasible and cost 95 to 100 % of the budget",
    ),
    MetricColumn(
        key="best_so_far_rate",
        title="Best so far",
        environment="scheduling",
        sql=queries.metric("best_so_far_rate"),
        unit="% of assignments",
        about="best so far: % of assignments with fewer problems than all before, the first among them",
    ),
    MetricColumn(
        key="adaptability",
        title="Adaptability",
        environment="pricing",
        sql=queries.metric("adaptability"),
        unit="points of score",
        about="adaptability: the score, of the last periods (50 to 99 in the paper), less that of the first ten",
    ),
)
"""Table 3 of the paper."""

EXPLORATION = (
    MetricColumn(
        key="procurement",
        title="Procurement",
        environment="procurement",
        sql=queries.metric("exploration_rate"),
    ),
    MetricColumn(
        key="procurement_text",
        title="as text",
        environment="procurement",
        sql=queries.metric("exploration_rate_text"),
        about="as text: as the reference's code counts, to which plans that buy the same in another order, or spell a "
        "zero out, are different",
    ),
    MetricColumn(
        key="scheduling",
        title="Scheduling",
        environment="scheduling",
        sql=queries.metric("exploration_rate"),
    ),
    MetricColumn(
        key="scheduling_code",
        title="as coded",
        environment="scheduling",
        sql=_AS_CODED,
        about="as coded: u / (u + 1) of u different assignments, as the reference's code has it",
    ),
    MetricColumn(
        key="pricing",
        title="Pricing",
        environment="pricing",
        sql=queries.metric("exploration_rate"),
        about="pricing: prices as they were shown; not in the paper",
    ),
)
"""Table 4 of the paper, with the reference code's own figures and with pricing."""


def _figures_table(
    source: RunData, cells: Sequence[Cell], figures: Sequence[MetricColumn], *, name: str, title: str, lead: str
) -> Table:
    environments = _present(cells)
    shown = [figure for figure in figures if figure.environment in environments]
    query = beside(cells, labels(cells), [column for figure in shown for column in _figure_queries(figure)])
    columns = []
    for figure in shown:
        columns.append(Column(key=figure.key, title=figure.title, kind="percent", unit=figure.unit))
        columns.append(Column(key=f"{figure.key}_runs", title="over", kind="count", unit="episodes"))
    return Table(
        name=name,
        title=title,
        columns=(*_row_columns(cells), *columns),
        rows=tuple(_placed(source.rows(query), cells)),
        packs=packs_of(cells),
        notes=(lead, *(figure.about for figure in shown if figure.about), *owed_notes(cells)),
        query=query,
    )


def _figure_queries(figure: MetricColumn) -> tuple[queries.QueryColumn, ...]:
    return (
        mean_of(figure.key, figure.environment, figure.sql),
        runs(f"{figure.key}_runs", figure.environment, f"{figure.sql} is not null"),
    )


def _quality_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """Table 3 of the paper."""
    lead = "as Table 3 of the paper (there for hard instances); over: episodes in which the figure is defined"
    return _figures_table(source, cells, QUALITY, name="econ_action_quality", title="Action quality", lead=lead)


def _exploration_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """Table 4 of the paper."""
    lead = (
        "as Table 4 of the paper (there for hard instances): % of accepted actions that were new; over: episodes "
        "with an action"
    )
    return _figures_table(source, cells, EXPLORATION, name="econ_exploration", title="Exploration", lead=lead)


def _feasible_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Procurement's mean by the reference's code, and by ours."""
    own_cells = [cell for cell in cells if cell.suite.environment == "procurement"]
    if not own_cells:
        return ()
    query = beside(
        own_cells,
        labels(own_cells),
        (
            mean_of("score", "procurement", "score"),
            mean_of("reference_score", "procurement", queries.metric("reference_score")),
            runs("dropped", "procurement", "metrics['reference_score'] is null"),
            runs("runs", "procurement"),
        ),
    )
    table = Table(
        name="econ_feasible",
        title="Procurement without runs that found no feasible plan",
        columns=(
            *_row_columns(own_cells),
            *columns_of("score", "100 = optimum", score="Score", reference_score="without them"),
            *columns_of("count", "episodes", dropped="Left out", runs="of"),
        ),
        rows=tuple(_placed(source.rows(query), own_cells)),
        packs=packs_of(own_cells),
        notes=(
            "score: a run without a feasible plan scores 0; without them: the reference's code leaves such runs out "
            "of the mean",
            *owed_notes(own_cells),
        ),
        query=query,
    )
    return (table,)
