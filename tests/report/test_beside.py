"""The papers' rows below a run's tables."""

from typing import Any

import pytest

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.report.costbench.planning import planning_tables
from evalkit.report.markets.econ import econ_tables
from evalkit.report.published.papers import beside_tables, published_papers
from evalkit.report.report import Report
from evalkit.report.tables import Table
from tests.report.test_econ import HARD
from tests.report.test_econ import a_cell as an_econ_cell
from tests.report.test_planning import GOOD
from tests.report.test_planning import a_cell as a_planning_cell
from tests.report.test_planning import an_episode as a_planning_episode
from tests.support.guessing_runs import a_manifest, an_agent, source_of_cells

LINE: dict[str, Any] = {"seed": 42, "length": 5, "noise": 0.1, "steps": 0}


@pytest.fixture(scope="module")
def run_tables() -> tuple[Table, ...]:
    packs = dict.fromkeys(("procurement", "scheduling", "pricing"), "d0")
    manifest = a_manifest([an_agent("a", packs=packs)], [])
    blocked = [
        a_planning_cell([a_planning_episode("q", {**GOOD, "truth_change": 0.1})], suite="b", block="ban_tool", **LINE),
        a_planning_cell([a_planning_episode("q", GOOD)], suite="s", **LINE),
    ]
    econ = [an_econ_cell(f"{name}/hard", HARD) for name in packs]
    return (*planning_tables(source_of_cells(blocked)), *econ_tables(source_of_cells(econ, manifest)))


def test_published_rows_stand_below_the_runs_own_table(run_tables: tuple[Table, ...]) -> None:
    shown = beside_tables(run_tables)
    by_name = {table.name: table for table in run_tables}
    names = [table.name for table in shown]
    assert names[names.index("econ_scores") + 1] == "beside_econ_2"
    published = {table.name: table for table in shown if table.name.startswith("beside_")}
    ours = [table for table in shown if table.name not in published]
    assert ours == [by_name[table.name] for table in ours]
    assert {table.name for table in ours} == {
        *("planning", "planning_calls", "adaptation", "econ_scores", "econ_action_quality", "econ_exploration")
    }
    econ = published["beside_econ_2"]
    assert [column.key for column in econ.columns if column.key in {c.key for c in by_name["econ_scores"].columns}] == [
        *("agent", "difficulty"),
        *(f"{name}{end}" for name in ("procurement", "scheduling") for end in ("", "_solved", "_runs")),
        "pricing",
    ]
    row = next(row for row in econ.rows if (row["agent"], row["difficulty"]) == ("o4-mini", "basic"))
    assert (row["procurement"], row["procurement_solved"], row["procurement_runs"]) == (96.4, 8, 12)
    assert {(row["length"], row["block"]) for row in published["beside_costbench_4"].rows} == {(5, "none")}
    assert any("temperature 0" in note for note in published["beside_costbench_4"].notes)


def test_a_run_without_a_counterpart_has_none(the_report: Report) -> None:
    assert beside_tables(the_report.tables) == ()


def test_rows_that_say_nothing_of_what_the_run_has_are_left_out() -> None:
    models = {
        name: {row["agent"] for row in beside_tables(econ_tables(source_of_cells([an_econ_cell(name, HARD)])))[1].rows}
        for name in ("scheduling/hard", "pricing/hard")
    }
    assert models["scheduling/hard"] - models["pricing/hard"] == {"Heuristic of D.3"}


def test_columns_that_the_run_lacks_are_left_out(run_tables: tuple[Table, ...]) -> None:
    econ = econ_tables(source_of_cells([an_econ_cell("scheduling/hard", HARD)]))
    tables = {table.name: table for table in beside_tables(econ)}
    keys = [column.key for column in tables["beside_econ_2"].columns]
    assert keys == ["agent", "difficulty", "scheduling", "scheduling_solved", "scheduling_runs"]


def test_the_published_figures_are_those_of_columns_that_reports_have(run_tables: tuple[Table, ...]) -> None:
    held = {table.name: {column.key for column in table.columns} for table in run_tables}
    held["econ_prompts"] = {"score", "exploration_rate", "prompts"}
    held["suite"] = {tally.key for tally in COSTBENCH.presentation.described.tallies}
    for paper in published_papers():
        for table in paper.tables:
            columns = held[table.ours[0]]
            figures = {key for row in table.rows for key, value in row.items() if isinstance(value, int | float)}
            assert figures, table.name
            assert figures <= columns, table.name
