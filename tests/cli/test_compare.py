import json
from pathlib import Path

import pytest

from tests.support.command_line import Call


@pytest.fixture
def ran(spec: Path, call: Call) -> str:
    assert call("run", str(spec), "--dir", "run", "--json").code == 0
    return "run"


def test_two_agents_of_a_run_are_compared_in_every_form(ran: str, call: Call) -> None:
    shown = call("compare", ran, "--agents", "knuth", "random")
    assert shown.code == 0
    assert "A: run:knuth   B: run:random" in shown.out
    assert "knuth → random" in shown.out
    assert "played at the same time, so what an hour changes in both is not in the difference" in " ".join(
        shown.out.split()
    )
    read = json.loads(call("compare", ran, "--agents", "knuth", "random", "--json").out)
    assert (read["schema"], read["agents"]) == ("evalkit.compare", [["knuth", "random"]])
    assert {row["pairs"] for row in read["tables"]["compare"]["rows"]} == {2}


def test_two_runs_are_compared_by_names_of_agents(ran: str, call: Call) -> None:
    read = json.loads(call("compare", ran, ran, "--json").out)
    assert read["agents"] == [["knuth", "knuth"], ["random", "random"]]
    named = json.loads(call("compare", f"{ran}:knuth", f"{ran}:random", "--json").out)
    assert (named["first"], named["second"]) == ("run:knuth", "run:random")
    # The agent is named once where it is the same.
    assert json.loads(call("compare", f"{ran}:knuth", ran, "--json").out)["agents"] == [["knuth", "knuth"]]


@pytest.mark.parametrize(
    ("words", "flaw"),
    [
        (["--agents", "knuth", "randon"], "has no agent 'randon'. Did you mean 'random'?"),
        (["run:knuht"], "has no agent 'knuht'. Did you mean 'knuth'?"),
        (["run", "--agents", "knuth", "random"], "--agents: is for a single run"),
        (["elsewhere"], "There is no run 'elsewhere'"),
    ],
)
def test_what_cannot_be_compared_says_what_to_write(ran: str, call: Call, words: list[str], flaw: str) -> None:
    refused = call("compare", ran, *words)
    assert refused.code == 2
    assert flaw in refused.message
