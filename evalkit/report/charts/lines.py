"""Episodes of one instance as lines, each in a plot of its own and all on one scale, with the optimum below."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report.charts.drawing import BEST, PLAYED, compared
from evalkit.report.extras.record import EpisodeLine, LinePlots, extras_of
from evalkit.report.vega import Spec, data, mark, number, scaled, span, spec_of, tips, whole

SMALL, HIGH = 230, 110
"""Of one plot without its labels, in pixels."""

FEW = 40
"""Points up to which each is a dot."""

MOST_POINTS = 300
"""Points of a line; of a longer one every second, or fewer."""


def lines_of(environment: str) -> LinePlots | None:
    """How an environment's episodes are drawn as lines; None: they are not."""
    extras = extras_of(environment)
    if extras.charts is not None and extras.charts.beside is not None:
        return extras.charts.beside
    if extras.standing is None:
        return None
    standing = extras.standing

    def line(instance: Any, facts: Sequence[Mapping[str, Any]], periods: int) -> EpisodeLine:
        actions = [(fact["period"], fact["action"]) for fact in facts if fact.get("action")]
        held = standing.hold(standing.values(instance, actions, periods))
        return EpisodeLine(
            played=[(period, 100 * value) for period, value in enumerate(held.tolist())],
            optimum=[(0, 100.0), (max(1, instance.periods - 1), 100.0)],
        )

    return LinePlots(across="Period", up="% of the optimum", line=line)


def line_specs(lines: LinePlots, drawn: Sequence[EpisodeLine], titles: Sequence[str]) -> list[Spec]:
    """A plot for each line, all on one scale; `titles`: what each is of."""
    furthest = max((x for line in drawn for x, _ in (*line.played, *line.optimum)), default=1)
    optima = [y for line in drawn for _, y in line.optimum]
    values = [y for line in drawn for _, y in line.played]
    ends = span(values, 0.0, max(optima, default=100.0), far=1.0, top=True)
    return [_spec(lines, line, title, furthest, ends) for line, title in zip(drawn, titles, strict=True)]


def _spec(lines: LinePlots, line: EpisodeLine, title: str, furthest: float, ends: Sequence[float]) -> Spec:
    where = {
        "x": whole("x", lines.across, scale=scaled([0, max(1, furthest)]), axis={"tickCount": 5}),
        "y": number("y", lines.up, scale=scaled(ends, clamp=True), axis={"tickCount": 4}),
        "color": {**compared(), "legend": None},
    }
    shown = {**where, "tooltip": tips(x=f"{lines.across}|d", y=f"{lines.up}|,.2f", who="Of")}
    every = max(1, -(-len(line.played) // MOST_POINTS))
    best = [{"x": x, "y": round(y, 3), "who": BEST} for x, y in line.optimum]
    own = [{"x": x, "y": round(y, 3), "who": PLAYED} for x, y in line.played[::every]]
    drawing = {
        "data": data(()),
        "width": SMALL,
        "height": HIGH,
        "layer": [
            mark("line", where, rows=best, strokeWidth=4, opacity=0.45),
            mark("line", shown, rows=own, strokeWidth=1.6, point={"size": 14 if len(own) <= FEW else 2}),
        ],
    }
    spec = spec_of(drawing, title)
    del spec["title"]  # it stands above the plot
    return spec
