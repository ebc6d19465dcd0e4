"""What a sweep varied, drawn: performance against path length, noise, seeds, kinds and numbers of blocks, anything.

One figure a parameter. Numbers make lines, words make dots side by side, seeds make a spread. Cells that differ in
other parameters too stand in panels of their own; suites without blocks join the panels of blocks as `none` and 0.

Source: figures 2, 3, 5, 6 and 8 of CostBench (exact matches and normalised distances); scores elsewhere.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evalkit.report.figures.figure import Figure
from evalkit.report.figures.marks import apart, axes_in, bounds, by_agent, data, reach, spec_of, tooltip
from evalkit.report.figures.theme import WIDTH
from evalkit.report.tables import Table

if TYPE_CHECKING:
    import altair as alt

    from evalkit.report.figures.marks import Drawing

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
MOST_LABELS = 6
"""Agents that are named at the ends of their lines; more have a legend."""

HEIGHT = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A column to draw: its key and its interval's, its title with the unit and without."""

    key: str
    interval: str
    title: str
    short: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that holds measures by suite and agent."""

    prefix: str
    """Of the figures' names."""
    table: Table
    measures: tuple[Measure, ...]
    runs: Mapping[tuple[Any, ...], int]
    """By `place_of` a row: the episodes behind it."""


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


def _sources(tables: Mapping[str, Table]) -> Iterable[Source]:
    planned: set[tuple[Any, ...]] = set()
    for name, prefix in (("planning", ""), ("planning_own", "own_")):
        if name in tables:
            titles = {column.key: column for column in tables[name].columns}
            planned |= {place_of(row) for row in tables[name].rows}
            measures = tuple(
                Measure(
                    key=key,
                    interval=f"{key}_interval",
                    title=f"{titles[key].title} ({words}, {titles[key].unit})",
                    short=titles[key].title,
                )
                for key, words in (("exact", "higher is better"), ("ned", "edit distance, lower is better"))
            )
            runs = {place_of(row): row["path_runs"] for row in tables["planning_counts"].rows}
            yield Source(prefix=prefix, table=tables[name], measures=measures, runs=runs)
    scores = tables["scores"]
    rest = tuple(row for row in scores.rows if place_of(row) not in planned)
    yield Source(
        prefix="score_",
        table=replace(scores, rows=rest),
        measures=(Measure(key="score", interval="interval", title="Score (100 = optimum)", short="Score"),),
        runs={place_of(row): row["episodes"] for row in rest},
    )


def _figure(agents: Sequence[str], source: Source, axis: str) -> Figure | None:
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
            **bounds(row[measure.interval]),
            "runs": source.runs.get(place_of(row)),
        }
        for measure in source.measures
        for panel, members in kept.items()
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
    words = "Mean and range over seeds" if seeds else "Mean with its 95 % interval"
    left = f"drawn: {len(kept)} of {len(panels)} panels; all are in the table"
    chart = _Chart(agents, rows, TITLES.get(axis, axis))
    drawing = chart.spread() if seeds else chart.lines() if _numeric(rows) else chart.dots()
    notes = (*([left] if len(kept) < len(panels) else []), *table.notes)
    return Figure(
        name=name, title=title, spec=spec_of(drawing, title, [words]), table=table, query=table.query, notes=notes
    )


def _panels(source: Source, axis: str) -> dict[str, list[tuple[Any, Mapping[str, Any]]]]:
    """By what else was varied, in words: (value of the parameter, row); where there are two values or more."""
    blocks = axis in CALM
    found: dict[tuple[Any, ...], list[tuple[Any, Mapping[str, Any]]]] = {}
    calm: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in source.table.rows:
        axes = {name: row[key] for key, name in axes_in(row).items()}
        value = axes.pop(axis, None)
        plain = tuple((name, str(other)) for name, other in axes.items() if name not in CALM)
        if value is not None:
            others = tuple((name, str(other)) for name, other in axes.items() if name in CALM)
            found.setdefault((row["suite"], plain, others), []).append((value, row))
        elif blocks and not set(axes) & set(CALM):
            calm.setdefault((row["suite"], plain), []).append(row)
    for (suite, plain, _), members in found.items():
        members[:0] = [(CALM[axis], row) for row in calm.get((suite, plain), ())]
    # That nothing happens is one more kind of block, but no second number of them.
    least = 3 if axis == "blocks" and calm else 2
    kept = {key: members for key, members in found.items() if len({str(value) for value, _ in members}) >= least}
    return {_words(key, list(kept)): members for key, members in kept.items()}


def _words(key: tuple[Any, ...], keys: Sequence[tuple[Any, ...]]) -> str:
    """What tells a panel from the others: its suite where they have several, and the parameters that differ."""
    everywhere = set.intersection(*({*one[1], *one[2]} for one in keys))
    names = [f"{name}={value}" for name, value in (*key[1], *key[2]) if (name, value) not in everywhere]
    suite = [key[0]] if len({one[0] for one in keys}) > 1 else []
    return " ".join([*suite, *names])


def _numeric(rows: Iterable[Mapping[str, Any]]) -> bool:
    return all(isinstance(row["x"], (int, float)) and not isinstance(row["x"], bool) for row in rows)


class _Chart:
    """One figure's drawing: measures below each other, panels side by side."""

    def __init__(self, agents: Sequence[str], rows: list[dict[str, Any]], title: str) -> None:
        self._agents, self._rows, self._title = agents, rows, title
        self._shown = list(dict.fromkeys(row["agent"] for row in rows))
        self._panels = list(dict.fromkeys(row["panel"] for row in rows))
        self._columns = 2 if len(self._panels) > 1 else 1
        self._width = WIDTH // self._columns - 10 * (self._columns - 1)
        self._range = reach(rows, ("value", "low", "high"), 0, 100)
        self._tips = tooltip(
            agent="Agent",
            panel="Panel",
            x=title.partition(" (")[0],
            measure="Measure",
            value="Mean|.2f",
            low="95 % low|.2f",
            high="95 % high|.2f",
            runs="Episodes|,",
        )

    def lines(self) -> "Drawing":
        """A numeric parameter."""
        import altair as alt

        named = len(self._panels) == 1 and len(self._shown) <= MOST_LABELS
        look = by_agent(self._agents, self._shown, legend=not named)
        x = alt.X("x:O", title=self._title, scale=alt.Scale(padding=0.25), axis=alt.Axis(labelAngle=0, grid=False))
        y = alt.Y("value:Q", title=None, scale=alt.Scale(domain=self._range, nice=False), axis=alt.Axis(tickCount=5))
        base = alt.Chart().encode(x=x, tooltip=self._tips)
        layers = [
            base.mark_rule(strokeWidth=1.5, opacity=0.5).encode(
                y=alt.Y("low:Q", title=None), y2="high:Q", color=look["color"]
            ),
            base.mark_line(strokeWidth=1.8).encode(y=y, color=look["color"]),
            base.mark_point(filled=True, size=50, opacity=1).encode(y=y, **look),
        ]
        if named:
            self._place_labels()
            layers.append(
                base.mark_text(align="left", dx=10, limit=100)
                .transform_filter("datum.label != null")
                .encode(y=alt.Y("label_at:Q", title=None), text="label:N")
            )
        return self._faceted(alt.layer(*layers).properties(width=self._width, height=HEIGHT))

    def _place_labels(self) -> None:
        for measure in dict.fromkeys(row["measure"] for row in self._rows):
            ends: dict[str, dict[str, Any]] = {}
            for row in self._rows:
                if row["measure"] == measure and (row["agent"] not in ends or row["x"] >= ends[row["agent"]]["x"]):
                    ends[row["agent"]] = row
            least = 13 / HEIGHT * (self._range[1] - self._range[0])
            for row, at in zip(
                ends.values(), apart([row["value"] for row in ends.values()], least, self._range), strict=True
            ):
                row["label"], row["label_at"] = row["agent"], at

    def dots(self) -> "Drawing":
        """A parameter of words."""
        import altair as alt

        look = by_agent(self._agents, self._shown)
        step = min(14, max(8, 60 // len(self._shown)))
        y = alt.Y(
            "x:N",
            title=None,
            sort=list(dict.fromkeys(str(row["x"]) for row in self._rows)),
            scale=alt.Scale(paddingInner=0.25),
            axis=alt.Axis(ticks=False, domain=False),
        )
        for row in self._rows:
            row["x"] = str(row["x"])
        base = alt.Chart().encode(y=y, yOffset=alt.YOffset("agent:N", sort=self._shown), tooltip=self._tips)
        rule = base.mark_rule(strokeWidth=2, opacity=0.5).encode(
            x=self._across("low"), x2="high:Q", color=look["color"]
        )
        point = base.mark_point(filled=True, size=50, opacity=1).encode(x=self._across("value"), **look)
        # "for": so much to each agent of a word, not to the word.
        sized = alt.layer(rule, point).properties(width=self._width, height=alt.Step(step, **{"for": "offset"}))
        return self._faceted(sized)

    def spread(self) -> "Drawing":
        """A parameter that only draws anew: a dot a seed, a line from the least to the most, a tick at the mean."""
        import altair as alt

        look = by_agent(self._agents, self._shown, legend=False)
        y = alt.Y("agent:N", title=None, sort=self._shown, axis=alt.Axis(ticks=False, domain=False))
        base = alt.Chart().encode(y=y)
        rule = base.mark_rule(strokeWidth=2, opacity=0.4).encode(
            x=alt.X("min(value):Q", title=None), x2="max(value):Q", color=look["color"]
        )
        dots = base.mark_point(filled=True, size=45, opacity=0.8).encode(
            x=self._across("value"), tooltip=self._tips, **look
        )
        mean = base.mark_tick(thickness=2, size=16).encode(x=alt.X("mean(value):Q", title=None), color=look["color"])
        return self._faceted(alt.layer(rule, mean, dots).properties(width=self._width, height=alt.Step(22)))

    def _across(self, field: str) -> "alt.X":
        import altair as alt

        return alt.X(
            f"{field}:Q", title=None, scale=alt.Scale(domain=self._range, nice=False), axis=alt.Axis(tickCount=5)
        )

    def _faceted(self, layers: "alt.LayerChart | alt.FacetChart") -> "Drawing":
        import altair as alt

        measures = list(dict.fromkeys(row["measure"] for row in self._rows))
        field, titles, columns = "measure:N", measures, 1
        if len(self._panels) > 1:
            field, titles, columns = "cell:N", list(dict.fromkeys(row["cell"] for row in self._rows)), self._columns
        head = alt.Header(title=None, labelAnchor="start", labelLimit=max(self._width, WIDTH // columns) + 20)
        facet = alt.Facet(field, sort=titles, header=head)
        found: alt.FacetChart = layers.facet(data=data(self._rows), facet=facet, columns=columns, spacing=16)
        return found
