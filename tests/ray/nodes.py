"""Ray clusters whose nodes are processes of this machine, for tests that kill them."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.patience import PATIENCE_S

END_S = 60.0
"""What a node may take to end after SIGTERM."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One `ray start`, and all that it has started: it leads their session."""

    start: "subprocess.Popen[bytes]"
    log: Path

    def pids(self) -> list[int]:
        """All its processes that have not ended: Ray's own, and actors."""
        found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in found if _session_of(pid) == self.start.pid]

    def pid_of(self, program: str) -> int:
        """The process of one of Ray's programs, as `raylet`."""
        (found,) = (pid for pid in self.pids() if _program_of(pid) == program)
        return found

    def joined(self, mark: str) -> str:
        """Wait until its log has what matches; the first group."""
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(mark, self.log.read_text())):
            assert self.start.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.2)
        return found[1]

    def end(self) -> None:
        """End it, and whatever remains of it."""
        self.start.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.start.wait(END_S)
        until = time.monotonic() + PATIENCE_S
        while remaining := self.pids():
            assert time.monotonic() < until
            for pid in remaining:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self.start.wait()


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A head and its nodes. The head's number of CPUs is first."""

    folder: Path
    known: dict[str, str]
    """Variables by which processes find it."""
    nodes: list[Node] = field(default_factory=list)

    @property
    def head(self) -> Node:
        """Where the cluster's tables are."""
        return self.nodes[0]

    def add(self, *cpus: int) -> None:
        """Let nodes of so many CPUs join, and wait for them."""
        where = "--address=" + self.known["RAY_ADDRESS"]
        for number in cpus:  # one after another: of two that start at once one may never be heard of
            self._start(number, where, f"--node-ip-address={self._next_ip()}").joined("Ray runtime (started)")

    def begin(self, cpus: int) -> None:
        """Start the head, and wait for it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = (f"--port={port}", "--include-dashboard=false", f"--temp-dir={self.folder}")
        self.known["RAY_ADDRESS"] = self._start(cpus, "--head", *words).joined("--address='([^']+)'")

    def node_of(self, pid: int) -> Node:
        """The node that has started a process."""
        return next(node for node in self.nodes if _session_of(pid) == node.start.pid)

    def _next_ip(self) -> str:
        """An address of this machine alone that no node has: nodes of one address get in each other's way."""
        return f"127.0.0.{len(self.nodes) + 1}"

    def _start(self, cpus: int, *words: str) -> Node:
        log = self.folder / f"start-{len(self.nodes)}.log"
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--num-cpus={cpus}"]
        command += ["--object-store-memory=80000000", "--include-log-monitor=false", "--disable-usage-stats", *words]
        environment = {**os.environ, **self.known, "RAY_enable_metrics_collection": "0"}
        with log.open("w") as out:
            start = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
        self.nodes.append(Node(start=start, log=log))
        return self.nodes[-1]


@contextmanager
def cluster_of(*cpus: int) -> Iterator[Cluster]:
    """A cluster whose head has the first number of CPUs, and each further node one more."""
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        cluster = Cluster(folder=Path(folder), known=token)
        try:
            cluster.begin(cpus[0])
            cluster.add(*cpus[1:])
            yield cluster
        finally:
            for node in reversed(cluster.nodes):
                node.end()


def _session_of(pid: int) -> int:
    """The session of a process that has not ended; 0 if it has."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return 0
    return 0 if state == "Z" else int(session)


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
