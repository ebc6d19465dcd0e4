"""What the tables of EconAgentBench ask of cells and episodes: difficulty, varied parameters, means over instances."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.report.scores import where
from evalkit.report.tables import Column
from evalkit.results.cells import Cell

ENVIRONMENTS: Mapping[str, str] = {"procurement": "Procurement", "scheduling": "Scheduling", "pricing": "Pricing"}
"""The paper's environments in its order, with their titles."""

LEVELS = ("basic", "medium", "hard")

DIFFICULTY = Column(key="difficulty", title="Difficulty")
ENVIRONMENT = Column(key="environment", title="Environment", group=True)


def level_of(cell: Cell) -> str:
    """The paper's difficulty that a suite's name ends in; empty where it ends in none."""
    last = cell.suite.base.removesuffix(".jsonl").rpartition("/")[2]
    return last if last in LEVELS else ""


def labels(cells: Sequence[Cell]) -> dict[str, str]:
    """By suite's base name: its difficulty, or the name itself where it has none or shares it within an environment."""
    bases: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        bases.setdefault((cell.suite.environment, level_of(cell)), set()).add(cell.suite.base)
    alone = {next(iter(names)): level for (_, level), names in bases.items() if level and len(names) == 1}
    return {cell.suite.base: alone.get(cell.suite.base, cell.suite.base) for cell in cells}


def axes_columns(cells: Sequence[Cell]) -> tuple[Column, ...]:
    """One column for each parameter that the sweep varied."""
    return where(cells)[1:]


def axes_of(cell: Cell) -> dict[str, Any]:
    """The values of `axes_columns`."""
    return {f"axis:{axis}": value for axis, value in cell.suite.axes.items()}


def without_axes(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a query without what the sweep varied, which SQL gives as text."""
    return {key: value for key, value in row.items() if not key.startswith("axis:")}


def owed_notes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """What to say where cells are incomplete."""
    if all(cell.complete for cell in cells):
        return ()
    return ("some episodes are owed: figures are over those that scores stand on",)
