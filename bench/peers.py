"""evalkit beside Inspect AI: the same conversations through both, and through both again after `kill -9`.

    python -m bench.peers --inspect .venv-others/bin/python --episodes 512 --in-flight 128

`--inspect` names a Python that has `inspect-ai`; `make .venv-others/.ready` installs one.

First each client holds all conversations: CPU a request, requests a second, peak memory, size of the log. Rounds
alternate; shown is the median. Then each is killed when the server has 65 % of the requests, and started again. The
server counts the requests for replies that it had given already. Among them are those in flight at the kill, which no
client can have. Inspect continues by `eval_set`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Timer

from bench.throughput import HERE, TURNS, cores, on_core, run_client, served

KILLED_AT = 0.65
LIMIT_S = 900.0
"""A client that does not get so far within this time has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A client with its settings."""

    name: str
    file: str
    settings: str = ""
    compared: bool = True
    """Whether it is measured without a kill too."""


PEERS = (
    Peer(name="evalkit", file="driver.py"),
    Peer(name="Inspect AI, fastest settings", file="inspect_driver.py", settings="fast"),
    Peer(name="Inspect AI, as installed", file="inspect_driver.py", settings="default"),
    Peer(name="Inspect AI, with its cache", file="inspect_driver.py", settings="cached", compared=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one round has measured."""

    cpu_ms: float
    """A request."""
    per_s: float
    peak_mb: float
    log_mb: float


def main() -> int:
    """Measure and print both tables; 0 unless a client did not answer every conversation."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--inspect", metavar="PYTHON", required=True, help="a Python that has inspect-ai")
    parser.add_argument("--episodes", type=int, default=256, help=f"of {TURNS} requests each")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    pythons = {"driver.py": sys.executable, "inspect_driver.py": str(Path(chosen.inspect).absolute())}
    wanted = {"EPISODES": str(chosen.episodes), "TURNS": str(TURNS), "CONC": str(chosen.in_flight)}
    print(f"{chosen.episodes:,} episodes x {TURNS} requests, {chosen.in_flight} in flight, {chosen.rounds} rounds")
    print("server on one core, clients on another" if cores() else "all processes share the cores")
    found: dict[str, list[Figures]] = {}
    for _ in range(chosen.rounds):
        for peer in PEERS:
            if peer.compared:
                found.setdefault(peer.name, []).append(measured(peer, pythons[peer.file], wanted))
    print(f"\n{'':30}{'CPU ms/request':>16}{'requests/s':>12}{'memory, MB':>12}{'log, MB':>10}")
    for name, rounds in found.items():
        columns = {key: median(getattr(one, key) for one in rounds) for key in Figures.__dataclass_fields__}
        print(
            "{name:30}{cpu_ms:16.2f}{per_s:12,.0f}{peak_mb:12.0f}{log_mb:10.2f}".format(name=name, **columns),
            flush=True,
        )
    print(f"\n{f'kill -9 at {KILLED_AT:.0%}, resumed':30}{'bought again':>16}{'of all':>12}")
    for peer in PEERS:
        again = bought_again(peer, pythons[peer.file], wanted)
        print(f"{peer.name:30}{again:16,}{again / (chosen.episodes * TURNS):12.1%}", flush=True)
    return 0


def measured(peer: Peer, python: str, wanted: Mapping[str, str]) -> Figures:
    """One round. Raises RuntimeError if a conversation was not answered."""
    with tempfile.TemporaryDirectory() as folder, served() as (server, counts):
        said, code, memory_mb = run_client(
            peer.file, folder, _environment(peer, wanted, server.port, folder), python, LIMIT_S
        )
    result = _result(peer, said, code, wanted)
    return Figures(
        cpu_ms=1000 * result["work_cpu_s"] / counts["requests"],
        per_s=counts["requests"] / max(counts["span_s"], 1e-9),
        peak_mb=memory_mb,
        log_mb=result["log_bytes"] / 1e6,
    )


def bought_again(peer: Peer, python: str, wanted: Mapping[str, str]) -> int:
    """Replies that a killed and resumed job asked for twice. Raises RuntimeError as `measured` does."""
    total = int(wanted["EPISODES"]) * TURNS
    with tempfile.TemporaryDirectory() as folder, served(tell_at=int(KILLED_AT * total)) as (server, counts):
        environment = _environment(peer, wanted, server.port, folder) | {"RESUMABLE": "1"}
        with on_core(0):
            process = subprocess.Popen(
                [python, str(HERE / peer.file)],
                env={**os.environ, **environment},
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        limit = Timer(LIMIT_S, server.end)
        limit.start()
        reached = server.line()
        limit.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if reached != "reached":
            raise RuntimeError(f"{peer.name}: the server did not get {KILLED_AT:.0%} of the requests.")
        said, code, _ = run_client(peer.file, folder, environment | {"RESUME": "1"}, python, LIMIT_S)
    _result(peer, said, code, wanted)
    return int(counts["repeated"])


def _environment(peer: Peer, wanted: Mapping[str, str], port: int, folder: str) -> dict[str, str]:
    home = str(Path(folder) / "home")  # what a client keeps of its user is of this round alone
    own = {"BASE_URL": f"http://127.0.0.1:{port}/v1", "OUT_DIR": folder, "PEER": peer.settings}
    return {**wanted, **own, "HOME": home, "XDG_DATA_HOME": home, "XDG_CACHE_HOME": home}


def _result(peer: Peer, said: str, code: int, wanted: Mapping[str, str]) -> dict[str, float]:
    lines = [line.removeprefix("RESULT ") for line in said.splitlines() if line.startswith("RESULT ")]
    result: dict[str, float] = json.loads(lines[-1]) if lines else {"ok": 0}
    if code or result["ok"] != int(wanted["EPISODES"]):
        raise RuntimeError(f"{peer.name} ended with {code}, {result['ok']} episodes answered\n{said[-1500:]}")
    return result


if __name__ == "__main__":
    sys.exit(main())
