"""One Ray cluster for all tests on one; it takes half a minute to start."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="session")
def cluster() -> Iterator[Mapping[str, str]]:
    """A cluster of this machine; gives the variables by which processes find it."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed here: `make ray` has it in an environment of its own")
    known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with socket.socket() as free, TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        log = Path(folder) / "start.log"
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
        command += ["--num-cpus=16", "--include-dashboard=false", "--object-store-memory=80000000"]
        command += ["--disable-usage-stats", f"--temp-dir={folder}"]
        with log.open("w") as out:
            head = subprocess.Popen(
                command,
                env={**os.environ, **known, "RAY_enable_metrics_collection": "0"},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            until = time.monotonic() + PATIENCE_S
            while not (found := re.search(r"--address='([^']+)'", log.read_text())):
                assert head.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
            yield {**known, "RAY_ADDRESS": found[1]}
        finally:
            head.send_signal(signal.SIGTERM)
            try:
                head.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(head.pid, signal.SIGKILL)
                head.wait()


@pytest.fixture
def on_ray(cluster: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that the test starts find the cluster."""
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
