"""What models of random weights play on every server, and what became of it."""

import json
import subprocess
import time
from typing import Any

from tests.real.serving import counted
from tests.support.patience import PATIENCE_S

MARKETS = """
[[suites]]
name = "{name}/basic"
instances = ["seed-0"]
vary = {{ periods = [2], queries = [4] }}
"""
COSTBENCH = """
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""
ALL = COSTBENCH + "".join(MARKETS.format(name=name) for name in ("scheduling", "procurement", "pricing"))


def outcomes(rows: list[dict[str, Any]]) -> set[str]:
    """What became of calls."""
    return {call["outcome"] for row in rows for call in json.loads(row["facts"]).get("calls", ())}


def await_tokens(playing: subprocess.Popen[str], url: str, name: str, count: int) -> None:
    """Until the server has written so many tokens in all, by its own count of that name."""
    until = time.monotonic() + PATIENCE_S
    while counted(url)[name] < count:
        assert playing.poll() is None, playing.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
