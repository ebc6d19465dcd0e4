"""What figures of agents share: colours and shapes, axes of names, means with intervals, words for rows, panels."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report.figures.draw import DASHES, LIGHT, LONGEST_NAME, SHAPES
from evalkit.report.tables import MISSING
from evalkit.report.vega import WIDTH, Rows, Spec, clean, mark, number, panels, reach, scaled, tips, word
from evalkit.text import visible

MOST_BESIDE = 4
"""Entries of a legend in one row."""

LETTER = 6.2
"""Width of an average letter of a label, in pixels."""

HEAD, TAIL = 11, 14
"""Letters of a long name that are kept: models of one maker differ at the end."""

SHORT = (
    f"length(datum.label) > {HEAD + TAIL + 1}"
    f" ? slice(datum.label, 0, {HEAD}) + '…' + slice(datum.label, -{TAIL}) : datum.label"
)
"""Vega expression: a label, cut in its middle where it is long. The tooltip has it whole."""

SCORE = "Score (100 = optimum)"


def in_order(agents: Sequence[str], rows: Rows) -> list[str]:
    """The agents of cleaned rows, in the manifest's order."""
    present = {row["agent"] for row in rows}
    return [name for name in map(visible, agents) if name in present]


def by_agent(agents: Sequence[str], shown: Sequence[str], *, legend: bool = True) -> Spec:
    """Colour of the field `agent`, shape of its dots, dashes of its lines.

    agents  all of the run, in the manifest's order: it fixes the colours
    shown   those that the figure holds: the legend's
    """
    everyone, present = [visible(agent) for agent in agents], {visible(agent) for agent in shown}
    values = [name for name in everyone if name in present]
    widest = min(LONGEST_NAME, LETTER * max(map(len, values), default=1)) + 34
    columns = max(1, min(MOST_BESIDE, len(values), int((WIDTH + 60) // widest)))
    entries: Spec = {"title": None, "values": values, "columns": columns, "symbolOpacity": 1, "labelExpr": SHORT}
    entries["symbolStrokeWidth"] = 0
    turns = [i // len(LIGHT) % len(SHAPES) for i in range(len(everyone))]

    def look(shown: bool, **scale: Any) -> Spec:
        channel = {"field": "agent", "type": "nominal", "scale": {"domain": everyone, **scale}}
        return {**channel, "legend": entries if shown else None}

    return {
        "color": look(legend),
        "shape": look(legend, range=[SHAPES[turn] for turn in turns]),
        # The same entries as those of the colour: Vega-Lite makes one legend of both, and warns where one has none.
        "strokeDash": look(legend, range=[list(DASHES[turn]) for turn in turns]),
    }


def names_axis(*, labels: bool = True) -> Spec:
    """An axis of names: no line, no ticks, long ones cut."""
    return {"ticks": False, "domain": False, "grid": False, "labels": labels, "labelExpr": SHORT}


def dotted(look: Spec) -> Spec:
    """What of `by_agent` dots have."""
    return {name: look[name] for name in ("color", "shape")}


def suite_of(row: Mapping[str, Any]) -> str:
    """What a row of a report's table is about: its suite with the parameters that were varied."""
    axes = [f"{axis}={row[key]}" for key, axis in axes_in(row).items()]
    return " ".join([str(row["suite"]), *axes])


def told_apart(rows: Rows) -> list[str]:
    """By row: what of its suite and varied parameters is not the same in all rows; the suite where all is."""
    suites = {row["suite"] for row in rows}
    axes = [[(axis, row[key]) for key, axis in axes_in(row).items()] for row in rows]
    parts = [[value if isinstance(value, str) else f"{axis}={value}" for axis, value in found] for found in axes]
    everywhere = set.intersection(*map(set, parts)) if parts else set()
    labels = []
    for row, row_parts in zip(rows, parts, strict=True):
        differ = [part for part in row_parts if part not in everywhere]
        labels.append(" ".join([*([row["suite"]] if len(suites) > 1 or not differ else []), *differ]))
    return labels


def axes_in(row: Mapping[str, Any]) -> dict[str, str]:
    """Keys of the varied parameters that a row has a value of, with the parameters' names."""
    return {key: key.removeprefix("axis:") for key in row if key.startswith("axis:") and row[key] is not None}


def bounds(interval: tuple[float, float] | None, unmet: float | None = None) -> dict[str, float | str | None]:
    """An interval as the fields `low`, `high` and, for tooltips, `span`; with `unmet`, to where instances that were not
    met may bring the mean, `down` as well."""
    if interval is None:
        return {"low": None, "high": None, "span": MISSING}
    low, high = interval
    found: dict[str, float | str | None] = {"low": low, "high": high, "span": f"{low:.2f} – {high:.2f}"}
    return found if unmet is None else {**found, "down": unmet, "span": f"{found['span']}, down to {unmet:.2f}"}


CAP = 12
"""Length of the bars at an interval's ends, in pixels: longer than a dot is wide, so that they show where both ends lie
in it."""

NO_INTERVAL, INTERVAL = "datum.low === null", "datum.low !== null"
"""Vega expressions: which rows have an interval."""


def estimates(base: Spec, side: str, value: Spec, look: Spec, rows: Rows, *, size: int = 50) -> list[Spec]:
    """Layers for means with intervals: a line with a bar at each end, and a dot, hollow where there is no interval; and
    a thin line to where the instances that so few cannot exclude may bring the mean.

    base   all other channels that place a mark, and its tooltip
    side   `x` or `y`: the channel of the mean
    value  that channel; its field's row holds `low` and `high`
    look   of `by_agent`
    """
    colour, dots = {"color": look["color"]}, {**base, side: value, **dotted(look)}
    ends = [{**base, side: number(end), **colour} for end in ("low", "high")]
    upright = "vertical" if side == "x" else "horizontal"
    down = {**base, side: number("down"), f"{side}2": {"field": "low"}, **colour}
    thin = mark("rule", down, where="isValid(datum.down)", strokeWidth=0.8, opacity=0.5)
    return [
        *([thin] if _lowered(rows) else []),
        mark("rule", {**ends[0], f"{side}2": {"field": "high"}}, where=INTERVAL, strokeWidth=2, opacity=0.6),
        mark("point", dots, where=INTERVAL, filled=True, size=size, opacity=1),
        mark("point", dots, where=NO_INTERVAL, filled=False, size=size, strokeWidth=1.8, opacity=1),
        *(mark("tick", end, where=INTERVAL, orient=upright, size=CAP, thickness=1.5, opacity=0.9) for end in ends),
    ]


def _lowered(rows: Rows) -> bool:
    return any(row.get("down") is not None for row in rows)


def hollow(rows: Rows) -> list[str]:
    """Lines of a subtitle that say what hollow dots and thin lines are, where there are any."""
    thin = ["Thin line: failures that so few instances cannot exclude"] if _lowered(rows) else []
    return [*(["Hollow dot: no interval"] if any(row["low"] is None for row in rows) else []), *thin]


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
        self._range = reach(self._rows, ("value", "low", "high", "down"), *ends)
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
        """Lines of a subtitle, as of `hollow`."""
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
        layers = [mark("line", line, strokeWidth=1.5, opacity=0.7), *estimates(base, "y", y, look, self._rows, size=40)]
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
        layers = estimates(base, "x", self._values("value"), by_agent(self._agents, self._shown), self._rows)
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
