"""The tables of EconAgentBench (procurement, scheduling, pricing): scores by difficulty, action quality, exploration.

They hold over any run: suites named `.../basic`, `.../medium`, `.../hard` are the paper's difficulties, others keep
their name, and what a sweep varied has a column. `contrasts.py` tests basic against hard, and compares prompts.

Source: Tables 2, 3 and 4 of the paper; specification of the reference, section D.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.envs.table import presented
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
    remaining_notes,
    runs,
    without_axes,
)
from evalkit.report.published.papers import as_printed
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, interval_figures, kind_notes, packs_of
from evalkit.report.tables import PROMPTS, Column, Table, columns_of, estimated
from evalkit.results.cells import Cell
from evalkit.stats.intervals import LEAST_INSTANCES

OPTIMUM = "100 = optimum"


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

    @property
    def figures(self) -> tuple[queries.QueryColumn, ...]:
        """Its mean, and over how many episodes."""
        counted = runs(f"{self.key}_runs", self.environment, f"{self.sql} is not null")
        return mean_of(self.key, self.environment, self.sql), counted

    @property
    def columns(self) -> tuple[Column, ...]:
        """Of these."""
        over = Column(key=f"{self.key}_runs", title="over", kind="count", unit="episodes")
        return Column(key=self.key, title=self.title, kind="percent", unit=self.unit), over


def econ_tables(source: RunData) -> tuple[Table, ...]:
    """All tables about the paper's environments in a run; none if there are none."""
    cells = [cell for cell in source.cells if cell.suite.environment in ENVIRONMENTS]
    if not cells:
        return ()
    played = {cell.agent for cell in cells if not cell.exact}

    def rivals(row: Mapping[str, Any]) -> object:
        # The optimum itself competes with nobody.
        return [row[key] for key in row if key.startswith("axis:")] if row["agent"] in played else None

    quality = _figures_table(
        source,
        cells,
        QUALITY,
        name="econ_action_quality",
        title="Action quality",
        lead="as Table 3 of the paper (there for hard instances); over: episodes in which the figure is defined",
    )
    exploration = _figures_table(
        source,
        cells,
        EXPLORATION,
        name="econ_exploration",
        title="Exploration",
        lead="as Table 4 of the paper (there for hard instances): % of accepted actions that were new; over: episodes "
        "with an action",
    )
    return (
        as_printed(_scores_table(source, cells), "econ_2", rivals),
        *difficulty_tables(source, cells),
        as_printed(quality, "econ_3", rivals),
        exploration,
        *_feasible_tables(source, [cell for cell in cells if cell.suite.environment == "procurement"]),
        *variant_tables(source, cells),
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


def _table(
    source: RunData,
    cells: Sequence[Cell],
    figures: Iterable[queries.QueryColumn],
    columns: Iterable[Column],
    notes: Iterable[str],
    *,
    name: str,
    title: str,
    extra: str = "",
    before: str = "",
) -> Table:
    """A row for each agent, difficulty and values of axes. `extra`: one more column; `before`: the query's comments."""
    query = before + beside(cells, labels(cells), figures, extra)
    rows = zip(source.rows(query), _by_row(cells), strict=True)
    return Table(
        name=name,
        title=title,
        columns=(replace(AGENT, group=True), DIFFICULTY, *axes_columns(cells), *columns),
        # What the sweep varied is as it was given: SQL gives it as text.
        rows=tuple({**without_axes(row), **keys} for row, (keys, _) in rows),
        packs=packs_of(cells),
        notes=(*notes, *remaining_notes(cells)),
        query=query,
    )


def _present(cells: Sequence[Cell]) -> list[str]:
    played = {cell.suite.environment for cell in cells}
    return [name for name in ENVIRONMENTS if name in played]


def _scores_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """Table 2 of the paper."""
    environments = _present(cells)
    figures: list[queries.QueryColumn] = []
    columns: list[Column] = []
    none: dict[str, None] = {}
    for name in environments:
        solved = presented(name).stationary
        figures += [mean_of(name, name, "score"), runs(f"{name}_runs", name)]
        figures += [runs(f"{name}_solved", name, "solved")] if solved else []
        columns += estimated(Column(key=name, title=ENVIRONMENTS[name], kind="score", unit=OPTIMUM))
        columns += columns_of("count", "episodes", **{f"{name}_solved": "Solved"} if solved else {})
        columns += columns_of("count", "episodes", **{f"{name}_runs": "of" if solved else "Runs"})
        none |= {f"{name}_interval": None, f"{name}_kind": None}
    intervals = ", ".join(none)
    table = _table(
        source,
        cells,
        figures,
        (*columns, Column(key=PROMPTS, title="Prompts")),
        (),
        name="econ_scores",
        title="Scores by environment and difficulty",
        extra=f"arg_min(prompts, place) as {PROMPTS}",
        before=queries.comments({intervals: queries.CHOSEN}),
    )
    rows: list[dict[str, Any]] = []
    for row, (_, played) in zip(table.rows, _by_row(cells), strict=True):
        rows.append({**row, **none})
        for name, cell in played.items():
            rows[-1] |= interval_figures(cell, f"{name}_")
    notes = (
        "as Table 2 of the paper: 100 times the mean score, over instances; the mean over runs is the same if all "
        "instances have equally many",
        f"in parentheses: episodes that reached the optimum; 95 %: interval of the mean, from {LEAST_INSTANCES} "
        "instances on",
        *kind_notes(rows, cells, [f"{name}_interval" for name in environments]),
    )
    return replace(table, rows=tuple(rows), notes=(*notes, *table.notes))


_DISTINCT = "round(metrics['exploration_rate'] * metrics['assignments'])"
_EXPLORED = queries.metric("exploration_rate")

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
    MetricColumn(key="procurement", title="Procurement", environment="procurement", sql=_EXPLORED),
    MetricColumn(
        key="procurement_text",
        title="as text",
        environment="procurement",
        sql=queries.metric("exploration_rate_text"),
        about="as text: as the reference's code counts, to which plans that buy the same in another order, or spell a "
        "zero out, are different",
    ),
    MetricColumn(key="scheduling", title="Scheduling", environment="scheduling", sql=_EXPLORED),
    MetricColumn(
        key="scheduling_code",
        title="as coded",
        environment="scheduling",
        # The reference's code counts one action that is none.
        sql=f"{_DISTINCT} / ({_DISTINCT} + 1)",
        about="as coded: u / (u + 1) of u different assignments, as the reference's code has it",
    ),
    MetricColumn(
        key="pricing",
        title="Pricing",
        environment="pricing",
        sql=_EXPLORED,
        about="pricing: prices as they were shown; not in the paper",
    ),
)
"""Table 4 of the paper, with the reference code's own figures and with pricing."""


def _figures_table(
    source: RunData, cells: Sequence[Cell], figures: Sequence[MetricColumn], *, name: str, title: str, lead: str
) -> Table:
    environments = _present(cells)
    shown = [figure for figure in figures if figure.environment in environments]
    return _table(
        source,
        cells,
        [column for figure in shown for column in figure.figures],
        [column for figure in shown for column in figure.columns],
        (lead, *(figure.about for figure in shown if figure.about)),
        name=name,
        title=title,
    )


def _feasible_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Procurement's mean by the reference's code, and by ours."""
    if not cells:
        return ()
    figures = (
        mean_of("score", "procurement", "score"),
        mean_of("reference_score", "procurement", queries.metric("reference_score")),
        runs("dropped", "procurement", "metrics['reference_score'] is null"),
        runs("runs", "procurement"),
    )
    columns = (
        *columns_of("score", OPTIMUM, score="Score", reference_score="without them"),
        *columns_of("count", "episodes", dropped="Left out", runs="of"),
    )
    note = (
        "score: a run without a feasible plan scores 0; without them: the reference's code leaves such runs out "
        "of the mean"
    )
    title = "Procurement without runs that found no feasible plan"
    return (_table(source, cells, figures, columns, [note], name="econ_feasible", title=title),)
