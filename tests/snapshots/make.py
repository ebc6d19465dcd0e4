"""How the fixtures in `runs/` were made, by the tree as it stood: kept as a record, and for making others beside them.

    PYTHONPATH=TREE python tests/net/making.py OUT [NAME ...]

TREE is the tree whose runs are wanted, OUT a new folder. Every command is a process of its own (`as_host` below) that
calls itself `host:NUMBER`, so that no fixture names a machine. What exists is never made again: a fixture of the first
format stays as it was written.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HEAD = """
replicates = 2
width = 4
budget_usd = "{budget}"
"""

AGENTS = """
[[agents]]
name = "chat"
provider = "chat"
model = "noisy"
max_tokens = 900
tags = ["family:a", "open"]
[[agents]]
name = "responses"
provider = "responses"
model = "random"
max_tokens = 900
tags = ["family:a", "proprietary"]
[[agents]]
name = "messages"
provider = "messages"
model = "noisy"
max_tokens = 900
notes = false
prompts = "known_horizon"
tags = ["family:b", "reasoning"]
[[agents]]
name = "gemini"
provider = "gemini"
model = "random"
max_tokens = 900
tags = ["family:b", "open"]
"""

IN_PROCESS = """
[[agents]]
policy = "oracle"
"""

POLICIES = """
[[agents]]
policy = "knuth"
[[agents]]
policy = "climber"
[[agents]]
policy = "learner"
[[agents]]
policy = "replanner"
[[agents]]
policy = "greedy"
[[agents]]
policy = "random"
[[agents]]
policy = "noisy"
[[agents]]
policy = "oracle"
"""

SUITES = """
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [3] }
[[suites]]
name = "procurement/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [3] }
[[suites]]
name = "pricing/basic"
instances = ["seed-0", "seed-1"]
vary = { periods = [4] }
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
vary = { block = ["none", "cost_change"] }
"""

SMALL_SUITES = """
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6"]
vary = { periods = [4] }
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""

JUDGED_SUITE = """
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

PROVIDER = """dialect = "{dialect}"
any_model = true
timeout_s = {timeout}
[simulate]
latency = "{latency}"
{more}
[usd_per_mtok]
input = "1"
output = "4"
cached_read = "0.1"
cached_write = "1.25"
as_of = 2026-11-21
source = "made up"
"""

DIALECTS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
    "gemini": "gemini",
}
"""By provider."""

FAULTS = """price = "1:4:0.1:1.25"
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


def providers(folder: Path, *, latency: str = "1ms", more: str = 'price = "1:4:0.1:1.25"', timeout: int = 60) -> None:
    """The files of the four simulated providers, one a dialect."""
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    for name, dialect in DIALECTS.items():
        text = PROVIDER.format(dialect=dialect, latency=latency, more=more, timeout=timeout)
        (folder / "providers" / f"{name}.toml").write_text(text)


def evalkit(folder: Path, *words: str, life: int = 1) -> subprocess.Popen[bytes]:
    """A command as a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--as-host", str(life), *words]
    environment = {**os.environ, "LOGNAME": "somebody", "USER": "somebody", "COLUMNS": "80"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def call(folder: Path, *words: str, life: int = 1, codes: tuple[int, ...] = (0,)) -> None:
    """A command to its end."""
    code = evalkit(folder, *words, life=life).wait()
    assert code in codes, (words, code)


def kill(folder: Path, run: Path, requests: int, *words: str, life: int = 1) -> None:
    """A command that is killed once its providers have got so many requests, all together."""
    process = evalkit(folder, *words, life=life)
    while sum(path.read_bytes().count(b"\n") for path in run.glob("bill-*.jsonl")) < requests:
        assert process.poll() is None, words
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # providers end with it


def finished(folder: Path) -> None:
    """All environments, all dialects, nothing goes wrong: what the killed ones must come to."""
    providers(folder)
    (folder / "sweep.toml").write_text(HEAD.format(budget="40.00") + AGENTS + IN_PROCESS + SUITES)
    call(folder, "run", "sweep.toml")


def killed_early(folder: Path) -> None:
    """Killed once: tails, nothing compacted, an open lease, no episode of some agents begun."""
    _same(folder)
    kill(folder, folder / "runs" / "sweep", 60, "run", "sweep.toml")


def killed_late(folder: Path) -> None:
    """Three lives: one ended by `--limit`, two killed; a crash charge, segments beside tails."""
    _same(folder)
    run = folder / "runs" / "sweep"
    call(folder, "run", "sweep.toml", "--limit", "4", codes=(3,))
    kill(folder, run, 230, "run", "sweep.toml", life=2)
    kill(folder, run, 330, "run", "sweep.toml", life=3)


def _same(folder: Path) -> None:
    providers(folder, latency="lognormal:40ms:0.4")
    (folder / "sweep.toml").write_text(HEAD.format(budget="40.00") + AGENTS + IN_PROCESS + SUITES)


def faulty(folder: Path) -> None:
    """Faults of most kinds; episodes that ended early, one of them voided, some played a second time."""
    providers(folder, more=FAULTS, timeout=3)
    (folder / "sweep.toml").write_text(HEAD.format(budget="40.00") + AGENTS + SMALL_SUITES)
    while evalkit(folder, "run", "sweep.toml").wait() == 3:
        pass
    providers(folder)
    call(folder, "run", "sweep.toml", "--retry", "content_filter", life=2)
    call(
        folder,
        "void",
        "runs/sweep",
        "--episode",
        "chat:scheduling/basic?periods=4:seed-3:0",
        "--reason",
        "the provider truncated replies",
    )


def policies(folder: Path) -> None:
    """Policies in this process alone: no provider, no money."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text("replicates = 2\n" + POLICIES + SUITES)
    call(folder, "run", "sweep.toml")


def nightly(folder: Path) -> None:
    """Five nights: three good, one with an alarm, one killed."""
    providers(folder, more="")
    (folder / "sweep.toml").write_text(NIGHTS)
    for date in ("2026-11-01", "2026-11-02", "2026-11-03"):
        call(folder, "nightly", "sweep.toml", "--date", date)
    providers(folder, more="fault_refusal = 0.9")
    call(folder, "nightly", "sweep.toml", "--date", "2026-11-04", codes=(0, 1, 4))
    providers(folder, latency="40ms", more="")
    run = folder / "runs" / "sweep" / "nights" / "2026-11-05"
    kill(folder, run, 60, "nightly", "sweep.toml", "--date", "2026-11-05", life=2)
    for bill in folder.rglob("bill-*.jsonl"):  # large, and no part of what is read again
        bill.unlink()


def merged(folder: Path) -> None:
    """Two runs of other parts of one sweep, joined; a few episodes were in both."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text("replicates = 1\n" + POLICIES + SUITES)
    call(folder, "run", "sweep.toml", "--name", "a", "--only", "suite=scheduling/basic", codes=(0, 3))
    parts = "suite=scheduling/basic,suite=pricing/basic,suite=costbench/basic"
    call(folder, "run", "sweep.toml", "--name", "b", "--only", parts, codes=(0, 3))
    call(folder, "merge", "runs/a", "runs/b", "--out", "runs/sweep")
    for name in ("a", "b"):
        shutil.rmtree(folder / "runs" / name)


def repaired(folder: Path) -> None:
    """Half of a segment was lost and given up: what was damaged lies in quarantine, the rest was played again."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text("replicates = 1\n" + POLICIES + SUITES)
    call(folder, "run", "sweep.toml", "--limit", "6", codes=(0, 3))
    call(folder, "run", "sweep.toml", life=2)
    segment = sorted((folder / "runs" / "sweep" / "steps").glob("*.parquet"))[-1]
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    call(folder, "run", "sweep.toml", "--repair", life=3)


def judged(folder: Path) -> None:
    """A run on CostBench and a judge's run on it."""
    providers(folder)
    (folder / "sweep.toml").write_text(HEAD.format(budget="40.00") + AGENTS + JUDGED_SUITE)
    call(folder, "run", "sweep.toml", "--width", "4")
    call(folder, "judge", "runs/sweep", "--model", "chat/clerk", "--budget", "2")
    call(folder, "run", "runs/sweep-judge.toml", life=2)


FIXTURES: dict[str, Callable[[Path], None]] = {
    "finished": finished,
    "killed-early": killed_early,
    "killed-late": killed_late,
    "faulty": faulty,
    "policies": policies,
    "nightly": nightly,
    "merged": merged,
    "repaired": repaired,
    "judged": judged,
}


def as_host(life: int, words: list[str]) -> None:
    """Run a command as the process `life` of the machine `host`."""
    socket.gethostname = lambda: "host"
    os.getpid = lambda: life
    from evalkit.cli.main import main

    sys.exit(main(words))


def tidy(folder: Path) -> None:
    """Leave out what is derived, and what only a living run has; see that no place of this machine is named."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if "derived" in path.parts and path.is_file():
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for path in folder.rglob("*"):
        assert path.is_dir() or str(folder.parent).encode() not in path.read_bytes(), path


def make(out: Path, names: list[str]) -> None:
    """Make the named fixtures, or all, in a folder that has none of them."""
    for name in names or FIXTURES:
        folder = out / name
        assert not folder.exists(), f"{folder} is there already"
        FIXTURES[name](folder)
        tidy(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(json.dumps({"fixture": name, "bytes": size}))


if __name__ == "__main__":
    if sys.argv[1] == "--as-host":
        as_host(int(sys.argv[2]), sys.argv[3:])
    make(Path(sys.argv[1]).resolve(), sys.argv[2:])
