"""What `status` says of a run from its directory alone: predicted against seen, and what it takes to finish."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalkit.engine.forecast import FILE
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.status import read_status
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.model import Provider
from tests.provider.options import options_from
from tests.provider.serving import serving
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go, go_served, served


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("with_priors", [True, False])
def test_what_it_costs_to_finish_is_what_finishing_then_costs(tmp_path: Path, with_priors: bool) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=3))
    run = tmp_path / "run"
    go_served(sweep, run, limit=4)
    if not with_priors:
        (run / FILE).unlink(missing_ok=True)
    (tmp_path / "mine.toml").unlink()
    begun = read_status(run)
    assert [(cell.ended, cell.remaining) for cell in begun.cells] == [(4, 8), (4, 8)]
    assert all(cell.predicted is not None and cell.seen is not None for cell in begun.cells)
    assert begun.seconds_left is not None
    assert begun.seconds_left == max(begun.lane_seconds.values()) > 0
    # Reading writes nothing: priors that the run lacks are made and forgotten.
    assert with_priors or not (run / FILE).exists()
    done, _ = go_served(sweep, run)
    more = done.spent - begun.spent
    low, expected, high = begun.to_finish
    assert low < more < high
    assert expected == pytest.approx(more, rel=0.25)
    whole = read_status(run)
    assert whole.to_finish == (0, 0, 0)
    assert whole.seconds_left is None
    assert sum(cell.requests_left for cell in whole.cells) == 0


def interrupted(sweep: ResolvedSweep, directory: Path, requests: int, killed: Path | None = None) -> None:
    """Run a sweep against a provider in this process, until that has answered so many requests; `killed`: where to keep
    the run as a kill would have left it then."""

    async def both() -> None:
        async with serving(options_from({"latency": "2ms"})) as (url, simulator):

            @contextmanager
            def launch(provider: Provider, run: Path) -> Iterator[str]:
                yield url

            async def stop() -> None:
                while simulator.totals.billed < requests:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.002)
                if killed is not None:
                    shutil.copytree(directory, killed, ignore=shutil.ignore_patterns(".*"))
                os.kill(os.getpid(), signal.SIGINT)

            async with asyncio.TaskGroup() as group:
                group.create_task(stop())
                options = RunOptions(directory=directory, launch=launch)
                group.create_task(run_sweep(sweep, options, lambda view: None))

    asyncio.run(both())


@pytest.mark.exhaustive
def test_a_begun_episode_counts_with_its_rest_alone(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=40, replicates=1, width=4))
    whole, simulator = go_served(sweep, tmp_path / "whole")
    interrupted(sweep, tmp_path / "run", simulator.totals.billed * 2 // 3)
    status = read_status(tmp_path / "run")
    assert sum(cell.started for cell in status.cells) > 0
    assert status.spent + status.to_finish.expected == pytest.approx(whole.spent, rel=0.3)
    left = sum(cell.requests_left for cell in status.cells)
    assert sum(cell.steps for cell in status.cells) + left == pytest.approx(simulator.totals.billed, rel=0.3)


def test_policies_in_this_process_have_nothing_to_pay(tmp_path: Path) -> None:
    sweep = resolved(tmp_path)
    go(sweep, tmp_path / "run", limit=3)
    status = read_status(tmp_path / "run")
    assert status.to_finish == (0, 0, 0)
    assert all(cell.predicted is None for cell in status.cells)
    values = status.to_json()
    assert values["version"] == 1
    assert values["to_finish_usd"] == {"low": 0, "expected": 0, "high": 0}
    assert values["cells"][0]["requests_left"] > 0
