"""The sweep as each session was given it, kept in numbered files."""

from pathlib import Path

import orjson
import pytest

import evalkit
from evalkit.errors import CorruptLogError
from evalkit.frozen.manifests import SPEC_FOLDER, keep_spec, read_spec

SPEC = {
    "name": "mine",
    "agents": [{"policy": "knuth"}],
    "suites": [{"name": "scheduling/basic", "instances": ["seed-0"]}],
}


def test_a_file_is_added_only_if_the_sweep_has_changed(tmp_path: Path) -> None:
    assert read_spec(tmp_path) is None
    for spec in (SPEC, SPEC, {**SPEC, "replicates": 2}, {**SPEC, "replicates": 2}, SPEC):
        keep_spec(tmp_path, spec, "/somebody/runs/mine.toml")
        kept = read_spec(tmp_path)
        assert kept is not None
        assert (kept.spec, kept.source) == (spec, "mine.toml")
    assert sorted(path.name for path in (tmp_path / SPEC_FOLDER).iterdir()) == [
        "000000.json",
        "000001.json",
        "000002.json",
    ]
    assert "somebody" not in (tmp_path / SPEC_FOLDER / "000000.json").read_text()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    keep_spec(tmp_path, SPEC, "spec")
    (tmp_path / SPEC_FOLDER / "000000.json").write_bytes(b"{")
    with pytest.raises(CorruptLogError, match=r"000000\.json is damaged"):
        read_spec(tmp_path)
    keep_spec(tmp_path, SPEC, "spec")
    kept = read_spec(tmp_path)
    assert kept is not None
    assert kept.spec == SPEC


def test_a_run_keeps_what_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = evalkit.run(SPEC)
    evalkit.run(SPEC)
    kept = read_spec(run.directory)
    assert kept is not None
    assert kept.spec == SPEC
    assert len(list((run.directory / SPEC_FOLDER).iterdir())) == 1
    evalkit.run(kept.spec | {"replicates": 2})
    values = orjson.loads((run.directory / SPEC_FOLDER / "000001.json").read_bytes())
    assert values == {"source": "spec", "set": [], "spec": SPEC | {"replicates": 2}}
