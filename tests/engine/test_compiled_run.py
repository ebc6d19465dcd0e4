"""Runs and `verify` take the compiled kernels where they pay, and play and find the same."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import orjson
import pytest

from evalkit.envs import compiled
from evalkit.results.verify import verify
from evalkit.store.reading.reader import scan
from tests.support.compiled_loops import needs_numba
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of `load`, which load as if the cache were warm."""
    calls: list[str] = []

    def load(environments: Iterable[compiled.Env]) -> bool:
        calls.append("load")
        for env in environments:
            monkeypatch.setitem(compiled.LOADED, env.name, import_module(env.kernels))
        return True

    monkeypatch.setattr(compiled, "load", load)
    return calls


def kinds(run: Path) -> list[str]:
    return [orjson.loads(line)["kind"] for line in (run / "events.jsonl").read_bytes().splitlines()]


def logged(run: Path) -> list[dict[str, object]]:
    columns = ["episode", "step", "facts", "step_digest"]
    return sorted(scan(run, columns).to_pylist(), key=lambda row: (row["episode"], row["step"]))


@needs_numba
def test_a_long_run_loads_the_kernels_before_it_asks_and_logs_the_same(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    go(resolved(tmp_path), small)
    assert verify(small) == []
    assert asked == []
    assert "compiled" not in kinds(small)
    monkeypatch.setattr(compiled, "MARGIN", 0.0)  # whatever is gained is worth it
    big = tmp_path / "big"
    go(resolved(tmp_path), big)
    assert asked == ["load"]
    assert kinds(big)[:2] == ["started", "compiled"]
    assert logged(big) == logged(small)
    compiled.LOADED.clear()
    assert verify(big) == []
    assert asked == ["load", "load"]
    # Nothing is left to play: nothing is loaded.
    compiled.LOADED.clear()
    go(resolved(tmp_path), big)
    assert asked == ["load", "load"]


def test_a_long_run_whose_kernels_are_not_in_the_cache_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nothing"))
    monkeypatch.setattr(compiled, "MARGIN", 0.0)
    run = tmp_path / "run"
    go(resolved(tmp_path), run)
    assert kinds(run)[:2] == ["started", "not_compiled"]
    assert not compiled.LOADED
