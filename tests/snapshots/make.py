"""Makes the runs in `runs/` anew, all or those that are named, in today's format of the log:

    python -m tests.snapshots.make [NAME ...]

Every command is a process of its own that calls itself `host:NUMBER`, so that no run names a machine. A run that is
killed stops elsewhere each time it is made. Rewrite the snapshots afterwards, and what is kept of exit codes and keys.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.provider.serving import in_place
from tests.snapshots.workspace import PROJECT, RUN, RUNS
from tests.support.dialect_sweep import AGENTS, PRICE, SWEEPS, lay, providers

FEW = """
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6"]
vary = { periods = [4] }
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""

ONE = """
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""

NIGHTS = """
budget_usd = "5.00"
width = 8
[[agents]]
name = "watched"
provider = "chat"
model = "knuth"
max_tokens = 900
[[agents]]
name = "control"
provider = "messages"
model = "random"
max_tokens = 900
[[suites]]
name = "scheduling/basic"
vary = { periods = [5], queries = [6] }
"""

FAULTS = f"""price = "{PRICE}"
fault_429 = 0.05
fault_500 = 0.05
fault_reset = 0.03
fault_truncated = 0.03
fault_unmetered = 0.05
fault_length = 0.05
fault_refusal = 0.05
fault_content_filter = 0.02
retry_after = "20ms"
"""

BILLS = {(name, "bill-chat.jsonl") for name in ("finished", "faulty")}
"""Runs, each with what is kept of its providers' bills: `tools reconcile` reads it."""


def evalkit(folder: Path, *words: str, life: int = 1) -> subprocess.Popen[bytes]:
    """A command as a process of its own."""
    command = [sys.executable, "-m", "tests.snapshots.make", "--as-host", str(life), *words]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "LOGNAME": "somebody", "USER": "somebody", "COLUMNS": "80"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def call(folder: Path, *words: str, life: int = 1, codes: tuple[int, ...] = (0,)) -> None:
    """A command to its end."""
    code = evalkit(folder, *words, life=life).wait()
    assert code in codes, (words, code)


def requests_of(folder: Path) -> int:
    """How many requests the providers have got."""
    return sum(path.read_bytes().count(b"\n") for path in (folder / RUN).glob("bill-*.jsonl"))


def kill(folder: Path, requests: int, *words: str, life: int) -> None:
    """A command that is killed once its providers have got so many requests more."""
    before = requests_of(folder)
    process = evalkit(folder, *words, life=life)
    while requests_of(folder) < before + requests:
        assert process.poll() is None, words
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # providers end with it


def finished(folder: Path) -> None:
    """All environments, all dialects, nothing goes wrong: what the killed one must come to."""
    lay(folder, SWEEPS["dialects"])
    call(folder, "run", "sweep.toml")


def killed(folder: Path) -> None:
    """The same in three lives: one ended by `--limit`, two killed; crash charges, files compacted and not, a lease."""
    lay(folder, SWEEPS["dialects"])
    providers(folder, latency="lognormal:40ms:0.4")
    call(folder, "run", "sweep.toml", "--limit", "4", codes=(3,))
    kill(folder, 20, "run", "sweep.toml", life=2)
    kill(folder, 20, "run", "sweep.toml", life=3)


def faulty(folder: Path) -> None:
    """Faults of most kinds: episodes that ended early, one of them voided, some played a second time, some that the
    provider refuses each time."""
    lay(folder, AGENTS + FEW)
    providers(folder, more=FAULTS, timeout=3)
    for life in (1, 2):
        call(folder, "run", "sweep.toml", life=life, codes=(3,))
    voided = "chat:scheduling/basic?periods=4:seed-3:0"
    call(folder, "tools", "void", str(RUN), "--episode", voided, "--reason", "the provider truncated replies")


def policies(folder: Path) -> None:
    """Policies in this process alone: no provider, no money."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text(SWEEPS["policies"])
    call(folder, "run", "sweep.toml")


def nightly(folder: Path) -> None:
    """Three nights, the last with an alarm."""
    lay(folder, NIGHTS)
    providers(folder, more="")
    for date in ("2026-11-02", "2026-11-03"):
        call(folder, "nightly", "sweep.toml", "--date", date)
    providers(folder, more="fault_refusal = 1.0")
    call(folder, "nightly", "sweep.toml", "--date", "2026-11-04", codes=(0, 1, 4))


def judged(folder: Path) -> None:
    """A run on CostBench and a judge's run on it."""
    lay(folder, AGENTS + ONE)
    call(folder, "run", "sweep.toml")
    call(folder, "tools", "judge", str(RUN), "--model", "chat/clerk")
    call(folder, "run", f"{RUN}-judge.toml", life=2)


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "finished": finished,
    "killed": killed,
    "faulty": faulty,
    "policies": policies,
    "nightly": nightly,
    "judged": judged,
}
"""What makes each, in a folder that is not there yet."""


def as_host(life: int, words: list[str]) -> None:
    """Run a command as the process `life` of the machine `host`."""
    socket.gethostname = lambda: "host"
    os.getpid = lambda: life
    from evalkit.cli.main import main

    with in_place():
        sys.exit(main(words))


def tidy(folder: Path) -> None:
    """Leave out what is derived or large and not read again; see that no place of this machine is named."""
    for path in sorted(folder.rglob("*"), reverse=True):
        bill = path.name.startswith("bill-") and (folder.name, path.name) not in BILLS
        if path.is_file() and (bill or "derived" in path.parts):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for path in folder.rglob("*"):
        assert path.is_dir() or str(folder.parent).encode() not in path.read_bytes(), path


def make(names: list[str]) -> None:
    """Make these runs, or all, in the place of those that are there."""
    for name in names or MAKERS:
        folder = RUNS / name
        shutil.rmtree(folder, ignore_errors=True)
        MAKERS[name](folder)
        tidy(folder)
        print(name, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), "bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-host"]:
        as_host(int(sys.argv[2]), sys.argv[3:])
    make(sys.argv[1:])
