"""What reports have of CostBench: planning at the lowest cost, and the errors that come of it."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from evalkit.envs.costbench.score import walked
from evalkit.report.charts.costbench import costbench_figures, costbench_line, costbench_lines
from evalkit.report.costbench.planning import planning_tables
from evalkit.report.costbench.planning_queries import COUNTED, REACHED
from evalkit.report.extras.record import (
    HIGHER,
    LOWER,
    Charts,
    ErrorKind,
    Extras,
    Find,
    LinePlots,
    Measure,
    QuotedPlace,
)
from evalkit.report.figures.blocks import adaptation_figures, coverage_figures
from evalkit.results.moves import Move

NAME = "costbench"


def _grows(name: str) -> Find:
    """The first call after which a walk through CostBench counts more of something."""

    def find(instance: Any, played: Sequence[Move]) -> QuotedPlace | None:
        facts = [move.facts for move in played]
        # What a walk counts never falls, so a search by halves finds the index: not a walk for every step.
        index = bisect_left(
            range(len(facts)), 1, key=lambda i: int(getattr(walked(instance, facts[: i + 1]), name) > 0)
        )
        return (index, 0) if index < len(facts) else None

    return find


def _last(_: Any, played: Sequence[Move]) -> QuotedPlace | None:
    replied = [i for i, move in enumerate(played) if move.reply is not None]
    return (replied[-1], None) if replied else None


ERRORS = (
    ErrorKind(name="repeated call", environment=NAME, unit="calls", sql="metrics['repeated']", find=_grows("repeated")),
    ErrorKind(
        name="call behind the goal", environment=NAME, unit="calls", sql="metrics['extra']", find=_grows("extra")
    ),
    ErrorKind(
        name="wrong answer",
        environment=NAME,
        unit="episodes",
        sql="metrics['answered'] > 0 and metrics['goal'] > 0 and metrics['intent'] = 0",
        find=_last,
    ),
    ErrorKind(
        name="answer without the goal",
        environment=NAME,
        unit="episodes",
        sql="ending = 'answered' and coalesce(metrics['goal'], 0) = 0",
        find=_last,
    ),
    ErrorKind(
        name="given up without an answer",
        environment=NAME,
        unit="episodes",
        sql="ending = 'no_call'",
        find=_last,
    ),
    ErrorKind(
        name="out of turns",
        environment=NAME,
        unit="episodes",
        sql="ending = 'step_limit'",
        find=_last,
    ),
)


def _where(condition: str, value: str) -> str:
    return f"case when {condition} then {value} end"


MEASURES = (
    Measure(key="exact", title="Same path", sql=_where(COUNTED, "metrics['exact']"), better=HIGHER),
    Measure(key="ned", title="Edit distance %", sql=_where(COUNTED, "metrics['ned']"), better=LOWER),
    Measure(
        key="gap_share",
        title="Cost gap %",
        sql=_where(REACHED, "metrics['gap'] / metrics['optimal_cost']"),
        width=float("inf"),
        better=LOWER,
    ),
    Measure(key="intent", title="Right answer", sql=_where(COUNTED, "metrics['intent']"), better=HIGHER),
)
"""The paper's, over the runs it counts; distance and gap are better when they are lower."""

EXTRAS = Extras(
    place=10,
    tables=planning_tables,
    table_figures=(("coverage", coverage_figures), ("adaptation", adaptation_figures)),
    errors=ERRORS,
    measures=MEASURES,
    charts=Charts(
        figures=costbench_figures,
        lines=costbench_lines,
        beside=LinePlots(across="Call", up="Cost units spent", line=costbench_line),
    ),
)
