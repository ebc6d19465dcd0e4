"""A share of the budget at which somebody is told: once, by the command that hears of alarms."""

import json
import stat
from pathlib import Path

import pytest

from evalkit.engine.view import View
from evalkit.nightly.hook import BudgetAlert
from evalkit.spec.sweep import sweep_from
from tests.support.command_line import Call, caller

SPEC = {"name": "mine", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}], "budget_usd": 1}


def view(spent: int) -> View:
    return View(name="mine", elapsed_s=1, lanes=(), spent=spent, reserved=0, budget=1000, simulated="", stopping="")


def told(at: float | None, spent: list[int], hook: list[str] | None = None) -> tuple[list[str], int]:
    """(what was said, how many views were shown)."""
    seen: list[View] = []
    sweep = sweep_from({**SPEC, **({} if at is None else {"alerts": {"budget": at}})}, "spec", "")
    alert = BudgetAlert(seen.append, sweep, Path("runs/mine"), hook)
    for one in spent:
        alert(view(one))
    return alert.end(), len(seen)


def test_it_is_said_once_when_the_share_is_passed(tmp_path: Path) -> None:
    script, heard = tmp_path / "tell.sh", tmp_path / "heard"
    script.write_text(f'#!/bin/sh\ncat >> {heard}\nprintf "%s" "$EVALKIT_SUMMARY" > {heard}.words\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    lines, shown = told(0.8, [100, 799, 800, 900, 1000], [str(script)])
    assert shown == 5
    assert len(lines) == 1
    assert lines[0].startswith("80 % of the budget are spent: ")
    about = json.loads(heard.read_text())
    assert (about["sweep"], about["run"], about["alarms"], about["summary"]) == ("mine", "runs/mine", [], lines[0])
    assert Path(f"{heard}.words").read_text() == lines[0]


@pytest.mark.parametrize(("at", "spent"), [(None, [0, 1000]), (0.8, [0, 799]), (0.8, [900, 1000]), (1.0, [0, 999])])
def test_nothing_is_said_below_it_or_of_what_an_earlier_call_has_told(at: float | None, spent: list[int]) -> None:
    assert told(at, spent) == ([], len(spent))


def test_a_command_that_fails_is_told_and_stops_nothing() -> None:
    lines, _ = told(0.5, [0, 600], ["no-such-program"])
    assert lines[1] == "evalkit: --on-alarm: no-such-program cannot be run: No such file or directory."


def test_a_run_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    call: Call = caller(capsys)
    sweep = '[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\n'
    Path("mine.toml").write_text(f'budget_usd = "1000"\n[alerts]\nbudget = 0.9\n{sweep}')
    assert call("run", "mine.toml", "--on-alarm", "tell 'me").code == 2
    said = call("run", "mine.toml", "--on-alarm", "true")
    assert (said.code, "budget are spent" in said.err) == (0, False)
    Path("bad.toml").write_text(Path("mine.toml").read_text().replace("0.9", "80"))
    assert "alerts" in call("run", "bad.toml").message
