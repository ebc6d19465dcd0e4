"""Score against behaviour: one dot an agent, and how far the two rank agents alike.

Dots are means over the suites of an environment that all its agents played, so that nobody's dot is moved by the suites
it sat out.

The numbers are those of the figures of score against behaviour (`figures/behaviour.py`), an environment each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.report.figure import Figure
from evalkit.report.figures.marks import by_agent, dotted, in_order
from evalkit.report.figures.varied import place_of
from evalkit.report.run_data import place
from evalkit.report.scores import AGENT, litmus_of, packs_of, scored
from evalkit.report.tables import Column, Table
from evalkit.report.vega import WIDTH, Rows, Spec, clean, data, mark, number, reach, scaled, spec_of, tips
from evalkit.results.cells import Cell

LEAST_AGENTS = 4
"""With fewer, dots show nothing that a table does not."""

LEAST_RANKED = 10
"""Agents from which their ranks are correlated. With fewer the 95 % interval of ranks that have nothing in common is
wider than from -0.6 to 0.6, and whatever is seen is likely by chance."""

MEASURES: Mapping[str, tuple[str, ...]] = {
    "behaviour": ("best_so_far_rate", "exploration_rate", "budget_utilisation", "no_action", "turns_per_period"),
    "planning": ("intent", "invalid"),
    "planning_own": ("intent", "invalid"),
    "coverage": ("coverage_possible",),
}
"""Columns that say how an agent went about it, by the report's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Spearman's rank correlation."""

    rho: float
    low: float | None
    """Ends of the 95 % interval; None if the ranks agree or disagree wholly."""
    high: float | None
    n: int

    def words(self) -> str:
        """For a subtitle."""
        span = "" if self.low is None or self.high is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"rank correlation {self.rho:.2f}{span}, n = {self.n}"


def spearman(first: Sequence[float], second: Sequence[float]) -> Ranks | None:
    """Spearman's correlation with its 95 % interval; None with fewer than 10 pairs, or where one side is constant.

    The interval is Fisher's with the standard error of Bonett and Wright (2000), sqrt((1 + rho^2 / 2) / (n - 3)); with
    a dozen agents it is rough.
    """
    from scipy.special import ndtri
    from scipy.stats import spearmanr

    n = len(first)
    if n < LEAST_RANKED or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    rho = float(spearmanr(first, second).statistic)
    if abs(rho) >= 1 - 1e-12:
        return Ranks(rho=rho, low=None, high=None, n=n)
    half = float(ndtri(0.975)) * math.sqrt((1 + rho * rho / 2) / (n - 3))
    low, high = math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
    return Ranks(rho=rho, low=low, high=high, n=n)


def said(ranks: Ranks | None, n: int) -> str:
    """The correlation in words, or why there is none. `n`: agents."""
    if ranks is not None:
        return ranks.words()
    if n < LEAST_RANKED:
        return f"n = {n}: too few for a correlation (from {LEAST_RANKED})"
    return f"n = {n}: no correlation, all scores are equal"


def behaviour_figures(agents: Sequence[str], tables: Mapping[str, Table], cells: Sequence[Cell]) -> tuple[Figure, ...]:
    """One figure an environment that four agents or more have played.

    agents  all of the run, in the manifest's order
    cells   without those of agents that see what is hidden: the oracle's behaviour says nothing of others
    """
    figures = []
    for environment in dict.fromkeys(cell.suite.environment for cell in cells):
        own_cells = [cell for cell in cells if cell.suite.environment == environment and cell.prefix]
        figure = _figure(agents, tables, environment, own_cells)
        if figure is not None:
            figures.append(figure)
    return tuple(figures)


def _figure(
    agents: Sequence[str], tables: Mapping[str, Table], environment: str, cells: Sequence[Cell]
) -> Figure | None:
    played = {agent: {cell.suite.name for cell in cells if cell.agent == agent} for agent in agents}
    suites = set.intersection(*(names for names in played.values() if names), {cell.suite.name for cell in cells})
    suite_cells = [cell for cell in cells if cell.suite.name in suites]
    if len({cell.agent for cell in suite_cells}) < LEAST_AGENTS:
        return None
    scores = _means(tables["scores"], "score", suite_cells)
    rows: list[dict[str, Any]] = []
    panels: dict[str, tuple[str, str]] = {}
    for name, keys in MEASURES.items():
        for column in tables[name].columns if name in tables else ():
            if column.key not in keys:
                continue
            means = _means(tables[name], column.key, suite_cells)
            compared = [agent for agent in scores if agent in means]
            if len(compared) < LEAST_AGENTS or len({means[agent] for agent in compared}) < 2:
                continue
            ranks = spearman([means[agent] for agent in compared], [scores[agent] for agent in compared])
            panels[column.key] = (f"{column.bare} ({column.unit})", said(ranks, len(compared)))
            rows += [
                {"agent": agent, "measure": column.key, "value": means[agent], "score": scores[agent]}
                for agent in compared
            ]
    if not rows:
        return None
    score, *_ = scored(litmus_of(suite_cells))
    title = f"Score against behaviour: {environment}"
    table = Table(
        name=f"figure_behaviour_{environment}",
        title=title,
        columns=(
            Column(key="measure", title="Measure", group=True),
            AGENT,
            Column(key="value", title="Value", kind="fine"),
            score,
        ),
        rows=tuple(rows),
        packs=packs_of(suite_cells),
        query=_query(tables, panels),
    )
    notes = [f"{words}: {ranks}" for words, ranks in panels.values()]
    many = "1 suite" if len(suites) == 1 else f"{len(suites)} suites"
    limits = (
        f"means over {many} that all {len(scores)} agents played, an oracle left out; ranks are correlated from "
        f"{LEAST_RANKED} agents on, with the 95 % interval of Bonett and Wright"
    )
    chart = _chart(agents, clean(rows), panels, f"Score ({score.unit})")
    return Figure(
        name=table.name,
        title=title,
        spec=spec_of(chart, title, ["A dot an agent, mean over the suites; without the oracle"]),
        table=table,
        query=table.query,
        notes=(*notes, limits),
    )


def _means(table: Table, key: str, cells: Sequence[Cell]) -> dict[str, float]:
    """By agent: the mean over these cells of a column; without agents that lack it in one of them."""
    values = {place_of(row): row.get(key) for row in table.rows}
    values_of: dict[str, list[float | None]] = {}
    for cell in cells:
        values_of.setdefault(cell.agent, []).append(values.get(place_of(place(cell))))
    return {
        agent: math.fsum(defined) / len(defined)
        for agent, all_of_it in values_of.items()
        if len(defined := [value for value in all_of_it if value is not None]) == len(all_of_it)
    }


def _query(tables: Mapping[str, Table], panels: Mapping[str, Any]) -> str:
    used = ["scores", *(name for name, keys in MEASURES.items() if name in tables and set(keys) & set(panels))]
    parts = [f"-- of the table {name}:\n{tables[name].query}" for name in used]
    method = "-- value, score: means over suites that all agents of the environment played; interval: Bonett and Wright"
    return "\n\n".join([*parts, method])


def _chart(agents: Sequence[str], rows: Rows, panels: Mapping[str, tuple[str, str]], title: str) -> Spec:
    look = dotted(by_agent(agents, in_order(agents, rows)))
    y = number("score", title, scale=scaled(reach(rows, ("score",), 0, 100)))
    drawn = []
    for key, (words, ranks) in panels.items():
        where = {
            "x": number("value", words, scale={"zero": False, "padding": 8}, axis={"tickCount": 5}),
            "y": y,
            "tooltip": tips(agent="Agent", value=f"{words.partition(' (')[0]}|.2f", score="Score|.2f"),
            **look,
        }
        drawn.append(
            {
                "title": {"text": ranks, "fontSize": 11.5, "fontWeight": "normal", "offset": 4},
                "data": data(row for row in rows if row["measure"] == key),
                **mark("point", where, filled=True, size=60, opacity=0.7),
                "width": WIDTH,
                "height": 130,
            }
        )
    return {"vconcat": drawn, "spacing": 18}


def ranks_table(agents: Sequence[str], tables: Sequence[Table], cells: Sequence[Cell]) -> Table:
    """One row a measure of an environment; without rows where no environment has agents enough.

    agents  all of the run, in the manifest's order
    tables  the report's, made of the same cells
    cells   as of `behaviour_figures`
    """
    rows = []
    queries = []
    titles = {column.key: column.bare for table in tables if table.name in MEASURES for column in table.columns}
    for figure in behaviour_figures(agents, {table.name: table for table in tables}, cells):
        for measure in dict.fromkeys(row["measure"] for row in figure.table.rows):
            dots = [row for row in figure.table.rows if row["measure"] == measure]
            ranks = spearman([row["value"] for row in dots], [row["score"] for row in dots])
            if ranks is not None:
                keys = {"environment": figure.name.removeprefix("figure_behaviour_"), "measure": titles[measure]}
                rows.append(keys | {"rho": ranks.rho, "low": ranks.low, "high": ranks.high, "agents": ranks.n})
        queries.append(figure.query)
    return Table(
        name="figure_behaviour",
        title="Score against behaviour: rank correlation over agents",
        columns=(
            Column(key="environment", title="Environment", group=True),
            Column(key="measure", title="Measure"),
            Column(key="rho", title="Spearman's rho", kind="fine"),
            Column(key="low", title="95 % from", kind="fine"),
            Column(key="high", title="to", kind="fine"),
            Column(key="agents", title="Agents", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            f"from {LEAST_RANKED} agents on, over the suites that all agents of the environment played",
            "an oracle is left out: it sees the hidden data",
            "95 %: Fisher's interval with the error of Bonett and Wright, rough with a dozen agents; none if the ranks "
            "agree completely",
            "agents are not a random sample: a correlation describes these agents",
        ),
        query="\n\n".join(queries),
    )
