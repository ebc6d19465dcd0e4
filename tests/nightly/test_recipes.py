"""The recipes in `docs/recipes/` as they are shipped: their commands are run in a home that holds little else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.main import main
from tests.support.patience import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[2]
RECIPES = PROJECT / "docs" / "recipes"
KEY = "a-key-that-is-not-to-be-seen"
SPEC = """
budget_usd = "2"
[[agents]]
name = "knuth"
provider = "lab"
model = "knuth"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6"]
vary = { periods = [1] }
"""
LAB = """
dialect = "openai_chat"
[simulate]
latency = "0ms"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a clone of evalkit in it, as far as the recipes see it: a sweep, a provider, `.venv/bin/evalkit`."""
    clone = tmp_path / "evalkit"
    for folder in ("runs", "providers", ".venv/bin"):
        (clone / folder).mkdir(parents=True)
    (clone / "runs" / "nightly.toml").write_text(SPEC)
    (clone / "providers" / "lab.toml").write_text(LAB)
    script(clone / ".venv" / "bin" / "evalkit", f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" -m evalkit "$@"')
    script(tmp_path / "bin" / "make", '[ "$*" = setup ]')
    keys = tmp_path / ".config" / "evalkit" / "keys.env"
    keys.parent.mkdir(parents=True)
    keys.write_text(f"OPENAI_API_KEY={KEY}\n")
    return tmp_path


def script(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def shell(words: list[str], home: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'bin'}:/usr/bin:/bin"
    return subprocess.run(
        words,
        cwd=folder,
        env={"HOME": str(home), "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def played(home: Path) -> list[Path]:
    """The nights that were played to their end; no file that was written holds the key."""
    nights = sorted((home / "evalkit" / "runs" / "nightly" / "nights").glob("*/manifest/000000.json"))
    for path in (home / "evalkit").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    return nights


@pytest.mark.exhaustive
def test_the_cron_line_plays_a_night(home: Path) -> None:
    text = (RECIPES / "nightly.crontab").read_text()
    variables = dict(re.findall(r"^([A-Z]+)=(.*)$", text, re.MULTILINE))
    (line,) = re.findall(r"^\d[^\n]*$", text, re.MULTILINE)
    when, command = line.split(None, 5)[:5], line.split(None, 5)[5]
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in when)
    assert "%" not in command  # cron would take it for the end of the line
    done = shell(["/bin/sh", "-c", command], home, home, **variables)
    assert done.returncode == 0, (home / "evalkit" / "nightly.log").read_text()
    assert done.stdout == done.stderr == ""  # cron would send a mail
    assert "3 of 3 episodes ended" in (home / "evalkit" / "nightly.log").read_text()
    assert (home / "evalkit" / "nights.html").stat().st_size > 10_000
    assert len(played(home)) == 1


def test_the_cron_line_needs_no_file_of_keys_and_gives_those_that_it_holds(home: Path) -> None:
    text = (RECIPES / "nightly.crontab").read_text()
    variables = dict(re.findall(r"^([A-Z]+)=(.*)$", text, re.MULTILINE))
    (line,) = re.findall(r"^\d[^\n]*$", text, re.MULTILINE)
    command = line.split(None, 5)[5]
    script(home / "evalkit" / ".venv" / "bin" / "evalkit", 'echo "key: ${OPENAI_API_KEY-none}"')
    for expected in (KEY, "none"):
        done = shell(["/bin/sh", "-c", command], home, home, **variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (home / "evalkit" / "nightly.log").read_text().splitlines()[-1] == f"key: {expected}"
        (home / ".config" / "evalkit" / "keys.env").unlink(missing_ok=True)


def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((RECIPES / "nightly.yml").read_text())
    return found


@pytest.mark.exhaustive
def test_the_steps_of_the_workflow_play_a_night_and_show_it(home: Path) -> None:
    steps = workflow()["jobs"]["nightly"]["steps"]
    summary = home / "summary.md"
    commands = [step["run"] for step in steps if "run" in step]
    assert len(commands) == 3
    for command in commands:
        done = shell(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", command],
            home,
            home / "evalkit",
            GITHUB_STEP_SUMMARY=str(summary),
            OPENAI_API_KEY=KEY,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert KEY not in done.stdout + done.stderr
    shown = summary.read_text()
    assert shown.startswith("```\n")
    assert shown.endswith("```\n")
    assert "scheduling/basic" in shown
    assert (home / "evalkit" / "nights.html").exists()
    assert len(played(home)) == 1


def test_the_workflow_keeps_what_it_brings_and_takes_keys_from_the_secret_store_alone() -> None:
    found = workflow()
    (job,) = found["jobs"].values()
    saved, brought = (
        step["with"]
        for kind in ("save", "restore")
        for step in job["steps"]
        if f"cache/{kind}@" in step.get("uses", "")
    )
    assert saved["path"] == brought["path"] == "runs/*/nights"
    assert saved["key"] == brought["key"]
    assert saved["key"].startswith(brought["restore-keys"])
    assert found["concurrency"]["cancel-in-progress"] is False
    assert found["permissions"] == {"contents": "read"}
    for step in job["steps"]:
        for name, value in step.get("env", {}).items():
            assert value == f"${{{{ secrets.{name} }}}}"


def unit(name: str) -> dict[str, str]:
    lines = (RECIPES / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.exhaustive
def test_the_service_plays_a_night(home: Path) -> None:
    service = {key: value.replace("%h", str(home)) for key, value in unit("evalkit-nightly.service").items()}
    keys = service["EnvironmentFile"].removeprefix("-")
    assert Path(keys).is_file()
    done = shell(["/bin/sh", "-c", f"exec {service['ExecStart']}"], home, Path(service["WorkingDirectory"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(played(home)) == 1
    # Only a kill leads to another try on its own.
    assert set(service["RestartPreventExitStatus"].split()) == {"1", "2", "3", "4"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_takes_the_units(home: Path) -> None:
    folder = home / ".config" / "systemd" / "user"
    folder.mkdir(parents=True)
    for name in ("evalkit-nightly.service", "evalkit-nightly.timer"):
        shutil.copy(RECIPES / name, folder)
    runtime = home / "runtime"
    runtime.mkdir(mode=0o700)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", *map(str, sorted(folder.iterdir()))],
        env={**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    about = [line for line in (done.stdout + done.stderr).splitlines() if "evalkit-nightly" in line]
    assert about == []
    when = subprocess.run(
        ["systemd-analyze", "calendar", unit("evalkit-nightly.timer")["OnCalendar"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert when.returncode == 0, when.stderr


@pytest.mark.exhaustive
def test_the_sweep_that_the_recipes_name_is_shipped_and_fits_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {path.name: path.read_text().count("runs/nightly.toml") for path in RECIPES.iterdir()}
    assert sum(named.values()) >= 4, named
    assert main(["nightly", "nightly", "--date", "2026-11-21"]) == 0
    said = capsys.readouterr().out
    assert "24 of 24 episodes ended" in said
    assert (tmp_path / "runs" / "nightly" / "nights" / "history.jsonl").exists()
