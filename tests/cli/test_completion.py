"""Completion in bash: the script is read by a real shell, which asks `evalkit` for names."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Call

BASH = shutil.which("bash")


@pytest.fixture
def ran(call: Call, spec: Path, here: Path) -> Path:
    """A folder with a run, a sweep, and `evalkit` on the path."""
    assert call("run", str(spec)).code == 0
    (here / "bin").mkdir()
    (here / "bin" / "evalkit").write_text(f'#!/bin/sh\nexec {sys.executable} -m evalkit "$@"\n')
    (here / "bin" / "evalkit").chmod(0o755)
    (here / "script").write_text(call("tools", "completion", "bash").out)
    return here


def completed(folder: Path, line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    script = f"""
source ./script
COMP_WORDS=({" ".join(map(shlex.quote, words))})
COMP_CWORD={len(words) - 1}
_shtab_evalkit
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert BASH is not None
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run([BASH, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("evalkit sta", {"status"}),
        ("evalkit run mi", {"mine.toml"}),
        ("evalkit compare mine --agents ", {"knuth", "random"}),
        ("evalkit tools rec", {"reconcile"}),
        ("evalkit run --play", {"--play-all"}),
        ("evalkit run quick", {"quickstart"}),
        ("evalkit status m", {"mine"}),
        ("evalkit tools void m", {"mine"}),
        ("evalkit play scheduling/h", {"scheduling/hard"}),
        ("evalkit run mine.toml --only agent=r", {"agent=random"}),
        ("evalkit gate mine.toml --against m", {"mine"}),
        ("evalkit suites desc", {"describe"}),
        ("evalkit tools queries sam", {"sample"}),
        ("evalkit tools completion z", {"zsh"}),
        ("evalkit report nowhe", set()),
    ],
)
def test_bash_completes_commands_options_and_names(ran: Path, line: str, found: set[str]) -> None:
    assert {*completed(ran, line)} == found


def test_zsh_has_a_script_of_the_same_commands(call: Call) -> None:
    said = call("tools", "completion", "zsh")
    assert said.code == 0, said.err
    assert said.out.startswith("#compdef evalkit")
    assert "_evalkit_runs() { _evalkit_names runs }" in said.out
    for command in ("gate", "nightly", "reconcile", "describe"):
        assert command in said.out


def test_what_has_no_names_says_nothing(call: Call) -> None:
    said = call("tools", "completion", "--names", "agents evalkit compare ")
    assert (said.code, said.out, said.err) == (2, "", "")
    assert call("tools", "completion", "fish").code == 2
