"""The first thing that a reader of a run sees: agents by suites, each score with its interval drawn."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from evalkit.envs.table import OPTIMUM_UNIT, is_litmus, scale_words
from evalkit.money import show_usd
from evalkit.report.figures.marks import suite_of
from evalkit.report.report import Report
from evalkit.report.run_data import place
from evalkit.report.tables import MISSING, Column, shown
from evalkit.results.cells import Cell
from evalkit.view.grid import Span, span, sql_command

MOST_SUITES = 12
"""Columns of suites; a run of more has one column for each environment instead."""
MOST_AGENTS = 50
"""Rows; the others are in the table of scores."""
WIDTH = 76.0
"""Of a drawn interval, in pixels."""

SCORE = Column(key="score", title="Score", kind="score")
INTERVAL = Column(key="interval", title="95 % interval", kind="interval")

QUERY = """\
with by_cell as (
    select agent, suite, avg(by_instance) as score from (
        select agent, suite, instance, 100 * avg(score) as by_instance from episodes where used group by all
    ) group by all
)
select agent, avg(score) as mean, count(*) as suites from by_cell group by all order by mean desc, suites desc, agent
-- each score with its interval, and how that is made: the table of scores"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardScore:
    """What an agent has in one column."""

    text: str
    """Its mean score, or a dash."""
    sort: str
    """The same, unrounded; empty: none."""
    span: Span | None
    """Its interval, drawn; None if there is none."""
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One agent."""

    rank: str
    """Its place among the agents with a score on every suite; empty: it has not."""
    agent: str
    href: str
    """Where its episodes are listed; empty: nowhere."""
    mean: str
    sort: str
    """The mean, unrounded; empty: none."""
    scored: str
    """How many of the columns it has a score in, unless all."""
    places: Sequence[LeaderboardScore]
    cost: str
    cost_sort: int
    ended: str
    """Episodes, `12 of 30` while some remain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Agents, best mean first."""

    heads: Sequence[list[str]]
    """Titles of the columns, in parts between which a line may break: suites with what the sweep varied of them, or
    environments."""
    rows: Sequence[LeaderboardRow]
    more: int
    """Agents that are not shown."""
    notes: Sequence[str]
    query: str
    command: str
    """The `evalkit sql` command that asks it."""


def standings(report: Report) -> list[tuple[str, list[float]]]:
    """(agent, the scores of its suites), best mean first; agents without a score are left out, and so are suites of
    which no score is better than another."""
    scores: dict[str, list[float]] = {}
    for cell, row in _scored(report):
        if row["score"] is not None and not is_litmus(cell.suite.environment):
            scores.setdefault(cell.agent, []).append(row["score"])
    return sorted(scores.items(), key=lambda pair: (-sum(pair[1]) / len(pair[1]), -len(pair[1]), pair[0]))


def suites_of(report: Report) -> int:
    """How many suites there are of which one score is better than another."""
    return len({cell.suite.name for cell in report.cells if not is_litmus(cell.suite.environment)})


def ranked(report: Report) -> list[str]:
    """The agents that have a score on each of these suites, best mean first: those whose means can be compared."""
    suites = suites_of(report)
    return [agent for agent, scores in standings(report) if len(scores) == suites]


def _scored(report: Report) -> list[tuple[Cell, Mapping[str, Any]]]:
    return list(zip(report.cells, report.table("scores").rows, strict=True))


def leaderboard(report: Report, run: str, prefix: str) -> Leaderboard:
    """The leaderboard of a run.

    `run`: how `evalkit sql` calls it; `prefix`: the address of its pages, empty: nothing leads to other pages.
    """
    scored = _scored(report)
    by_suite = {suite_of(place(cell)): None for cell, _ in scored}
    wide = len(by_suite) > MOST_SUITES
    heads = list(dict.fromkeys(cell.suite.environment for cell, _ in scored)) if wide else list(by_suite)
    by_agent: dict[str, dict[str, list[tuple[Cell, Mapping[str, Any]]]]] = {}
    for cell, row in scored:
        head = cell.suite.environment if wide else suite_of(place(cell))
        by_agent.setdefault(cell.agent, {}).setdefault(head, []).append((cell, row))
    standing = standings(report)
    places = {agent: str(place) for place, agent in enumerate(ranked(report), 1)}
    without = [agent for agent in by_agent if agent not in dict(standing)]
    ends = [end for _, row in scored if row["interval"] is not None for end in row["interval"]]
    scale = (min(0.0, *ends), max(100.0, *ends)) if ends else (0.0, 100.0)
    rows = [
        _standing(agent, places.get(agent, ""), scores, by_agent[agent], heads, scale, prefix)
        for agent, scores in [*standing, *((agent, list[float]()) for agent in without)]
    ]
    what = "an environment's suites" if wide else "the instances of a suite"
    names = [cell.suite.environment for cell, _ in scored]
    meaning = scale_words(names) if any(map(is_litmus, names)) else OPTIMUM_UNIT
    counted = ", without those of which no score is better" if meaning != OPTIMUM_UNIT else ""
    notes = [
        f"score: {meaning}; mean over {what}; line: 95 % interval; thin line: "
        f"failures that so few instances cannot exclude; mean: over the columns' suites{counted}",
        "order: by the mean; rank: among the agents that have a score on every suite, since the mean of others is over "
        "other suites",
    ]
    return Leaderboard(
        heads=[_parts(head) for head in heads],
        rows=rows[:MOST_AGENTS],
        more=len(rows[MOST_AGENTS:]),
        notes=notes,
        query=QUERY,
        command=sql_command(run, QUERY),
    )


def _parts(head: str) -> list[str]:
    return re.findall(r"[^/ =]*[/ =]?", head)[:-1]


def _standing(
    agent: str,
    rank: str,
    scores: Sequence[float],
    cells: Mapping[str, Sequence[tuple[Cell, Mapping[str, Any]]]],
    heads: Sequence[str],
    scale: tuple[float, float],
    prefix: str,
) -> LeaderboardRow:
    places = [_place(agent, cells.get(head, ()), scale, prefix) for head in heads]
    mean = sum(scores) / len(scores) if scores else None
    with_score = sum(bool(place.sort) for place in places)
    played = [cell for pairs in cells.values() for cell, _ in pairs]
    ended, planned = sum(cell.ended for cell in played), sum(cell.planned for cell in played)
    cost = sum(episode.cost for cell in played for episode in cell.episodes)
    return LeaderboardRow(
        rank=rank,
        agent=agent,
        href=f"{prefix}/episodes?{urlencode({'agent': agent})}" if prefix else "",
        mean=shown(SCORE, mean),
        sort="" if mean is None else repr(mean),
        scored="" if with_score == len(heads) else f"{with_score} of {len(heads)}",
        places=places,
        cost=show_usd(cost),
        cost_sort=cost,
        ended=f"{ended:,}" if ended == planned else f"{ended:,} of {planned:,}",
    )


def _place(
    agent: str, pairs: Sequence[tuple[Cell, Mapping[str, Any]]], scale: tuple[float, float], prefix: str
) -> LeaderboardScore:
    scores = [row["score"] for _, row in pairs if row["score"] is not None]
    if not scores:
        return LeaderboardScore(text=MISSING, sort="", span=None, href="")
    mean = sum(scores) / len(scores)
    interval = pairs[0][1]["interval"] if len(pairs) == 1 else None
    suites = {cell.suite.name for cell, _ in pairs}
    where = {"agent": agent, **({"suite": suites.pop()} if len(suites) == 1 else {})}
    return LeaderboardScore(
        text=shown(SCORE, mean),
        sort=repr(mean),
        span=None
        if interval is None
        else span(interval, mean, scale, WIDTH, shown(INTERVAL, interval), unmet=pairs[0][1]["unmet"]),
        href=f"{prefix}/episodes?{urlencode(where)}" if prefix else "",
    )
