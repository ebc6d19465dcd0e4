import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from evalkit.envs.costbench.score import score
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import ManifestSuite
from evalkit.report.behaviour import behaviour_table
from evalkit.report.costbench.planning import ALL_AGENTS, planning_tables
from evalkit.report.costbench.planning_queries import REFERENCE_FILES, is_reference
from evalkit.report.scores import scores_table
from evalkit.report.tables import Table, as_csv, markdown, shown
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.store.files.schema import steps_table
from tests.conform.compare.costbench_metrics import as_reference, played
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, report_of, rows, search, source_of_cells

TEST, TRAIN = REFERENCE_FILES
ONES = ("goal", "exact", "exact_any", "intent", "previous_intent", "answered", "atomic_calls", "complete_truth")
ZEROS = (
    *("gap", "edit_distance", "ned", "repeated", "extra", "wrong_parameter", "unaccessible", "parallel_extra"),
    *("banned_calls", "failed_calls", "blocks_planned", "blocks_met"),
)
GOOD: dict[str, float] = {
    **dict.fromkeys((*ONES, "eligible", "eligible_any_agent"), 1.0),
    **dict.fromkeys(ZEROS, 0.0),
    **dict.fromkeys(("cost", "optimal_cost"), 80.0),
    **dict.fromkeys(("calls", "valid_calls"), 3.0),
    "messages": 9,
    "paths_possible": 15,
    "paths_whole": 16,
    "plan_paths": 8,
    "plan_valid": 6,
}
LOST = {**GOOD, "goal": 0, "edit_distance": 5, "ned": 1, "exact": 0, "exact_any": 0, "intent": 0, "answered": 0}
del LOST["gap"]
MUTE = {**LOST, "messages": 3, "calls": 0, "valid_calls": 0, "atomic_calls": 0}


def an_episode(instance: str, metrics: Mapping[str, float], replicate: int = 0, **fields: Any) -> EpisodeResult:
    counts = ("without_call", "no_action", "cost", "tokens_in", "tokens_out", "tokens_cached_read")
    known: dict[str, Any] = {
        **dict.fromkeys(counts, 0),
        **dict.fromkeys(("finished", "solved"), True),
        "axes": {},
        "outcomes": (),
        "id": f"{instance}-{replicate}",
        "agent": "a",
        "suite": "s",
        "environment": "costbench",
        "stratum": "dining",
        "ending": "answered",
        "steps": 4,
        "score": 1.0,
        "path": (),
        "periods": 1,
        "latency_s": 1.0,
    }
    return EpisodeResult(instance=instance, replicate=replicate, metrics=metrics, **{**known, **fields})


def a_cell(
    episodes: Sequence[EpisodeResult], *, suite: str = "s", agent: str = "a", sha256: str = TEST, **line: Any
) -> Cell:
    # As in a run: no id is another suite's or agent's.
    episodes = [structs.replace(episode, id=f"{suite}-{agent}-{episode.id}") for episode in episodes]
    names = dict.fromkeys(episode.instance for episode in episodes)
    source = {"source": {"file": "queries.json", "sha256": sha256, "row": 1}} if sha256 else {}
    instances = [
        ManifestInstance(
            id=name,
            digest=name,
            stratum="dining",
            line={"id": name, "generator": "reference", "query": name, **source, **line},
        )
        for name in names
    ]
    return Cell(
        agent=agent,
        suite=ManifestSuite(
            name=suite,
            base=suite,
            axes={},
            environment="costbench",
            environment_version=1,
            digest="0123456789abcdef",
            instances=tuple(instances),
        ),
        pack="standard",
        planned=len(episodes),
        episodes=tuple(episodes),
        prefix=tuple(episodes),
    )


def tables(cells: Sequence[Cell], judged: Mapping[str, Mapping[str, int]] | None = None) -> dict[str, Table]:
    return {table.name: table for table in planning_tables(source_of_cells(cells, judged=judged or {}))}


def only(table: Table, **where: Any) -> dict[str, Any]:
    found = [row for row in table.rows if all(row[key] == value for key, value in where.items())]
    assert len(found) == 1
    return dict(found[0])


@pytest.fixture(scope="module")
def static() -> Cell:
    dear = {**GOOD, "gap": 10, "edit_distance": 2, "ned": 0.5, "exact": 0, "exact_any": 1, "calls": 5}
    clumsy = {**dear, "gap": 20, "exact_any": 0, "repeated": 1, "extra": 2, "valid_calls": 5}
    metrics: list[dict[str, float]] = [
        GOOD,
        dear,
        clumsy,
        {**LOST, "unaccessible": 1, "wrong_parameter": 2, "parallel_extra": 4},
        MUTE,
    ]
    return a_cell([an_episode(f"i{i}", one) for i, one in enumerate(metrics)])


def test_figures_and_what_they_are_over(static: Cell) -> None:
    row = only(tables([static])["planning"])
    assert (row["gap"], row["gap_clean"]) == (10.0, 5.0)
    assert (row["edit_distance"], row["ned"], row["exact"], row["exact_any"]) == (9 / 4, 50.0, 25.0, 50.0)
    assert row["intent"] == 75.0
    assert row["invalid"] == pytest.approx(100 * (1 - 14 / 16))
    counts = only(tables([static])["planning_counts"])
    assert [counts[key] for key in ("gap_runs", "clean_runs", "path_runs", "calls")] == [3, 2, 4, 16]
    assert [counts[key] for key in ("blocks_missed", "no_call", "episodes")] == [0, 1, 5]
    low, high = row["exact_interval"]
    assert 0 <= low <= 25 <= high <= 100


def test_the_papers_exclusions(static: Cell) -> None:
    row = only(tables([static])["planning_goal_only"])
    assert (row["edit_distance"], row["exact"], row["intent"]) == (4 / 3, pytest.approx(100 / 3), 100.0)
    assert (row["reached"], row["episodes"]) == (3, 5)


def test_only_suites_of_the_reference_bear_the_papers_names(static: Cell) -> None:
    mine = a_cell(static.prefix, sha256="")
    assert is_reference(static)
    assert is_reference(a_cell(static.prefix, sha256=TRAIN))
    assert not is_reference(mine)
    assert not is_reference(a_cell(static.prefix, sha256="0" * 64))
    assert not is_reference(a_cell(static.prefix, generator="native"))
    assert not is_reference(a_cell(static.prefix, costs={"A": "1.00"}))
    found = tables([static, replace(mine, suite=replace_name(mine.suite, "own"))])
    papers = {"Cost Gap", "AED", "ANED (%)", "EMR (%)", "UIHR (%)", "ITUR (%)"}
    assert papers <= {column.title for column in found["planning"].columns}
    assert [row["suite"] for row in found["planning"].rows] == ["s"]
    for name in ("planning_own", "planning_goal_only_own"):
        assert not papers & {column.title for column in found[name].columns}
        assert any("0123456789ab" in note and "own" in note for note in found[name].notes)
        assert "EMR" not in "".join(found[name].notes)
    assert not any("0123456789ab" in note for note in found["planning"].notes)
    assert [row["suite"] for row in found["planning_calls"].rows] == ["s", "own"]


def replace_name(suite: ManifestSuite, name: str) -> ManifestSuite:
    return ManifestSuite(
        **{field: getattr(suite, field) for field in suite.__struct_fields__} | {"name": name, "base": name}
    )


def test_errors_by_kind_with_totals(static: Cell) -> None:
    rival = replace(a_cell(static.prefix[2:3]), agent="b", suite=static.suite)
    found = tables([static, rival])["planning_calls"]
    row = only(found, agent="a")
    assert [row[key] for key in ("repeated", "extra", "wrong_parameter", "unaccessible")] == [1, 2, 2, 1]
    assert (row["errors"], row["parallel_extra"], row["calls"]) == (6, 4, 16)
    total = only(found, agent=ALL_AGENTS)
    assert (total["errors"], total["calls"]) == (9, 21)
    assert len(tables([static])["planning_calls"].rows) == 1


def blocked_cell(agent: str, eligible: Sequence[int], **fields: Any) -> Cell:
    base = {**GOOD, "truth_change": 0.4, "blocks_planned": 1}
    del base["gap"]
    episodes = [
        an_episode(f"i{i}", {**base, "eligible": met, "eligible_any_agent": float(i < 3), "exact": float(i != 1)})
        for i, met in enumerate(eligible)
    ]
    return a_cell(episodes, suite="blocked", agent=agent, block="ban_tool", blocks=1, **fields)


def test_three_populations_under_blocks() -> None:
    cells = [blocked_cell("a", [1, 1, 1, 1]), blocked_cell("b", [1, 1, 0, 0])]
    table = tables(cells)["planning_blocks"]
    runs = {(row["agent"], row["population"]): row["runs"] for row in table.rows}
    assert runs == {
        ("a", "own"): 4, ("a", "any agent"): 3, ("a", "shared"): 2,
        ("b", "own"): 2, ("b", "any agent"): 3, ("b", "shared"): 2,
    }  # fmt: skip
    assert only(table, agent="a", population="own")["exact"] == 75.0
    assert only(table, agent="a", population="shared")["exact"] == 50.0
    main = only(tables(cells)["planning"], agent="b")
    counts = only(tables(cells)["planning_counts"], agent="b")
    assert (main["gap"], main["gap_clean"]) == (None, None)
    assert [counts[key] for key in ("gap_runs", "path_runs", "blocks_missed", "no_call")] == [0, 2, 2, 0]
    assert "planning_blocks_own" in tables([blocked_cell("a", [1], sha256="")])


def test_every_table_with_intervals_says_how_they_came_about(static: Cell) -> None:
    found = tables([static, blocked_cell("a", [1, 1, 1, 1]), blocked_cell("b", [1, 1, 1, 0])])
    for table in found.values():
        kinds = {row[column.key] for column in table.columns if column.key.endswith("kind") for row in table.rows}
        assert kinds - {None, "none"} or not table.name.startswith("planning_blocks")
        for kind in kinds - {None, "none"}:
            assert any(f" {kind}: " in note for note in table.notes), (table.name, kind)
    assert {"planning", "planning_goal_only", "planning_blocks"} <= found.keys()


def test_optimal_runs_on_another_path_are_listed() -> None:
    other = {**GOOD, "exact": 0, "edit_distance": 2, "ned": 0.5}
    lost = {**LOST, "exact_any": 0}
    found = a_cell(
        [
            *(an_episode("i2", other), an_episode("i1", GOOD), an_episode("i0", other)),
            *(an_episode("i0", other, 1), an_episode("i3", lost)),
        ]
    )
    row = only(tables([found])["planning_ties"])
    assert (row["runs"], row["instances"], row["which"]) == (3, 2, "i0, i2")
    assert "planning_ties" not in tables([a_cell([an_episode("i0", GOOD)])])
    many = only(tables([a_cell([an_episode(f"i{i:02}", other) for i in range(45)])])["planning_ties"])
    assert many["which"].endswith("i39 and 5 more")


def test_adaptation_pairs_the_same_instance_without_its_block() -> None:
    calm = a_cell([an_episode(f"i{i}", GOOD, path=("x", "y")) for i in range(3)], suite="calm", length=5)
    other = a_cell([an_episode(f"i{i}", GOOD, path=("x", "y")) for i in range(3)], suite="long", length=6)
    base = {**GOOD, "truth_change": 0.4}
    after = [
        an_episode("i0", base, path=("x", "y")),
        an_episode("i1", {**base, "truth_change": 0.6}, path=("x", "z", "y")),
        an_episode("i2", {**base, "goal": 0}, path=("x",)),
    ]
    stirred = a_cell(after, suite="stirred", length=5, block="cost_change", blocks=1, alternatives=["q"])
    row = only(tables([other, calm, stirred])["adaptation"])
    assert (row["suite"], row["without"], row["pairs"]) == ("stirred", "calm", 2)
    assert row["truth_change"] == pytest.approx(1.4 / 3)
    assert row["truth_instances"] == 3
    assert (row["ned"], row["edit_distance"], row["same"]) == (pytest.approx(1 / 6), 0.5, 50.0)
    assert "adaptation" not in tables([other, stirred])
    assert "adaptation" not in tables([calm])


def test_coverage_counts_runs_without_a_plan_apart() -> None:
    silent = {name: value for name, value in GOOD.items() if not name.startswith("plan_")}
    episodes = [an_episode("i0", GOOD), an_episode("i1", {**GOOD, "plan_paths": 0, "plan_valid": 0})]
    episodes += [an_episode("i2", silent), an_episode("i3", MUTE)]
    row = only(tables([a_cell(episodes)])["coverage"])
    assert (row["coverage"], row["coverage_possible"], row["coverage_valid"]) == (
        25.0,
        pytest.approx(100 * 8 / 30),
        20.0,
    )
    assert (row["planned_runs"], row["silent_runs"]) == (2, 1)
    judged = tables([a_cell(episodes)], {"coverage": {"s-a-i0-0": 16, "other": 3}})["coverage"]
    assert (only(judged)["judged_coverage"], only(judged)["judged_runs"]) == (100.0, 1)
    assert "judged_coverage" not in {column.key for column in tables([a_cell(episodes)])["coverage"].columns}
    assert "coverage" not in tables([blocked_cell("a", [1])])


def test_tables_can_be_shown_and_stand_without_any_episode(static: Cell) -> None:
    empty = replace(static, episodes=(), prefix=())
    stirred = blocked_cell("a", [1, 0, 1])
    for cells in ([static, stirred], [empty], [replace(stirred, episodes=(), prefix=())]):
        judged = {"coverage": {"x": 1}, "enumeration": {"x": 2}}
        for table in planning_tables(source_of_cells(cells, judged=judged)):
            assert markdown(table)
            assert as_csv(table)
            json.dumps(table.to_json())
            assert all(shown(column, row.get(column.key)) for row in table.rows for column in table.columns)
            assert {column.key for column in table.columns} == set(table.rows[0])


def test_other_environments_have_no_planning_tables() -> None:
    suite = a_suite("game/basic", [1, 3])
    manifest = a_manifest([an_agent("good")], [suite])
    log = [row for one in suite.instances for row in rows(manifest, "good", suite.name, one.id, 0, search(1))]
    found = report_of(manifest, steps_table(log))
    assert [table.name for table in found.tables] == [
        *("scores", "behaviour", "refusals", "completeness", "money", "speed", "caching"),
    ]
    assert all(not cell.prefix[0].path for cell in found.cells)


def test_one_chat_an_episode_has_no_shares_of_periods(static: Cell) -> None:
    table = behaviour_table(source_of_cells([static]))
    assert [column.key for column in table.columns] == ["suite", "agent", "turns_per_period", "episodes"]
    assert "0 = no call in common with an optimal plan" in scores_table(source_of_cells([static])).notes[0]


def test_the_references_group_figures_come_out(shared: Path) -> None:
    goldens = shared / "goldens" / "costbench"
    lines = [json.loads(line) for line in (goldens / "metrics_synthetic.jsonl").read_text().splitlines()]
    golden = json.loads((goldens / "metrics_aggregate.json").read_text())
    for mode, name in (
        (None, "static_level2"),
        ("ban_tool", "blocked_ban_tool"),
        ("cost_change", "blocked_cost_change"),
    ):
        episodes = []
        for i, line in enumerate(one for one in lines if one["block_mode"] == mode):
            episode = played(line, shared / "data")
            # By the reference's rule for a call beside an answer; the messages stay those of the conversation.
            metrics = score(episode.instance, as_reference(episode.facts)).metrics
            messages = score(episode.instance, episode.facts).metrics["messages"]
            episodes.append(an_episode(f"i{i}", {**metrics, "messages": messages}))
        want, row = golden[name], only(tables([a_cell(episodes)])["planning"])
        paths, costs = want["tool_path_metrics"], want["cost_metrics"]
        assert row["edit_distance"] == pytest.approx(paths["avg_edit_distance"])
        assert row["ned"] == pytest.approx(100 * paths["avg_normalized_edit_distance"])
        assert row["exact"] == pytest.approx(100 * paths["tool_path_exact_match_ratio"])
        assert row["intent"] == pytest.approx(100 * want["accuracy_metrics"]["final_answer_accuracy"])
        assert row["invalid"] == pytest.approx(100 * (1 - want["tool_usage_metrics"]["valid_search_ratio"]))
        counts = only(tables([a_cell(episodes)])["planning_counts"])
        assert counts["calls"] == want["tool_usage_metrics"]["total_tool_calls"]
        if mode is None:
            assert row["gap"] == pytest.approx(costs["avg_agent_cost"] - costs["avg_gt_cost"])


def test_redundant_calls_stand_beside_what_they_do_to_the_gap(static: Cell) -> None:
    row = only(tables([static])["planning_redundant"])
    # Of five instances three reached the goal, with gaps of 0, 10 and 20; the last has three redundant calls of five.
    assert (row["gap"], row["gap_clean"], row["raw"]) == (10, 5, 5)
    assert row["redundant"] == pytest.approx(100 * 3 / sum(episode.metrics["calls"] for episode in static.prefix))


def test_ranks_of_redundant_calls_and_of_the_gap_are_compared_over_rows() -> None:
    def clumsy(calls: int) -> Cell:
        episodes = [an_episode("i", {**GOOD, "gap": 0}), an_episode("j", {**GOOD, "gap": calls**2, "extra": calls})]
        return a_cell(episodes, agent=f"a{calls}")

    notes = tables([clumsy(calls) for calls in (1, 2, 5, 9)])["planning_redundant"].notes
    assert any("over the 4 rows" in note and note.endswith("rank correlation 1.00") for note in notes)
    assert not any("correlation" in note for note in tables([clumsy(1), clumsy(2)])["planning_redundant"].notes)


def test_paths_are_compared_with_those_of_the_greedy_policy() -> None:
    ways = {"i": ("x", "y", "z"), "j": ("x", "yz"), "k": ("xyz",)}
    mine = {"i": ("x", "y", "z"), "j": ("x", "y", "z"), "k": ("x", "yz")}
    cells = [
        a_cell([an_episode(name, GOOD, path=path) for name, path in paths.items()], agent=agent)
        for agent, paths in (("g", ways), ("m", mine))
    ]
    manifest = a_manifest([structs.replace(an_agent("g", packs={"costbench": "d0"}), policy="greedy")], [])
    found = {table.name: table for table in planning_tables(source_of_cells(cells, manifest))}["planning_greedy"]
    row = only(found, agent="m")
    assert (row["edit_distance"], row["pairs"]) == (pytest.approx((0 + 2 + 2) / 3), 3)
    assert row["ned"] == pytest.approx((0 + 2 / 3 + 1) / 3)
    assert row["same"] == pytest.approx(100 / 3)
    assert "planning_greedy" not in tables(cells)
