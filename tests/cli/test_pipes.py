"""Commands whose reader has gone: they end quietly, do all that they are for, and keep their exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_run import damage
from tests.support.command_line import Call
from tests.support.patience import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[2]


def unread(*words: str, both: bool = False) -> tuple[int, str]:
    """(exit code, standard error) of a command whose standard output, or both, nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "evalkit", *words],
            stdout=writer,
            stderr=writer if both else subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, (done.stderr or b"").decode()


EPISODE = "knuth:scheduling/basic?periods=4:seed-0:0"
READING = {
    "help": ["--help"],
    "run's help": ["run", "--help"],
    "plan": ["plan", "mine.toml"],
    "status": ["status", "mine"],
    "report": ["report", "mine"],
    "report as JSON": ["report", "mine", "--json"],
    "show": ["show", "mine"],
    "an episode": ["show", "mine", EPISODE],
    "sql": ["sql", "mine", "select * from steps"],
    "sql as CSV": ["sql", "mine", "select * from steps", "--csv"],
    "compare": ["compare", "mine:knuth", "mine:random"],
    "verify": ["verify", "mine"],
    "describe": ["suites", "describe", "scheduling/basic"],
    "providers": ["providers"],
    "budget": ["status", "mine", "--money"],
}


@pytest.mark.exhaustive
def test_commands_that_read_end_quietly(call: Call, spec: Path) -> None:
    assert call("run", "mine.toml").code == 0
    assert {name: unread(*words) for name, words in READING.items()} == dict.fromkeys(READING, (0, ""))
    assert unread("report", "mine", both=True) == (0, "")


@pytest.mark.exhaustive
def test_a_run_is_played_to_its_end_and_keeps_its_code(call: Call, spec: Path) -> None:
    for both in (False, True):
        name = f"both{both}"
        assert unread("run", "mine.toml", "--name", name, "--limit", "1", both=both) == (3, "")
        assert unread("run", "mine.toml", "--name", name, both=both) == (0, "")
        assert "4 of 4 episodes ended, complete" in call("status", name).out


@pytest.mark.exhaustive
def test_what_was_wrong_decides_the_code_although_nobody_reads_it(call: Call, spec: Path) -> None:
    assert unread("run", "none.toml", both=True)[0] == 2
    call("run", "mine.toml")
    damage(spec.parent / "runs" / "mine", "reply")
    assert call("verify", "mine").code == unread("verify", "mine")[0] == 1


@pytest.mark.exhaustive
def test_a_night_nobody_reads_about_still_writes_its_page(call: Call, spec: Path, here: Path) -> None:
    assert unread("nightly", "mine.toml", "--html", "nights.html") == (0, "")
    assert (here / "nights.html").stat().st_size > 1_000
