"""A drawing of means in panels: measures below each other, and what else differs beside each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalkit.report.figures.marks import (
    Rows,
    by_agent,
    clean,
    data,
    estimates,
    hollow,
    in_order,
    names_axis,
    reach,
    tooltip,
)
from evalkit.report.figures.theme import WIDTH

if TYPE_CHECKING:
    import altair as alt

    from evalkit.report.figures.marks import Drawing

HEIGHT = 130


def numeric(rows: Rows) -> bool:
    """Whether `x` is a number everywhere."""
    return all(isinstance(row["x"], (int, float)) and not isinstance(row["x"], bool) for row in rows)


class Panels:
    """One figure's drawing.

    A row has `x`, `agent`, `panel` (empty where there is one), `measure` and `cell` (titles of its panel where there
    is one, and where there are several), `value`, `low`, `high` (None where there is no interval), `runs`; it may have
    a `reference` that `dots` marks across the agents.
    """

    def __init__(self, agents: Sequence[str], rows: Rows, title: str, ends: tuple[float, float] = (0, 100)) -> None:
        """`agents`: all of the run, in the manifest's order; `title`: of `x`; `ends`: of the values, at least."""
        self._agents, self._rows, self._title = agents, clean(rows), title
        self._shown = in_order(agents, self._rows)
        self._panels = list(dict.fromkeys(row["panel"] for row in self._rows))
        self._columns = 2 if len(self._panels) > 1 else 1
        self._width = WIDTH // self._columns - 10 * (self._columns - 1)
        self._range = reach(self._rows, ("value", "low", "high"), *ends)
        self._tips = tooltip(
            agent="Agent",
            panel="Panel",
            x=title.partition(" (")[0],
            measure="Measure",
            value="Mean|.2f",
            span="95 %",
            runs="Episodes|,",
        )

    @property
    def words(self) -> list[str]:
        """A line of a subtitle on what hollow dots are, where there are any."""
        return hollow(self._rows)

    def lines(self) -> "Drawing":
        """A parameter with an order: numbers by size, others as they come."""
        import altair as alt

        look = by_agent(self._agents, self._shown)
        # Agents stand side by side at each value, so that none lies under another where they are equal.
        x = alt.X(
            "x:O",
            sort=self._order(),
            title=self._title,
            scale=alt.Scale(paddingInner=0.4, paddingOuter=0.2),
            axis=alt.Axis(labelAngle=0, grid=False),
        )
        beside = alt.XOffset("agent:N", sort=self._shown)
        y = alt.Y("value:Q", title=None, scale=alt.Scale(domain=self._range, nice=False), axis=alt.Axis(tickCount=5))
        base = alt.Chart().encode(x=x, xOffset=beside, tooltip=self._tips)
        line = base.mark_line(strokeWidth=1.5, opacity=0.7).encode(
            y=y, color=look["color"], strokeDash=look["strokeDash"]
        )
        layers = alt.layer(line, *estimates(base, y, look, size=40))
        return self._faceted(layers.properties(width=self._width, height=HEIGHT))

    def _order(self) -> list[Any]:
        values = list(dict.fromkeys(row["x"] for row in self._rows))
        return sorted(values) if numeric(self._rows) else values

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
            axis=names_axis(),
        )
        for row in self._rows:
            row["x"] = str(row["x"])
        base = alt.Chart().encode(y=y, yOffset=alt.YOffset("agent:N", sort=self._shown), tooltip=self._tips)
        layers = estimates(base, self._across("value"), look)
        if any(row.get("reference") is not None for row in self._rows):
            truth = base.mark_tick(thickness=2.5, size=step, opacity=0.8)
            layers.insert(0, truth.encode(x=self._across("reference"), tooltip=tooltip(reference="Optimum|.3f")))
        # "for": so much to each agent of a word, not to the word.
        sized = alt.layer(*layers).properties(width=self._width, height=alt.Step(step, **{"for": "offset"}))
        return self._faceted(sized)

    def spread(self) -> "Drawing":
        """A parameter that only draws anew: a dot a seed, a line from the least to the most, a tick at the mean."""
        import altair as alt

        look = by_agent(self._agents, self._shown, legend=False)
        y = alt.Y("agent:N", title=None, sort=self._shown, axis=names_axis())
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
        faceted: alt.FacetChart = layers.facet(data=data(self._rows), facet=facet, columns=columns, spacing=16)
        return faceted
