"""Runs that actors of a Ray cluster play: a simulated provider and a coordinator, each in a process of its own."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evalkit.frozen.copying import download
from evalkit.serve.launch import simulated
from evalkit.store.bucket import is_bucket, place_of
from evalkit.store.files.layout import journals
from tests.soak.sweeping import finish, prepare, read_bill, start
from tests.soak.test_kill import evalkit_json, settle, steps
from tests.support.patience import PATIENCE_S


@dataclass(slots=True, kw_only=True)
class RayRun:
    """A run while it is played."""

    folder: Path
    place: str
    coordinator: "subprocess.Popen[str]"

    @property
    def run(self) -> Path:
        """Where it lies."""
        return place_of(self.place) if is_bucket(self.place) else self.folder / self.place

    def workers(self) -> list[int]:
        """Its workers' processes that are alive."""
        pids = dict.fromkeys(int(writer.rsplit("-", 2)[1]) for writer in journals(self.run))
        return [pid for pid in pids if is_actor(pid)]


Harm = Callable[[RayRun, random.Random], None]


def parent_of(pid: int) -> int:
    """The parent of a process that runs or is stopped; 0 if it does not."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    return 0 if state == "Z" else int(parent)


def is_actor(pid: int) -> bool:
    """Whether a process is a worker on Ray that runs or is stopped."""
    try:
        return parent_of(pid) != 0 and b"RayWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def quiet(tmp_path: Path, replicates: int, periods: int) -> tuple[Path, int]:
    """A run that one process has played in peace, and its bill."""
    folder, bill = tmp_path / "whole", tmp_path / "whole.jsonl"
    with simulated({"bill": str(bill)}) as url:
        prepare(folder, url, replicates=replicates, periods=periods)
        assert finish(folder, "--budget", "100") == 0, (folder / "out.log").read_text()[-2000:]
    return folder / "run", billed(bill)


def billed(bill: Path) -> int:
    """What the provider has asked for so far."""
    return sum(one.cost for one in read_bill(bill))


def torn(
    tmp_path: Path,
    kills: int,
    harm: Harm,
    *,
    replicates: int = 1,
    periods: int = 10,
    latency: str,
    place: str = "run",
) -> Path:
    """Play a run by two actors, harmed again and again, and compare it with a quiet one. Returns its folder."""
    whole, true_bill = quiet(tmp_path, replicates, periods)
    folder, bill = tmp_path / "hurt", tmp_path / "hurt.jsonl"
    draw, done, charged = random.Random(kills), 0, 0
    with simulated({"bill": str(bill), "latency": latency}) as url:
        prepare(folder, url, replicates=replicates, periods=periods)
        while True:
            budget = true_bill * 13 // 10 + charged
            words = ("--dir", place, "--on", "ray", "--workers", "2", "--budget", f"{budget / 1e12:.12f}")
            play = RayRun(folder=folder, place=place, coordinator=start(folder, *words))
            since = len(read_bill(bill))
            while play.coordinator.poll() is None:
                time.sleep(draw.uniform(0.1, 0.6))
                if done < kills and len(read_bill(bill)) > since:
                    harm(play, draw)
                    since, done = len(read_bill(bill)), done + 1
                assert billed(bill) <= budget, "the bill passed the budget"
            settle(bill)
            assert billed(bill) <= budget, "the bill passed the budget"
            if play.coordinator.returncode == 0:
                break
            assert play.coordinator.returncode in (3, 130, -9), (folder / "out.log").read_text()[-2000:]
            money = evalkit_json(folder, "status", place)["money"]
            charged = money["crash_charges_pico_usd"] + money["attempt_charges_pico_usd"]
    money = evalkit_json(folder, "status", place)["money"]
    charged = money["crash_charges_pico_usd"] + money["attempt_charges_pico_usd"]
    print(f"{done} kills, bill {billed(bill) / true_bill:.3f} of the quiet run's, charged {charged / true_bill:.3f}")
    assert done == kills
    assert billed(bill) - true_bill <= charged, "what was paid and not logged is among the charges"
    if is_bucket(place):
        download(play.run, folder / "run")
    assert steps(folder / "run") == steps(whole)
    verified = subprocess.run([sys.executable, "-m", "evalkit", "verify", "run"], cwd=folder, check=False)
    assert verified.returncode == 0
    return folder


def of_a_worker(play: RayRun, draw: random.Random, signal_: int) -> int:
    """Send a signal to one of the workers, once there is one; its process."""
    until = time.monotonic() + PATIENCE_S
    while not (alive := play.workers()):
        assert time.monotonic() < until
        time.sleep(0.05)
    chosen = draw.choice(alive)
    os.kill(chosen, signal_)
    return chosen
