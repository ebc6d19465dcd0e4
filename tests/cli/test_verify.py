"""`evalkit verify` on files beside the log, and on a manifest whose parts are not what was frozen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalkit.frozen.instances import InstanceList
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.suite_file import write_suite
from tests.support.command_line import Call

MANIFEST = "manifest/000000.json"
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def ran(spec: Path, call: Call, here: Path) -> Path:
    assert call("run", str(spec), "--dir", "run", "--json").code == 0
    return here / "run"


def suite(found: dict[str, Any]) -> dict[str, Any]:
    (one,) = found["suites"].values()
    return one


def other_model(found: dict[str, Any]) -> None:
    found["agents"]["random"]["notes"] = False


def other_text(found: dict[str, Any]) -> None:
    texts = next(iter(found["packs"].values()))["texts"]
    texts[next(iter(texts))] += "!"


def no_text(found: dict[str, Any]) -> None:
    texts = next(iter(found["packs"].values()))["texts"]
    del texts[next(iter(texts))]


def other_line(found: dict[str, Any]) -> None:
    """In a suite's file of its own, which is what its name says."""
    own = read_manifest(Path("run")).suites["scheduling/basic?periods=4"].instances
    line = {**own[0].line, "seed": 5}
    changed = InstanceList([msgspec.structs.replace(own[0], line=line), *own[1:]])
    suite(found)["instances"]["file"] = write_suite(Path("run"), changed).digest


def other_environment(found: dict[str, Any]) -> None:
    suite(found)["environment"] = "schedulind"


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_model, f"{MANIFEST}: agent 'random' is not what its digest says"),
        (other_text, "are not what their digest says"),
        (no_text, "manifest"),
        (other_line, "is not what its digest says"),
        (other_environment, "its manifest was changed"),
    ],
)
def test_a_manifest_that_is_not_what_was_frozen_is_told(ran: Path, call: Call, change: Change, words: str) -> None:
    path = ran / MANIFEST
    found = json.loads(path.read_bytes())
    change(found)
    path.write_text(json.dumps(found))
    said = call("verify", "run")
    assert said.code in (1, 2)
    assert words in said.out + said.err
    for command in (
        ("report", "run"),
        ("status", "run"),
        ("show", "run", "random:scheduling/basic?periods=4:seed-0:0"),
    ):
        again = call(*command)
        assert again.code in (0, 2)
        assert again.code == 0 or "manifest" in again.err or "seed-0: digest" in again.err


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.update(replicates=10**9), "1000000000 replicates"),
        (lambda found: found["agents"]["random"].update(name="randon"), "is stored as 'randon'"),
        (lambda found: found["agents"]["random"]["packs"].update(scheduling="gone"), "reads the pack 'gone'"),
        (lambda found: found["agents"]["random"]["sampling"].clear(), "without sampling settings"),
        (lambda found: found["agents"]["random"]["price"].update(inputs=1), "has the unknown price 'inputs'"),
        (lambda found: found["agents"]["random"]["price"].update(output=-1), "has a price of -1"),
        (lambda found: found["agents"]["random"]["price"].pop("output"), "has an invalid price"),
        (lambda found: suite(found)["instances"].update(count=0, strata={}), "has no instance"),
        (lambda found: suite(found)["instances"].update(count=7), "has other strata than instances"),
    ],
)
def test_a_manifest_that_does_not_fit_together_is_refused(ran: Path, call: Call, change: Change, words: str) -> None:
    path = ran / MANIFEST
    found = json.loads(path.read_bytes())
    change(found)
    path.write_text(json.dumps(found))
    for command in (("verify", "run"), ("status", "run"), ("report", "run"), ("run", "mine.toml", "--dir", "run")):
        said = call(*command)
        assert said.code == 2, command
        assert f"run/{MANIFEST} is damaged: " in said.err
        assert words in said.err


def other_sampling(found: dict[str, Any]) -> None:
    found["agents"]["random"]["sampling"]["scheduling"]["temperature"] = 0.25


def other_suite(found: dict[str, Any]) -> None:
    suite(found)["digest"] = "0" * 64


def other_version(found: dict[str, Any]) -> None:
    suite(found)["environment_version"] += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_sampling, f"{MANIFEST}: agent 'random' samples scheduling otherwise than its overrides say"),
        (other_suite, f"{MANIFEST}: suite 'scheduling/basic?periods=4' is not what its digest says"),
        (other_version, f"{MANIFEST}: suite 'scheduling/basic?periods=4' is of version"),
    ],
)
def test_what_a_resume_compares_is_told_before_anything_was_played(
    ran: Path, call: Call, change: Change, words: str
) -> None:
    """No episode's id shows it yet; `run` refuses it."""
    path = ran / MANIFEST
    found = json.loads(path.read_bytes())
    for folder in ("log", "steps", "ledger"):
        shutil.rmtree(ran / folder, ignore_errors=True)
    (ran / "events.jsonl").unlink()
    assert call("verify", "run").code == 0
    change(found)
    path.write_text(json.dumps(found))
    said = call("verify", "run")
    assert (said.code, words in said.out) == (1, True)
    assert call("run", "mine.toml", "--dir", "run").code == 2
    found["evalkit"] = "0.0.1"  # another evalkit's defaults and versions are its own
    path.write_text(json.dumps(found))
    assert call("verify", "run").code == (1 if change is other_suite else 0)


@pytest.mark.parametrize("name", ["events.jsonl", "live.json", "lock"])
def test_a_folder_in_place_of_a_file_is_told(ran: Path, call: Call, name: str) -> None:
    (ran / name).unlink(missing_ok=True)
    (ran / name).mkdir()
    said = call("verify", "run")
    assert said.code == 1
    assert f"{name}: is not a file: move it elsewhere" in said.out
