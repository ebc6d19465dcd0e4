"""What reading a long run promises: its report, SQL over its scores, and the pages' answers, each in a fresh process.

The run has 1,000,000 steps of all four environments (`replicas.py`). The first report folds all episodes; what it keeps
is there for all that follow.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench.measuring import span
from bench.replicas import write_replicas

STEPS = 1_000_000
FIRST_S, AGAIN_S, MOST_MB = 20.0, 10.0, 2000.0
"""CPU seconds of the first report and of the others, and megabytes at their peak. They use one core: where it is their
own, the wall's are the same."""
ANSWER_S = 1.0
"""Of a page, whatever is being read meanwhile."""
ANSWERS = 5
READ_S = 30.0
"""Until a page must have been read."""
SCORES = "select agent, suite, avg(value) as score from scores where metric = 'score' and used group by all"


def main() -> bool:
    """Measure and print; whether every promise is kept."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        steps = write_replicas(run, STEPS)
        print(f"{f'{steps:,} steps':34}{'wall':>12}{'CPU':>12}{'promise':>12}{'memory':>12}{'promise':>12}")
        kept = [
            _command("report, the first", ["report", str(run), "--json"], FIRST_S),
            _command("report, again", ["report", str(run), "--json"], AGAIN_S),
            _command("sql over scores", ["sql", str(run), SCORES], AGAIN_S),
            _pages(run),
        ]
    return all(kept)


def _command(name: str, words: Sequence[str], most_s: float) -> bool:
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "evalkit", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall, cpu, memory = time.perf_counter() - began, used.ru_utime + used.ru_stime, _megabytes(used.ru_maxrss)
    print(f"{name:34}{span(wall):>12}{span(cpu):>12}{f'<= {most_s:.0f} s':>12}", end="")
    print(f"{f'{memory:.0f} MB':>12}{f'<= {MOST_MB:.0f} MB':>12}")
    return status == 0 and cpu <= most_s and memory <= MOST_MB


def _megabytes(peak: int) -> float:
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def _pages(run: Path) -> bool:
    """The slowest answer of the run's page, from the first on: while the run is read it says so."""
    words = [sys.executable, "-m", "evalkit", "view", str(run)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        page = process.stdout.readline().split()[2]
        began, slowest, whole = time.perf_counter(), 0.0, 0
        while whole < ANSWERS and time.perf_counter() - began < READ_S:
            asked = time.perf_counter()
            with urllib.request.urlopen(page) as answer:
                answer.read()
            slowest = max(slowest, time.perf_counter() - asked)
            whole += answer.status == 200
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
    print(f"{'page of the run':34}{span(slowest):>12}{'':12}{f'<= {ANSWER_S:.0f} s':>12}")
    return whole == ANSWERS and slowest <= ANSWER_S


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
