"""`--set` on commands that read a sweep: recorded in the run, repeated in what to do next."""

import json
from pathlib import Path

import pytest

from evalkit.frozen.manifests import read_spec
from evalkit.store.events import read_events
from tests.support.command_line import Call

SET = ("--set", "agents.random.notes=false")


def test_a_setting_is_played_and_recorded(call: Call, spec: Path, here: Path) -> None:
    said = call("run", spec, *SET, "--set", "replicates=2", "--limit", "1")
    assert said.code == 3
    assert "--set agents.random.notes=false --set replicates=2" in said.out
    assert call("run", spec, *SET, "--set", "replicates=2", "--json").code == 0
    run = here / "runs" / "mine"
    manifest = json.loads((run / "manifest" / "000000.json").read_text())
    assert (manifest["agents"]["random"]["notes"], manifest["agents"]["knuth"]["notes"]) == (False, True)
    assert manifest["replicates"] == 2
    kept = read_spec(run)
    assert kept is not None
    assert kept.settings == ("agents.random.notes=false", "replicates=2")
    assert kept.spec["agents"][1] == {"policy": "random", "notes": False}
    assert [event["set"] for event in read_events(run, "started")] == [list(kept.settings)] * 2
    conflict = call("run", spec)
    assert conflict.code == 2
    assert "The run was last played with --set agents.random.notes=false --set replicates=2." in conflict.message


@pytest.mark.parametrize("command", ["run", "plan", "nightly"])
def test_each_command_that_reads_a_sweep_takes_settings(call: Call, spec: Path, command: str) -> None:
    said = call(command, spec, "--set", "agents.gpt.effort=high")
    assert said.code == 2
    assert "--set agents.gpt.effort=high: the sweep has no agent 'gpt'" in said.message
    assert call(command, spec, *SET).code == 0


def test_the_plan_says_which_command_follows(call: Call, spec: Path) -> None:
    said = call("plan", spec, "--set", "replicates=2")
    assert "run mine.toml --set replicates=2" in said.out.replace(str(spec.parent) + "/", "")


def test_crossed_agents_are_compared_by_what_was_crossed(call: Call, here: Path) -> None:
    (here / "cross.toml").write_text(
        '[[agents]]\nname = "a"\npolicy = ["knuth", "random"]\n'
        '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\nvary = { periods = [4] }\n'
    )
    assert call("run", "cross.toml").code == 0
    said = call("report", "cross", "--by", "policy", "--json")
    rows = json.loads(said.out)["tables"]["scores_by_policy"]["rows"]
    assert {row["group"] for row in rows} == {"knuth", "random"}
    assert call("show", "cross", "a@policy=knuth:scheduling/basic?periods=4:seed-0:0").code == 0
    assert call("export", "cross", "--format", "csv", "--out", "out", "--only", "agent=a@policy=knuth").code == 0
