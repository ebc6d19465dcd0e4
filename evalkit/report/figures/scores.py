"""Scores of agents by suite: a dot for the mean, a line for its 95 % interval."""

from collections.abc import Sequence

from evalkit.report import vega
from evalkit.report.figure import Figure
from evalkit.report.figures.marks import (
    bounds,
    by_agent,
    estimates,
    hollow,
    in_order,
    names_axis,
    suite_of,
)
from evalkit.report.tables import Table, shown

MOST_ROWS = 120
"""Dots in one column; more suites are left to the table."""

ROW_HEIGHT = 17

TIPS = {
    "suite": "Suite",
    "agent": "Agent",
    "value": "Score|.2f",
    "span": "95 %",
    "instances": "Instances|,",
    "episodes": "Episodes|,",
}


def score_figures(agents: Sequence[str], table: Table) -> tuple[Figure, ...]:
    """The report's table `scores` drawn; nothing where nobody has a score. `agents`: all, in the manifest's order."""
    score = next(column for column in table.columns if column.key == "score")
    rows: vega.Rows = [
        {
            "suite": suite_of(row),
            "agent": row["agent"],
            "value": row["score"],
            **bounds(row["interval"]),
            "instances": row["instances"],
            "episodes": row["episodes"],
            "words": shown(score, row["score"]).replace("-", "−"),
        }
        for row in table.rows
        if row["score"] is not None
    ]
    if not rows:
        return ()
    kept, note = at_most(rows, MOST_ROWS, "suite")
    words = [f"Mean over instances with its 95 % interval; {score.unit}", *hollow(kept)]
    spec = vega.spec_of(_chart(agents, vega.clean(kept), f"Score ({score.unit})"), "Scores", words)
    return (
        Figure(
            name="figure_scores",
            title="Scores",
            spec=spec,
            table=table,
            query=table.query,
            notes=(*note, *table.notes),
        ),
    )


def at_most(rows: vega.Rows, most: int, group: str, groups: int = MOST_ROWS) -> tuple[vega.Rows, tuple[str, ...]]:
    """The first groups (at most `groups`) whose rows are at most `most` together, but one at least; and a note on what
    is left out."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row[group]] = sizes.get(row[group], 0) + 1
    kept: list[str] = []
    total = 0
    for name, size in sizes.items():
        if kept and (total + size > most or len(kept) == groups):
            break
        kept.append(name)
        total += size
    if len(kept) == len(sizes):
        return rows, ()
    note = f"drawn: the first {len(kept):,} of {len(sizes):,} settings; all are in the table"
    return [row for row in rows if row[group] in set(kept)], (note,)


def _chart(agents: Sequence[str], rows: vega.Rows, title: str) -> vega.Spec:
    suites, played = list(dict.fromkeys(row["suite"] for row in rows)), in_order(agents, rows)
    by, order = ("agent", played) if len(played) > 1 else ("suite", suites)
    base = {"y": vega.word(by, sort=order, axis=names_axis()), "tooltip": vega.tips(**TIPS)}
    x = vega.number("value", title, scale=vega.scaled(vega.reach(rows, ("value", "low", "high"), 0, 100)))
    numbers = {**base, "x": {"value": vega.WIDTH}, "text": vega.word("words")}
    layers = {
        "layer": [
            *estimates(base, "x", x, by_agent(agents, played, legend=False), size=55),
            vega.mark("text", numbers, align="left", dx=8, style="quiet-text"),
        ],
        "width": vega.WIDTH,
        "height": {"step": ROW_HEIGHT},
    }
    if by == "suite":
        return {"data": vega.data(rows), **layers}
    return vega.panels(rows, layers, "suite", suites, spacing=14, apart="y")
