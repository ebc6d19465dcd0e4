"""What figures share: colours and shapes of agents, axes, tooltips, and a chart as plain values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from evalkit.report.figures.theme import DASHES, LIGHT, LONGEST_NAME, SHAPES, WIDTH
from evalkit.report.tables import MISSING
from evalkit.text import visible

if TYPE_CHECKING:
    import altair as alt

    Drawing = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

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

Rows = Sequence[Mapping[str, Any]]


def clean(rows: Rows) -> list[dict[str, Any]]:
    """Rows with their texts made visible, as they stand in a spec."""
    return [{name: visible(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows]


def data(rows: Rows) -> "alt.InlineData":
    """Rows as the data of a chart; values are texts, numbers and None."""
    import altair as alt

    return alt.InlineData(values=clean(rows))


def in_order(agents: Sequence[str], rows: Rows) -> list[str]:
    """The agents of cleaned rows, in the manifest's order."""
    present = {row["agent"] for row in rows}
    return [name for name in map(visible, agents) if name in present]


def by_agent(
    agents: Sequence[str], shown: Sequence[str], *, legend: bool = True, lines: bool = False
) -> dict[str, Any]:
    """Colour of the field `agent`, shape of its dots, dashes of its lines.

    agents  all of the run, in the manifest's order: it fixes the colours
    shown   those that the figure holds: the legend's
    lines   whether the legend shows lines, not dots
    """
    import altair as alt

    everyone, present = [visible(agent) for agent in agents], {visible(agent) for agent in shown}
    symbol: dict[str, Any] = {"symbolStrokeWidth": 0}
    if lines:
        symbol = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 260}
    values = [name for name in everyone if name in present]
    widest = min(LONGEST_NAME, LETTER * max(map(len, values), default=1)) + 34
    columns = max(1, min(MOST_BESIDE, len(values), int((WIDTH + 60) // widest)))
    legend_spec = alt.Legend(title=None, values=values, columns=columns, symbolOpacity=1, labelExpr=SHORT, **symbol)
    colours = alt.Scale(domain=everyone)
    turns = [i // len(LIGHT) % len(SHAPES) for i in range(len(everyone))]
    shapes = alt.Scale(domain=everyone, range=[SHAPES[turn] for turn in turns])
    dashes = alt.Scale(domain=everyone, range=[list(DASHES[turn]) for turn in turns])
    return {
        "color": alt.Color("agent:N", scale=colours, legend=legend_spec if legend else None),
        "shape": alt.Shape("agent:N", scale=shapes, legend=legend_spec if legend else None),
        "strokeDash": alt.StrokeDash("agent:N", scale=dashes, legend=legend_spec if lines else None),
    }


def names_axis(*, labels: bool = True) -> "alt.Axis":
    """An axis of names: no line, no ticks, long ones cut."""
    import altair as alt

    return alt.Axis(ticks=False, domain=False, grid=False, labels=labels, labelExpr=SHORT)


def dotted(look: Mapping[str, Any]) -> dict[str, Any]:
    """What of `by_agent` dots have."""
    return {name: look[name] for name in ("color", "shape")}


def tooltip(**titles: str) -> "list[alt.Tooltip]":
    """Fields by their titles, in order: `name="Title"` shows a text, `name="Title|.1f"` a number in that format."""
    import altair as alt

    tooltips = []
    for name, words in titles.items():
        title, _, digits = words.partition("|")
        if digits:
            tooltips.append(alt.Tooltip(field=name, type="quantitative", title=title, format=digits))
        else:
            tooltips.append(alt.Tooltip(field=name, type="nominal", title=title))
    return tooltips


def reach(rows: Rows, names: Sequence[str], least: float, most: float, room: float = 0.04) -> list[float]:
    """The ends of an axis: from `least` to `most`, and beyond where values are, with a little room there."""
    values = [row[name] for row in rows for name in names if row.get(name) is not None]
    low, high = min([least, *values]), max([most, *values])
    spare = room * (high - low)
    return [low - spare if low < least else low, high + spare if high > most else high]


def spec_of(chart: "Drawing", title: str, subtitle: Sequence[str] = ()) -> dict[str, Any]:
    """A chart as plain values under its title; the theme comes when it is drawn."""
    import altair as alt

    words = alt.TitleParams(text=title, subtitle=list(subtitle)) if subtitle else alt.TitleParams(text=title)
    spec: dict[str, Any] = chart.properties(title=words).to_dict()
    spec.pop("config", None)
    return spec


def suite_of(row: Mapping[str, Any]) -> str:
    """What a row of a report's table is about: its suite with the parameters that were varied."""
    axes = [f"{axis}={row[key]}" for key, axis in axes_in(row).items()]
    return " ".join([str(row["suite"]), *axes])


def told_apart(rows: Rows) -> list[str]:
    """By row: what of its suite and varied parameters is not the same in all rows; the suite where all is."""
    suites = {row["suite"] for row in rows}
    parts = [[_words(axis, row[key]) for key, axis in axes_in(row).items()] for row in rows]
    everywhere = set.intersection(*map(set, parts)) if parts else set()
    labels = []
    for row, row_parts in zip(rows, parts, strict=True):
        differ = [part for part in row_parts if part not in everywhere]
        labels.append(" ".join([*([row["suite"]] if len(suites) > 1 or not differ else []), *differ]))
    return labels


def _words(axis: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{axis}={value}"


def axes_in(row: Mapping[str, Any]) -> dict[str, str]:
    """Keys of the varied parameters that a row has a value of, with the parameters' names."""
    return {key: key.removeprefix("axis:") for key in row if key.startswith("axis:") and row[key] is not None}


def bounds(interval: tuple[float, float] | None) -> dict[str, float | str | None]:
    """An interval as the fields `low`, `high` and, for tooltips, `span`."""
    if interval is None:
        return {"low": None, "high": None, "span": MISSING}
    low, high = interval
    return {"low": low, "high": high, "span": f"{low:.2f} – {high:.2f}"}


CAP = 12
"""Length of the bars at an interval's ends, in pixels: longer than a dot is wide, so that they show where both ends lie
in it."""

NO_INTERVAL, INTERVAL = "datum.low === null", "datum.low !== null"
"""Vega expressions: which rows have an interval."""


def estimates(
    base: "alt.Chart", value: "alt.X | alt.Y", look: Mapping[str, Any], *, size: int = 50
) -> "list[alt.Chart]":
    """Layers for means with intervals: a line with a bar at each end, and a dot, hollow where there is no interval.

    base    the chart with all else that places a mark, and its tooltip
    value   the channel of the mean; its field's row holds `low` and `high`
    look    of `by_agent`
    """
    import altair as alt

    across = isinstance(value, alt.X)
    side = "x" if across else "y"
    upright: Literal["vertical", "horizontal"] = "vertical" if across else "horizontal"
    spanned, none = base.transform_filter(INTERVAL), base.transform_filter(NO_INTERVAL)
    colour = look["color"]

    def end_channel(field: str) -> dict[str, Any]:
        return {side: alt.X(f"{field}:Q", title=None) if across else alt.Y(f"{field}:Q", title=None)}

    return [
        spanned.mark_rule(strokeWidth=2, opacity=0.6).encode(
            **end_channel("low"), **{f"{side}2": "high:Q"}, color=colour
        ),
        spanned.mark_point(filled=True, size=size, opacity=1).encode(**{side: value}, **dotted(look)),
        none.mark_point(filled=False, size=size, strokeWidth=1.8, opacity=1).encode(**{side: value}, **dotted(look)),
        *(
            spanned.mark_tick(orient=upright, size=CAP, thickness=1.5, opacity=0.9).encode(
                **end_channel(end), color=colour
            )
            for end in ("low", "high")
        ),
    ]


def hollow(rows: Rows) -> list[str]:
    """A line of a subtitle that says what hollow dots are, where there are any."""
    return ["Hollow dot: no interval"] if any(row["low"] is None for row in rows) else []
