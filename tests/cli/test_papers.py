"""`report --beside`, `--by`, `--quotes`, `--latex` and `describe`: what they print."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import Call

SWEEP = """
[[agents]]
policy = "knuth"
tags = ["family:repair", "open"]
[[agents]]
policy = "random"
tags = ["family:chance"]
[[agents]]
policy = "noisy"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
"""


@pytest.fixture
def run(call: Call, here: Path) -> str:
    (here / "mine.toml").write_text(SWEEP)
    assert call("run", "mine.toml").code == 0
    return "mine"


@pytest.mark.exhaustive
def test_tables_that_are_asked_for_stand_instead_of_the_reports_own(call: Call, run: str) -> None:
    tables = json.loads(call("report", run, "--beside", "paper", "--by", "family", "--quotes", "--json").out)["tables"]
    assert list(tables)[:2] == ["econ_scores", "beside_econ_2"]
    assert {"scores_by_family", "econ_scores_by_family", "quotes"} <= tables.keys()
    assert not {"scores", "money"} & tables.keys()
    assert {"agent": "GPT-5", "difficulty": "hard", "scheduling": 90.5}.items() <= tables["beside_econ_2"]["rows"][
        16
    ].items()
    rows = {row["group"]: row for row in tables["scores_by_family"]["rows"]}
    assert rows.keys() == {"repair", "chance", "(none)"}
    assert rows["repair"]["score"] == 100.0


def test_a_quotes_command_shows_the_episode(call: Call, run: str) -> None:
    quotes = json.loads(call("report", run, "--quotes", "--json").out)["tables"]["quotes"]["rows"]
    assert quotes
    command = quotes[0]["command"].split()
    assert command[:3] == ["evalkit", "show", run]
    assert call(*command[1:]).code == 0


def test_a_report_as_latex(call: Call, run: str) -> None:
    said = call("report", run, "--latex").out
    assert said.count(r"\begin{table}") == said.count(r"\end{table}") >= 6
    assert r"\caption{Scores}" in said
    assert said.isascii()


def test_a_tag_that_nobody_has_is_refused(call: Call, run: str) -> None:
    said = call("report", run, "--by", "famly")
    assert said.code == 2
    assert "Did you mean 'family'" in said.message


def test_a_suite_is_described(call: Call) -> None:
    said = call("suites", "describe", "scheduling/basic")
    assert said.code == 0
    assert "Random assignment (expected blocking pairs)" in said.out


def test_a_suite_is_described_as_json(call: Call) -> None:
    found = json.loads(call("suites", "describe", "procurement/hard", "--json").out)
    assert (found["environment"], found["tables"]["suite"]["rows"][-1]["instances"]) == ("procurement", 12)


def test_a_suite_that_is_not_there_is_named_with_the_nearest(call: Call) -> None:
    said = call("suites", "describe", "procurement/hrad")
    assert said.code == 2
    assert "procurement/hard" in said.message


def test_where_nothing_was_published_that_is_said_and_the_run_s_own_tables_are_shown(call: Call, here: Path) -> None:
    asked = {"id": "e", "environment": "errand", "kind": "coverage", "values": {"text": "A -> B"}}
    (here / "asked.jsonl").write_text(json.dumps(asked) + "\n")
    (here / "own.toml").write_text('[[agents]]\npolicy = "clerk"\n[[suites]]\nname = "asked.jsonl"\n')
    assert call("run", "own.toml").code == 0
    said = call("report", "own", "--beside", "paper")
    assert said.code == 0
    assert "the papers have published nothing that this run has too" in said.err
    assert "Scores" in said.out


def test_queries_by_split_stand_beside_the_papers_table_2(call: Call, here: Path, shared: Path) -> None:
    files = [str(shared / "data" / "costbench" / split / "queries.json") for split in ("test", "train")]
    assert call("tools", "queries", "import", *files, "--out", "both.jsonl").code == 0
    tables = json.loads(call("suites", "describe", "both.jsonl", "--beside", "paper", "--json").out)["tables"]
    ours, theirs = (tables[name]["rows"][-1] for name in ("suite", "beside_costbench_2"))
    assert (ours["train"], ours["test"], ours["combinations"]) == (1912, 381, 9312)
    assert (theirs["train"], theirs["test"], theirs["combinations"]) == (1902, 381, 9312)
    said = call("suites", "describe", "scheduling/basic", "--beside", "paper")
    assert (said.code, "published nothing of such a suite" in said.err) == (0, True)
    assert "Random assignment" in said.out
