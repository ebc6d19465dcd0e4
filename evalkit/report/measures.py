"""What `evalkit compare` compares: of each environment its measures, which direction is better, how far they can go."""

from collections.abc import Callable
from dataclasses import dataclass

from evalkit.env.known import score_range, shares_of
from evalkit.report.cells import Cell
from evalkit.report.episodes import EpisodeResult
from evalkit.report.planning_cells import ENVIRONMENT as PLANNING
from evalkit.report.planning_cells import counted, reached
from evalkit.report.scores import METRICS

Value = Callable[[EpisodeResult], float | None]

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared."""

    key: str
    title: str
    value: Value
    """Of one episode, 1 for 100 %; None where it is not defined."""
    width: float = 1.0
    """The greatest difference there can be."""
    better: str = ""
    """Which direction is better: `HIGHER`, `LOWER`; empty: neither."""
    unmet: float | None = None
    """The greatest difference that a pair unlike all that were met is taken to have, where `width` is not finite."""


def measures(first: Cell, second: Cell) -> list[Measure]:
    """What both cells have values of."""
    environment = first.suite.environment
    least, most = score_range(environment)
    found = [
        Measure(key="score", title="Score", value=lambda one: one.score, width=most - least, better=HIGHER, unmet=1.0),
        Measure(key="solved", title="Solved", value=lambda one: float(one.solved), better=HIGHER),
    ]
    if environment == PLANNING:
        return found + PLANNING_MEASURES
    titles = {**METRICS, **{name: share.title for name, share in shares_of([environment]).items()}}
    given = [{name for episode in cell.prefix for name in episode.metrics} for cell in (first, second)]
    return found + [
        Measure(key=name, title=title, value=_metric(name), better=HIGHER if name == "best_so_far_rate" else "")
        for name, title in titles.items()
        if all(name in names for names in given)
    ]


def _metric(name: str, keep: Callable[[EpisodeResult], bool] = lambda _: True) -> Value:
    return lambda one: one.metrics.get(name) if keep(one) else None


def _extra_cost(one: EpisodeResult) -> float | None:
    """Cost above the optimum, as a share of it, where the goal was reached."""
    return one.metrics["gap"] / one.metrics["optimal_cost"] if reached(one) and "gap" in one.metrics else None


PLANNING_MEASURES = [
    Measure(key="exact", title="Same path", value=_metric("exact", counted), better=HIGHER),
    Measure(key="ned", title="Edit distance %", value=_metric("ned", counted), better=LOWER),
    Measure(key="gap_share", title="Cost gap %", value=_extra_cost, width=float("inf"), better=LOWER),
    Measure(key="intent", title="Right answer", value=_metric("intent", counted), better=HIGHER),
]
"""The paper's, over the runs it counts; distance and gap are better when they are lower."""
