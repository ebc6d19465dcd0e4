"""What the tables about planning (environment costbench) ask of cells and episodes: which count, means over them."""

from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.report.scores import EXACT, by_instance, strata_of
from evalkit.results.cells import Cell
from evalkit.stats.intervals import estimate

ENVIRONMENT = "costbench"

REFERENCE_FILES: Mapping[str, str] = {
    "2d15f439a22d55077d58b3d211129d403a8dcba55cbf4f7971f9de17b27253bb": "test",
    "ecae5294bd0b116d58a9731eb6aef29edeb9cc9dc860aecd17649a3a264bac9e": "train",
}
"""SHA-256 of the query files the reference publishes, and their split: the paper's figures are over the test file's 381
queries, so only runs on the same queries may bear its names."""

DIGEST_SHOWN = 12

Figures = Mapping[str, float]
"""By episode id: a figure of it, of those that have one (`RunData.values`)."""


def is_reference(cell: Cell) -> bool:
    """Whether all instances of the cell's suite come from the reference's query files, with costs drawn as it does."""
    return all(_as_published(instance.line) for instance in cell.suite.instances)


def _as_published(line: Mapping[str, Any]) -> bool:
    known = (line.get("source") or {}).get("sha256") in REFERENCE_FILES
    return known and line.get("generator") == "reference" and not line.get("costs")


def is_blocked(cell: Cell) -> bool:
    """Whether anything happens on the way in some instance of the cell's suite."""
    return any(is_blocked_line(instance.line) for instance in cell.suite.instances)


def is_blocked_line(line: Mapping[str, Any]) -> bool:
    """Whether an instance has events: planned ones, scheduled ones, or calls that fail."""
    planned = line.get("block", "none") != "none" and line.get("blocks") != 0
    return bool(planned or line.get("schedule") or line.get("failures"))


Spread = tuple[tuple[float, float] | None, str | None]
"""(a 95 % interval, None where there is none; its method, None where nothing was measured)."""


def interval(cell: Cell, name: str, figures: Figures) -> Spread:
    """The 95 % interval of the mean of a share, in percent, and its method."""
    values = by_instance((episode, figures.get(episode.id)) for episode in cell.prefix)
    if cell.exact and len({value for scores in values.values() for value in scores}) == 1:
        return None, EXACT
    return share_interval(cell, name, values)


def share_interval(cell: Cell, name: str, values: Mapping[str, list[float]], scale: float = 100.0) -> Spread:
    """`scale` times the 95 % interval of the mean of shares by instance, and its method; `name`: what they are, for the
    draws."""
    if not values:
        return None, None
    drawn_at = (cell.suite.name, cell.agent, name)
    estimated = estimate(values, place=drawn_at, strata=strata_of(cell), least=0.0, most=1.0)
    if estimated.interval is None:
        return None, None
    return (scale * estimated.interval.low, scale * estimated.interval.high), estimated.method


def digest_notes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Which suites figures are of that cannot stand beside the paper's."""
    digests = {cell.suite.name: cell.suite.digest[:DIGEST_SHOWN] for cell in cells if not is_reference(cell)}
    return tuple(
        f"not comparable with published figures: {name} is a suite of its own, digest {digest}"
        for name, digest in digests.items()
    )
