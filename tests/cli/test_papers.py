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
