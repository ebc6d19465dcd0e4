"""`evalkit gate` with agents that need no provider: what it says, when it stops, what it refuses."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.question_files import read_frozen
from tests.gating.conftest import sweep
from tests.support.command_line import Call


@pytest.fixture
def old(call: Call) -> str:
    """A run of `a`, which plays well."""
    assert call("run", sweep("old", "knuth")).code == 0
    return "runs/old"


def test_an_agent_that_is_as_good_passes(call: Call, old: str) -> None:
    said = call("gate", sweep("new", "knuth"), "--against", old)
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == "pass: a beside baseline a: not worse by 10.0 points, on 1 suite."


def test_one_that_is_worse_fails_and_a_second_call_repeats_it_without_playing(call: Call, old: str) -> None:
    words = ("gate", sweep("new", "random"), "--against", old, "--json")
    said = call(*words)
    assert said.code == 4, said.err
    found = json.loads(said.out.splitlines()[-1])
    (check,) = found["checks"]
    assert (found["verdict"], check["answer"], check["agents"]) == ("fail", "worse", ["baseline a", "a"])
    assert check["high"] < 0
    assert check["answered_with"] < 40
    assert check["pairs_at_most"] == 120
    assert call("verify", "runs/new-gate").code == 0
    again = json.loads(call(*words).out.splitlines()[-1])
    assert again["checks"] == found["checks"]
    assert again["exit_code"] == 4


def test_an_archive_of_the_old_run_gives_the_same(call: Call, old: str) -> None:
    assert call("export", old, "--format", "archive", "--out", "old.zip").code == 0
    first, second = (
        json.loads(call("gate", "new.toml", "--against", against, "--name", name, "--json").out.splitlines()[-1])
        for name, against in (("one", old), ("two", "old.zip"))
        if sweep("new", "random")
    )
    assert first["checks"][0]["verdict"] == second["checks"][0]["verdict"] == "fail"
    frozen = [read_frozen(Path("runs", name)) for name in ("one", "two")]
    assert frozen[0] is not None
    assert frozen[1] is not None
    assert frozen[0].gate == frozen[1].gate


def test_an_agent_of_the_sweep_is_played_beside_the_new_ones(call: Call) -> None:
    more = '[[agents]]\nname = "b"\npolicy = "oracle"\n[[agents]]\nname = "c"\npolicy = "random"\n'
    file = sweep("both", "knuth", more=more)
    said = json.loads(call("gate", file, "--against", "b", "--agent", "a=b", "--json").out.splitlines()[-1])
    assert (said["verdict"], said["stored"], said["exit_code"]) == ("pass", False, 0)
    assert [check["agents"] for check in said["checks"]] == [["b", "a"]]
    all_said = call("gate", file, "--against", "b", "--name", "all", "--json")
    assert all_said.code == 4, "c plays at random"
    assert "in turns" in all_said.out


def test_each_suite_has_a_test_and_a_gate_passes_where_all_do(call: Call, old: str) -> None:
    again = '[[suites]]\nname = "scheduling/basic"\n'
    Path("wide.toml").write_text(Path("old.toml").read_text() + again)
    assert call("run", "wide.toml").code == 0
    Path("new.toml").write_text(Path("wide.toml").read_text())
    said = call("gate", "new.toml", "--against", "runs/wide", "--json")
    assert said.code == 3, said.err
    first, second = json.loads(said.out.splitlines()[-1])["checks"]
    assert (first["verdict"], second["verdict"]) == ("pass", "undecided")
    assert first["answered_with"] < first["pairs_at_most"] == 120
    assert second["pairs"] == second["pairs_at_most"] == 12
    assert second["needs"] > 12


def test_few_instances_leave_it_undecided_and_the_policy_says_what_that_counts_as(call: Call) -> None:
    few = '[[agents]]\nname = "a"\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\n'
    Path("few.toml").write_text(few)
    assert call("run", "few.toml").code == 0
    for counts, code in (("undecided", 3), ("pass", 0), ("fail", 4)):
        Path("gated.toml").write_text(f'[gate]\nundecided = "{counts}"\n{few}')
        said = call("gate", "gated.toml", "--against", "few", "--junit", "gate.xml")
        assert said.code == code
        last = said.out.splitlines()[-1]
        assert last.startswith("undecided: the instances ran out. An answer takes, for scheduling/basic: about ")
        assert "the suite has 12: add instances or replicates" in last
        assert (f"counts as {counts}" in last) == (counts != "undecided")
        (suite,) = ElementTree.parse("gate.xml").getroot()
        assert (suite.get("failures"), suite.get("skipped")) == {3: ("0", "1"), 0: ("0", "0"), 4: ("1", "0")}[code]


def test_replicates_ask_about_the_suite_with_as_many_as_the_old_run_has(call: Call) -> None:
    few = '[[agents]]\nname = "a"\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\nvary = {periods = [6]}\n'
    Path("few.toml").write_text(f"replicates = 3\n{few}")
    assert call("run", "few.toml").code == 0
    Path("more.toml").write_text(f"replicates = 9\n[gate]\nmargin = 60\n{few}")
    said = call("gate", "more.toml", "--against", "few", "--json")
    found = json.loads(said.out.splitlines()[-1])
    assert found["checks"][0]["pairs_at_most"] == 36
    assert "about another replicate of this suite" in said.out
    assert (found["verdict"], said.code) == ("pass", 0)


def test_dearer_episodes_and_broken_calls_fail_it(call: Call, old: str) -> None:
    """A policy costs nothing, so only calls can be found wanting here."""
    more = '[[agents]]\nname = "b"\npolicy = "scripted"\nparams = { replies = ["I would rather not."] }\n'
    file = sweep("quiet", "knuth", "broken = 20\ndearer = 10", more)
    said = json.loads(call("gate", file, "--against", "a", "--json").out.splitlines()[-1])
    (check,) = said["checks"]
    assert check["too_broken"]
    assert check["broken"] == 100.0
    assert not check["too_dear"]
    assert said["verdict"] == "fail"
    assert "100 % of b's calls are refused or missing" in said["sentence"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--against", "nowhere"), "no agent of the sweep, no run and no archive has this name"),
        (("--against", "runs/old", "--agent", "a=b"), "--agent a=b: expected NEW=OLD, with an agent of runs/old"),
        (("--against", "runs/old", "--agent", "x=a"), "the sweep has no agent 'x'"),
        (("--against", "runs/old", "--agent", "a"), "expected NEW=OLD"),
        (("--against", "a"), "no agent of the sweep (a) has a partner in a"),
        (("--against", "runs/old", "--margin", "0"), "--margin: must be above 0"),
        (("--against", "runs/old", "--junit", "none/x.xml"), "there is no folder none"),
        (("--against", "runs/old", "--name", "old"), "is where this gate's own run is"),
        (("--against", "odd.zip"), "is no archive of evalkit"),
    ],
)
def test_what_cannot_be_asked_is_told_before_anything_is_written(
    call: Call, old: str, options: tuple[str, ...], words: str
) -> None:
    Path("odd.zip").write_bytes(b"no zip")
    said = call("gate", sweep("new", "knuth"), *options)
    assert said.code == 2
    assert words in said.message
    assert not Path("runs/new-gate").exists()


def test_a_margin_of_an_unknown_suite_is_named_with_the_nearest(call: Call, old: str) -> None:
    said = call("gate", sweep("new", "knuth", 'margins = { "many.json" = 5 }'), "--against", old)
    assert said.code == 2
    assert "no suite is called 'many.json'. Did you mean 'many.jsonl'?" in said.message


def test_another_question_in_the_same_run_is_refused(call: Call, old: str) -> None:
    assert call("gate", sweep("new", "knuth"), "--against", old).code == 0
    said = call("gate", "new.toml", "--against", old, "--margin", "3")
    assert said.code == 2
    assert "asks something else: `margin` has changed" in said.message


def test_instances_that_the_old_run_lacks_are_not_played(call: Call, here: Path, old: str) -> None:
    lines = Path("many.jsonl").read_text().splitlines(keepends=True)
    Path("many.jsonl").write_text("".join(lines[20:]))
    assert call("run", sweep("part", "knuth")).code == 0
    Path("many.jsonl").write_text("".join(lines))
    said = json.loads(call("gate", sweep("new", "knuth"), "--against", "part", "--json").out.splitlines()[-1])
    assert said["checks"][0]["pairs_at_most"] == 100


def test_a_comment_has_the_verdict_the_figure_and_nothing_that_a_forge_would_obey(call: Call, old: str) -> None:
    said = call("gate", sweep("new", "random"), "--against", old, "--markdown", "comment.md")
    assert said.code == 4
    text = Path("comment.md").read_text()
    assert text.startswith("<!-- evalkit gate -->\n## ❌ evalkit gate: fail\n")
    assert re.search(r"```text\n.*\+100 points\nmany\.jsonl  a .*●.*│.*fail\n```", text)
    assert "| many.jsonl | a | baseline a |" in text
    assert not re.search(r"@\w", text)


def test_answers_that_were_changed_afterwards_are_found(call: Call, old: str) -> None:
    assert call("gate", sweep("new", "random"), "--against", old).code == 4
    (answers,) = Path("runs/new-gate/answers").iterdir()
    answers.chmod(0o644)
    answers.write_text(answers.read_text().replace('"worse"', '"not worse"'))
    said = call("verify", "runs/new-gate")
    assert said.code == 1
    assert "does not follow from the log" in said.out


def test_readers_of_runs_read_a_gate(call: Call, old: str) -> None:
    assert call("gate", sweep("new", "random"), "--against", old).code == 4
    report = call("report", "runs/new-gate")
    assert report.code == 0
    assert re.search(r"many\.jsonl\s+baseline a\s+a\s+worse", report.out)
    assert "a gate: worse: shown to be below 0; not worse: shown to be above minus the margin" in report.out
    assert "hold at every look" in call("compare", "runs/new-gate", "runs/old").out
    assert call("status", "runs/new-gate").code == 0


def test_a_gate_with_a_part_of_the_instances_goes_on_and_ends_as_one_call_would(call: Call, old: str) -> None:
    lines = Path("many.jsonl").read_text().splitlines(keepends=True)
    Path("many.jsonl").write_text("".join(lines[30:]))
    assert call("run", sweep("part", "knuth")).code == 0
    Path("many.jsonl").write_text("".join(lines))
    words = ("gate", sweep("new", "knuth"), "--against", "part", "--json")
    first = json.loads(call(*words).out.splitlines()[-1])
    again = json.loads(call(*words).out.splitlines()[-1])
    assert again["checks"] == first["checks"]
    assert call("verify", "new-gate").code == 0
    # Another baseline, with other instances, is another question.
    said = call("gate", "new.toml", "--against", old)
    assert said.code == 2
    assert "new-gate" in said.message


def test_the_agents_of_an_archive_are_played_again_as_they_were_frozen(call: Call, old: str) -> None:
    assert call("export", old, "--format", "archive", "--out", "old.zip").code == 0
    words = ("gate", sweep("new", "random"), "--against", "old.zip", "--again", "--json")
    said = call(*words)
    assert said.code == 4, said.err
    found = json.loads(said.out.splitlines()[-1])
    (check,) = found["checks"]
    assert (found["stored"], check["agents"], check["verdict"]) == (False, ["a@baseline", "a"], "fail")
    assert "both sides were played in turns" in said.out
    manifest = read_manifest(Path("runs/new-gate"))
    assert (manifest.agents["a@baseline"].policy, manifest.agents["a"].policy) == ("knuth", "random")
    assert call("verify", "new-gate").code == 0
    Path("old.zip").rename("again.zip")
    again = json.loads(call("gate", "new.toml", "--against", "again.zip", "--again", "--json").out.splitlines()[-1])
    assert again["checks"] == found["checks"]


def test_an_old_agent_reads_the_prompts_of_its_run_whatever_its_file_says_now(call: Call) -> None:
    pack, texts = Path("mine.toml"), '[scheduling]\nsystem = "Match each worker."\n'
    pack.write_text(texts)
    served = '[[agents]]\nname = "a"\nprovider = "simulated"\nmodel = "knuth"\nprompts = "mine.toml"\n'
    suite = '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
    Path("old.toml").write_text(f"budget_usd = 50\n{served}{suite}")
    assert call("run", "old.toml").code == 0
    same = call("gate", "old.toml", "--against", "old", "--again", "--junit", "gate.xml", "--markdown", "comment.md")
    assert same.code == 0, same.err
    last = "pass: a has the model, sampling and prompts of a in old, so it was not played."
    assert same.out.splitlines()[-1] == last
    assert last in Path("comment.md").read_text()
    assert not Path("runs/old-gate").exists()
    pack.write_text(texts.replace("each", "every"))
    said = call("gate", "old.toml", "--against", "old", "--again")
    assert said.code == 3, said.err
    manifest = read_manifest(Path("runs/old-gate"))
    now, was = (
        manifest.packs[manifest.agents[name].packs["scheduling"]].texts["system"] for name in ("a", "a@baseline")
    )
    assert (now, was) == ("Match every worker.", "Match each worker.")


def test_old_code_is_not_played_again_once_it_has_changed(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import evalkit

@evalkit.agent(version={0})
async def play(seat):
    while not seat.ending:
        await seat.act(await seat.ask())
"""
    (here / "gated_code.py").write_text(code.format(1))
    monkeypatch.syspath_prepend(here)
    served = '[[agents]]\nname = "a"\nagent = "gated_code:play"\nmodels = { main = "simulated/knuth" }\n'
    suite = '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
    Path("old.toml").write_text(f"budget_usd = 50\n{served}{suite}")
    assert call("run", "old.toml").code == 0
    Path("new.toml").write_text(Path("old.toml").read_text().replace("/knuth", "/random"))
    said = call("gate", "new.toml", "--against", "old", "--again")
    assert said.code == 3, said.err
    was = read_manifest(Path("runs/new-gate")).agents["a@baseline"].code
    assert was is not None
    assert was.roles["main"].model == "knuth"
    (here / "gated_code.py").write_text(code.format(2))
    del sys.modules["gated_code"]
    said = call("gate", "new.toml", "--against", "old", "--again", "--name", "other")
    assert said.code == 2
    assert "new.toml: the old agent 'a': the code of gated_code:play has changed since" in said.message
    assert not Path("runs/other").exists()


def test_an_agent_that_did_not_change_on_one_suite_is_played_on_the_others(call: Call) -> None:
    pack = Path("mine.toml")
    pack.write_text('[scheduling]\nsystem = "Match each worker."\n')
    served = (
        'budget_usd = 50\n[[agents]]\nname = "a"\nprovider = "simulated"\nmodel = "random"\nprompts = "mine.toml"\n'
    )
    few = 'instances = ["seed-0"]\nvary = {{ periods = [2] }}\n'
    suites = "".join(f'[[suites]]\nname = "{name}"\n{few}'.format() for name in ("scheduling/basic", "pricing/basic"))
    Path("old.toml").write_text(served + suites)
    assert call("run", "old.toml").code == 0
    pack.write_text('[scheduling]\nsystem = "Match every worker."\n')
    said = json.loads(call("gate", "old.toml", "--against", "old", "--again", "--json").out.splitlines()[-1])
    assert [check["suite"] for check in said["checks"]] == ["scheduling/basic?periods=2"]
    assert "so it was not played in pricing" in said["notes"][0]
