"""`evalkit run --on ray` on a real cluster of this machine: kills, a worker that comes back, refusals."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from evalkit.serve.launch import simulated
from evalkit.store.events import read_events
from evalkit.store.files.journal import has_ended, newest_claim
from evalkit.store.files.layout import journals
from evalkit.store.reading.reader import read_ledger
from tests.ray.nodes import cluster_of
from tests.soak.sweeping import finish, prepare, read_bill, start
from tests.support.command_line import LAB
from tests.support.patience import PATIENCE_S
from tests.support.ray_runs import RayRun, is_actor, of_a_worker, torn

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

LATENCY = "lognormal:60ms:0.4"


def nothing(play: RayRun, draw: random.Random) -> None:
    """Let it be."""


def kill_a_worker(play: RayRun, draw: random.Random) -> None:
    """Kill -9."""
    of_a_worker(play, draw, signal.SIGKILL)


def kill_the_driver(play: RayRun, draw: random.Random) -> None:
    """Kill -9."""
    play.coordinator.kill()


def test_actors_play_a_run_as_one_process_does(tmp_path: Path) -> None:
    folder = torn(tmp_path, 0, nothing, latency="20ms", periods=4)
    assert len(journals(folder / "run")) == 3, "the coordinator's, and each worker's"
    assert all(has_ended(folder / "run", writer) for writer in journals(folder / "run"))


def test_an_actor_that_is_killed_is_sealed_and_another_goes_on(tmp_path: Path) -> None:
    folder = torn(tmp_path, 1, kill_a_worker, latency=LATENCY, periods=10)
    (lost,) = read_events(folder / "run", "worker_lost")
    assert (newest_claim(folder / "run", lost["writer"]) or {})["kind"] == "seal"
    assert list(read_events(folder / "run", "worker_ended")), "Ray has said that it was dead"


def test_an_actor_that_stands_still_is_sealed_and_writes_nothing_when_it_goes_on(tmp_path: Path) -> None:
    stopped = list[int]()

    def stop_for_long(play: RayRun, draw: random.Random) -> None:
        stopped.append(of_a_worker(play, draw, signal.SIGSTOP))
        until = time.monotonic() + PATIENCE_S
        while not list(read_events(play.run, "worker_lost")):
            assert time.monotonic() < until
            time.sleep(0.02)
        if is_actor(stopped[0]):
            os.kill(stopped[0], signal.SIGCONT)

    folder = torn(tmp_path, 1, stop_for_long, latency=LATENCY, periods=10)
    (lost,) = read_events(folder / "run", "worker_lost")
    assert f"-{stopped[0]}-" in lost["writer"]
    assert (newest_claim(folder / "run", lost["writer"]) or {})["kind"] == "seal"
    assert not is_actor(stopped[0]), "what was sealed is ended, so that another has its place"


def test_a_driver_that_is_killed_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = torn(tmp_path, 1, kill_the_driver, latency=LATENCY, periods=10)
    assert all(has_ended(folder / "run", writer) for writer in journals(folder / "run"))


def test_a_driver_that_is_told_to_stop_lets_its_workers_close(tmp_path: Path) -> None:
    def stop(play: RayRun, draw: random.Random) -> None:
        play.coordinator.send_signal(signal.SIGTERM)
        assert play.coordinator.wait(PATIENCE_S) == 130
        assert all(has_ended(play.run, writer) for writer in journals(play.run))

    folder = torn(tmp_path, 1, stop, latency=LATENCY, periods=10)
    assert not list(read_events(folder / "run", "worker_lost"))
    assert not [row for row in read_ledger(folder / "run") if row.kind in ("crash", "charge")]


def test_a_second_signal_ends_a_driver_at_once(tmp_path: Path) -> None:
    with simulated({"bill": str(tmp_path / "bill.jsonl"), "latency": f"{PATIENCE_S:.0f}s"}) as url:
        prepare(tmp_path, url)
        driver = start(tmp_path, "--budget", "100", "--on", "ray", "--workers", "2")
        for _ in range(2):
            until = time.monotonic() + PATIENCE_S / 2
            while not read_bill(tmp_path / "bill.jsonl"):
                assert time.monotonic() < until
                time.sleep(0.05)
            driver.send_signal(signal.SIGTERM)
            time.sleep(1)
        assert driver.wait(PATIENCE_S / 2) == 130, "long before a reply could come"
    assert "Traceback" not in (tmp_path / "out.log").read_text()


def test_a_cluster_for_one_call_plays_a_run_and_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with simulated({"bill": str(tmp_path / "bill.jsonl")}) as url:
        prepare(tmp_path, url, periods=4)
        sweep = tmp_path / "sweep.toml"
        sweep.write_text(f'{sweep.read_text()}\n[machines]\non = "ray"\nworkers = 2\n')
        assert finish(tmp_path, "--budget", "100") == 0, (tmp_path / "out.log").read_text()
    actors = [int(writer.rsplit("-", 2)[1]) for writer in journals(tmp_path / "run")]
    assert len(actors) == 3
    assert not any(is_actor(pid) for pid in actors)


def test_workers_for_which_the_cluster_has_no_room_are_told_of_and_others_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(2) as small, simulated({"bill": str(tmp_path / "bill.jsonl"), "latency": "700ms"}) as url:
        for name, value in small.known.items():
            monkeypatch.setenv(name, value)
        prepare(tmp_path, url, periods=20)  # longer than the 45 s after which it is said
        sweep = tmp_path / "sweep.toml"
        sweep.write_text(f'{sweep.read_text()}\n[machines]\non = "ray"\nworkers = 3\n')
        assert finish(tmp_path, "--budget", "100") == 0, (tmp_path / "out.log").read_text()
    said = (tmp_path / "out.log").read_text()
    assert "1 of 3 workers have no place after 45 s: each needs 1 CPU, and the Ray cluster has 2" in said
    (told,) = read_events(tmp_path / "run", "workers_wait")
    assert told["waiting"] == 1
    assert len(journals(tmp_path / "run")) == 3, "the coordinator's, and those of the two that had a place"


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with simulated({"bill": str(tmp_path / "bill.jsonl")}) as url:
        prepare(tmp_path, url)
        code = finish(tmp_path, "--budget", "100", "--on", "ray")
    said = (tmp_path / "out.log").read_text()
    assert code == 2, said
    assert "No Ray cluster answers at '127.0.0.1:9'" in said


def test_a_node_without_the_key_refuses_and_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated({"bill": str(tmp_path / "bill.jsonl")}) as url:
        prepare(tmp_path, url)
        provider = tmp_path / "providers" / "lab.toml"
        assert provider.read_text() != LAB
        provider.write_text('key_env = "LAB_KEY_OF_THE_DRIVER"\n' + provider.read_text())
        monkeypatch.setenv("LAB_KEY_OF_THE_DRIVER", "key-of-the-driver-alone")
        code = finish(tmp_path, "--budget", "100", "--on", "ray", "--workers", "2")
    said = (tmp_path / "out.log").read_text()
    assert code == 3, said
    assert "No worker may play" in said
    assert "LAB_KEY_OF_THE_DRIVER" in said
    assert "key-of-the-driver-alone" not in said
    assert not (tmp_path / "bill.jsonl").read_text()
