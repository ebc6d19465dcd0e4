"""Workers that join, killed or stopped twenty times in a row, and their coordinator."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.joined_runs import Harm, JoinedRun, of_a_worker, torn
from tests.support.object_stores import make_bucket, proxy, reached_at

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place in a bucket whose store takes 20 ms for each request."""
    with proxy() as store, reached_at(store.url):
        store.delay_s = 0.02
        yield f"{make_bucket()}/run"


def kill_a_worker(play: JoinedRun, draw: random.Random) -> None:
    """Kill -9."""
    of_a_worker(play, draw, signal.SIGKILL)


def stop_a_worker(play: JoinedRun, draw: random.Random) -> None:
    """Stop one until it was taken for lost, and let it go on then."""
    stopped = of_a_worker(play, draw, signal.SIGSTOP)
    threading.Timer(9.0, _go_on, (stopped,)).start()


def _go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


def kill_the_coordinator(play: JoinedRun, draw: random.Random) -> None:
    """Kill -9."""
    del draw
    play.coordinator.kill()


HARMS = [kill_a_worker, stop_a_worker, kill_the_coordinator]


@pytest.mark.parametrize("harm", HARMS)
def test_twenty_times_lose_nothing_that_was_durable(tmp_path: Path, harm: Harm) -> None:
    torn(tmp_path, 20, harm, replicates=6, latency="lognormal:120ms:0.4")


@pytest.mark.parametrize("harm", HARMS)
def test_twenty_times_in_a_bucket_lose_nothing_either(tmp_path: Path, bucket: str, harm: Harm) -> None:
    torn(tmp_path, 20, harm, replicates=6, latency="lognormal:120ms:0.4", place=bucket)
