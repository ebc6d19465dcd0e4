"""Two worker processes play a run: one dies, or cannot start, and the log is that of one process."""

import sys
from pathlib import Path

import pytest

from evalkit.engine.status import read_status
from evalkit.machines import children
from evalkit.machines.spread import RESTARTS
from evalkit.results.verify import verify
from tests.soak.test_kill import steps
from tests.support.small_sweeps import resolved
from tests.support.spread_runs import SpreadRun, events, play
from tests.support.sweep_runs import served, with_budget

HALF = 70


def test_a_killed_worker_is_replaced_and_the_log_is_that_of_one_process(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=4, width=6, periods=4))
    whole = play(sweep, tmp_path / "whole", workers=1)
    budget = whole.simulator.totals.bill * 3
    told = set[str]()

    def kill_one(run: SpreadRun) -> None:
        """Half way, end a worker as a machine does that is out of memory."""
        if len(run.children) == 2 and run.steps > HALF:
            run.children[0].kill()
        if len(run.children) == 3:
            told.add(read_status(tmp_path / "torn").workers)

    torn = play(with_budget(sweep, budget), tmp_path / "torn", simulate={"latency": "40ms"}, during=kill_one)
    assert (torn.ended.reason, torn.ended.exit_code) == ("complete", 0)
    assert len(torn.children) == 3
    assert steps(tmp_path / "torn") == steps(tmp_path / "whole")
    assert verify(tmp_path / "torn") == []
    assert torn.simulator.totals.bill <= torn.ended.spent <= budget, "what is not known to be paid is charged"
    assert torn.ended.spent - torn.simulator.totals.bill <= torn.ended.unconfirmed
    (lost,) = events(tmp_path / "torn", "worker_lost")
    assert "worker 0 ended;" in lost["detail"]
    assert "of its episodes go on; $" in lost["detail"]
    assert {"2 of 2", "2 of 2; 1 replaced since the start"} <= {view.workers for view in torn.views}
    assert "2 of 2; 1 replaced since the start" in told, "`status` says it to others"
    assert read_status(tmp_path / "torn").workers == ""


@pytest.mark.exhaustive
def test_a_worker_that_cannot_start_is_tried_three_times_again_and_the_run_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first process that takes the place may work."""
    taken = tmp_path / "taken"
    command = children.COMMAND
    only_one = f"import os, sys; os.mkdir({str(taken)!r}); os.execv(sys.executable, {command!r} + tuple(sys.argv[1:]))"
    monkeypatch.setattr(children, "COMMAND", (sys.executable, "-S", "-c", only_one))
    sweep = resolved(tmp_path, served(periods=2))
    run = play(sweep, tmp_path / "run")
    assert run.ended.reason == "complete"
    assert len(run.children) == 1 + 1 + RESTARTS
    ended = events(tmp_path / "run", "worker_ended")
    assert len(ended) == 1 + RESTARTS
    assert all("FileExistsError" in one["detail"] for one in ended)
    (fewer,) = events(tmp_path / "run", "fewer_workers")
    assert fewer["worker"] == ended[0]["worker"]
    assert run.views[-1].workers == "1 of 2; 3 replaced since the start"


def test_a_run_whose_workers_cannot_start_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "COMMAND", (sys.executable, "-S", "-c", "raise SystemExit('no such library')"))
    run = play(resolved(tmp_path, served(periods=2)), tmp_path / "run")
    assert (run.ended.reason, run.ended.exit_code, run.ended.ended) == ("workers", 3, 0)
    assert "each of the 2 was replaced 3 times within 10 minutes." in run.ended.messages[0]
    assert run.ended.messages[0].endswith("The last one ended so: no such library")
    assert {one["detail"] for one in events(tmp_path / "run", "worker_ended")} == {"no such library"}
    assert [one["worker"] for one in events(tmp_path / "run", "fewer_workers")] in ([0, 1], [1, 0])
