"""Requests through evalkit beside a bare aiohttp client: CPU a request, requests a second, memory.

    python -m bench.throughput
    python -m bench.throughput --in-flight 64 --episodes 256

Both run on uvloop and hold the same conversations with the server of `bench/stub.py` (`bench/driver.py` is evalkit,
`bench/floor.py` the bare client). The rounds alternate, floor first and last, so that each round of evalkit stands
between two of the floor; a ratio is that of a round to the mean of these two, and shown are the median of the rounds
and their range.

Where the system lets a process choose its cores, the server has one and the client another. Requests and their span
are counted by the server; CPU is the kernel's count of the client's work, from its first request to its last reply,
and memory the kernel's count of the most that its process held.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from threading import Timer

from bench.job import peak_mb

HERE = Path(__file__).resolve().parent
TURNS = 10
LATENCY_S = 0.05
IN_FLIGHT = 512
MOST_CPU = 1.8
"""Times the floor's CPU a request."""
LEAST_RATE = 0.6
"""Of the floor's requests a second, once a lane has opened."""
MOST_MB = 250.0
SHORT, LONG = 512, 2048
"""Episodes of `TURNS` requests each. The short run lasts about a second, and four round trips of it are the slow start
of a lane that does not know its provider; so the rate's promise is for the long one, the others for both."""
ROUNDS = 3
LIMIT_S = 300.0
"""A client that takes longer is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both clients do."""

    episodes: int
    in_flight: int
    events: int = 0
    """Words of the text beside each answer's call, each an event where it is streamed."""
    over_s: float = 0.0
    """From a stream's first event to its last."""
    stream: bool = False
    latency_s: float = LATENCY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One client's figures."""

    cpu_ms: float
    """A request."""
    per_s: float
    """Requests."""
    peak_mb: float
    fault: str
    """Why it does not count; empty: it does."""


def main() -> bool:
    """Both lengths; whether every promise is kept."""
    own = cores()
    print(f"server on core {own[1]}, clients on core {own[0]}" if own else "no cores of their own: shared with all")
    short = compare(Job(episodes=SHORT, in_flight=IN_FLIGHT), ROUNDS, least_rate=0.0)
    return compare(Job(episodes=LONG, in_flight=IN_FLIGHT), ROUNDS, least_rate=LEAST_RATE) and short


def compare(job: Job, rounds: int, *, least_rate: float) -> bool:
    """Measure and print; whether the promises are kept."""
    floors, ours = [measure("floor.py", job)], []
    for _ in range(rounds):
        ours.append(measure("driver.py", job))
        floors.append(measure("floor.py", job))
    faults = [one.fault for one in (*floors, *ours) if one.fault]
    if faults:
        print("\n".join(faults))
        return False
    print(f"\n{f'{job.episodes:,} episodes x {TURNS}':24}{'floor':>10}{'evalkit':>10}{'ratio':>8}", end="")
    print(f"{'range':>15}{'promise':>12}   ({job.in_flight} in flight, {rounds} rounds)")
    cpu = _line("CPU ms a request", ".3f", _values(floors, "cpu_ms"), _values(ours, "cpu_ms"), f"<= {MOST_CPU}")
    asked = f">= {least_rate}" if least_rate else "-"
    rate = _line("requests/s", ",.0f", _values(floors, "per_s"), _values(ours, "per_s"), asked)
    _line("peak memory, MB", ".0f", _values(floors, "peak_mb"), _values(ours, "peak_mb"), f"<= {MOST_MB:.0f} MB")
    return cpu <= MOST_CPU and rate >= least_rate and median(_values(ours, "peak_mb")) <= MOST_MB


def _line(name: str, form: str, floors: Sequence[float], ours: Sequence[float], promise: str) -> float:
    """Print one figure; returns the median ratio."""
    ratios = [one / mean(around) for one, around in zip(ours, pairwise(floors), strict=True)]
    middle = median(ratios)
    span = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"{name:24}{median(floors):10{form}}{median(ours):10{form}}{middle:8.2f}{span:>15}{promise:>12}")
    return middle


def _values(rounds: Sequence[Round], key: str) -> list[float]:
    return [float(getattr(one, key)) for one in rounds]


def measure(client: str, job: Job) -> Round:
    """One round of `client` (a file of this folder) against a fresh server."""
    events = ("--events", str(job.events), "--over", str(job.over_s if job.stream else 0.0))
    with tempfile.TemporaryDirectory() as folder, served(0, job.latency_s, *events) as (server, counts):
        wanted = {"BASE_URL": f"http://127.0.0.1:{server.port}/v1", "EPISODES": job.episodes, "TURNS": TURNS}
        wanted |= {"CONC": job.in_flight, "OUT_DIR": folder, "STREAM": int(job.stream), "EVENTS": job.events}
        said, code, memory_mb = run_client(client, folder, {key: str(value) for key, value in wanted.items()})
    results = [line.removeprefix("RESULT ") for line in said.splitlines() if line.startswith("RESULT ")]
    result = json.loads(results[-1]) if results else {"ok": 0, "work_cpu_s": 0.0}
    requests, expected = counts["requests"], job.episodes * TURNS
    fault = ""
    if code or result["ok"] != job.episodes or requests != expected or counts["repeated"]:
        fault = (
            f"{client} ended with {code}: {result['ok']} of {job.episodes} episodes answered, with {requests} requests"
        )
        fault += f" instead of {expected}\n{said[-1500:]}"
    return Round(
        cpu_ms=1000 * result["work_cpu_s"] / max(requests, 1),
        per_s=requests / max(counts["span_s"], 1e-9),
        peak_mb=memory_mb,
        fault=fault,
    )


@dataclass(frozen=True, slots=True)
class BenchServer:
    """The server while it runs."""

    port: int
    process: "subprocess.Popen[str]"

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """Have it end, without its counts."""
        self.process.kill()


@contextmanager
def served(
    tell_at: int = 0, latency_s: float = LATENCY_S, *more: str
) -> Iterator[tuple[BenchServer, dict[str, float]]]:
    """(the server, what it counted: filled in at the end). `tell_at`: it prints a line at this request."""
    command = [sys.executable, "-m", "bench.stub", "--turns", str(TURNS), "--latency", str(latency_s), *more]
    with on_core(1):
        process = subprocess.Popen(
            [*command, "--tell-at", str(tell_at)],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )
    assert process.stdout is not None
    counts: dict[str, float] = {}
    with process:
        try:
            yield BenchServer(int(process.stdout.readline().split()[1]), process), counts
        finally:
            counts |= json.loads(process.communicate()[0] or "{}")


def run_client(
    client: str, folder: str, wanted: Mapping[str, str], python: str = sys.executable, limit_s: float = LIMIT_S
) -> tuple[str, int, float]:
    """(what a client printed, its exit code, its peak memory in MB)."""
    with (Path(folder) / "printed").open("w+") as printed:
        with on_core(0):
            process = subprocess.Popen(
                [python, str(HERE / client)],
                env={**os.environ, **wanted},
                cwd=folder,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        limit = Timer(limit_s, process.kill)
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)
        limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        return printed.read(), process.returncode, peak_mb(usage)


def cores() -> tuple[int, int] | None:
    """(for clients, for the server); None where a process cannot choose its core or has only one."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[-1]) if len(allowed) > 1 else None


@contextmanager
def on_core(place: int) -> Iterator[None]:
    """A process started within inherits the core; ours is given back what it had."""
    own = cores()
    if own is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {own[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _chosen() -> bool:
    """By the command line; without options, what `make bench` measures."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput")
    parser.add_argument("--episodes", type=int, help=f"of {TURNS} requests each")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    if chosen.episodes is None:
        return main()
    job = Job(episodes=chosen.episodes, in_flight=chosen.in_flight)
    return compare(job, chosen.rounds, least_rate=0.0)


if __name__ == "__main__":
    sys.exit(0 if _chosen() else 1)
