"""A drawing of means in panels: measures below each other, and what else differs beside each other."""

from collections.abc import Sequence
from typing import Any

from evalkit.report.figures.marks import by_agent, estimates, hollow, in_order, names_axis
from evalkit.report.vega import WIDTH, Rows, Spec, clean, mark, number, panels, reach, scaled, tips, word

HEIGHT = 130


def numeric(rows: Rows) -> bool:
    """Whether `x` is a number everywhere."""
    return all(isinstance(row["x"], (int, float)) and not isinstance(row["x"], bool) for row in rows)


class Panels:
    """One figure's drawing.

    A row has `x`, `agent`, `panel` (empty if there is one), `measure` and `cell` (titles of its panel where there
    is one, and where there are several), `value`, `low`, `high` (None if there is no interval), `runs`; it may have
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
        self._tips = tips(
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

    def lines(self) -> Spec:
        """A parameter with an order: numbers by size, others as they come."""
        look = by_agent(self._agents, self._shown)
        base = {
            "x": {
                "field": "x",
                "type": "ordinal",
                "title": self._title,
                "sort": self._order(),
                "scale": {"paddingInner": 0.4, "paddingOuter": 0.2},
                "axis": {"labelAngle": 0, "grid": False},
            },
            # Agents stand side by side at each value, so that none lies under another where they are equal.
            "xOffset": self._beside(),
            "tooltip": self._tips,
        }
        y = self._values("value")
        line = {**base, "y": y, "color": look["color"], "strokeDash": look["strokeDash"]}
        layers = [mark("line", line, strokeWidth=1.5, opacity=0.7), *estimates(base, "y", y, look, size=40)]
        return self._panelled(layers, HEIGHT)

    def _order(self) -> list[Any]:
        values = list(dict.fromkeys(row["x"] for row in self._rows))
        return sorted(values) if numeric(self._rows) else values

    def dots(self) -> Spec:
        """A parameter of words."""
        step = min(14, max(8, 60 // len(self._shown)))
        for row in self._rows:
            row["x"] = str(row["x"])
        words = list(dict.fromkeys(row["x"] for row in self._rows))
        base = {
            "y": word("x", sort=words, scale={"paddingInner": 0.25}, axis=names_axis()),
            "yOffset": self._beside(),
            "tooltip": self._tips,
        }
        layers = estimates(base, "x", self._values("value"), by_agent(self._agents, self._shown))
        if any(row.get("reference") is not None for row in self._rows):
            truth = {**base, "x": self._values("reference"), "tooltip": tips(reference="Optimum|.3f")}
            layers.insert(0, mark("tick", truth, thickness=2.5, size=step, opacity=0.8))
        # "for": so much to each agent of a word, not to the word.
        return self._panelled(layers, {"step": step, "for": "offset"})

    def spread(self) -> Spec:
        """A parameter that only draws again: a dot a seed, a line from the least to the most, a tick at the mean."""
        look = by_agent(self._agents, self._shown, legend=False)
        base = {"y": word("agent", sort=self._shown, axis=names_axis()), "color": look["color"]}

        def over(how: str) -> Spec:
            return number("value", aggregate=how)

        ends = {**base, "x": over("min"), "x2": {"aggregate": "max", "field": "value"}}
        seeds = {**base, "x": self._values("value"), "tooltip": self._tips, **look}
        layers = [
            mark("rule", ends, strokeWidth=2, opacity=0.4),
            mark("tick", {**base, "x": over("mean")}, thickness=2, size=16),
            mark("point", seeds, filled=True, size=45, opacity=0.8),
        ]
        return self._panelled(layers, {"step": 22})

    def _beside(self) -> Spec:
        return {"field": "agent", "type": "nominal", "sort": self._shown}

    def _values(self, field: str) -> Spec:
        return number(field, scale=scaled(self._range), axis={"tickCount": 5})

    def _panelled(self, layers: list[Spec], height: int | Spec) -> Spec:
        field, columns = ("cell", self._columns) if len(self._panels) > 1 else ("measure", 1)
        titles = list(dict.fromkeys(row[field] for row in self._rows))
        head = {"labelLimit": max(self._width, WIDTH // columns) + 20}
        drawing = {"layer": layers, "width": self._width, "height": height}
        return panels(self._rows, drawing, field, titles, columns=columns, spacing=16, head=head)
