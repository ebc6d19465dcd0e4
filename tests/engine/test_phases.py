"""What a run says before its first request."""

import asyncio
from pathlib import Path

from evalkit.engine.options import RunOptions
from evalkit.engine.view import View
from evalkit.playing.sweeps import run_sweep
from tests.support.small_sweeps import TWO_POLICIES, resolved


def test_a_run_says_what_it_does_before_the_first_view(tmp_path: Path) -> None:
    said: list[str] = []
    views: list[View] = []

    def show(view: View) -> None:
        if not views:
            said.append("view")
        views.append(view)

    longer = TWO_POLICIES.replace("replicates = 2", "replicates = 3")
    for first, spec in (("opening the run", TWO_POLICIES), ("reading the run", longer)):
        said.clear()
        views.clear()
        options = RunOptions(directory=tmp_path / "run", phase=said.append)
        asyncio.run(run_sweep(resolved(tmp_path, spec), options, show))
        assert said[0] == first
        assert said[-2:] == ["forecasting what episodes take", "view"]
        assert all(lane.target == lane.episodes for lane in views[-1].lanes)
