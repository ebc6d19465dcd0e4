"""How far a run that is not complete has come: episodes ended, begun and not begun, by suite and agent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import clean, data, in_order, names_axis, spec_of, suite_of, tooltip
from evalkit.report.figures.scores import MOST_ROWS, at_most
from evalkit.report.figures.theme import WIDTH
from evalkit.report.tables import Table

if TYPE_CHECKING:
    from evalkit.report.figures.marks import Drawing

STATES = {"used": "ended, used", "outside": "ended, left out", "begun": "begun", "waiting": "not begun"}


def progress_figures(agents: Sequence[str], completeness: Table) -> tuple[Figure, ...]:
    """The report's table `completeness` drawn; nothing of a complete run."""
    if not any(row["owed"] for row in completeness.rows):
        return ()
    cells = [
        {
            "suite": suite_of(row),
            "agent": row["agent"],
            "planned": row["planned"],
            "used": row["prefix"],
            "outside": row["outside"],
            "begun": row["begun"],
            "waiting": row["owed"] - row["begun"],
        }
        for row in completeness.rows
    ]
    kept, notes = at_most(cells, MOST_ROWS, "suite")
    marks = []
    for row in clean(kept):
        start = 0
        for key, words in STATES.items():
            if row[key]:
                ends = {"start": 100 * start / row["planned"], "end": 100 * (start + row[key]) / row["planned"]}
                plain = {name: row[name] for name in ("suite", "agent", "planned")}
                marks.append({**plain, "state": words, "episodes": row[key], **ends})
            start += row[key]
    return (
        Figure(
            name="figure_progress",
            title="Progress",
            spec=spec_of(_chart(agents, marks), "Progress", ["Share of the planned episodes"]),
            table=completeness,
            query=completeness.query,
            notes=(*notes, *completeness.notes),
        ),
    )


def _chart(agents: Sequence[str], rows: Sequence[dict[str, Any]]) -> "Drawing":
    import altair as alt

    suites, shown = list(dict.fromkeys(row["suite"] for row in rows)), in_order(agents, rows)
    # From done to not begun: one hue, fainter and fainter; readable in grey as well.
    colours = alt.Scale(domain=list(STATES.values()), range=["#0072B2", "#56B4E9", "#B5D8EE", "#9A9A9A33"])
    bars = (
        alt.Chart()
        .mark_bar(height=10)
        .encode(
            x=alt.X(
                "start:Q",
                title="% of planned episodes",
                scale=alt.Scale(domain=[0, 100]),
                axis=alt.Axis(tickCount=5, values=[0, 25, 50, 75, 100]),
            ),
            x2="end:Q",
            y=alt.Y("agent:N", title=None, sort=shown, axis=names_axis()),
            color=alt.Color("state:N", scale=colours, sort=list(STATES.values()), legend=alt.Legend(title=None)),
            tooltip=tooltip(suite="Suite", agent="Agent", state="State", episodes="Episodes|,", planned="Planned|,"),
        )
        .properties(width=WIDTH, height=alt.Step(17))
    )
    head = alt.Header(title=None, labelOrient="top", labelAnchor="start")
    panels: alt.FacetChart = bars.facet(
        data=data(rows), row=alt.Row("suite:N", sort=suites, header=head), spacing=10
    ).resolve_scale(y="independent")
    return panels
