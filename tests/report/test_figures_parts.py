"""What single figures make of a table, without a run: sizes, orders, labels and axes."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalkit.report.figures.behaviour import spearman
from evalkit.report.figures.figure import Figure
from evalkit.report.figures.marks import apart, reach, told_apart
from evalkit.report.figures.money import decades
from evalkit.report.figures.scores import score_figures
from evalkit.report.figures.varied import varied_figures
from evalkit.report.tables import Column, Table
from tests.report.test_figures import marks

SCORE = (
    Column(key="suite", title="Suite"),
    Column(key="axis:k", title="k"),
    Column(key="agent", title="Agent"),
    Column(key="score", title="Score", kind="score"),
    Column(key="interval", title="95 %", kind="interval"),
)


def score_table(*found: dict[str, Any]) -> Table:
    plain = {"interval": (10.0, 90.0), "instances": 12, "episodes": 12, "score": 50.0, "agent": "a", "suite": "s"}
    return Table(
        name="scores", title="Scores", columns=SCORE, rows=tuple({**plain, **row} for row in found), packs=(), query="q"
    )


@pytest.mark.parametrize("agents", [1, 30])
def test_scores_fit_one_agent_and_thirty(agents: int) -> None:
    names = [f"agent {i}" for i in range(agents)]
    table = score_table(*({"agent": name, "suite": f"s{i}"} for i in range(8) for name in names))
    (figure,) = score_figures(names, table)
    drawn = {row["suite"] for row in marks(figure)}
    assert len(drawn) == (8 if agents == 1 else 4)
    assert figure.table.rows == table.rows
    assert any("first 4 of 8" in note for note in figure.notes) == (agents == 30)
    assert "facet" not in figure.spec or agents == 30


def varied(*found: dict[str, Any]) -> dict[str, Figure]:
    return {one.name: one for one in varied_figures(["a", "b"], {"scores": score_table(*found)})}


def test_what_varies_has_a_figure_with_its_numbers_in_order() -> None:
    found = varied(*({"axis:k": k, "agent": agent} for k in (10, 2, 5) for agent in "ab"))
    assert list(found) == ["figure_score_k"]
    figure = found["figure_score_k"]
    assert {(row["x"], row["agent"], row["low"], row["high"]) for row in marks(figure)} == {
        (k, agent, 10.0, 90.0) for k in (2, 5, 10) for agent in "ab"
    }
    orders = [layer["encoding"]["x"]["sort"] for layer in figure.spec["spec"]["layer"]]
    assert orders[0] == [2, 5, 10]


def test_one_value_is_no_figure_and_other_parameters_make_panels() -> None:
    assert varied({"axis:k": 1}, {"suite": "other"}) == {}
    found = varied(*({"axis:k": k, "axis:size": size} for k in (1, 2) for size in (3, 4)))
    assert {row["cell"] for row in marks(found["figure_score_k"])} == {"size=3", "size=4"}
    assert {row["cell"] for row in marks(found["figure_score_size"])} == {"k=1", "k=2"}


def test_suites_without_blocks_join_those_with() -> None:
    calm = {"axis:length": 5, "score": 99.0}
    kinds = [{"axis:length": 5, "axis:block": kind, "axis:blocks": n} for kind in ("ban", "cost") for n in (1, 2)]
    found = varied(calm, *kinds)
    assert {row["x"] for row in marks(found["figure_score_blocking"])} == {"none", "ban", "cost"}
    assert {row["x"] for row in marks(found["figure_score_blocks"])} == {0, 1, 2}
    assert {row["value"] for row in marks(found["figure_score_blocks"]) if row["x"] == 0} == {99.0}
    assert "figure_score_blocks" not in varied(calm, *kinds[::2])


@given(st.lists(st.floats(0, 100), max_size=7))
def test_labels_lie_apart_within_the_plot(values: list[float]) -> None:
    placed = apart(values, 10, (0, 100))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(placed[b] - placed[a] >= 10 - 1e-9 for a, b in pairwise(order))
    assert all(-1e-9 <= one <= 100 + 1e-9 for one in placed)
    if all(abs(a - b) >= 10 for i, a in enumerate(values) for b in values[:i]):
        assert placed == pytest.approx(values)


def test_ranks_are_correlated_as_by_definition() -> None:
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 1.0, 4.0, 3.0, 6.0, 6.0]
    found = spearman(first, second)
    assert found is not None
    assert found.rho == pytest.approx(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])
    half = 1.959964 * math.sqrt((1 + found.rho**2 / 2) / 3)
    assert (found.low, found.high) == pytest.approx(
        (math.tanh(math.atanh(found.rho) - half), math.tanh(math.atanh(found.rho) + half)), abs=1e-6
    )
    whole = spearman(first, first)
    assert whole is not None
    assert (whole.rho, whole.low) == (pytest.approx(1.0), None)
    assert spearman(first[:3], second[:3]) is None
    assert spearman(first, [1.0] * 6) is None


def test_rows_are_told_apart_by_what_differs() -> None:
    same = {"suite": "s", "axis:k": 1}
    assert told_apart([{**same, "axis:b": "x"}, {**same, "axis:b": "y"}]) == ["x", "y"]
    assert told_apart([same, {**same, "suite": "t"}]) == ["s", "t"]
    assert told_apart([same]) == ["s"]


def test_axes_reach_as_far_as_values() -> None:
    assert reach([{"v": 20.0}, {"v": None}], ("v",), 0, 100) == [0, 100]
    low, high = reach([{"v": -10.0}], ("v",), 0, 100)
    assert (low < -10, high) == (True, 100)
    assert decades([{"v": 0.0004}, {"v": 0.3}], ("v",)) == [0.0001, 0.001, 0.01, 0.1, 1.0]
    assert 0.02 in decades([{"v": 0.01}, {"v": 0.03}], ("v",))
