"""kill -9 at random moments, over HTTP with latency: nothing durable is asked again, and the budget holds."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit.frozen.manifests import is_run
from evalkit.serve.launch import simulated
from evalkit.store.files.record import ASK
from evalkit.store.reading.reader import scan_all
from tests.sim.players import address
from tests.soak.sweeping import asked_again, finish, kill_after, prepare, read_bill, start
from tests.support.patience import PATIENCE_S

TIMING = {"latency_s", "queue_s", "started_at", "worker"}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "agents"


def steps(run: Path) -> list[dict[str, object]]:
    """The rows of the log without their timing columns, in order of episode and step; asks without the order in which
    they came back."""
    import pyarrow.parquet as pq

    table = pq.read_table(run / "steps")
    rows = table.select([name for name in table.column_names if name not in TIMING]).to_pylist()
    for row in rows:
        row["turn"] = -1 if row["row_kind"] == "ask" else row["turn"]
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in ("episode", "step", "ask_key", "row_kind")))


def stored(run: Path) -> set[tuple[str, int]]:
    """The replies in the log, as `Seen` names their requests: episode and step."""
    if not is_run(run):
        return set()
    table = scan_all(run, ("episode", "step", "row_kind", "ask_key", "ask_n"))
    found = set()
    for episode, step, kind, key, n in zip(*(column.to_pylist() for column in table.columns), strict=True):
        name = address(key, n) if kind == ASK else ""
        found.add((f"{episode}.{name}" if name else episode, step))
    return found


def evalkit_json(folder: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "evalkit", *words, "--json"], cwd=folder, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def settle(bill: Path) -> None:
    """Wait until what was on its way when a process died has arrived: nothing has come for a while."""
    seen = -1
    while seen != (seen := len(read_bill(bill))):
        time.sleep(0.3)


def judged(folder: Path) -> None:
    """Have the sweep of a folder played by code: three drafts at once, of which a judge chooses one."""
    shutil.copy(EXAMPLES / "patterns.py", folder)
    sweep = folder / "sweep.toml"
    text = sweep.read_text()
    model = 'name = "noisy"\nprovider = "lab"\nmodel = "noisy"\n'
    code = 'agent = "patterns:best_of"\nmodels = { main = "lab/knuth", judge = "lab/random" }\n'
    assert model in text
    sweep.write_text(text.replace(model, code))


def kill_and_resume(
    tmp_path: Path,
    kills: int,
    latency: str,
    replicates: int,
    faults: dict[str, object],
    change: Callable[[Path], None] = lambda _: None,
    periods: int = 30,
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    with simulated({"bill": str(tmp_path / "whole.jsonl"), **faults}) as url:
        prepare(whole, url, replicates=replicates, periods=periods)
        change(whole)
        assert finish(whole, "--budget", "100") == 0, (whole / "out.log").read_text()[-2000:]
    true_bill = sum(one.cost for one in read_bill(tmp_path / "whole.jsonl"))
    draw = random.Random(kills)
    bill = tmp_path / "torn.jsonl"
    ran_out, killed, stated, lives = 0, 0, 0, []
    with simulated({"bill": str(bill), "latency": latency, **faults}) as url:
        prepare(torn, url, replicates=replicates, periods=periods)
        change(torn)
        while True:
            budget = true_bill * 12 // 10 + stated
            since, before = len(read_bill(bill)), stored(torn / "run")
            process = start(torn, "--budget", f"{budget / 1e12:.12f}")
            if killed < kills and kill_after(process, draw.uniform(0.05, 1.2), bill, since):
                killed += 1
                code = None
                settle(bill)
            else:
                code = process.wait(PATIENCE_S)
            seen = read_bill(bill)
            lives.append(seen[since:])
            assert [one for one in lives[-1] if (one.episode, one.step) in before] == []
            assert sum(one.cost for one in seen) <= budget, "the bill passed the budget"
            if code == 0:
                break
            if code is not None:
                assert code == 3, (torn / "out.log").read_text()[-2000:]
                ran_out += 1
                money = evalkit_json(torn, "status", "run")["money"]
                charged = money["crash_charges_pico_usd"] + money["attempt_charges_pico_usd"]
                assert charged > stated, "out of money without a charge to blame"
                stated = charged
    assert killed == kills
    assert asked_again(lives) == []
    assert steps(torn / "run") == steps(whole / "run")
    assert subprocess.run([sys.executable, "-m", "evalkit", "verify", "run"], cwd=torn, check=False).returncode == 0
    print(
        f"{kills} kills, {len(lives)} lives, out of money {ran_out} times, "
        f"bill {sum(one.cost for one in seen) / true_bill:.3f} of the uninterrupted run's"
    )
    if kills >= 50:
        assert ran_out >= 2


@pytest.mark.exhaustive
def test_five_kills_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 5, "lognormal:60ms:0.4", 1, {})
    assert is_run(tmp_path / "torn" / "run")


@pytest.mark.exhaustive
def test_three_kills_of_an_agent_that_is_code_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 3, "lognormal:60ms:0.4", 1, {}, judged, periods=8)


@pytest.mark.soak
def test_a_hundred_kills_of_an_agent_that_is_code_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 100, "lognormal:120ms:0.4", 6, {}, judged)


@pytest.mark.soak
@pytest.mark.parametrize("faults", [{}, {"faults": {"reset": 0.01, "truncated": 0.01, "500": 0.01}}])
def test_fifty_kills_lose_nothing_that_was_durable(tmp_path: Path, faults: dict[str, object]) -> None:
    kill_and_resume(tmp_path, 50, "lognormal:120ms:0.4", 6, faults)
    assert is_run(tmp_path / "torn" / "run")
