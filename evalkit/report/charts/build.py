"""The charts of an episode by environment. A plain table: an environment that has none is not in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.report.charts import costbench, pricing, procurement, scheduling
from evalkit.report.figures.figure import Figure
from evalkit.report.moves import Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """What draws an environment's episodes."""

    figures: Callable[[Any, str, Sequence[Move]], tuple[Figure, ...]]
    """(instance, the episode's id, its moves) -> figures in reading order; none where there is nothing to draw."""
    lines: Callable[[Any, Sequence[Move]], dict[int, str]]
    """(instance, moves) -> by period: what came of it, in a line."""


CHARTS: Mapping[str, Charts] = {
    "costbench": Charts(figures=costbench.costbench_figures, lines=costbench.costbench_lines),
    "scheduling": Charts(figures=scheduling.scheduling_figures, lines=scheduling.scheduling_lines),
    "procurement": Charts(figures=procurement.procurement_figures, lines=procurement.procurement_lines),
    "pricing": Charts(figures=pricing.pricing_figures, lines=pricing.pricing_lines),
}


def episode_figures(environment: str, target: Any, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """The figures of an episode from its instance and its moves."""
    charts = CHARTS.get(environment)
    return charts.figures(target, episode, moves) if charts else ()


def period_lines(environment: str, target: Any, moves: Sequence[Move]) -> dict[int, str]:
    """By period: what came of it, in a line; periods of which there is nothing to say are left out."""
    charts = CHARTS.get(environment)
    return charts.lines(target, moves) if charts else {}
