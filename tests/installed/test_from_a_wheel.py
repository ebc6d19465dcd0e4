"""From nothing but the wheel and an empty folder: the quickstart, and gates against a provider that has become worse,
one that has not, and one that dies."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import LAB, await_requests, bill_lines
from tests.support.document_blocks import PROJECT
from tests.support.patience import PATIENCE_S

INSTANCES = 240
SWEEP = """
[gate]
margin = 10
[[agents]]
name = "agent"
provider = "lab"
model = "{model}"
[[suites]]
name = "many.jsonl"
"""
SIMULATED = """
dialect = "openai_chat"
[simulate]
latency = "{latency}"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-29"
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The `evalkit-econ` of an environment that has the wheel; its dependencies are those of this one."""
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling, which `make setup` installs")
    made = tmp_path / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = made.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(tmp_path / "env"),
        "install",
        "--no-deps",
        "--no-index",
        "-q",
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, text=True)
    # Behind the wheel's own folder; an editable installation there is not looked at.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return tmp_path / "env" / "bin" / "evalkit-econ"


class Reader:
    """Somebody in an empty folder with that command."""

    def __init__(self, command: Path, folder: Path) -> None:
        self.command, self.folder = command, folder
        folder.mkdir()
        unseen = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COLUMNS")
        self.environment: Mapping[str, str] = {key: value for key, value in os.environ.items() if key not in unseen}

    def call(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [self.command, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def gate(self, sweep: str, code: int, *words: str) -> dict[str, Any]:
        said = self.call("gate", sweep, "--against", "runs/before", "--json", *words, code=code)
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.command, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def reader(installed: Path, tmp_path: Path) -> Iterator[Reader]:
    yield Reader(installed, tmp_path / "empty")
    shutil.rmtree(tmp_path / "env")


def sweep(reader: Reader, name: str, model: str) -> str:
    (reader.folder / f"{name}.toml").write_text(SWEEP.format(model=model))
    return f"{name}.toml"


@pytest.mark.exhaustive
def test_from_nothing_to_a_gate_that_stops_when_it_is_known(reader: Reader) -> None:
    # A first run, with what the wheel brings.
    reader.call("run", "quickstart", "--limit", "1", code=3)
    assert "replays to what the log holds" in reader.call("verify")

    # A baseline, from a provider that answers at once; it is kept as an archive too.
    words = ("--instances", str(INSTANCES), "--n=4", "--periods=8", "--out", "many.jsonl")
    reader.call("suites", "generate", "scheduling", *words)
    (reader.folder / "providers").mkdir()
    provider = reader.folder / "providers" / "lab.toml"
    provider.write_text(SIMULATED.format(latency="5ms"))
    reader.call("run", sweep(reader, "before", "knuth"))
    reader.call("export", "before", "--format", "archive", "--out", "before.zip")

    # It has become worse: known within a third of what playing all costs.
    whole = json.loads(reader.call("run", sweep(reader, "worse", "random"), "--json").splitlines()[-1])["spent_usd"]
    provider.write_text(SIMULATED.format(latency="300ms"))
    worse = reader.gate("worse.toml", 4, "--junit", "gate.xml", "--markdown", "gate.md")
    assert worse["verdict"] == "fail"
    assert 0 < worse["spent_usd"] < whole / 3
    assert worse["spared_usd"] > 0
    assert "❌" in (reader.folder / "gate.md").read_text()
    assert "<failure" in (reader.folder / "gate.xml").read_text()
    assert "replays to what the log holds" in reader.call("verify", "worse-gate")

    # It has not; against the archive.
    provider.write_text(SIMULATED.format(latency="50ms"))
    same = reader.call("gate", sweep(reader, "same", "knuth"), "--against", "before.zip")
    assert same.splitlines()[-1] == "pass: agent beside baseline agent: not worse by 10.0 points, on 1 suite."

    # It dies in the middle, as random as it was: that is no verdict.
    bill = reader.folder / "bill.jsonl"
    server = reader.start("simulate", "--latency", "200ms", "--bill", str(bill))
    assert server.stdout is not None
    url = next(line for line in server.stdout if "http://" in line).partition("http://")[2].split()[0]
    provider.write_text(LAB.format(url=f"http://{url.rstrip('.')}", more=""))
    playing = reader.start(
        "gate", sweep(reader, "dying", "knuth"), "--against", "runs/before", "--deadline", "15s", "--json"
    )
    await_requests(playing, bill, 20)
    server.kill()
    server.communicate()
    out, _ = playing.communicate(timeout=PATIENCE_S)
    dead = json.loads(out.splitlines()[-1])
    assert (playing.returncode, dead["verdict"]) == (3, "undecided")
    assert dead["sentence"].startswith("undecided: ")
    assert len(bill_lines(bill)) >= 20
