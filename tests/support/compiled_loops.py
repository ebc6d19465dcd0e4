"""Testing how compiled loops are loaded and kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

needs_numba = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1",
    reason="numba is off: compiled loops run as plain Python, whose integers wrap otherwise, so results are others",
)
"""For tests of what compiling does."""


def printed(script: str) -> list[str]:
    """The words that a script prints in a process of its own, in which nothing is imported yet."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()
