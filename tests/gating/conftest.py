"""Gates are tried in an empty folder, with policies on many small instances."""

from pathlib import Path

import pytest

from tests.support.command_line import Call, caller
from tests.support.question_runs import many

SWEEP = """
[gate]
margin = 10
{policy}
[[agents]]
name = "a"
policy = "{agent}"
{more}
[[suites]]
name = "many.jsonl"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    many(tmp_path / "many.jsonl", 120)
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


def sweep(name: str, agent: str, policy: str = "", more: str = "", before: str = "") -> str:
    """Write a sweep of an agent `a` into the working directory; its file's name."""
    file = f"{name}.toml"
    Path(file).write_text(before + SWEEP.format(policy=policy, agent=agent, more=more))
    return file
