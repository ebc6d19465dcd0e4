"""Every test of the command line works in an empty folder of its own."""

import math
from pathlib import Path

import pytest

from tests.support.command_line import POLICIES, Call, caller


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("evalkit.api.planning.SECONDS", math.inf)  # a plan plays everything, on whatever machine
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


@pytest.fixture
def spec(here: Path) -> Path:
    path = here / "mine.toml"
    path.write_text(POLICIES)
    return path
