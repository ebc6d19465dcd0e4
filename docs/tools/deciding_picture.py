"""Draws the table of docs/deciding.md on what ranking eight models costs: dollars by design, a panel for each shape of
scores. `pictures.py` writes it as docs/images/deciding.svg; nothing is simulated for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.calibrations.deciding import cells
from evalkit.report import vega
from evalkit.report.figures.marks import names_axis
from evalkit.report.tables import Column, Table
from evalkit.report.vega import Figure

DESIGNS = {
    "stopping": "stop when answered",
    "fixed, planned": "planned beforehand",
    "fixed, in hindsight": "known in hindsight",
}
"""By the table's name: how a bar is called."""
NAME, TITLE = "deciding", "What it costs to rank eight models at ±2 points with 95 %"
WORDS = (
    "Bars: US dollars at list prices, mean of {} simulated studies",
    "Known in hindsight: the smallest fixed number with as many answers",
)
COLUMNS = {
    "scores": "Scores",
    "design": "Design",
    "usd": "USD",
    "episodes": "Episodes",
    "wrongly": "USD on wrong answers",
}
WIDTH, ROOM = 440, 0.85
"""Of the plot in pixels; beyond the longest bar for its words, as a part of it."""

Row = Mapping[str, str | float]


def rows(cells: Iterable[Sequence[str]]) -> Iterator[Row]:
    """The table's rows with their numbers as numbers. Raises ValueError where a design has no name here."""
    for scores, design, answered, episodes, usd, _, wrongly in cells:
        if design not in DESIGNS:
            raise ValueError(f"no name for the design {design}: add it to DESIGNS")
        row: Row = {
            "scores": scores,
            "design": DESIGNS[design],
            "answered": _number(answered),
            "episodes": _number(episodes),
            "usd": _number(usd),
            "wrongly": _number(wrongly),
        }
        yield {**row, "label": _label(row)}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _label(row: Row) -> str:
    """What stands beside a bar."""
    parts = [f"${row['usd']:,.0f}", f"{row['episodes']:,.0f} episodes"]
    if row["wrongly"]:
        parts.append(f"${row['wrongly']:.2f} on wrong answers")
    if row["answered"] != 100:
        parts.append(f"{row['answered']:g} % answered")
    return ", ".join(parts)


def figure(page: str) -> Figure:
    """The picture of a page's table. Raises ValueError where the page has none."""
    studies, table = cells(page, "ranking")
    found = tuple(rows(table))
    spec = vega.spec_of(_chart(found), TITLE, [WORDS[0].format(studies), *WORDS[1:]])
    columns = tuple(Column(key=key, title=title) for key, title in COLUMNS.items())
    numbers = Table(name=NAME, title=TITLE, columns=columns, rows=found, packs=())
    return Figure(name=NAME, title=TITLE, spec=spec, table=numbers, query="")


def _chart(found: Sequence[Row]) -> vega.Spec:
    most = max(float(row["usd"]) for row in found)
    y = vega.word("design", sort=list(DESIGNS.values()), axis={**names_axis(), "labelPadding": 6})
    # Without an axis: its numbers stand beside the bars.
    x = vega.number("usd", scale=vega.scaled([0, most * (1 + ROOM)]), axis=None)
    colour = vega.word("design", scale={"domain": list(DESIGNS.values())}, legend=None)
    layers = [
        vega.mark("bar", {"y": y, "x": x, "color": colour}, height={"band": 0.7}),
        vega.mark("text", {"y": y, "x": x, "text": {"field": "label"}}, align="left", dx=5),
    ]
    panels = list(dict.fromkeys(str(row["scores"]) for row in found))
    head = {"labelLimit": WIDTH + 150}
    drawing = {"layer": layers, "width": WIDTH, "height": {"step": 20}}
    return vega.panels(found, drawing, "scores", panels, spacing=12, head=head)
