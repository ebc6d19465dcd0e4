"""What it costs to find a large run complete: CPU seconds and memory of whole commands, and of what reads its log.

The run is made of rows that are written through the store, of an episode of CostBench's length each, with a reply of
some 300 bytes a step; then `status`, `run` and `report` are called in processes of their own. Beyond a million
episodes only `status` and `run` are.

    python -m bench.finding [EPISODES] [STEPS]
    python -m bench.finding 10000000 1       # 2.3 GB on the disk
"""

import asyncio
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from evalkit.digests import step_digest
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.universe import Choice, episodes
from evalkit.frozen.manifests import write_manifest
from evalkit.money import PicoUsd
from evalkit.spec.sweep import read_sweep
from evalkit.store.files.damage import first_flaw
from evalkit.store.files.record import StepRecord
from evalkit.store.reading.index import read_index
from evalkit.store.writing.writer import open_store

EPISODES, STEPS = 20_000, 10
MOST_READ = 1_000_000
"""Episodes up to which what reads all of them is measured too."""
REPLICATES = 1_000_000
"""The most that a sweep may have; beyond, there are more suites."""
WIDTH = 512
"""Episodes side by side, as a run has them in flight."""

SPEC = """
replicates = {replicates}
[[agents]]
policy = "knuth"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = {periods} }}
"""


def rows(resolved: ResolvedSweep, steps: int, most: int | None = None, *, skip: int = 0) -> Iterator[StepRecord]:
    """The rows of all episodes, or of some behind the first, some side by side, as the log of a run has them."""
    manifest = resolved.manifest
    found = episodes(manifest, list(manifest.agents.values()), Choice())
    wanted = islice(found, skip, None if most is None else skip + most)
    while group := list(islice(wanted, WIDTH)):
        for step in range(steps):
            for one in group:
                asked, shown = secrets.token_bytes(16), secrets.token_bytes(16)
                reply = b'{"calls":[],"finish":"stop","text":"%b"}' % secrets.token_hex(128).encode()
                facts = b'{"calls":[{"outcome":"ok","tool":"submit","blocking":%d}]}' % (step % 7)
                yield StepRecord(
                    episode=one.id,
                    environment=one.suite.environment,
                    suite=one.suite.name,
                    instance=one.target.id,
                    agent=one.cell.agent.name,
                    replicate=one.replicate,
                    take=0,
                    step=step,
                    period=step,
                    turn=0,
                    reply=reply,
                    raw=None,
                    facts=facts,
                    observation_digest=shown,
                    request_digest=asked,
                    step_digest=step_digest(asked, reply, facts, shown),
                    tokens_in=900 + step,
                    tokens_out=80,
                    tokens_cached_read=0,
                    tokens_cached_write=0,
                    tokens_reasoning=0,
                    cost=PicoUsd(0),
                    latency_s=1.5,
                    queue_s=0.0,
                    attempts="ok",
                    started_at=1.7e9 + step,
                    served_model="",
                    fingerprint="",
                    response_id=secrets.token_hex(8),
                    finish="stop",
                    ending="stable" if step == steps - 1 else "",
                    worker="",
                )


def make(folder: Path, episodes_wanted: int, steps: int) -> Path:
    """A run directory whose episodes have all ended."""
    suites = -(-episodes_wanted // (2 * REPLICATES))
    spec = SPEC.format(replicates=episodes_wanted // (2 * suites), periods=[5 + number for number in range(suites)])
    (folder / "mine.toml").write_text(spec)
    resolved, run = resolve(read_sweep(folder / "mine.toml")), folder / "runs" / "mine"

    async def write() -> None:
        with open_store(run, session="bench") as store:
            for row in rows(resolved, steps):
                store.append(row)
                await store.room()
            await store.durable()

    asyncio.run(write())
    write_manifest(run, resolved.manifest)
    return run


MEASURED = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
said = child.stdout.read().decode()
_, status, used = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said, sep="\\n")
"""
"""Runs a command from a small process: memory of the process that starts one counts as its own."""


def command(folder: Path, *words: str, codes: Collection[str] = ("0",)) -> tuple[float, float, str]:
    """(CPU s, peak MB, what it says of its episodes) of a command in a process of its own."""
    called = [sys.executable, "-c", MEASURED, sys.executable, "-m", "evalkit", *words]
    done = subprocess.run(called, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    code, seconds, memory, *lines = done.stdout.splitlines()
    if code not in codes:
        raise SystemExit(f"{' '.join(words)}: exit code {code}: {lines[-3:]}")
    said = next((line for line in lines if "episodes ended" in line), lines[0])
    return float(seconds), float(memory), said


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call, the first in this process or not."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    wanted, steps = (int(word) for word in [*sys.argv[1:3], *map(str, (EPISODES, STEPS)[len(sys.argv) - 1 :])])
    with tempfile.TemporaryDirectory(prefix="evalkit-bench-") as room:
        folder = Path(room)
        run = make(folder, wanted, steps)
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        print(f"{wanted:,} episodes of {steps} steps, all ended; {size / 1e6:,.0f} MB", flush=True)
        few = wanted <= MOST_READ
        readers: tuple[tuple[str, Callable[[Path], object]], ...] = (
            *((("read_index", read_index),) if few else ()),
            ("first_flaw", first_flaw),
        )
        for name, work in readers:
            print(f"  {name:<12} {cpu(lambda work=work: work(run)):6.2f} CPU s", flush=True)  # type: ignore[misc]
        for words in (("run", "mine.toml"), ("status", "runs/mine"), *([("report", "runs/mine")] if few else [])):
            seconds, memory, said = command(folder, *words)
            print(f"  {words[0]:<12} {seconds:6.2f} CPU s, {memory:5.0f} MB: {said}", flush=True)


if __name__ == "__main__":
    main()
