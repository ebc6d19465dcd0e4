from collections.abc import Sequence
from typing import Any

import pytest
from scipy import stats

from evalkit.report.figures.behaviour import ranks_table
from evalkit.report.scores import behaviour_table, scores_table
from evalkit.results.cells import Cell
from tests.report.test_econ import a_cell
from tests.support.guessing_runs import source_of_cells

FOUND = [0.15, 0.35, 0.55, 0.85, 0.7, 0.05, 0.25, 0.45, 0.95, 0.65]
SCORES = {name: [mean - 0.05, mean + 0.05] for name, mean in zip("abcdefghij", FOUND, strict=True)}
RATES = dict(zip("abcdefghij", [0.2, 0.1, 0.5, 0.6, 0.9, 0.3, 0.15, 0.7, 0.8, 0.4], strict=True))


def ranked(names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    cells: list[Cell] = [
        a_cell("scheduling/hard", SCORES[name], {"exploration_rate": [RATES[name]] * 2}, agent=name) for name in names
    ]
    source = source_of_cells(cells)
    made = [scores_table(source), behaviour_table(source)]
    return tuple(dict(row) for row in ranks_table(names, made, cells).rows)


def test_the_correlation_is_scipys_over_agents() -> None:
    (row,) = [row for row in ranked(list(SCORES)) if row["measure"] == "Exploration"]
    means = [sum(SCORES[name]) / 2 for name in SCORES]
    assert row["rho"] == pytest.approx(stats.spearmanr(list(RATES.values()), means).statistic)
    assert -1 < row["low"] < row["rho"] < row["high"] < 1
    assert (row["environment"], row["agents"]) == ("scheduling", 10)


def test_few_agents_give_no_row() -> None:
    assert ranked(list(SCORES)[:9]) == ()
