"""A node of a Ray cluster that dies under the workers of a run, and the head that dies under its driver.

Each test has a cluster of its own, because nothing else could use it after that.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evalkit.machines.on_ray import VARIABLE
from evalkit.serve.launch import simulated
from evalkit.store.events import read_events
from evalkit.store.files.journal import has_ended, newest_claim
from evalkit.store.files.layout import journals
from evalkit.store.reading.reader import read_ledger
from tests.ray.nodes import Cluster, cluster_of
from tests.soak.sweeping import Seen, finish, prepare, read_bill, start
from tests.soak.test_kill import settle, stored
from tests.support.patience import PATIENCE_S
from tests.support.ray_runs import RayRun, is_actor, of_a_worker, torn

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]

LATENCY = "lognormal:120ms:0.4"


def look(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Look again and again; fail if that takes too long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.05)
    pytest.fail("What was waited for has not come.")


def began(run: Path) -> set[str]:
    """Writers of all journals."""
    return set(journals(run))


def joins(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started from now on find this cluster."""
    for name, value in cluster.known.items():
        monkeypatch.setenv(name, value)


@dataclass(slots=True, kw_only=True)
class KilledNode:
    """Kills the node of a worker, again and again, each time with another one to take over; notes what came of it."""

    cluster: Cluster
    stands_still: bool = False
    """Whether the node's workers are stopped before, and go on after they were sealed."""
    killed: set[str] = field(default_factory=set)
    """Writers on the nodes."""
    sealed_s: list[float] = field(default_factory=list)
    went_on_s: list[float] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)
    """Of the bill: from where workers were sealed to the next kill."""

    def __call__(self, play: RayRun, draw: random.Random) -> None:
        bill = play.folder.with_suffix(".jsonl")
        before = began(play.run)
        chosen = of_a_worker(play, draw, 0)
        node = self.cluster.node_of(chosen)
        here = {writer for writer in before if (pid := process_of(writer)) in node.pids() and is_actor(pid)}
        if self.stands_still:
            for writer in here:
                os.kill(process_of(writer), signal.SIGSTOP)
        if self.windows:
            self.windows[-1].append(len(read_bill(bill)))
        closed = {writer for writer in here if has_ended(play.run, writer)}
        os.kill(node.pid_of("raylet"), signal.SIGKILL)
        at = time.monotonic()
        for _ in look():
            if all(has_ended(play.run, writer) for writer in here):
                break
        self.windows.append([len(read_bill(bill))])
        self.sealed_s.append(time.monotonic() - at)
        self.killed |= here - closed
        if self.stands_still:
            for writer in here:
                if is_actor(process_of(writer)):
                    os.kill(process_of(writer), signal.SIGCONT)
        for _ in look():
            if play.coordinator.poll() is not None or began(play.run) - before:
                break
        self.went_on_s.append(time.monotonic() - at)
        for _ in look():
            if not node.pids():
                break
        self.cluster.add(2)

    def paid_twice(self, bill: Path) -> list[Seen]:
        """Requests that have arrived a second time after the first worker was sealed."""
        seen, twice = read_bill(bill), list[Seen]()
        for begin, *end in self.windows:
            known = set[Seen]()
            for one in seen[begin : end[0] if end else None]:
                twice += [one] * (one in known)
                known.add(one)
        return twice


def process_of(writer: str) -> int:
    """The process that has written a journal."""
    return int(writer.rsplit("-", 2)[1])


def nodes_die(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
    replicates: int,
    *,
    still: bool,
    latency: str = LATENCY,
) -> None:
    """Play a run on a cluster whose nodes die one after another."""
    with cluster_of(0, 2, 2) as cluster:
        joins(cluster, monkeypatch)
        harm = KilledNode(cluster=cluster, stands_still=still)
        folder = torn(tmp_path, kills, harm, replicates=replicates, periods=20, latency=latency)
        print(
            "sealed after", [f"{s:.1f}" for s in harm.sealed_s], "another after", [f"{s:.1f}" for s in harm.went_on_s]
        )
        assert harm.paid_twice(tmp_path / "hurt.jsonl") == []
        assert harm.killed
        assert all((newest_claim(folder / "run", writer) or {})["kind"] == "seal" for writer in harm.killed)
        for _ in look():
            if not any(is_actor(process_of(writer)) for writer in journals(folder / "run")):
                break


@pytest.mark.parametrize("still", [False, True])
def test_a_node_that_dies_loses_nothing_that_was_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: bool
) -> None:
    nodes_die(tmp_path, monkeypatch, 1, 3, still=still)


@pytest.mark.soak
@pytest.mark.parametrize("still", [False, True])
def test_nodes_that_die_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: bool) -> None:
    nodes_die(tmp_path, monkeypatch, 5, 8, still=still, latency="lognormal:600ms:0.4")


def test_a_run_whose_only_node_dies_says_so_and_goes_on_when_another_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(0, 2) as cluster:
        joins(cluster, monkeypatch)

        def lose_all(play: RayRun, draw: random.Random) -> None:
            os.kill(cluster.node_of(of_a_worker(play, draw, 0)).pid_of("raylet"), signal.SIGKILL)
            for _ in look():
                if waits := list(read_events(play.run, "workers_wait")):
                    break
            assert "2 of 2 workers have no place" in waits[0]["detail"]
            assert "the Ray cluster has 0 for all its programs" in waits[0]["detail"]
            assert play.coordinator.poll() is None
            cluster.add(2)

        torn(tmp_path, 1, lose_all, replicates=2, latency=LATENCY)


@dataclass(slots=True, kw_only=True)
class KilledHead:
    """Kills the head, waits for the end of the process that coordinates, and lets another cluster take the place."""

    clusters: ExitStack
    monkeypatch: pytest.MonkeyPatch
    here: bool
    """Whether this machine alone goes on with the run first."""
    ended_s: list[float] = field(default_factory=list)
    durable: list[tuple[set[tuple[str, int]], int]] = field(default_factory=list)
    """What the log had when the process had ended, and how many requests had come by then."""
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another cluster."""
        self.clusters.close()
        self.cluster = self.clusters.enter_context(cluster_of(0, 2))
        joins(self.cluster, self.monkeypatch)

    def __call__(self, play: RayRun, draw: random.Random) -> None:
        bill = play.folder.with_suffix(".jsonl")
        os.kill(self.cluster.head.pid_of("gcs_server"), signal.SIGKILL)
        at = time.monotonic()
        code = play.coordinator.wait(PATIENCE_S)
        self.ended_s.append(time.monotonic() - at)
        said = (play.folder / "out.log").read_text()
        assert code == 3, said[-2000:]
        assert "The head of the Ray cluster" in said.splitlines()[-1]
        assert "Traceback" not in said
        assert all(has_ended(play.run, writer) for writer in journals(play.run))
        assert not [row for row in read_ledger(play.run) if row.kind in ("crash", "charge")]
        for _ in look():
            if not play.workers():  # Ray ends them
                break
        settle(bill)
        self.durable.append((stored(play.run), len(read_bill(bill))))
        if self.here:
            assert finish(play.folder, "--budget", "100", "--on", "here") == 0, (play.folder / "out.log").read_text()
        self.begin()

    def asked_again(self, bill: Path) -> list[Seen]:
        """Requests for replies that the log had."""
        seen = read_bill(bill)
        return [one for known, begin in self.durable for one in seen[begin:] if (one.episode, one.step) in known]


def heads_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, replicates: int, *, here: bool) -> None:
    """Play a run on a cluster, and on others, since their heads die."""
    with ExitStack() as clusters:
        harm = KilledHead(clusters=clusters, monkeypatch=monkeypatch, here=here)
        torn(tmp_path, kills, harm, replicates=replicates, periods=20, latency=LATENCY)
    print("the process ended after", [f"{seconds:.1f} s" for seconds in harm.ended_s])
    assert all(begin for known, begin in harm.durable if known)
    assert harm.asked_again(tmp_path / "hurt.jsonl") == []


@pytest.mark.parametrize("here", [False, True])
def test_a_head_that_dies_ends_the_run_and_charges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    monkeypatch.setenv(VARIABLE, "20")  # else a minute is to be waited
    heads_die(tmp_path, monkeypatch, 1, 4, here=here)


@pytest.mark.soak
def test_heads_that_die_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "20")
    heads_die(tmp_path, monkeypatch, 5, 12, here=False)


def test_a_head_that_dies_while_replies_take_long_is_left_before_ray_ends_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "40")
    with (
        cluster_of(0, 2) as cluster,
        simulated({"bill": str(tmp_path / "bill.jsonl"), "latency": f"{PATIENCE_S:.0f}s"}) as url,
    ):
        joins(cluster, monkeypatch)
        prepare(tmp_path, url)
        driver = start(tmp_path, "--budget", "100", "--on", "ray", "--workers", "2")
        for _ in look():
            if read_bill(tmp_path / "bill.jsonl"):
                break
        os.kill(cluster.head.pid_of("gcs_server"), signal.SIGKILL)
        assert driver.wait(PATIENCE_S / 2) == 3, "long before a reply could come"
        said = (tmp_path / "out.log").read_text()
        assert "The head of the Ray cluster" in said.splitlines()[-1]
        assert "Traceback" not in said
