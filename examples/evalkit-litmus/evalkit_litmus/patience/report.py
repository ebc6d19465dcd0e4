"""What reports have of patience: the rate that each agent's answers speak for, and how reliably they do."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.extend import Column, Extras, Figure, RunData, Table
from evalkit_litmus.patience.rates import GRID, HORIZONS, TOGETHER, Counts, estimate, reliability_of, together

ALL = "all"
"""In place of a horizon: all of them together."""

QUERY = """\
-- rate, reliability: evalkit_litmus.patience.rates.estimate, of what is counted by amount (metrics['amount']); of all
-- horizons together where each has answers, with the weight of one each
select agent, coalesce(stratum, 'all') as horizon, count(distinct (stratum, metrics['amount'])) as amounts,
    count(*) as answers,
    100 * sum(score) / count(*) as now, 100 * sum(metrics['unreadable']) / count(*) as unreadable
from episodes where used and environment = 'patience' group by grouping sets ((agent, stratum), (agent))
order by agent, stratum nulls last"""

COUNTS = """\
select agent, stratum as horizon, metrics['amount'] as amount, sum(score)::bigint as now, count(*) as answers
from episodes where used and environment = 'patience' group by all order by all"""

NO_RATE: dict[str, Any] = {"rate": None, "reliability": None}


def rates(counted: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """By agent and horizon, `ALL` included: the rate in percent and its reliability. `counted`: what `COUNTS` gives."""
    by_horizon: dict[tuple[str, str], dict[float, tuple[int, int]]] = {}
    for row in counted:
        by_horizon.setdefault((row["agent"], row["horizon"]), {})[row["amount"]] = (row["now"], row["answers"])
    found = {(agent, name): _rate([(name, counts)]) for (agent, name), counts in by_horizon.items()}
    for agent in dict.fromkeys(agent for agent, _ in by_horizon):
        found[agent, ALL] = _rate([(name, by_horizon.get((agent, name), {})) for name in HORIZONS])
    return found


def _rate(horizons: Sequence[tuple[str, Counts]]) -> dict[str, Any]:
    if not all(counts for _, counts in horizons):
        return NO_RATE
    parts = [reliability_of(counts, HORIZONS[name]) for name, counts in horizons]
    best = estimate(parts[0], GRID) if len(parts) == 1 else estimate(together(parts), TOGETHER)
    return NO_RATE if best is None else {"rate": 100 * best[0], "reliability": best[1]}


def tables(run: RunData) -> tuple[Table, ...]:
    """One table, where anybody has answered; none elsewhere."""
    found = rates(run.rows(COUNTS))
    places = (*HORIZONS, ALL)
    rows = sorted(run.rows(QUERY), key=lambda row: (row["agent"], places.index(row["horizon"])))
    table = Table(
        name="patience_rates",
        title="Patience: yearly rates",
        columns=(
            Column(key="agent", title="Agent", group=True),
            Column(key="horizon", title="Horizon"),
            Column(key="rate", title="Rate", kind="percent", unit="% a year"),
            Column(key="reliability", title="Reliability", kind="fine", unit="share of answers that the rate explains"),
            Column(key="now", title="Now", kind="percent", unit="% of answers"),
            Column(key="unreadable", title="Unreadable", kind="percent", unit="% of answers"),
            Column(key="amounts", title="Amounts", kind="count"),
            Column(key="answers", title="Answers", kind="count"),
        ),
        rows=tuple({**row, **found[row["agent"], row["horizon"]]} for row in rows),
        packs=tuple(dict.fromkeys(cell.pack for cell in run.cells if cell.suite.environment == "patience")),
        notes=(
            "rate: the one that explains most answers, the median where several do; of one horizon up to 199.9 %, of "
            "all together, which is the litmus score, up to 20 %",
            "unreadable answers count as such that wait",
        ),
        query=QUERY,
    )
    return (table,) if rows else ()


MOST_AGENTS = 20
"""That one figure shows."""
NOW_COLUMNS = (
    Column(key="agent", title="Agent", group=True),
    Column(key="horizon", title="Horizon"),
    Column(key="amount", title="Amount", kind="number", unit="USD, later"),
    Column(key="now", title="Now", kind="count", unit="answers that take 100 USD now"),
    Column(key="answers", title="Answers", kind="count"),
)


def figures(agents: Sequence[str], run: RunData) -> tuple[Figure, ...]:
    """The share of answers that take the money now, by what is offered later: a plot for each horizon."""
    rows = run.rows(COUNTS)
    if not rows:
        return ()
    played = [agent for agent in agents if any(row["agent"] == agent for row in rows)]
    shown = played[:MOST_AGENTS]
    points = [
        {name: row[name] for name in ("agent", "horizon", "amount")} | {"now": 100 * row["now"] / row["answers"]}
        for row in rows
        if row["agent"] in shown
    ]
    packs = tuple(dict.fromkeys(cell.pack for cell in run.cells if cell.suite.environment == "patience"))
    title = "Patience: who takes the money now"
    table = Table(name="patience_now", title=title, columns=NOW_COLUMNS, rows=tuple(rows), packs=packs, query=COUNTS)
    left_out = f"drawn: the first {MOST_AGENTS} of {len(played)} agents; all are in the table"
    return (
        Figure(
            name="figure_patience",
            title=title,
            spec=_spec(title, shown, points),
            table=table,
            query=COUNTS,
            notes=(left_out,) if len(played) > MOST_AGENTS else (),
        ),
    )


def _spec(title: str, agents: Sequence[str], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    y = {"field": "now", "type": "quantitative", "title": "Now (% of answers)", "scale": {"domain": [0, 100]}}
    colour = {"field": "agent", "type": "nominal", "title": None, "sort": list(agents), "legend": {"columns": 4}}
    x = {"field": "amount", "type": "quantitative", "title": "Offered later (USD)", "scale": {"zero": False}}
    header = {"title": None, "labelAnchor": "start"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": title,
        "title": {"text": title, "subtitle": ["Share of answers that take 100 USD now"]},
        "data": {"values": [dict(point) for point in points]},
        "facet": {"field": "horizon", "type": "nominal", "sort": list(HORIZONS), "header": header},
        "columns": 2,
        "spec": {
            "mark": {"type": "line", "point": {"size": 14}},
            "encoding": {"x": x, "y": y, "color": colour},
            "width": 250,
            "height": 120,
        },
        "resolve": {"scale": {"x": "independent"}},
    }


EXTRAS = Extras(tables=tables, cell_figures=figures)
