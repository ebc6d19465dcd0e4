"""Several processes play one run over HTTP and are killed: the bill stays within the budget, the log is whole."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalkit.frozen.copying import download
from evalkit.serve.launch import simulated
from evalkit.store.bucket import is_bucket, place_of
from evalkit.store.files.layout import journals
from tests.soak.sweeping import prepare, read_bill, start
from tests.soak.test_kill import evalkit_json, settle, steps
from tests.support.object_stores import make_bucket, proxy, reached_at
from tests.support.patience import PATIENCE_S
from tests.support.ray_runs import billed, parent_of

pytestmark = pytest.mark.soak
WORKERS = ("--workers", "2")
Harm = Callable[["subprocess.Popen[str]", Path, random.Random], None]


def workers_of(process: "subprocess.Popen[str]", run: Path) -> list[int]:
    """The processes of a run's workers that are alive: their names hold their numbers."""
    pids = [int(writer.rsplit("-", 2)[1]) for writer in journals(run)]
    return [pid for pid in dict.fromkeys(pids) if pid != process.pid and parent_of(pid) == process.pid]


def kill_a_worker(process: "subprocess.Popen[str]", run: Path, draw: random.Random) -> None:
    """Kill -9 one of the workers, if there is one."""
    alive = workers_of(process, run)
    if alive:
        os.kill(draw.choice(alive), signal.SIGKILL)


def stop_a_worker(process: "subprocess.Popen[str]", run: Path, draw: random.Random) -> None:
    """Stop one of the workers: it says nothing any more, and is ended for it."""
    alive = workers_of(process, run)
    if alive:
        os.kill(draw.choice(alive), signal.SIGSTOP)


def kill_the_coordinator(process: "subprocess.Popen[str]", run: Path, draw: random.Random) -> None:
    """Kill -9 the process that has started the workers."""
    del run, draw
    process.kill()


def torn(tmp_path: Path, kills: int, harm: Harm, replicates: int, latency: str, place: str = "run") -> None:
    """Compare a run of two workers, harmed again and again, with a quiet one of a single process. `place`: of the
    first, in a bucket or below its folder."""
    whole, hurt = tmp_path / "whole", tmp_path / "hurt"
    with simulated({"bill": str(tmp_path / "whole.jsonl")}) as url:
        prepare(whole, url, replicates=replicates, periods=10)
        assert start(whole, "--budget", "100").wait(PATIENCE_S) == 0, (whole / "out.log").read_text()[-2000:]
    true_bill = billed(tmp_path / "whole.jsonl")
    draw, bill, done, charged = random.Random(kills), tmp_path / "hurt.jsonl", 0, 0
    run = place_of(place) if is_bucket(place) else hurt / place
    with simulated({"bill": str(bill), "latency": latency}) as url:
        prepare(hurt, url, replicates=replicates, periods=10)
        while True:
            budget = true_bill * 13 // 10 + charged
            process = start(hurt, "--budget", f"{budget / 1e12:.12f}", "--dir", place, *WORKERS)
            since = len(read_bill(bill))
            while process.poll() is None:
                time.sleep(draw.uniform(0.1, 0.6))
                if done < kills and len(read_bill(bill)) > since:
                    harm(process, run, draw)
                    since, done = len(read_bill(bill)), done + 1
                assert billed(bill) <= budget, "the bill passed the budget"
            settle(bill)
            assert billed(bill) <= budget, "the bill passed the budget"
            if process.returncode == 0:
                break
            assert process.returncode in (3, -signal.SIGKILL), (hurt / "out.log").read_text()[-2000:]
            money = evalkit_json(hurt, "status", place)["money"]
            charged = money["crash_charges_pico_usd"] + money["attempt_charges_pico_usd"]
    print(f"{done} kills, bill {billed(bill) / true_bill:.3f} of the quiet run's, charged {charged / true_bill:.3f}")
    assert done == kills
    if is_bucket(place):
        download(run, hurt / "run")
    assert steps(hurt / "run") == steps(whole / "run")
    words = [sys.executable, "-m", "evalkit", "verify", "run"]
    assert subprocess.run(words, cwd=hurt, check=False).returncode == 0
    tables, expected = (evalkit_json(folder, "report", "run")["tables"] for folder in (hurt, whole))
    apart = {"speed"} | ({"money"} if kills else set())  # times, and what was charged for the kills
    assert {name: table for name, table in tables.items() if name not in apart} == {
        name: table for name, table in expected.items() if name not in apart
    }


def test_two_workers_make_the_log_of_one_process(tmp_path: Path) -> None:
    torn(tmp_path, 0, kill_a_worker, 1, "5ms")


def test_killed_workers_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    torn(tmp_path, 2, kill_a_worker, 1, "lognormal:60ms:0.4")


def test_a_killed_coordinator_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    torn(tmp_path, 1, kill_the_coordinator, 1, "lognormal:60ms:0.4")


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    torn(tmp_path, 1, stop_a_worker, 1, "lognormal:60ms:0.4")


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place in a bucket whose store takes 20 ms for each request."""
    with proxy() as store, reached_at(store.url):
        store.delay_s = 0.02
        yield f"{make_bucket()}/run"


@pytest.mark.parametrize("harm", [kill_a_worker, kill_the_coordinator, stop_a_worker])
def test_in_a_bucket_they_lose_nothing_either(tmp_path: Path, bucket: str, harm: Harm) -> None:
    torn(tmp_path, 1, harm, 1, "lognormal:60ms:0.4", bucket)


@pytest.mark.parametrize("harm", [kill_a_worker, kill_the_coordinator])
def test_twenty_kills_in_a_bucket_lose_nothing_either(tmp_path: Path, bucket: str, harm: Harm) -> None:
    torn(tmp_path, 20, harm, 6, "lognormal:120ms:0.4", bucket)


@pytest.mark.parametrize("harm", [kill_a_worker, kill_the_coordinator])
def test_twenty_kills_lose_nothing_that_was_durable(tmp_path: Path, harm: Harm) -> None:
    torn(tmp_path, 20, harm, 6, "lognormal:120ms:0.4")
