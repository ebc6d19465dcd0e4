"""Every test of the command line works in an empty folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provider.serving import in_place
from tests.support.command_line import POLICIES, Call, caller


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


@pytest.fixture
def any_provider() -> Iterator[None]:
    """A table `simulate` may ask for whatever the test double can do."""
    with in_place():
        yield


@pytest.fixture
def spec(here: Path) -> Path:
    path = here / "mine.toml"
    path.write_text(POLICIES)
    return path
