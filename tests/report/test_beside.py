from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from evalkit.envs.table import ENVIRONMENTS
from evalkit.report import beside
from evalkit.report.beside import HERE, NOT_SAID, SAME, THERE, beside_tables, settings_of
from evalkit.report.costbench.planning import planning_tables
from evalkit.report.markets.econ import econ_tables
from evalkit.report.published.papers import published_papers
from evalkit.report.tables import Table
from evalkit.results.cells import Cell
from evalkit.store.instances import ManifestInstance
from evalkit.store.manifest import Manifest, ManifestAgent
from tests.report.test_econ import HARD
from tests.report.test_econ import a_cell as an_econ_cell
from tests.report.test_planning import GOOD
from tests.report.test_planning import a_cell as a_planning_cell
from tests.report.test_planning import an_episode as a_planning_episode
from tests.support.guessing_runs import a_manifest, an_agent, source_of_cells

ASKED = {"temperature": 0.5, "max_tokens": 16384, "tool_choice": "auto", "parallel_calls": False, "effort": "high"}
LINE: dict[str, Any] = {"seed": 42, "length": 5, "noise": 0.1, "steps": 0}


def a_model(name: str, model: str, environment: str, **sampling: Any) -> ManifestAgent:
    return an_agent(
        name, lane=f"openai/{model}", model=model, sampling={environment: sampling}, packs={environment: "d0"}
    )


def tables(manifest: Manifest, cells: Sequence[Cell]) -> dict[str, Table]:
    source = source_of_cells(cells, manifest)
    made = [*planning_tables(source), *econ_tables(source)]
    return {table.name: table for table in beside_tables(manifest, cells, made)}


def with_lines(cell: Cell, environment: str, count: int, **line: Any) -> Cell:
    """The cell with instances of seeds from 0 on."""
    instances = tuple(
        ManifestInstance(id=f"seed-{i}", digest="", stratum="", line={"seed": i, "generator": "reference", **line})
        for i in range(count)
    )
    return replace(cell, suite=msgspec.structs.replace(cell.suite, environment=environment, instances=instances))


@pytest.fixture(scope="module")
def planning() -> dict[str, Table]:
    manifest = a_manifest([a_model("mine", "gpt-4o-2024-11-20", "costbench", **ASKED), an_agent("greedy")], [])
    cells = [
        a_planning_cell([a_planning_episode("q", GOOD)], suite="s5", agent="mine", **LINE),
        a_planning_cell([a_planning_episode("q", GOOD)], suite="s8", agent="mine", **{**LINE, "length": 8}),
        a_planning_cell([a_planning_episode("q", GOOD)], suite="s5", agent="greedy", **LINE),
    ]
    return tables(manifest, cells)


def test_a_model_stands_above_its_own_published_row(planning: dict[str, Table]) -> None:
    rows = planning["beside_costbench_4"].rows
    assert [(row["from"], row["agent"]) for row in rows[:2]] == [(HERE, "mine"), (SAME, "GPT-4o")]
    assert (rows[0]["exact"], rows[1]["exact"]) == (100.0, 13.65)
    assert [row["agent"] for row in rows if row["from"] == THERE].count("GPT-4o") == 0
    assert len([row for row in rows if row["from"] != HERE]) == 11


def test_published_rows_are_gone_through_once_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    known = beside._is_figure
    monkeypatch.setattr(beside, "_is_figure", lambda value: bool(seen.append(value)) or known(value))
    names = [f"m{i}" for i in range(20)]
    manifest = a_manifest([a_model(name, "gpt-4o", "costbench") for name in names], [])
    cells = [a_planning_cell([a_planning_episode("q", GOOD)], suite="s5", agent=name, **LINE) for name in names]
    assert len(tables(manifest, cells)["beside_costbench_4"].rows) > len(names)
    published = sum(len(row) for paper in published_papers() for table in paper.tables for row in table.rows)
    # Once for each table's columns, and again where a row is shown.
    assert len(seen) < 2 * published


def test_rows_without_a_counterpart_are_counted_not_shown(planning: dict[str, Table]) -> None:
    table = planning["beside_costbench_4"]
    assert {row["suite"] for row in table.rows if row["from"] == HERE} == {"s5"}
    assert any("1 rows of this run have no counterpart" in note for note in table.notes)
    assert "beside_costbench_hardest" not in planning


def test_a_row_is_of_the_cell_with_its_own_parameters() -> None:
    manifest = a_manifest([an_agent("greedy", policy="greedy", model="")], [])
    calm = a_planning_cell([a_planning_episode("q", GOOD)], agent="greedy", **LINE)
    blocked = a_planning_cell([a_planning_episode("q", GOOD)], agent="greedy", block="ban_tool", blocks=1, **LINE)
    suite = msgspec.structs.replace(blocked.suite, name="s?block=ban_tool", axes={"block": "ban_tool"})
    table = tables(manifest, [calm, replace(blocked, suite=suite)])["beside_costbench_4"]
    assert [row["block"] for row in table.rows if row["from"] == HERE] == ["none"]
    assert any("1 rows of this run" in note for note in table.notes)


def test_every_setting_that_differs_is_listed(planning: dict[str, Table]) -> None:
    rows = planning["beside_settings"].rows
    found = {row["setting"]: (row["theirs"], row["ours"]) for row in rows if "mine" in row["agents"]}
    assert found["temperature"] == ("0", "0.5")
    assert found["prompts"] == ("reference", "standard")
    assert found["effort"] == (NOT_SAID, "high")
    assert found["instances"] == ("381", "1")
    assert not {"max_tokens", "seed", "noise", "low", "generator", "length", "tool_choice"} & found.keys()
    shown = next(row for row in planning["beside_costbench_4"].rows if row["agent"] == "mine")
    assert shown["differs"] == len(found)


def test_what_a_policy_does_not_read_is_no_setting_of_it() -> None:
    manifest = a_manifest([an_agent("g", policy="greedy", model="")], [])
    cell = a_planning_cell([a_planning_episode("q", GOOD)], agent="g", **LINE)
    assert not {"prompts", "notes", "temperature"} & settings_of(manifest, cell).keys()
    table = tables(manifest, [cell])["beside_costbench_4"]
    assert [(row["from"], row["agent"]) for row in table.rows[:2]] == [(HERE, "g"), (SAME, "Greedy Policy")]


def test_rows_agree_in_difficulty_and_in_seeds() -> None:
    manifest = a_manifest([a_model("mine", "gpt-5", "scheduling", temperature=1.0)], [])
    hard = with_lines(an_econ_cell("scheduling/hard", HARD, agent="mine"), "scheduling", 12, n=50, k=5)
    own = with_lines(an_econ_cell("scheduling/expert", HARD, agent="mine"), "scheduling", 12, n=100, k=10)
    made = tables(manifest, [hard, own])
    rows = made["beside_econ_2"].rows
    assert {row["difficulty"] for row in rows} == {"hard"}
    assert (rows[0]["scheduling_runs"], rows[1]["agent"], rows[1]["scheduling"]) == (12, "GPT-5", 90.5)
    settings = {row["setting"]: (row["theirs"], row["ours"]) for row in made["beside_settings"].rows}
    assert settings["model"] == ("GPT-5, version 20250807", "openai/gpt-5")
    assert settings["no_action"] == ("restart", "keep")
    assert not {"seed", "n", "k", "instances", "difficulty"} & settings.keys()


def test_the_published_figures_are_those_of_columns_that_reports_have() -> None:
    packs = dict.fromkeys(("procurement", "scheduling", "pricing"), "d0")
    manifest = a_manifest([an_agent("a", packs=packs)], [])
    blocked = [
        a_planning_cell([a_planning_episode("q", {**GOOD, "truth_change": 0.1})], suite="b", block="ban_tool", **LINE),
        a_planning_cell([a_planning_episode("q", GOOD)], suite="s", **LINE),
    ]
    econ = [
        an_econ_cell(f"{name}/{level}", HARD)
        for name in ("procurement", "scheduling", "pricing")
        for level in ("hard",)
    ]
    made = [*planning_tables(source_of_cells(blocked)), *econ_tables(source_of_cells(econ, manifest))]
    held = {table.name: {column.key for column in table.columns} for table in made}
    held["econ_prompts"] = {"score", "exploration_rate", "prompts"}
    for paper in published_papers():
        known = {model.name for model in paper.models} | {""}
        for table in paper.tables:
            assert {row["model"] for row in table.rows} <= known
            columns = held[table.ours[0]]
            figures = {key for row in table.rows for key, value in row.items() if isinstance(value, int | float)}
            assert figures, table.name
            assert figures <= columns, table.name


def test_published_settings_name_what_runs_have() -> None:
    for paper in published_papers():
        for one in paper.settings:
            names = [one.environment] if one.environment else ["procurement", "scheduling", "pricing"]
            for name in names:
                plain = {"environment version", "replicates", "instances", "prompts", "notes", "query file"}
                env = ENVIRONMENTS[name]
                assert one.values.keys() <= plain | env.parameters.keys() | set(type(env.defaults).__slots__)
