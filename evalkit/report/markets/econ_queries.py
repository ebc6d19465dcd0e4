"""What the tables of `econ.py` and `contrasts.py` share: difficulties, and queries with environments side by side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.scores import where
from evalkit.report.tables import Column
from evalkit.results.cells import Cell

ENVIRONMENTS: Mapping[str, str] = {"procurement": "Procurement", "scheduling": "Scheduling", "pricing": "Pricing"}
"""The paper's environments in its order, with their titles."""

LEVELS = ("basic", "medium", "hard")

DIFFICULTY = Column(key="difficulty", title="Difficulty")
ENVIRONMENT = Column(key="environment", title="Environment", group=True)


def level_of(cell: Cell) -> str:
    """The paper's difficulty that a suite's name ends in; empty if it ends in none."""
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


def remaining_notes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The note if cells are incomplete."""
    if all(cell.complete for cell in cells):
        return ()
    return ("some episodes remain: figures are over those that scores are based on",)


def beside(
    cells: Sequence[Cell], named: Mapping[str, str], figures: Iterable[queries.QueryColumn], extra: str = ""
) -> str:
    """A row for each agent, difficulty and values of axes; `named`: difficulties by suites' base names."""
    keys = ("agent", difficulty(named), *queries.axes(cells), *([extra] if extra else []))
    agents = {name: rank for rank, name in enumerate(dict.fromkeys(cell.agent for cell in cells))}
    levels = {label: rank for rank, label in enumerate(dict.fromkeys((*LEVELS, *named.values())))}
    bases = {base: levels[label] for base, label in named.items()}
    order = f"min({_rank('agent', agents)}), min({_rank('base', bases)}), min(place)"
    return queries.two_levels(keys, tuple(figures), keep=queries.suites(cells), order=order)


def _rank(column: str, ranks: Mapping[str, int]) -> str:
    cases = " ".join(f"when {queries.text(value)} then {rank}" for value, rank in ranks.items())
    return f"case {column} {cases} end"


def difficulty(named: Mapping[str, str]) -> str:
    """The column `difficulty`."""
    cases = " ".join(f"when {queries.text(base)} then {queries.text(label)}" for base, label in named.items())
    return f"case base {cases} end as difficulty"


def runs(key: str, environment: str, condition: str = "") -> queries.QueryColumn:
    """How many episodes of an environment; null if it was not played."""
    name = queries.quoted(key)
    return queries.QueryColumn(
        key=key,
        inner=queries.count(key, condition).inner,
        outer=f"sum(coalesce({name}, 0)) filter (where environment = {queries.text(environment)})",
    )


def mean_of(key: str, environment: str, value: str) -> queries.QueryColumn:
    """A hundred times the mean over an environment's instances."""
    return queries.mean(key, value, scale=100, keep=f"environment = {queries.text(environment)}")
