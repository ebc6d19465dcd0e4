"""A folder on the path into which tests put packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.envs import table


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty at first, and first on the path; what is imported from it is forgotten at the end."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(table.ENVIRONMENTS, "_read", {})
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(folder)):
            del sys.modules[name]
