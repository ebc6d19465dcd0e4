"""The charts of an episode: those that its environment's extras draw."""

from collections.abc import Sequence
from typing import Any

from evalkit.report.extras.record import extras_of
from evalkit.report.figure import Figure
from evalkit.results.moves import Move


def episode_figures(environment: str, target: Any, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """The figures of an episode from its instance and its moves."""
    charts = extras_of(environment).charts
    return charts.figures(target, episode, moves) if charts else ()


def period_lines(environment: str, target: Any, moves: Sequence[Move]) -> dict[int, str]:
    """By period: what came of it, in a line; periods of which there is nothing to say are left out."""
    charts = extras_of(environment).charts
    return charts.lines(target, moves) if charts else {}
