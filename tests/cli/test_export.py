"""`evalkit export`: what it writes, says and refuses."""

from pathlib import Path

import pytest

from tests.support.command_line import Call, tree

FORMATS = ("jsonl", "inspect", "csv")


@pytest.fixture
def run(call: Call, spec: Path) -> str:
    assert call("run", "mine.toml").code == 0
    return "runs/mine"


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("form", FORMATS)
def test_a_run_is_exported_and_left_as_it_is(call: Call, run: str, here: Path, form: str) -> None:
    before = {name: data for name, data in tree(here / run).items() if "derived" not in name}
    said = call("export", run, "--format", form, "--out", "out", "--only", "agent=knuth")
    assert (said.code, said.err) == (0, "")
    assert "Wrote out: 2 episodes from 1 pair of agent and suite." in said.out
    assert (here / "out").exists()
    assert {name: data for name, data in tree(here / run).items() if "derived" not in name} == before
    again = call("export", run, "--format", form, "--out", "out")
    assert again.code == 2
    assert "exists already" in again.message


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("form", FORMATS)
def test_a_choice_that_holds_nothing_is_refused(call: Call, run: str, here: Path, form: str) -> None:
    assert call("tools", "void", run, "--only", "agent=knuth", "--reason", "x").code == 0
    said = call("export", run, "--format", form, "--out", "out", "--only", "agent=knuth")
    assert said.code == 2
    assert "nothing to export" in said.message
    assert not (here / "out").exists()
    assert "Did you mean 'knuth'" in call("export", run, "--format", form, "--out", "o", "--only", "agent=knut").message


def test_what_is_void_is_said(call: Call, run: str) -> None:
    assert call("tools", "void", run, "--only", "agent=knuth", "--reason", "x").code == 0
    assert "2 void episodes" in call("export", run, "--format", "jsonl", "--out", "out.jsonl").out
