"""`evalkit tools merge`: parts that were played apart are the run that would have been played whole."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import POLICIES, Call, tree


@pytest.fixture
def parts(call: Call, here: Path) -> tuple[str, str]:
    """A sweep's two agents, each in a run of its own, and both in one: `runs/whole`."""
    agents, _, suites = POLICIES.partition("[[suites]]")
    for name, agent in zip(("one", "two"), agents.split("[[agents]]")[1:], strict=True):
        (here / f"{name}.toml").write_text(f"[[agents]]{agent}[[suites]]{suites}")
        assert call("run", f"{name}.toml").code == 0
    (here / "whole.toml").write_text(POLICIES)
    assert call("run", "whole.toml").code == 0
    return "runs/one", "runs/two"


def tables(call: Call, run: str, *names: str) -> dict[str, object]:
    found = json.loads(call("report", run, "--json").out)["tables"]
    return {name: found[name]["rows"] for name in names}


def test_the_merged_run_is_verified_reported_and_gone_on_from(call: Call, parts: tuple[str, str], here: Path) -> None:
    before = {name: data for name, data in tree(here / "runs").items() if "derived" not in name}
    said = call("tools", "merge", *parts, "--out", "runs/both")
    assert (said.code, said.err) == (0, "")
    assert "4 episodes in" in said.out
    kept = {name: data for name, data in tree(here / "runs").items() if name in before}
    assert kept == before
    assert call("verify", "runs/both").code == 0
    wanted = ("scores", "behaviour", "completeness", "econ_scores")
    assert tables(call, "runs/both", *wanted) == tables(call, "runs/whole", *wanted)
    (here / "both.toml").write_text("replicates = 2\n" + POLICIES)
    assert call("run", "both.toml").code == 0
    status = json.loads(call("status", "runs/both", "--json").out)
    assert (status["episodes"], status["owed"]) == (8, 0)
    assert call("verify", "runs/both").code == 0


def test_runs_that_call_different_things_by_one_name_are_refused(call: Call, spec: Path, here: Path) -> None:
    assert call("run", "mine.toml").code == 0
    (here / "other.toml").write_text(POLICIES.replace('"seed-0", ', ""))
    assert call("run", "other.toml").code == 0
    said = call("tools", "merge", "mine", "other", "--out", "both")
    assert said.code == 2
    assert "has other instances" in said.message
    assert not (here / "both").exists()


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine", "--out", "x"], "at least two"),
        (["mine", "none", "--out", "x"], "There is no run 'none'"),
        (["mine", "mine", "--out", "x"], "named twice"),
        (["mine", "mine", "--out", "mine.toml"], "exists already"),
        (["mine", "mine", "--out", "a b"], "is not a valid name"),
    ],
)
def test_what_cannot_be_merged_is_refused(call: Call, spec: Path, words: list[str], message: str) -> None:
    assert call("run", "mine.toml").code == 0
    said = call("tools", "merge", *words)
    assert said.code == 2
    assert message in said.message
