"""What it costs to begin a run of very many instances, to go on with it after a kill, and to ask about it.

A suite of scheduling is written to a temporary folder: a few lines of the native generator, repeated under other seeds.
A model of a server in this process plays it. When the first request of a `run` arrives, the CPU seconds (user and
system) and the peak memory of that process are read; after some more requests it is killed with SIGKILL. Then the same
for the run that goes on, and once more where its log holds a million steps of episodes that have ended. `plan`,
`status`, `sql` and `report` are whole commands.

    python -m bench.start [INSTANCES [STEPS]]
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.finding import WIDTH, command, rows
from evalkit.engine.freezing.freeze import resolve
from evalkit.envs.suite_rows import encode_rows
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifests import manifest_if_run
from evalkit.seeds import Stream
from evalkit.spec.suites import rows_of
from evalkit.spec.sweep import read_sweep
from evalkit.store.writing.writer import open_store

INSTANCES, DRAWN = 1_000_000, 1_000
STEPS, LENGTH = 1_000_000, 10
"""Rows of the log that is gone on with, and those of an episode."""
REQUESTS = 200
"""After which a run is killed."""
SPEC = """
name = "run"
width = 16
budget_usd = "1000"
[[agents]]
provider = "bench"
model = "m"
[[suites]]
name = "many.parquet"
"""
PROVIDER = """
dialect = "openai_chat"
url = "http://127.0.0.1:{port}/v1"
[usd_per_mtok]
input = "1"
output = "1"
source = "made up, 2026-11-21"
"""
REPLY = json.dumps(
    {
        "id": "r",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "No."}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2},
    }
).encode()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that was killed is no error."""


class Requests:
    """A server that answers every request alike, and counts."""

    def __init__(self) -> None:
        self.count, self.first, self.enough = 0, threading.Event(), threading.Event()
        told = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                told.count += 1
                told.first.set()
                self.rfile.read(int(self.headers["content-length"]))
                if told.count > REQUESTS:
                    told.enough.set()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(REPLY)))
                self.end_headers()
                self.wfile.write(REPLY)

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def run(self, folder: Path) -> tuple[float, float]:
        """(CPU s, peak MB) of a `run` until its first request; it is killed after `REQUESTS` of them."""
        self.count = 0
        self.first.clear()
        self.enough.clear()
        child = subprocess.Popen(
            [sys.executable, "-m", "evalkit", "run", "sweep.toml"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while not self.first.wait(0.01):
            if child.poll() is not None:
                assert child.stderr is not None
                raise SystemExit(child.stderr.read().decode())
        used = taken(child.pid)
        self.enough.wait()
        child.kill()
        child.communicate()
        return used


def taken(process: int) -> tuple[float, float]:
    """(CPU s, peak MB) of a process so far."""
    place = Path("/proc") / str(process)
    fields = (place / "stat").read_text().rpartition(") ")[2].split()
    peak = re.search(r"VmHWM:\s+(\d+) kB", (place / "status").read_text())
    assert peak is not None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024


def write(path: Path, count: int) -> None:
    """A suite of so many different instances; what follows from a line is left out, as in lines written by hand."""
    drawn = [dict(line) for line in ENVIRONMENTS["scheduling"].generate({}, min(count, DRAWN), 1)]
    seeds = Stream(1, "bench", "start")

    def lines() -> Iterator[Mapping[str, Any]]:
        for number in range(count):
            line = drawn[number % len(drawn)]
            line |= {"id": f"{line['family']}-{number}", "seed": seeds.word() >> 1}
            yield {key: line[key] for key in line if key not in ("digest", "expected")}

    path.write_bytes(encode_rows(rows_of(lines(), str(path))).data.to_pybytes())


def fill(folder: Path, steps: int) -> None:
    """Rows of whole episodes behind those that the run holds."""
    run = folder / "runs" / "run"
    with contextlib.chdir(folder):
        resolved = resolve(read_sweep(Path("sweep.toml")), manifest_if_run(run))

    async def add() -> None:
        with open_store(run, session="bench") as store:
            for row in rows(resolved, LENGTH, steps // LENGTH, skip=WIDTH):
                store.append(row)
                await store.room()
            await store.durable()

    asyncio.run(add())


def show(what: str, seconds: float, memory: float, said: str) -> None:
    print(f"  {what:<42} {seconds:6.2f} CPU s, {memory:5.0f} MB  {said.strip()}", flush=True)


def ask(folder: Path) -> None:
    """Commands about the run as it is."""
    for name, words in (
        ("status", ("status", "runs/run")),
        ("sql: count the steps", ("sql", "runs/run", "select count(*) from steps")),
    ):
        show(name, *command(folder, *words))


def main() -> None:
    asked = [int(word) for word in sys.argv[1:3]]
    count, steps = [*asked, *(INSTANCES, STEPS)[len(asked) :]]
    server = Requests()
    with tempfile.TemporaryDirectory(prefix="evalkit-bench-") as room:
        folder = Path(room)
        write(folder / "many.parquet", count)
        (folder / "providers").mkdir()
        (folder / "providers" / "bench.toml").write_text(PROVIDER.format(port=server.port))
        (folder / "sweep.toml").write_text(SPEC)
        size = (folder / "many.parquet").stat().st_size / 1e6
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"{count:,} instances, {size:,.0f} MB; load {load}", flush=True)
        seconds, memory, _ = command(folder, "plan", "sweep.toml")
        show("plan", seconds, memory, "8 s of it playing stand-ins, at most")
        show("begin, to the first request", *server.run(folder), f"killed after {REQUESTS} requests")
        show("go on, to the first request", *server.run(folder), "killed again")
        ask(folder)
        show("report", *command(folder, "report", "runs/run"))
        fill(folder, steps)
        print(f"the same run with {steps:,} steps in its log", flush=True)
        show("go on, to the first request", *server.run(folder), "killed")
        show("go on again", *server.run(folder), "killed again")
        ask(folder)


if __name__ == "__main__":
    main()
