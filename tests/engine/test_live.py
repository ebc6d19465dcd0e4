import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalkit.engine import sweep
from evalkit.engine.options import RunOptions
from evalkit.engine.view import View
from evalkit.playing.sweeps import run_sweep
from evalkit.store.live import read_live
from tests.support.small_sweeps import resolved


def test_a_sweep_publishes_what_it_does_and_withdraws_it_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SHOW_EVERY_S", 0.0)
    monkeypatch.setattr("evalkit.engine.sweep.PUBLISH_EVERY", 1)
    directory = tmp_path / "run"
    seen: list[dict[str, Any]] = []
    views: list[View] = []

    def show(view: View) -> None:
        views.append(view)
        live = read_live(directory)
        if live is not None:
            seen.append(live)

    outcome = asyncio.run(run_sweep(resolved(tmp_path), RunOptions(directory=directory), show))
    assert outcome.ended == 16
    assert len(seen) >= 2
    assert not (directory / "live.json").exists()
    assert [at["at"] for at in seen] == sorted(at["at"] for at in seen)
    last = seen[-1]
    assert sum(lane["episodes"] for lane in last["lanes"].values()) == 16
    ended = {(agent, suite): ended for agent, suite, ended, planned in last["cells"] if planned == 8}
    assert len(ended) == 2
    assert sum(ended.values()) == last["done"]
    assert sum(cell.planned for cell in views[-1].cells) == 16


def test_a_second_call_counts_what_the_first_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SHOW_EVERY_S", 0.0)
    views: list[View] = []
    options = RunOptions(directory=tmp_path / "run", limit=3)
    for _ in range(2):
        views.clear()
        asyncio.run(run_sweep(resolved(tmp_path), options, views.append))
        assert views
    begun = [cell.ended for cell in views[0].cells]
    assert sum(begun) >= 3
    assert [cell.planned for cell in views[0].cells] == [8, 8]
