"""What a score costs: money for an episode and time for a reply, beside the score."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import (
    bounds,
    by_agent,
    clean,
    data,
    dotted,
    estimates,
    hollow,
    in_order,
    names_axis,
    reach,
    spec_of,
    suite_of,
    tooltip,
)
from evalkit.report.figures.scores import at_most
from evalkit.report.figures.theme import WIDTH
from evalkit.report.scores import AGENT, INTERVAL, packs_of, place
from evalkit.report.tables import Column, Table, method_of
from evalkit.results.cells import Cell

if TYPE_CHECKING:
    from evalkit.report.figures.marks import Drawing

MOST_DOTS = 240
MOST_PANELS = 9

_COST_QUERY = """\
select suite, agent, round(avg(cost))::bigint as cost_pico_usd, count(*) as episodes
from episodes where used group by all order by all
-- score, interval: as of the table scores"""


def money_figures(agents: Sequence[str], scores: Table, cells: Sequence[Cell]) -> tuple[Figure, ...]:
    """Cost of an episode against the score, by suite; nothing where all is free. `scores`: the report's table."""
    rows = []
    for cell, scored in zip(cells, scores.rows, strict=True):
        cost = sum(episode.cost for episode in cell.prefix)
        if cost and scored["score"] is not None:
            mean = round(cost / len(cell.prefix))
            score_fields = {name: scored[name] for name in ("score", "interval", "kind", "episodes")}
            rows.append({"suite": suite_of(place(cell)), "agent": cell.agent, "cost_pico_usd": mean, **score_fields})
    if not rows:
        return ()
    title = "Score against cost"
    table = Table(
        name="figure_cost",
        title=title,
        columns=(
            Column(key="suite", title="Suite", group=True),
            AGENT,
            Column(key="cost_pico_usd", title="Cost an episode", kind="usd", unit="1e-12 USD"),
            Column(key="score", title="Score", kind="score", unit="100 = optimum"),
            INTERVAL,
            method_of(INTERVAL),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        query=_COST_QUERY,
    )
    marks = [
        {
            **{name: row[name] for name in ("suite", "agent", "score", "episodes")},
            "usd": row["cost_pico_usd"] / 1e12,
            **bounds(row["interval"]),
        }
        for row in rows
    ]
    kept, notes = at_most(marks, MOST_DOTS, "suite", MOST_PANELS)
    words = ["Mean cost of an episode, logarithmic", "Mean score with its 95 % interval", *hollow(kept)]
    spec = spec_of(_cost_chart(agents, clean(kept)), title, words)
    return (Figure(name="figure_cost", title=title, spec=spec, table=table, query=table.query, notes=notes),)


def _cost_chart(agents: Sequence[str], rows: Sequence[dict[str, Any]]) -> "Drawing":
    import altair as alt

    shown, suites = in_order(agents, rows), list(dict.fromkeys(row["suite"] for row in rows))
    look = dotted(by_agent(agents, shown))
    tips = tooltip(
        suite="Suite",
        agent="Agent",
        usd="USD an episode|.4~r",
        score="Score|.2f",
        span="95 %",
        episodes="Episodes|,",
    )
    spread = alt.Scale(type="log", padding=12, nice=False)
    axis = alt.Axis(format="$~r", values=decades(rows, ("usd",)))
    base = alt.Chart().encode(x=alt.X("usd:Q", title="Cost of an episode (USD)", scale=spread, axis=axis), tooltip=tips)
    scale = alt.Scale(domain=reach(rows, ("score", "low", "high"), 0, 100), nice=False)
    y = alt.Y("score:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    head = alt.Header(title=None, labelOrient="top", labelAnchor="start")
    drawing = alt.layer(*estimates(base, y, look)).properties(width=WIDTH, height=120)
    panels: alt.FacetChart = drawing.facet(
        data=data(rows), row=alt.Row("suite:N", sort=suites, header=head), spacing=10
    )
    return panels


def decades(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 times them where the values span less than two."""
    values = [row[name] for row in rows for name in names if row[name]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1,) if math.log10(max(values) / min(values)) > 2 else (1, 2, 5)
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]


def latency_figures(agents: Sequence[str], speed: Table) -> tuple[Figure, ...]:
    """The report's table `speed` drawn: the median time of a reply and the 99th percentile, by agent."""
    rows = [
        {
            "agent": row["agent"],
            "value": row["latency_median_s"],
            "high": row["latency_p99_s"],
            "requests": row["requests"],
        }
        for row in speed.rows
        if row["latency_median_s"]
    ]
    if not rows:
        return ()
    title = "Time of a reply"
    spec = spec_of(_latency_chart(agents, clean(rows)), title, ["Dot: median; line: to the 99th percentile"])
    return (Figure(name="figure_latency", title=title, spec=spec, table=speed, query=speed.query, notes=speed.notes),)


def _latency_chart(agents: Sequence[str], rows: Sequence[dict[str, Any]]) -> "Drawing":
    import altair as alt

    shown = in_order(agents, rows)
    look = dotted(by_agent(agents, shown, legend=False))
    tips = tooltip(agent="Agent", value="Median, s|.4~r", high="99 %, s|.4~r", requests="Requests|,")
    y = alt.Y("agent:N", title=None, sort=shown, axis=names_axis())
    base = alt.Chart(data(rows)).encode(y=y, tooltip=tips)
    spread = alt.Scale(type="log", padding=12, nice=False)
    x = alt.X(
        "value:Q",
        title="Seconds, logarithmic",
        scale=spread,
        axis=alt.Axis(format="~r", values=decades(rows, ("value", "high"))),
    )
    rule = base.mark_rule(strokeWidth=2, opacity=0.5).encode(x=x, x2="high:Q", color=look["color"])
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, **look)
    return alt.layer(rule, point).properties(width=WIDTH, height=alt.Step(18))
