"""What a sweep varied, drawn: performance against path length, noise, seeds, kinds and numbers of blocks, anything.

One figure a parameter. Numbers make lines, words make dots side by side, seeds make a spread. Cells that differ in
other parameters too stand in panels of their own; suites without blocks join the panels of blocks as `none` and 0.

Source: figures 2, 3, 5, 6 and 8 of CostBench (exact matches and normalised distances); scores elsewhere.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import axes_in, bounds
from evalkit.report.figures.panels import Panels, numeric
from evalkit.report.tables import Table
from evalkit.report.vega import spec_of

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
class DrawnMeasure:
    """A column to draw: its key and its interval's, its title with the unit and without."""

    key: str
    interval: str
    """Empty if there is none."""
    title: str
    short: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedTable:
    """A table that holds measures by suite and agent."""

    prefix: str
    """Of the figures' names."""
    table: Table
    measures: tuple[DrawnMeasure, ...]
    runs: Mapping[tuple[Any, ...], int]
    """By `place_of` a row: the episodes after it."""


def varied_figures(agents: Sequence[str], tables: Mapping[str, Table]) -> tuple[Figure, ...]:
    """One figure for each parameter with two values or more. `agents`: all; `tables`: the report's, by name."""
    return tuple(
        figure
        for source in _sources(tables)
        for axis in dict.fromkeys(axis for row in source.table.rows for axis in axes_in(row).values())
        if (figure := _figure(agents, source, axis)) is not None
    )


def place_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Suite, varied parameters and agent of a row of a report's table."""
    return (row["suite"], row["agent"], *((key, str(row[key])) for key in sorted(axes_in(row))))


def _sources(tables: Mapping[str, Table]) -> Iterable[VariedTable]:
    planned: set[tuple[Any, ...]] = set()
    for name, prefix in (("planning", ""), ("planning_own", "own_")):
        if name in tables:
            titles = {column.key: column for column in tables[name].columns}
            planned |= {place_of(row) for row in tables[name].rows}
            measures = tuple(
                DrawnMeasure(
                    key=key,
                    interval=f"{key}_interval",
                    title=f"{titles[key].bare} ({words}, {titles[key].unit})",
                    short=titles[key].bare,
                )
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
        measures=(DrawnMeasure(key="score", interval="interval", title=f"Score ({unit})", short="Score"),),
        runs={place_of(row): row["episodes"] for row in rest},
    )


def _figure(agents: Sequence[str], source: VariedTable, axis: str) -> Figure | None:
    panels = _panels(source, axis)
    if not panels:
        return None
    kept = dict(list(panels.items())[:MOST_PANELS])
    rows = [
        {
            "x": value,
            "agent": row["agent"],
            "panel": panel,
            "measure": measure.title,
            "cell": f"{panel} · {measure.short}" if len(source.measures) > 1 else panel,
            "value": row[measure.key],
            **bounds(row.get(measure.interval)),
            "runs": source.runs.get(place_of(row)),
        }
        for panel, members in kept.items()
        for measure in source.measures
        for value, row in members
        if row[measure.key] is not None
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


def _panels(source: VariedTable, axis: str) -> dict[str, list[tuple[Any, Mapping[str, Any]]]]:
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
    return {_words(key, list(kept)): members for key, members in kept.items()}


def _words(key: tuple[Any, ...], keys: Sequence[tuple[Any, ...]]) -> str:
    """What tells a panel from the others: its suite where they have several, and the parameters that differ."""
    everywhere = set.intersection(*({*key[1], *key[2]} for key in keys))
    differ = [(name, value) for name, value in (*key[1], *key[2]) if (name, value) not in everywhere]
    names = [value if name == "block" else f"{name}={value}" for name, value in differ]
    suite = [key[0]] if len({key[0] for key in keys}) > 1 else []
    return " ".join([*suite, *names])
