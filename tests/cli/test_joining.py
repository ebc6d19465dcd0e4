"""`evalkit run --on join` and `evalkit join`, in processes of their own: kills, a worker that comes back, refusals."""

import os
import random
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.engine.listen import VARIABLE, own_file
from evalkit.engine.machines import on_ray
from evalkit.store.bucket import BucketPath, place_of
from evalkit.store.events import read_events
from evalkit.store.files.journal import has_ended, newest_claims
from evalkit.store.files.layout import journals
from evalkit.store.reading.reader import read_ledger
from tests.support.command_line import POLICIES, Call
from tests.support.joined_runs import JoinedRun, of_a_worker, torn
from tests.support.object_stores import make_bucket, proxy, reached_at
from tests.support.patience import PATIENCE_S

LATENCY = "lognormal:60ms:0.4"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def bucket() -> Iterator[str]:
    with proxy() as store, reached_at(store.url):
        yield f"{make_bucket()}/run"


def nothing(play: JoinedRun, draw: random.Random) -> None:
    """Let it be."""


@pytest.mark.exhaustive
def test_workers_that_join_play_a_run_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    torn(tmp_path, 0, nothing, latency="20ms", periods=4, place=bucket)
    place = place_of(bucket)
    assert isinstance(place, BucketPath)
    assert len(journals(place)) == 3, "the coordinator's, and each worker's"
    assert all(has_ended(place, journal.writer) for journal in journals(place))
    file = own_file(place)
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    texts = [(place / name).now() or b"" for name in place.below()]
    texts += [(tmp_path / "hurt" / name).read_bytes() for name in ("out.log", "join.log")]
    assert not any(token.encode() in text for text in texts), "the token is where others see it"


@pytest.mark.exhaustive
def test_a_worker_that_is_killed_is_sealed_and_others_go_on(tmp_path: Path) -> None:
    def kill(play: JoinedRun, draw: random.Random) -> None:
        of_a_worker(play, draw, signal.SIGKILL)

    folder, said = torn(tmp_path, 1, kill, latency=LATENCY, periods=5)
    assert "ended on its own and is started again" in said
    (lost,) = read_events(folder / "run", "worker_lost")
    assert newest_claims(folder / "run")[lost["writer"]]["kind"] == "seal"


@pytest.mark.exhaustive
def test_a_worker_that_comes_back_is_fenced(tmp_path: Path) -> None:
    def stop_for_long(play: JoinedRun, draw: random.Random) -> None:
        stopped = of_a_worker(play, draw, signal.SIGSTOP)
        until = time.monotonic() + PATIENCE_S
        while not list(read_events(play.run, "worker_lost")):
            assert time.monotonic() < until
            time.sleep(0.1)
        os.kill(stopped, signal.SIGCONT)

    _, said = torn(tmp_path, 1, stop_for_long, latency=LATENCY, periods=5)
    assert "its journal was sealed" in said or "has taken this run over" in said


@pytest.mark.exhaustive
def test_a_worker_that_comes_back_after_the_end_says_that_it_was_sealed(tmp_path: Path) -> None:
    def stop_until_the_end(play: JoinedRun, draw: random.Random) -> None:
        stopped = of_a_worker(play, draw, signal.SIGSTOP)
        play.coordinator.wait(PATIENCE_S)
        os.kill(stopped, signal.SIGCONT)

    _, said = torn(tmp_path, 1, stop_until_the_end, latency=LATENCY, periods=5)
    # It hears of it from the journal, or from its next write if a reply was on its way.
    assert "its journal was sealed before" in said or "has taken this run over" in said
    assert "Unless `evalkit status run` says that the run is complete" in said


@pytest.mark.exhaustive
def test_a_coordinator_that_is_killed_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    def kill(play: JoinedRun, draw: random.Random) -> None:
        play.coordinator.kill()

    folder, said = torn(tmp_path, 1, kill, latency=LATENCY, periods=5)
    # A worker that it had not set up yet waits as long as `--wait` says, 60 s.
    assert re.search("The coordinator of run is gone .no answer for 60? s", said)
    assert "The run has ended." in said
    assert all(has_ended(folder / "run", journal.writer) for journal in journals(folder / "run"))


@pytest.mark.exhaustive
def test_workers_that_are_told_to_leave_cost_nothing_and_others_go_on(tmp_path: Path) -> None:
    def leave(play: JoinedRun, draw: random.Random) -> None:
        assert play.join is not None
        play.join.send_signal(signal.SIGTERM)
        assert play.join.wait(PATIENCE_S) == 0

    folder, said = torn(tmp_path, 1, leave, latency=LATENCY, periods=5)
    assert "The workers have left; others go on." in said
    assert not list(read_events(folder / "run", "worker_lost"))
    rows = read_ledger(folder / "run")
    assert not [row for row in rows if row.kind in ("crash", "charge")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("run", "mine.toml", "--on", "join", "--listen", "0.0.0.0:0"),
            "other machines are listened for with TLS only",
        ),
        (("run", "mine.toml", "--on", "join", "--listen", "here"), "--listen: expected HOST:PORT"),
        (
            ("run", "mine.toml", "--on", "join", "--certificate", "none.pem"),
            "--certificate: none.pem is no certificate",
        ),
        (("join", "runs/mine", "--workers", "none"), "--workers: expected a number"),
        (("join", "runs/mine", "--wait", "soon"), "--wait"),
        (("join", "runs/mine", "--coordinator", "node-3"), "--coordinator: expected HOST:PORT"),
        (("join", "runs/mine", "--authority", "none.pem"), "none.pem holds no certificate"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str, call: Call, here: Path) -> None:
    (here / "mine.toml").write_text(POLICIES)
    answer = call(*words)
    assert answer.code == 2
    assert said in answer.message
    assert not (here / "runs" / "mine").exists()


def test_a_token_that_is_short_is_refused(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "short")
    assert f"{VARIABLE}: a token has at least 16 letters" in call("join", "runs/mine").message


def test_ray_that_is_not_installed_or_a_remote_client_is_refused(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine.toml").write_text(POLICIES)
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    answer = call("run", "mine.toml", "--on", "ray")
    assert answer.code == 2
    assert "Ray is not installed: pip install 'evalkit-econ[ray]'" in answer.message
    monkeypatch.setattr(on_ray, "find_spec", lambda name: name)
    monkeypatch.setenv(on_ray.ADDRESS, "ray://head:10001")
    assert "RAY_ADDRESS: ray://head:10001 would tie the run" in call("run", "mine.toml", "--on", "ray").message
    assert not (here / "runs" / "mine").exists()
