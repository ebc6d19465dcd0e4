"""A run that another evalkit has written in another format: every command says which, and what to do."""

import json
from pathlib import Path

import pytest

from evalkit.frozen import manifests
from evalkit.store.files import schema, segment
from evalkit.version import __version__
from tests.support.command_line import Call

SPEC = '[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
COMMANDS = (("status", "runs/mine"), ("run", "mine.toml"), ("report", "runs/mine"), ("verify", "runs/mine"))


def refused(call: Call, files: list[Path], what: str, number: int) -> None:
    """Each command names one of the files, and says the same of it."""
    own = {"manifest": manifests.FORMAT, "log": schema.FORMAT}[what]
    said = (
        f" has {what} format {number}, written by evalkit 9.8.7; this is evalkit {__version__}, which reads format "
        f"{own}. Use the evalkit that wrote it: pip install evalkit-econ==9.8.7"
    )
    for command in COMMANDS:
        ran = call(*command)
        assert (ran.code, ran.out) == (2, ""), (command, ran)
        assert any(f"{file}{said}" in ran.err for file in files), (command, ran)


@pytest.mark.parametrize("by", [1, -1], ids=["newer", "older"])
def test_a_manifest_of_another_format_is_refused(here: Path, call: Call, by: int) -> None:
    (here / "mine.toml").write_text(SPEC)
    assert call("run", "mine.toml").code == 0
    path = Path("runs/mine/manifest/000000.json")
    found, number = json.loads(path.read_bytes()), manifests.FORMAT + by
    path.write_text(json.dumps({**found, "format": number, "written_by": "9.8.7", "suites": "elsewhere"}))
    refused(call, [path], "manifest", number)


@pytest.mark.parametrize("by", [1, -1], ids=["newer", "older"])
def test_a_log_of_another_format_is_refused(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    (here / "mine.toml").write_text(SPEC)
    number = schema.FORMAT + by
    with monkeypatch.context() as patch:
        patch.setattr(segment, "FORMAT", number)
        patch.setattr(segment, "_WRITTEN_BY", {"format": str(number), "written_by": "9.8.7"})
        assert call("run", "mine.toml").code == 0
    files = sorted(Path("runs/mine").rglob("*.parquet"))
    before = {path: path.read_bytes() for path in files}
    refused(call, files, "log", number)
    assert call("run", "mine.toml", "--repair").code == 2
    assert {path: path.read_bytes() for path in files} == before
