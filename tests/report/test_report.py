import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from evalkit.frozen.manifest import Manifest
from evalkit.money import PicoUsd
from evalkit.report.render.latex import latex
from evalkit.report.report import Report, build_report
from evalkit.report.tables import as_csv, markdown, method_of
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.view.grid import grid
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, report_of, rows, search, source_of


def row(report: Report, table: str, agent: str, suite: str = "") -> dict[str, Any]:
    found = [
        one for one in report.table(table).rows if one["agent"] == agent and (not suite or one.get("suite") == suite)
    ]
    assert len(found) == 1
    return dict(found[0])


def test_scores_stand_by_suite_and_agent(the_report: Report) -> None:
    table = the_report.table("scores")
    assert [(one["suite"], one.get("axis:k"), one["agent"]) for one in table.rows] == [
        ("game/basic", None, "good"),
        ("game/basic", None, "poor"),
        ("game/basic", None, "late"),
        ("game/hard", 2, "good"),
        ("game/hard", 2, "poor"),
        ("game/hard", 2, "late"),
    ]
    assert table.packs == ("standard", "terse")


def test_a_score_is_a_hundred_times_the_mean_with_its_interval(the_report: Report) -> None:
    good = row(the_report, "scores", "good", "game/basic")
    assert (good["score"], good["kind"], good["solved"]) == (100.0, "alike", 100.0)
    # What four answers of yes would say: no instance failed, and half of them might.
    assert (good["interval"], good["unmet"]) == ((100.0, 100.0), pytest.approx(51.0, abs=0.05))
    assert any("alike: all instances agree" in note for note in the_report.table("scores").notes)
    assert (good["instances"], good["episodes"], good["prompts"]) == (4, 8, "standard")
    poor = row(the_report, "scores", "poor", "game/basic")
    assert (poor["score"], poor["solved"], poor["prompts"]) == (pytest.approx(90.0), 0.0, "terse")


def test_every_interval_says_its_method_wherever_the_table_is_read(the_report: Report) -> None:
    table = the_report.table("scores")
    assert [one["kind"] for one in table.rows[:2]] == ["alike", "alike"]
    assert table.to_json()["rows"][0]["kind"] == "alike"
    head, first = as_csv(table).splitlines()[:2]
    assert dict(zip(head.split(","), first.split(","), strict=True))["kind"] == "alike"
    assert "& alike &" in latex(table)
    assert "| alike |" in markdown(table)
    cells = [[cell.text for cell in line.cells] for line in grid(table, "run").rows]
    assert all("alike" in line for line in cells[:2])
    for one in the_report.tables:
        keys = [column.key for column in one.columns]
        assert all(
            keys[place + 1] == method_of(column).key
            for place, column in enumerate(one.columns)
            if column.kind == "interval"
        )


def test_the_optimum_itself_is_no_estimate() -> None:
    agents = [an_agent("best", policy="oracle"), an_agent("good")]
    manifest = a_manifest(agents, [a_suite("game/basic", [1, 3, 5, 7])])
    log = [
        row
        for agent in ("best", "good")
        for one in manifest.suites["game/basic"].instances
        for row in rows(manifest, agent, "game/basic", one.id, 0, search(one.line["value"]))
    ]
    made = report_of(manifest, steps_table(log))
    best, good = made.table("scores").rows
    assert (best["score"], best["interval"], best["kind"]) == (100.0, None, "exact")
    assert good["interval"] is not None
    assert any("exact: the score of the optimum" in note for note in made.table("scores").notes)


def test_two_instances_get_no_interval_and_a_note_says_why(the_report: Report) -> None:
    assert row(the_report, "scores", "good", "game/hard")["interval"] is None
    assert any("fewer than 3 instances" in note for note in the_report.table("scores").notes)


def test_a_partial_cell_is_estimated_from_its_prefix_and_says_so(the_report: Report) -> None:
    late = row(the_report, "scores", "late", "game/basic")
    assert (late["episodes"], late["instances"], late["interval"]) == (1, 1, None)
    assert (
        "partial: late on game/basic: uses the first 1 of 8 episodes; remaining: 1; ended after one that remains, and "
        "left out: 6" in the_report.table("scores").notes
    )
    assert row(the_report, "completeness", "late", "game/basic") == {
        "suite": "game/basic",
        "agent": "late",
        "planned": 8,
        "ended": 7,
        "remaining": 1,
        "begun": 1,
        "prefix": 1,
        "outside": 6,
        "endings": {"stable": 7},
    }


def test_marks_are_told_below_the_scores(the_report: Report) -> None:
    assert "poor: temperature not sent: the model refuses it" in the_report.table("scores").notes


def test_behaviour_counts_what_agents_did(the_report: Report) -> None:
    poor = row(the_report, "behaviour", "poor", "game/basic")
    # Five turns: two without a guess end the first period, then a guess, then a bad one and a guess.
    assert (poor["turns_per_period"], poor["episodes"], poor["unresponsive"]) == (pytest.approx(5 / 3), 8, 0)
    assert poor["exploration_rate"] == 50.0
    assert poor["no_action"] == pytest.approx(100 / 3)


def test_refused_calls_are_counted_by_kind(the_report: Report) -> None:
    assert row(the_report, "refusals", "poor") == {
        "agent": "poor",
        "replies_without_call": 12,
        "calls": 48,
        "refused": 50.0,
        "outcomes": {"bad_arguments": 12, "unknown_tool": 12},
    }
    assert row(the_report, "refusals", "good")["outcomes"] == {}


def test_money_counts_replies_charges_and_crashes_apart(the_report: Report) -> None:
    poor, good, late = (row(the_report, "money", name) for name in ("poor", "good", "late"))
    assert (poor["requests"], poor["tokens_in"], poor["tokens_out"]) == (60, 60_000, 1200)
    assert poor["cost_pico_usd"] == 60 * 720_000_000
    assert poor["cost_per_episode_pico_usd"] == 5 * 720_000_000
    assert (poor["charged_pico_usd"], poor["unconfirmed_pico_usd"]) == (4 * 10**9, 0)
    assert (good["charged_pico_usd"], good["unconfirmed_pico_usd"]) == (0, 3 * 10**9)
    # Two of its episodes have only begun: paid for, but no ended episode's cost.
    assert late["cost_pico_usd"] == (10 * 3 + 2) * 720_000_000
    assert late["cost_per_episode_pico_usd"] == 3 * 720_000_000
    assert row(the_report, "money", "(unassigned)")["unconfirmed_pico_usd"] == 7 * 10**9
    everything = row(the_report, "money", "all")
    assert everything["cost_pico_usd"] == (60 + 36 + 32) * 720_000_000
    assert everything["unconfirmed_pico_usd"] == 10**10


def test_replies_of_takes_that_were_played_again_are_paid_for(manifest: Manifest, log: list[StepRecord]) -> None:
    again = replace(next(row for row in log if row.agent == "poor"), cost=PicoUsd(10**12 - 60 * 720_000_000))
    report = report_of(manifest, steps_table(log), [], steps_table([*log, again]))
    assert row(report, "money", "poor")["cost_pico_usd"] == 10**12
    assert row(report, "money", "poor")["cost_per_episode_pico_usd"] == 5 * 720_000_000
    assert "cost includes $0.9568 for replies of episodes played again" in report.table("money").notes


def test_speed_counts_attempts_in_vain(the_report: Report) -> None:
    poor = row(the_report, "speed", "poor")
    assert (poor["requests"], poor["failed"], poor["failures"]) == (60, 60, {"rate_limit": 60})
    assert (poor["latency_median_s"], poor["queue_p99_s"]) == (0.8, 0.01)


def test_every_table_names_its_prompt_packs(the_report: Report) -> None:
    for table in the_report.tables:
        assert table.packs == ("standard", "terse")


def test_json_keeps_its_schema(the_report: Report) -> None:
    """Pinned: a version's fields, tables and columns are only added, never renamed or taken away."""
    value = the_report.to_json()
    assert (value["schema"], value["version"]) == ("evalkit.report", 1)
    assert set(value) == {"schema", "version", "evalkit", "run", "agents", "suites", "tables"}
    assert value["run"] == {
        "name": "nightly",
        "created_at": 1.5e9,
        "replicates": 2,
        "planned": 36,
        "ended": 34,
        "remaining": 2,
        "refused": 0,
        "refused_words": {},
        "void": 0,
        "complete": False,
        "simulated_money": False,
    }
    assert set(value["agents"][0]) == {"name", "lane", "prompts", "notes", "tags", "marks"}
    assert set(value["suites"][0]) == {"name", "base", "axes", "environment", "instances"}
    for table in value["tables"].values():
        assert set(table) == {"title", "columns", "rows", "prompts", "notes", "query"}
        assert all(set(one) == {column["key"] for column in table["columns"]} for one in table["rows"])
    assert {
        name: " ".join(column["key"] for column in table["columns"]) for name, table in value["tables"].items()
    } == {
        "scores": "suite axis:k agent score interval kind unmet solved instances episodes prompts",
        "behaviour": "suite axis:k agent exploration_rate no_action turns_per_period unresponsive episodes",
        "refusals": "agent replies_without_call calls refused outcomes",
        "completeness": "suite axis:k agent planned ended remaining begun prefix outside endings",
        "money": (
            "agent requests tokens_in tokens_cached_read tokens_out cost_pico_usd cost_per_episode_pico_usd "
            "charged_pico_usd unconfirmed_pico_usd"
        ),
        "speed": "agent requests latency_median_s latency_p99_s queue_median_s queue_p99_s failed failures",
        "caching": "agent tokens_in tokens_cached_read read_share tokens_cached_write saved_pico_usd",
    }


def test_json_is_json_without_loss(the_report: Report) -> None:
    value = the_report.to_json()
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert orjson.loads(orjson.dumps(value)) == value


def test_a_report_repeats_exactly(
    manifest: Manifest, log: list[StepRecord], ledger: list[LedgerRecord], the_report: Report
) -> None:
    again = report_of(manifest, steps_table(log[::-1]), ledger[::-1])
    assert again.to_json() == the_report.to_json()


def test_no_number_of_threads_reaches_a_report(
    manifest: Manifest, log: list[StepRecord], ledger: list[LedgerRecord], the_report: Report
) -> None:
    for threads in (1, 2, 4, 8):
        source = source_of(manifest, steps_table(log), ledger, threads=threads)
        assert orjson.dumps(build_report(source).to_json()) == orjson.dumps(the_report.to_json())


def test_a_run_without_steps_has_a_report(manifest: Manifest) -> None:
    report = report_of(manifest, steps_table([]))
    assert report.ended == 0
    assert row(report, "scores", "good", "game/basic")["score"] is None
    assert row(report, "money", "all")["cost_per_episode_pico_usd"] is None
    assert row(report, "speed", "good")["latency_median_s"] is None
    with pytest.raises(KeyError):
        report.table("nothing")
