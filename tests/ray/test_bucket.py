"""A run that lies in a bucket and is played by actors of a Ray cluster: its nodes find the store by their own
environment, so the cluster is started after the store."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.serve.launch import simulated
from evalkit.store.events import read_events
from evalkit.store.files.journal import has_ended, newest_claim
from evalkit.store.files.layout import journals
from tests.ray.nodes import cluster_of
from tests.ray.test_ray import LATENCY, kill_a_worker, kill_the_driver
from tests.soak.sweeping import finish, prepare
from tests.support.object_stores import StoreProxy, make_bucket, proxy, reached_at
from tests.support.ray_runs import Harm, torn

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]


@pytest.fixture(scope="module")
def store() -> Iterator[StoreProxy]:
    """What a cluster's processes, and those of the tests, find as their store; it takes 20 ms for each request."""
    with proxy() as slow, reached_at(slow.url), cluster_of(16) as cluster, pytest.MonkeyPatch.context() as patch:
        slow.delay_s = 0.02
        for name, value in cluster.known.items():
            patch.setenv(name, value)
        yield slow


@pytest.mark.parametrize(("harm", "kills"), [(kill_a_worker, 2), (kill_the_driver, 1)])
def test_a_run_in_a_bucket_goes_on_after_its_actors_or_driver_were_killed(
    tmp_path: Path, store: StoreProxy, harm: Harm, kills: int
) -> None:
    folder = torn(tmp_path, kills, harm, latency=LATENCY, periods=10, place=f"{make_bucket()}/run")
    lost = {event["writer"] for event in read_events(folder / "run", "worker_lost")}
    assert all((newest_claim(folder / "run", writer) or {})["kind"] == "seal" for writer in lost)
    assert all(has_ended(folder / "run", writer) for writer in journals(folder / "run"))
    assert len(lost) == kills if harm is kill_a_worker else len(journals(folder / "run")) > 3


def test_nodes_that_do_not_reach_the_store_are_told_of_with_the_reason(tmp_path: Path, store: StoreProxy) -> None:
    folder = tmp_path / "here"
    with proxy() as own, reached_at(own.url), simulated({"bill": str(tmp_path / "bill.jsonl")}) as url:
        prepare(folder, url)
        store.fault = lambda _, __: "403"
        try:
            code = finish(folder, "--dir", f"{make_bucket()}/run", "--budget", "100", "--on", "ray", "--workers", "2")
        finally:
            store.fault = lambda _, __: ""
    said = (folder / "out.log").read_text()
    assert code == 3, said
    assert "each of the 2 was replaced 3 times within 10 minutes" in said
    assert f"The last one ended so: on {socket.gethostname()}: s3://bucket-" in said
    assert "the store refuses this access" in said
    assert not (tmp_path / "bill.jsonl").read_text()
