"""The command line for tests: in this process where nothing else is needed, else as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.main import main
from tests.support.patience import PATIENCE_S

POLICIES = """
[[agents]]
policy = "knuth"
[[agents]]
policy = "random"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [4] }
"""

SERVED = """
width = {width}
[[agents]]
name = "knuth"
provider = "lab"
model = "knuth"
[[agents]]
name = "noisy"
provider = "lab"
model = "noisy"
[[suites]]
name = "scheduling/basic"
vary = {{ periods = [{periods}] }}
"""

LAB = """
dialect = "openai_chat"
url = "{url}"
{more}
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The one message of a call that could not start."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


Call = Callable[..., Said]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """A function that runs one command in this process."""

    def call(*argv: str | Path) -> Said:
        capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as leaving:  # only argparse's --help and --version leave so
            code = int(leaving.code or 0)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def lab(folder: Path, url: str, *, width: int = 6, periods: int = 6, more: str = "") -> None:
    """A provider that listens at `url`, and a sweep of two of its models."""
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "lab.toml").write_text(LAB.format(url=url, more=more))
    (folder / "sweep.toml").write_text(SERVED.format(width=width, periods=periods))


def start(folder: Path, *argv: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """`evalkit` in a process of its own, in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "evalkit", *argv],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], within_s: float = PATIENCE_S) -> Said:
    """Wait for its end; never longer than `within_s`."""
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Said(process.returncode, out, err)


def bill_lines(bill: Path, first: int = 0) -> list[dict[str, Any]]:
    """All requests that have reached the provider so far, in order; those before `first` are left out."""
    lines = bill.read_bytes().split(b"\n") if bill.exists() else []
    return [json.loads(line) for line in lines[first:] if line.endswith(b"}")]


def await_requests(process: subprocess.Popen[str], bill: Path, count: int) -> None:
    """Until the provider has seen so many requests."""
    until = time.monotonic() + PATIENCE_S
    while len(bill_lines(bill)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> float:
    """Send the signal; the time at which it was sent, as `time.monotonic` counts."""
    process.send_signal(number)
    return time.monotonic()
