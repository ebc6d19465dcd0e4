"""What single figures make of a table, without a run: sizes, orders, labels and axes."""

import math
import re
from itertools import pairwise
from typing import Any

import pytest

from evalkit.report.environments.markets import ladder_figures
from evalkit.report.figures.build import decades, score_figures
from evalkit.report.figures.curves import varied_figures
from evalkit.report.figures.draw import svg
from evalkit.report.figures.marks import told_apart
from evalkit.report.markets.econ_queries import LEVELS
from evalkit.report.tables import Column, Table
from evalkit.report.vega import Figure, reach
from tests.report.test_figures import layers_of, marks
from tests.vegalite import schema_flaw

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
    figures = varied_figures(["a", "b"], {"scores": score_table(*found)})
    assert [schema_flaw(figure.spec) for figure in figures] == [""] * len(figures)
    return {one.name: one for one in figures}


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


def drawn_dots(figure: Figure) -> list[tuple[str, float, float, bool]]:
    """(agent, x, y, whether it is filled) of every dot of a figure as it is drawn, in its panel's pixels."""
    found = []
    for tag in re.findall(r"<path[^>]*>", svg(figure)):
        place = re.search(r'transform="translate\(([-\d.]+),([-\d.]+)\)"', tag)
        named = re.search(r'aria-label="[^"]*Agent: (\w+)', tag)
        if place and named and 'aria-roledescription="point"' in tag:
            found.append((named[1], float(place[1]), float(place[2]), ' fill="#' in tag))
    return found


def ladder(*levels: dict[str, Any]) -> tuple[Figure, ...]:
    plain = {"scheduling_interval": None, "scheduling_runs": 12, "procurement": None, "procurement_runs": 12}
    keys = ("agent", "difficulty", "procurement", "scheduling")
    table = Table(
        name="econ_scores",
        title="Scores",
        columns=tuple(Column(key=key, title=key) for key in keys),
        rows=tuple({"procurement_interval": None, **plain, **row} for row in levels),
        packs=(),
        query="q",
    )
    figures = ladder_figures(list("abcd"), table)
    assert [schema_flaw(figure.spec) for figure in figures] == [""] * len(figures)
    return figures


def test_equal_agents_stand_beside_each_other_and_nobody_is_hidden() -> None:
    both = [{"agent": agent, "difficulty": level, "scheduling": 100.0} for level in LEVELS[:2] for agent in "abcd"]
    (figure,) = ladder(*both)
    dots = drawn_dots(figure)
    assert len(dots) == 8
    across = sorted(x for _, x, _, _ in dots)
    assert all(right - left >= 8 for left, right in pairwise(across))  # a dot is 7 pixels wide
    assert len({y for *_, y, _ in dots}) == 1
    # All names stand in the legend, none beside a line where names would have to be moved.
    assert not [layer for layer in layers_of(figure.spec) if layer["mark"]["type"] == "text"]


def test_one_level_of_an_environment_is_no_panel_of_difficulty() -> None:
    both = [
        {"agent": agent, "difficulty": level, "scheduling": 100.0, "procurement": 50.0 if level == "basic" else None}
        for level in LEVELS[:2]
        for agent in "ab"
    ]
    (figure,) = ladder(*both)
    assert {row["measure"] for row in marks(figure)} == {"Scheduling (score, 100 = optimum)"}
    assert ladder(*both[:2]) == ()


def test_no_interval_does_not_look_like_a_narrow_one() -> None:
    table = score_table({"agent": "a", "interval": None}, {"agent": "b", "interval": (50.0, 50.0)}, {"agent": "c"})
    (figure,) = score_figures(["a", "b", "c"], table)
    assert {agent: filled for agent, _, _, filled in drawn_dots(figure)} == {"a": False, "b": True, "c": True}
    assert "Hollow dot: no interval" in figure.spec["title"]["subtitle"]
    ticks = [layer for layer in layers_of(figure.spec) if layer["mark"]["type"] == "tick"]
    assert [layer["encoding"]["x"]["field"] for layer in ticks] == ["low", "high"]
    dot = math.sqrt(4 * 55 / math.pi)
    assert all(layer["mark"]["size"] > dot + 2 for layer in ticks)
    (whole,) = score_figures(["b", "c"], score_table({"agent": "b"}, {"agent": "c"}))
    assert "Hollow dot: no interval" not in whole.spec["title"]["subtitle"]


def test_a_thin_line_shows_what_few_instances_cannot_exclude_where_that_is_lower() -> None:
    table = score_table({"agent": "a", "unmet": 4.0}, {"agent": "b", "unmet": None})
    (figure,) = score_figures(["a", "b"], table)
    assert schema_flaw(figure.spec) == ""
    (thin,) = (layer for layer in layers_of(figure.spec) if layer["encoding"].get("x", {}).get("field") == "down")
    assert thin["encoding"]["x2"]["field"] == "low"
    whole = next(layer for layer in layers_of(figure.spec) if layer["encoding"].get("x2", {}).get("field") == "high")
    assert thin["mark"]["strokeWidth"] < whole["mark"]["strokeWidth"]
    assert [row.get("down") for row in marks(figure)] == [4.0, None]
    assert "Thin line: failures that so few instances cannot exclude" in figure.spec["title"]["subtitle"]
    (plain,) = score_figures(["a"], score_table({"agent": "a"}))
    assert not any("Thin" in line for line in plain.spec["title"]["subtitle"])


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
    assert decades([{"v": 0.0011}, {"v": 0.0013}], ("v",)) == [0.0011, 0.0013]
    assert decades([{"v": 0.003}], ("v",)) == [0.003]
