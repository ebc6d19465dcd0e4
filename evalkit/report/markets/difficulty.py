"""Whether difficulty works: each agent's scores on basic instances against those on hard ones, as the paper tests it.

Suites belong together that share all of their name but its end: `mine/basic` and `mine/hard`.

Source: section 4.1 of the paper; specification of the reference, section D.4.
"""

from collections.abc import Sequence
from typing import Any

from evalkit.report.markets.econ_queries import (
    ENVIRONMENT,
    ENVIRONMENTS,
    LEVELS,
    axes_columns,
    axes_of,
    difficulty_query,
    level_of,
    owed_notes,
    without_axes,
)
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, packs_of
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.stats.contrasts import welch

INDEPENDENT = (
    "tests are over n instances, with replicates averaged first, because runs on one instance are not independent; "
    "p-values are not corrected for the number of tests"
)

_ENDS = frozenset({LEVELS[0], LEVELS[-1]})


def difficulty_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Basic against hard, by environment and agent; none if no agent has played both."""
    families: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for cell in cells:
        axes = tuple(sorted((axis, repr(value)) for axis, value in cell.suite.axes.items()))
        key = (list(ENVIRONMENTS).index(cell.suite.environment), _family(cell), axes, cell.agent)
        families.setdefault(key, {})[level_of(cell)] = cell
    order = sorted(families, key=lambda key: key[0])
    pairs = [(families[key][LEVELS[0]], families[key][LEVELS[-1]]) for key in order if families[key].keys() >= _ENDS]
    if not pairs:
        return ()
    paired_cells = [cell for pair in pairs for cell in pair]
    own = any(_family(cell) != cell.suite.environment for cell in paired_cells)
    query = difficulty_query(pairs, own)
    rows = [
        {**_tested(row.pop("basic_means"), row.pop("hard_means")), **without_axes(row), **axes_of(easy)}
        for row, (easy, _) in zip(source.rows(query), pairs, strict=True)
    ]
    table = Table(
        name="econ_difficulty",
        title="Basic against hard",
        columns=(
            ENVIRONMENT,
            *([Column(key="suites", title="Suites", group=True)] if own else []),
            *axes_columns(paired_cells),
            AGENT,
            Column(key="basic", title="Basic", kind="score", unit="100 = optimum"),
            Column(key="basic_instances", title="n", kind="count", unit="instances"),
            Column(key="hard", title="Hard", kind="score", unit="100 = optimum"),
            Column(key="hard_instances", title="n", kind="count", unit="instances"),
            Column(key="t", title="t", kind="number"),
            Column(key="df", title="df", kind="number"),
            Column(key="p", title="p", kind="p"),
            Column(key="undefined", title="No test"),
        ),
        rows=tuple(rows),
        packs=packs_of(paired_cells),
        notes=(
            "as in section 4.1 of the paper: one-sided Welch tests of whether the mean is greater on basic instances",
            INDEPENDENT,
            *owed_notes(paired_cells),
        ),
        query=query,
    )
    return (table,)


def _family(cell: Cell) -> str:
    """The folder that suites of several difficulties share."""
    return cell.suite.base.rpartition("/")[0]


def _tested(easy: list[float] | None, hard: list[float] | None) -> dict[str, Any]:
    """The test of means by instance; None: there are none."""
    outcome = welch(easy or [], hard or [], greater=True)
    return {
        "t": outcome.statistic,
        "df": outcome.free,
        "p": outcome.p,
        "undefined": outcome.why or None,
    }
