import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from scipy import stats

from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.report.behaviour import behaviour_table
from evalkit.report.markets.econ import econ_tables
from evalkit.report.scores import scores_table
from evalkit.report.tables import Table, as_csv, markdown, shown
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.stats.contrasts import CONSTANT, FEW
from tests.support.guessing_runs import a_manifest, an_agent, source_of_cells

BASIC = [1.0, 0.62, 0.71, 0.9, 0.55, 1.0, 0.48, 0.83, 0.77, 0.69, 0.95, 0.38]
HARD = [0.31, 0.42, 0.66, 0.58, 0.2, 0.49, 0.37, 0.71, 0.44, 0.52, 0.6, 0.25]


def an_episode(instance: str, score: float, metrics: Mapping[str, float], replicate: int = 0) -> EpisodeResult:
    return EpisodeResult(
        id=f"{instance}-{replicate}",
        agent="a",
        suite="s",
        axes={},
        environment="e",
        instance=instance,
        stratum="one",
        replicate=replicate,
        ending="done",
        steps=200,
        finished=True,
        score=score,
        solved=score == 1.0,
        metrics=metrics,
        path=(),
        outcomes=(),
        without_call=0,
        periods=100,
        no_action=0,
        cost=0,
        tokens_in=0,
        tokens_out=0,
        tokens_cached_read=0,
        latency_s=1.0,
    )


def a_cell(
    name: str,
    scores: Sequence[float],
    metrics: Mapping[str, Sequence[float | None]] | None = None,
    *,
    agent: str = "a",
    pack: str = "standard",
    replicates: int = 1,
    environment: str = "",
    **axes: Any,
) -> Cell:
    """A cell whose episodes have these scores; `metrics` by name, None where one is undefined. Replicates of an
    instance lie side by side."""
    episodes = []
    for i, score in enumerate(scores):
        mine = {key: values[i] for key, values in (metrics or {}).items()}
        known = {key: value for key, value in mine.items() if value is not None}
        episodes.append(an_episode(f"seed-{i // replicates}", score, known, i % replicates))
    suffix = "&".join(f"{key}={value}" for key, value in axes.items())
    suite = ManifestSuite(
        name=f"{name}?{suffix}" if suffix else name,
        base=name,
        axes=axes,
        environment=environment or name.partition("/")[0],
        environment_version=1,
        digest="0123",
        instances=(),
    )
    return Cell(
        agent=agent, suite=suite, pack=pack, planned=len(scores), episodes=tuple(episodes), prefix=tuple(episodes)
    )


def manifest_of(*agents: ManifestAgent) -> Manifest:
    """A run of some agents; of `a` and `b`, two models with the standard pack, where none is named."""
    same = dict.fromkeys(("procurement", "scheduling", "pricing"), "d0")
    plain = [msgspec.structs.replace(an_agent(name, model=name), packs=same) for name in "ab"]
    return a_manifest(agents or plain, [])


def tables(cells: Sequence[Cell], manifest: Manifest | None = None) -> dict[str, Table]:
    return {table.name: table for table in econ_tables(source_of_cells(cells, manifest or manifest_of()))}


def only(table: Table, **where: Any) -> dict[str, Any]:
    found = [row for row in table.rows if all(row[key] == value for key, value in where.items())]
    assert len(found) == 1
    return dict(found[0])


def keys(table: Table) -> list[str]:
    return [column.key for column in table.columns]


PLANS: dict[str, Sequence[float | None]] = {
    "reference_score": [1.0, 0.5, None, 0.9],
    "budget_utilisation": [0.9, 0.5, 0.0, None],
    "exploration_rate": [0.4, 0.2, 1.0, None],
    "exploration_rate_text": [0.5, 0.3, 1.0, None],
}


@pytest.fixture(scope="module")
def three() -> list[Cell]:
    """Procurement, scheduling and pricing, as suites come in a sweep: level by level, agent by agent."""
    matchings: dict[str, Sequence[float | None]] = {
        "best_so_far_rate": [0.1, 0.3],
        "exploration_rate": [0.8, 1.0],
        "assignments": [100, 20],
    }
    return [
        a_cell("procurement/hard", [1.0, 0.5, 0.0, 0.9], PLANS),
        a_cell("scheduling/hard", [1.0, -0.2], matchings),
        a_cell("scheduling/hard", [0.2, 0.4], matchings, agent="b"),
        a_cell("scheduling/basic", [1.0, 1.0], matchings),
        a_cell("pricing/hard", [0.5, 0.7, 0.9], {"adaptability": [-0.1, 0.04, 0.0], "exploration_rate": [1, 1, 0.5]}),
    ]


def test_scores_stand_side_by_side_by_agent_and_difficulty(three: list[Cell]) -> None:
    table = tables(three)["econ_scores"]
    assert [(row["agent"], row["difficulty"]) for row in table.rows] == [("a", "basic"), ("a", "hard"), ("b", "hard")]
    assert keys(table) == [
        *("agent", "difficulty"),
        *("procurement", "procurement_interval", "procurement_kind", "procurement_solved", "procurement_runs"),
        *("scheduling", "scheduling_interval", "scheduling_kind", "scheduling_solved", "scheduling_runs"),
        *("pricing", "pricing_interval", "pricing_kind", "pricing_runs", "prompts"),
    ]
    hard = only(table, agent="a", difficulty="hard")
    assert (hard["procurement"], hard["procurement_solved"], hard["procurement_runs"]) == (pytest.approx(60), 1, 4)
    assert (hard["scheduling"], hard["scheduling_solved"], hard["scheduling_runs"]) == (pytest.approx(40), 1, 2)
    assert (hard["pricing"], hard["pricing_runs"]) == (pytest.approx(70), 3)
    assert hard["scheduling_interval"] is None
    low, high = hard["pricing_interval"]
    assert low < 70 < high <= 100
    basic = only(table, difficulty="basic")
    assert [basic[key] for key in ("procurement", "procurement_runs", "scheduling", "scheduling_solved")] == [
        *(None, None, 100.0, 2)
    ]
    # The same mean and interval as in the table of all scores.
    score = only(scores_table(source_of_cells(three)), suite="pricing/hard")
    assert (score["score"], score["interval"]) == (pytest.approx(hard["pricing"]), hard["pricing_interval"])


def test_replicates_are_averaged_within_instances_first() -> None:
    cell = a_cell("pricing/basic", [1.0, 0.0, 0.8], replicates=2)
    row = only(tables([cell])["econ_scores"])
    assert (row["pricing"], row["pricing_runs"]) == (pytest.approx(65), 3)


def test_other_suites_keep_their_names_and_axes_have_columns() -> None:
    cells = [
        a_cell("scheduling/hard", [0.5], k=1),
        a_cell("scheduling/hard", [0.7], k=5),
        a_cell("mine/n40k5", [0.1], environment="procurement"),
        a_cell("folder/easy/hard.jsonl", [0.2], environment="procurement"),
        a_cell("pricing/hard", [0.3]),
        a_cell("mine/hard", [0.4], environment="pricing"),
    ]
    table = tables(cells)["econ_scores"]
    assert [(row["difficulty"], row.get("axis:k")) for row in table.rows] == [
        ("hard", 1),
        ("hard", 5),
        ("hard", None),
        ("mine/n40k5", None),
        ("pricing/hard", None),
        ("mine/hard", None),
    ]
    assert [row.get("scheduling") for row in table.rows[:2]] == [50.0, 70.0]
    assert only(table, difficulty="mine/hard")["pricing"] == 40.0
    assert keys(table)[:3] == ["agent", "difficulty", "axis:k"]


def test_action_quality_says_over_how_many_episodes_it_is(three: list[Cell]) -> None:
    table = tables(three)["econ_action_quality"]
    hard = only(table, agent="a", difficulty="hard")
    assert (hard["budget_utilisation"], hard["budget_utilisation_runs"]) == (pytest.approx(140 / 3), 3)
    assert (hard["best_so_far_rate"], hard["best_so_far_rate_runs"]) == (pytest.approx(20), 2)
    assert (hard["adaptability"], hard["adaptability_runs"]) == (pytest.approx(-2), 3)
    other = only(table, agent="b")
    assert (other["budget_utilisation"], other["budget_utilisation_runs"]) == (None, None)
    assert [note.partition(":")[0] for note in table.notes[1:]] == ["budget use", "best so far", "adaptability"]
    alone = tables(three[1:2])["econ_action_quality"]
    assert [note.partition(":")[0] for note in alone.notes[1:]] == ["best so far"]
    assert keys(alone) == ["agent", "difficulty", "best_so_far_rate", "best_so_far_rate_runs"]


def test_exploration_by_all_counts(three: list[Cell]) -> None:
    row = only(tables(three)["econ_exploration"], agent="a", difficulty="hard")
    assert (row["procurement"], row["procurement_text"]) == (pytest.approx(160 / 3), pytest.approx(60))
    assert (row["scheduling"], row["pricing"]) == (pytest.approx(90), pytest.approx(250 / 3))
    # 80 of 100 and 20 of 20 different ones; the reference's code counts one that is none.
    assert row["scheduling_code"] == pytest.approx(100 * (80 / 81 + 20 / 21) / 2)
    assert (row["procurement_runs"], row["scheduling_runs"]) == (3, 2)


def test_runs_without_a_feasible_plan_are_counted_apart(three: list[Cell]) -> None:
    row = only(tables(three)["econ_feasible"])
    assert (row["score"], row["reference_score"]) == (pytest.approx(60), pytest.approx(80))
    assert (row["dropped"], row["runs"]) == (1, 4)
    assert "econ_feasible" not in tables(three[1:])
    nothing = only(tables([a_cell("procurement/hard", [0.0, 0.0])])["econ_feasible"])
    assert (nothing["score"], nothing["reference_score"], nothing["dropped"]) == (0.0, None, 2)


def test_basic_against_hard_is_scipys_one_sided_test() -> None:
    cells = [a_cell("pricing/hard", HARD), a_cell("pricing/medium", HARD), a_cell("pricing/basic", BASIC)]
    row = only(tables(cells)["econ_difficulty"])
    want = stats.ttest_ind(BASIC, HARD, equal_var=False, alternative="greater")
    assert (row["t"], row["df"]) == (pytest.approx(want.statistic), pytest.approx(want.df))
    assert row["p"] == pytest.approx(want.pvalue)
    assert (row["basic"], row["hard"]) == (pytest.approx(74), pytest.approx(46.25))
    assert (row["basic_instances"], row["hard_instances"], row["undefined"]) == (12, 12, None)
    assert (row["environment"], row["agent"]) == ("pricing", "a")


def test_replicates_do_not_add_to_a_tests_n() -> None:
    doubled = [score for score in BASIC for _ in range(2)], [score for score in HARD for _ in range(2)]
    cells = [a_cell("pricing/basic", doubled[0], replicates=2), a_cell("pricing/hard", doubled[1], replicates=2)]
    row = only(tables(cells)["econ_difficulty"])
    assert (row["basic_instances"], row["hard_instances"]) == (12, 12)
    assert row["p"] == pytest.approx(stats.ttest_ind(BASIC, HARD, equal_var=False, alternative="greater").pvalue)


def test_tests_that_are_not_defined_say_so() -> None:
    cells = [
        *(a_cell("scheduling/basic", [1.0, 1.0]), a_cell("scheduling/hard", [1.0, 1.0])),
        *(a_cell("scheduling/basic", [1.0], agent="b"), a_cell("scheduling/hard", [0.5, 0.4], agent="b")),
        *(a_cell("scheduling/basic", [], agent="c"), a_cell("scheduling/hard", [0.5], agent="c")),
    ]
    table = tables(cells)["econ_difficulty"]
    assert [(row["p"], row["undefined"]) for row in table.rows] == [(None, CONSTANT), (None, FEW), (None, FEW)]
    assert only(table, agent="c")["basic"] is None


def test_only_suites_of_one_family_and_with_the_same_axes_are_compared() -> None:
    cells = [
        a_cell("scheduling/basic", BASIC, k=1),
        a_cell("scheduling/hard", HARD, k=1),
        a_cell("scheduling/hard", HARD, k=5),
        a_cell("procurement/basic", BASIC),
        a_cell("procurement/hard", HARD, agent="b"),
        a_cell("mine/basic", BASIC, environment="pricing"),
        a_cell("pricing/hard", HARD),
        a_cell("pricing/basic", HARD),
    ]
    table = tables(cells)["econ_difficulty"]
    assert [(row["environment"], row.get("axis:k")) for row in table.rows] == [("scheduling", 1), ("pricing", None)]
    assert "suites" not in keys(table)
    own = [*cells, a_cell("mine/hard", HARD, environment="pricing")]
    found = tables(own)["econ_difficulty"]
    assert [(row["environment"], row["suites"]) for row in found.rows] == [
        ("scheduling", "scheduling"),
        ("pricing", "mine"),
        ("pricing", "pricing"),
    ]
    assert "econ_difficulty" not in tables(cells[2:5])


def with_packs(name: str, digest: str, pack: str, **fields: Any) -> ManifestAgent:
    """An agent whose pack has this digest in procurement and replaces nothing in scheduling."""
    return msgspec.structs.replace(
        an_agent(name, **fields), packs={"procurement": digest, "scheduling": "d0"}, pack=pack
    )


@pytest.fixture(scope="module")
def prompted() -> tuple[Manifest, list[Cell]]:
    """One model with three packs, the standard one last in the spec, and another model with one."""
    agents = [
        with_packs("goal", "d2", "known_horizon_goal"),
        with_packs("horizon", "d1", "known_horizon"),
        with_packs("plain", "d0", "standard"),
        with_packs("other", "d1", "known_horizon", model="m2"),
    ]
    rates = {"exploration_rate": [0.5] * 12}
    cells = [
        a_cell("procurement/hard", BASIC, rates, agent="goal", pack="known_horizon_goal"),
        a_cell("procurement/hard", HARD, {"exploration_rate": HARD}, agent="horizon", pack="known_horizon"),
        a_cell("procurement/hard", [0.5, *HARD[1:]], {"exploration_rate": BASIC}, agent="plain"),
        a_cell("procurement/hard", HARD, rates, agent="other", pack="known_horizon"),
        a_cell("scheduling/hard", HARD, agent="plain"),
        a_cell("scheduling/hard", BASIC, agent="goal", pack="known_horizon_goal"),
    ]
    return manifest_of(*agents), cells


def test_prompts_stand_side_by_side_the_standard_first(prompted: tuple[Manifest, list[Cell]]) -> None:
    manifest, cells = prompted
    table = tables(cells, manifest)["econ_prompts"]
    # The other model has one pack alone; in scheduling the packs say the same.
    assert [(row["agent"], row["environment"], row["prompts"], row["played_by"]) for row in table.rows] == [
        ("plain", "procurement", "standard", "plain"),
        ("plain", "procurement", "known_horizon_goal", "goal"),
        ("plain", "procurement", "known_horizon", "horizon"),
    ]
    row = only(table, prompts="known_horizon_goal")
    assert (row["score"], row["exploration_rate"], row["runs"]) == (pytest.approx(74), 50.0, 12)
    assert (row["difficulty"], row["solved"]) == ("hard", 2)
    assert row["interval"][0] < 74 < row["interval"][1]


def test_tests_between_prompts_are_scipys(prompted: tuple[Manifest, list[Cell]]) -> None:
    manifest, cells = prompted
    table = tables(cells, manifest)["econ_prompts_tests"]
    assert [(row["from"], row["to"], row["measure"]) for row in table.rows[::2]] == [
        ("standard", "known_horizon_goal", "score"),
        ("standard", "known_horizon", "score"),
        ("known_horizon_goal", "known_horizon", "score"),
    ]
    row = only(table, **{"from": "known_horizon_goal", "to": "known_horizon", "measure": "score"})
    assert row["change"] == pytest.approx(46.25 - 74)
    assert row["welch_p"] == pytest.approx(stats.ttest_ind(HARD, BASIC, equal_var=False).pvalue)
    assert row["paired_p"] == pytest.approx(stats.ttest_rel(HARD, BASIC).pvalue)
    up = sum(hard > basic for basic, hard in zip(BASIC, HARD, strict=True))
    assert row["signs_p"] == pytest.approx(stats.binomtest(up, 12).pvalue)
    assert 0 < row["permutation_p"] < 0.05
    assert (row["from_instances"], row["to_instances"], row["pairs"], row["undefined"]) == (12, 12, 12, None)
    still = only(table, **{"from": "standard", "to": "known_horizon", "measure": "score"})
    # One instance of twelve differs.
    assert (still["signs_p"], still["permutation_p"]) == (1.0, 1.0)
    rate = only(table, **{"from": "standard", "to": "known_horizon_goal", "measure": "exploration"})
    assert rate["change"] == pytest.approx(50 - 74)


def test_pairs_are_the_instances_both_have_played(prompted: tuple[Manifest, list[Cell]]) -> None:
    manifest, cells = prompted
    short = replace(cells[0], prefix=cells[0].prefix[:1])
    found = tables([short, cells[2]], manifest)["econ_prompts_tests"]
    row = only(found, measure="score")
    assert (row["from_instances"], row["to_instances"], row["pairs"]) == (12, 1, 1)
    assert row["welch_p"] is row["paired_p"] is row["signs_p"] is None
    assert row["undefined"] == FEW
    assert any("some episodes remain" in note for note in found.notes) == (not short.complete)


def test_agents_that_differ_in_more_than_prompts_are_no_variants(prompted: tuple[Manifest, list[Cell]]) -> None:
    _, cells = prompted
    for fields in ({"notes": False}, {"tags": ("reasoning",)}, {"model": "m2"}, {"overrides": {"temperature": 0}}):
        agents = [with_packs("plain", "d0", "standard"), with_packs("goal", "d2", "known_horizon_goal", **fields)]
        assert "econ_prompts" not in tables([cells[0], cells[2]], manifest_of(*agents))


def test_tables_can_be_shown_and_stand_without_any_episode(
    three: list[Cell], prompted: tuple[Manifest, list[Cell]]
) -> None:
    manifest, cells = prompted
    hollow = [replace(cell, planned=3, episodes=(), prefix=()) for cell in (*three, *cells)]
    for some in (three, [*three, *cells], hollow):
        found = econ_tables(source_of_cells(some, manifest))
        assert len({table.name for table in found}) == len(found)
        for table in found:
            assert markdown(table)
            assert as_csv(table)
            json.dumps(table.to_json())
            assert all(shown(column, row.get(column.key)) for row in table.rows for column in table.columns)
            for row in table.rows:
                assert set(row) <= set(keys(table))
            assert len(set(keys(table))) == len(keys(table))
    assert {"econ_scores", "econ_difficulty", "econ_prompts", "econ_prompts_tests"} <= tables(hollow, manifest).keys()
    assert any("some episodes remain" in note for note in tables(hollow)["econ_scores"].notes)


def test_other_environments_have_none_of_these_tables() -> None:
    assert econ_tables(source_of_cells([a_cell("guessing/basic", BASIC)])) == ()


def test_plans_have_their_share_of_the_budget_among_behaviour(three: list[Cell]) -> None:
    table = behaviour_table(source_of_cells(three))
    assert "budget_utilisation" in keys(table)
    assert any("budget use" in note for note in table.notes)
    assert "budget_utilisation" not in keys(behaviour_table(source_of_cells(three[1:])))
    note = scores_table(source_of_cells(three)).notes[0]
    assert "0 = nobody supported" in note
    assert "no profit (pricing)" in note


@pytest.mark.parametrize(("value", "text"), [(0.0, "< 0.001"), (0.0004, "< 0.001"), (0.0372, "0.037"), (1.0, "1.000")])
def test_p_values_are_never_shown_as_nothing(value: float, text: str, three: list[Cell]) -> None:
    column = next(
        column
        for column in tables([*three, a_cell("pricing/basic", BASIC)])["econ_difficulty"].columns
        if column.key == "p"
    )
    assert shown(column, value) == text


@pytest.mark.parametrize(("environment", "bounded"), [("procurement", True), ("pricing", False)])
def test_intervals_end_where_scores_do(environment: str, bounded: bool) -> None:
    cell = a_cell(f"{environment}/basic", [0.0, 0.0, 0.4])
    low, high = scores_table(source_of_cells([cell])).rows[0]["interval"]
    assert (low >= 0.0) == bounded
    assert (low < 0.0) != bounded
    assert 40 / 3 < high <= 100.0
