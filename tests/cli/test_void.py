"""`evalkit tools void`: what it says, what it refuses, what it leaves alone."""

import json
from pathlib import Path

import pytest

from evalkit.store.lock import hold_run
from tests.support.command_line import Call, tree


@pytest.fixture
def run(call: Call, spec: Path) -> str:
    assert call("run", "mine.toml").code == 0
    return "runs/mine"


def log(here: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(here).items() if name.endswith(".parquet") and "derived" not in name}


def test_void_and_undo(call: Call, run: str, here: Path) -> None:
    before, kept = json.loads(call("report", run, "--json").out), log(here)
    said = call("tools", "void", run, "--only", "agent=random", "--reason", "wrong seed")
    assert said.code == 0
    assert "2 of 2 episodes are void" in said.out
    assert log(here) == kept
    assert "void: random on " in call("report", run).out.replace("\n", " ")
    assert call("report", run).out.startswith("mine: 2 of 2 episodes ended, complete, 2 void\n")
    assert json.loads(call("report", run, "--json").out)["run"]["void"] == 2
    line = json.loads((here / run / "voids.jsonl").read_text().splitlines()[0])
    assert (line["agent"], line["reason"], line["undo"]) == ("random", "wrong seed", False)
    assert "@" in line["by"]
    assert "2 were void already" in call("tools", "void", run, "--only", "agent=random", "--reason", "again").out
    assert call("verify", run).code == 0
    assert call("run", "mine.toml").code == 0
    assert log(here) == kept
    assert (
        "2 of 2 episodes count again"
        in call("tools", "void", run, "--only", "agent=random", "--undo", "--reason", "no").out
    )
    assert json.loads(call("report", run, "--json").out) == before


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reason", "x"], "choose episodes by"),
        (["--only", "agent=random", "--reason", " "], "--reason"),
        (["--only", "agent=random", "--reason", "x" * 1001], "1 to 1,000"),
        (["--only", "agent=rnadom", "--reason", "x"], "Did you mean 'random'"),
        (["--episode", "nothing", "--reason", "x"], "holds no episode"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Call, run: str, here: Path, words: list[str], message: str) -> None:
    said = call("tools", "void", run, *words)
    assert said.code == 2
    assert message in said.message
    assert not (here / run / "voids.jsonl").exists()


def test_a_run_that_is_being_written_is_refused(call: Call, run: str, here: Path) -> None:
    with hold_run(here / run):
        said = call("tools", "void", run, "--only", "agent=random", "--reason", "x")
    assert said.code == 2
    assert "is being written" in said.message


def test_what_is_no_run_stays_as_it_is(call: Call, here: Path) -> None:
    (here / "folder").mkdir()
    assert call("tools", "void", "folder", "--only", "agent=a", "--reason", "x").code == 2
    assert list((here / "folder").iterdir()) == []
