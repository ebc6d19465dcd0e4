"""How far a run that is not complete has come: episodes ended, begun and not begun, by suite and agent."""

from collections.abc import Sequence

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import in_order, names_axis, suite_of
from evalkit.report.figures.scores import MOST_ROWS, at_most
from evalkit.report.tables import Table
from evalkit.report.vega import WIDTH, Rows, Spec, clean, mark, number, panels, spec_of, tips, word

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


def _chart(agents: Sequence[str], rows: Rows) -> Spec:
    suites, shown = list(dict.fromkeys(row["suite"] for row in rows)), in_order(agents, rows)
    states = list(STATES.values())
    # From done to not begun: one hue, fainter and fainter; readable in grey as well.
    colours = {"domain": states, "range": ["#0072B2", "#56B4E9", "#B5D8EE", "#9A9A9A33"]}
    where = {
        "x": number(
            "start", "% of planned episodes", scale={"domain": [0, 100]}, axis={"values": [0, 25, 50, 75, 100]}
        ),
        "x2": {"field": "end"},
        "y": word("agent", sort=shown, axis=names_axis()),
        "color": word("state", scale=colours, sort=states, legend={"title": None}),
        "tooltip": tips(suite="Suite", agent="Agent", state="State", episodes="Episodes|,", planned="Planned|,"),
    }
    bars = {**mark("bar", where, height=10), "width": WIDTH, "height": {"step": 17}}
    return panels(rows, bars, "suite", suites, apart="y")
