"""Every test has a time after which it counts as hung, and says where it hangs."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import PROJECT, SOAK_S
from tests.support.patience import PATIENCE_S

HANGS = """
import asyncio

def test_that_waits_for_nothing():
    async def never_set():
        await asyncio.Event().wait()
    asyncio.run(never_set())
"""


def test_a_test_that_hangs_fails_and_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS)
    settings = ["-c", str(PROJECT / "pyproject.toml"), "-p", "no:cacheprovider", "-o", "timeout=1"]
    command = [sys.executable, "-m", "pytest", *settings, "test_hanging.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "asyncio.run(never_set())" in done.stdout
    assert "Timeout (>1.0s)" in done.stdout


def test_a_test_that_waits_has_the_first_word_and_a_soak_has_more_time() -> None:
    options = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert PATIENCE_S < options["timeout"] < options["faulthandler_timeout"] < SOAK_S
