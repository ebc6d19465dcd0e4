"""What several processes do over HTTP is what one process does: limits, pauses, budgets, and every way to end a run."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.engine.options import Stop
from evalkit.machines import children
from evalkit.results.verify import verify
from evalkit.serve.launch import simulated
from tests.provider.double import Double
from tests.soak.sweeping import prepare, read_bill, start
from tests.soak.test_kill import evalkit_json, steps
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import resolved
from tests.support.spread_runs import SpreadRun, play
from tests.support.sweep_runs import served, with_budget

pytestmark = pytest.mark.soak
LANES = ("simulated/knuth", "simulated/random")
ENOUGH = 10**13


def limited(*, replicates: int, **limits: float) -> str:
    """A sweep whose lanes have these limits."""
    tables = [
        f'[limits."{lane}"]\n' + "".join(f"{name} = {figure}\n" for name, figure in limits.items()) for lane in LANES
    ]
    return served(replicates=replicates, width=12, periods=4, more="\n".join(tables))


def test_the_limits_of_a_lane_are_kept_by_all_workers_together(tmp_path: Path) -> None:
    """The server counts with a short burst, and refuses what is above."""
    sweep = resolved(tmp_path, limited(replicates=10, requests_per_minute=1800, in_flight=5))
    simulate = {"rpm": 1800, "burst": "3s", "in_flight": 5, "latency": "lognormal:100ms:0.5"}
    run = play(sweep, tmp_path / "run", workers=3, simulate=simulate)
    assert run.ended.reason == "complete"
    assert run.simulator.totals.by_limit == {}
    assert run.words() == {"ok"}
    assert run.simulator.totals.max_in_flight > 5, "both lanes were in flight at once"
    assert len({view.workers for view in run.views if view.workers.startswith("3 of 3")}) == 1


def test_requests_in_flight_that_one_worker_may_no_longer_have_are_another_s_when_they_are_answered(
    tmp_path: Path,
) -> None:
    """Long replies: a worker whose share shrinks has more in flight than it for a while."""
    sweep = resolved(tmp_path, limited(replicates=1, in_flight=4))

    def kill(run: SpreadRun) -> None:
        if run.steps > 8 and len(run.children) == 2:
            run.children[0].kill()

    simulate = {"in_flight": 4, "latency": "lognormal:900ms:0.8"}
    run = play(sweep, tmp_path / "run", workers=2, simulate=simulate, during=kill)
    assert run.ended.reason == "complete"
    refused = {word for word in run.words() if word != "ok"}
    assert refused <= {"rate_limit"}, "what the killed process had in flight is still at the server for a moment"


def refuse_once(at: int, told_s: float) -> Callable[[SpreadRun], None]:
    """From some request on all are refused with `Retry-After`, until one was."""
    began: list[int] = []

    def during(run: SpreadRun) -> None:
        refused = [word for _, word, _ in run.arrivals].count("429")
        if not began and len(run.arrivals) > at:
            began.append(1)
            harm(run.simulator, faults={"429": 1.0}, retry_after_s=told_s)
        elif refused:
            harm(run.simulator, faults={})

    return during


def harm(simulator: Double, **changes: Any) -> None:
    """Change what the provider does from now on."""
    simulator.options = replace(simulator.options, **changes)


def test_a_pause_that_one_worker_is_told_is_kept_by_all(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=4, width=12, periods=4))
    run = play(sweep, tmp_path / "run", workers=3, simulate={"latency": "150ms"}, during=refuse_once(60, 3.0))
    assert run.ended.reason == "complete"
    refusals = [(at, model) for number, (at, model, _) in enumerate(run.arrivals) if model == "429"]
    assert refusals
    last = refusals[-1][0]
    quiet = [at - last for at, word, _ in run.arrivals if word == "ok" and at > last]
    assert not [after for after in quiet if 1.0 < after < 2.8], "somebody went on before the time"
    assert [after for after in quiet if after >= 2.8]


@pytest.mark.parametrize("scope", ["agent", "run"])
def test_budgets_stop_who_has_spent_them_and_nobody_else(tmp_path: Path, scope: str) -> None:
    text = served(replicates=4, width=8, periods=4)
    free = play(resolved(tmp_path, text), tmp_path / "free", workers=1).simulator.totals.bill
    part = free // 5
    if scope == "agent":
        text = text.replace('model = "knuth"', f'model = "knuth"\nbudget_usd = "{part / 1e12:.12f}"')
    sweep = with_budget(resolved(tmp_path, text), part if scope == "run" else free * 2)
    one, more = (play(sweep, tmp_path / f"by-{count}", workers=count) for count in (1, 2))
    assert (more.ended.reason, more.ended.exit_code) == (one.ended.reason, one.ended.exit_code) == ("budget", 3)
    assert [first(words) for words in more.ended.messages] == [first(words) for words in one.ended.messages]
    assert more.simulator.totals.bill <= more.ended.spent
    assert more.ended.ended >= one.ended.ended * 0.7
    costs = evalkit_json(tmp_path, "status", "by-2")
    assert costs["money"]["crash_charges_pico_usd"] == 0
    if scope == "run":
        assert more.ended.spent <= part
    else:
        assert all(cell["ended"] == cell["planned"] for cell in costs["cells"] if cell["agent"] == "random")
        assert sum(cell["spent_usd"] for cell in costs["cells"] if cell["agent"] == "knuth") <= part / 1e12
    whole = play(with_budget(resolved(tmp_path, served(replicates=4, width=8, periods=4)), free * 2), tmp_path / "by-2")
    assert whole.ended.reason == "complete"
    assert steps(tmp_path / "by-2") == steps(tmp_path / "free")


def first(words: str) -> str:
    """A message without its figures."""
    return "".join(sign for sign in words if not sign.isdigit())[:40]


def test_a_limit_ends_as_many_episodes_in_each_lane_as_with_one_process(tmp_path: Path) -> None:
    sweep = with_budget(resolved(tmp_path, served(replicates=3, periods=2)), ENOUGH)
    for expected in (5, 10):
        run = play(sweep, tmp_path / "run", limit=5)
        assert (run.ended.reason, run.ended.exit_code, run.ended.ended) == ("limit", 3, 2 * expected)


def in_order(row: dict[str, object]) -> str:
    """Each take of an episode after the one before."""
    return f"{row['episode']} {row['take']} {row['step']:>4}"


def test_what_was_refused_is_played_again(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=4, periods=2))
    for workers in (1, 2):
        play(sweep, tmp_path / f"by-{workers}", workers=workers, simulate={"fault_content_filter": 0.1})
        again = play(sweep, tmp_path / f"by-{workers}", workers=workers)
        assert again.ended.reason == "complete"
        assert 0 < len(again.arrivals) < again.ended.episodes * 3
    one, two = (sorted(steps(tmp_path / name), key=in_order) for name in ("by-1", "by-2"))
    assert two == one
    assert {row["take"] for row in two} == {0, 1}


def test_a_deadline_ends_all_workers(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=40, periods=4))
    timed = replace(sweep, sweep=replace(sweep.sweep, deadline_s=8.0))
    run = play(timed, tmp_path / "run", simulate={"latency": "400ms"})
    assert (run.ended.reason, run.ended.exit_code) == ("deadline", 3)
    assert run.steps > 0
    assert run.ended.elapsed_s < 8.0 + 8.0
    assert verify(tmp_path / "run") == []
    assert closed(tmp_path)


def closed(folder: Path) -> bool:
    """Whether every session has closed: nothing is charged for a crash."""
    money = evalkit_json(folder, "status", "run")["money"]
    return bool(money["crash_charges_pico_usd"] == 0 and not money["open_sessions"])


def test_the_first_signal_drains_and_a_second_one_stops_at_once(tmp_path: Path) -> None:
    with simulated({"bill": str(tmp_path / "bill.jsonl"), "latency": "700ms"}) as url:
        prepare(tmp_path, url, replicates=4, periods=6)
        for signals in (1, 2):
            since = len(read_bill(tmp_path / "bill.jsonl"))
            process = start(tmp_path, "--budget", "10", "--workers", "2")
            while len(read_bill(tmp_path / "bill.jsonl")) < since + 30:
                assert process.poll() is None, (tmp_path / "out.log").read_text()[-2000:]
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            assert process.wait(PATIENCE_S) == 130
            assert closed(tmp_path)
        assert start(tmp_path, "--budget", "10", "--workers", "2").wait(PATIENCE_S) == 0
    words = [sys.executable, "-m", "evalkit", "verify", "run"]
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 0


def test_an_interruption_says_what_one_process_says(tmp_path: Path) -> None:
    sweep = with_budget(resolved(tmp_path, served(replicates=4)), ENOUGH)
    for workers in (1, 2):
        stop = Stop()

        def interrupt(run: SpreadRun, stop: Stop = stop) -> None:
            if run.steps > 20:
                stop.set("interrupt", "Interrupted.")

        run = play(sweep, tmp_path / "run", workers=workers, simulate={"latency": "100ms"}, during=interrupt, stop=stop)
        assert (run.ended.reason, run.ended.exit_code) == ("interrupt", 130)
        assert [words.partition(" after ")[0] for words in run.ended.messages] == ["Interrupted"]
        assert closed(tmp_path)


FULL = """
import errno, sys
from evalkit.serve.launch import simulated
from evalkit.machines import process
from evalkit.store import disk
real, calls = disk.sync_file, []
def sync_file(file):
    calls.append(1)
    if len(calls) > 6:
        raise OSError(errno.ENOSPC, "No space left on device")
    return real(file)
disk.sync_file = sync_file
from evalkit.engine.loop import run_loop
sys.exit(run_loop(process.main(int(sys.argv[1]), sys.argv[2])))
"""


def test_a_worker_whose_disk_is_full_ends_the_run_as_one_process_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = with_budget(resolved(tmp_path, served(replicates=8)), ENOUGH)
    with monkeypatch.context() as patch:
        patch.setattr(children, "COMMAND", (sys.executable, "-c", FULL))
        run = play(sweep, tmp_path / "run", simulate={"latency": "50ms"})
    assert (run.ended.reason, run.ended.exit_code) == ("storage", 3)
    assert "No space left on device" in run.ended.messages[0]
    assert run.simulator.totals.bill <= run.ended.spent
    again = play(sweep, tmp_path / "run")
    assert again.ended.reason == "complete"
    assert verify(tmp_path / "run") == []


def test_a_key_that_is_refused_ends_the_lane_in_all_workers(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=8))

    def lock(run: SpreadRun) -> None:
        if run.steps > 20:
            harm(run.simulator, key="another")

    one, two = (
        play(sweep, tmp_path / f"by-{workers}", workers=workers, simulate={"latency": "50ms"}, during=lock)
        for workers in (1, 2)
    )
    assert (two.ended.reason, two.ended.exit_code) == (one.ended.reason, one.ended.exit_code) == ("lane", 3)
    assert two.ended.messages == one.ended.messages


def test_a_missing_key_is_told_before_any_process_starts(tmp_path: Path) -> None:
    (tmp_path / "providers").mkdir()
    prepare(tmp_path, "https://lab.example/v1")
    provider = tmp_path / "providers" / "lab.toml"
    provider.write_text(provider.read_text().replace("dialect", 'key_env = "LAB_KEY"\ndialect', 1))
    codes = [start(tmp_path, "--workers", workers).wait(PATIENCE_S) for workers in ("1", "2")]
    assert codes == [2, 2]
    first, second = (line for line in (tmp_path / "out.log").read_text().splitlines() if "LAB_KEY" in line)
    assert first == second
