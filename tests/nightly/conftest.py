"""Tests of the command work in an empty folder of their own."""

from pathlib import Path

import pytest

from tests.support.command_line import Call, caller

SPEC = """
[[agents]]
policy = "knuth"
[[agents]]
policy = "random"
[[suites]]
name = "scheduling/basic"
vary = { periods = [4] }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "mine.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)
