"""`make bench`: what evalkit promises in figures, each beside a floor measured in the same run.

Throughput runs in the harness beside the project (`../shared/bench`): its stub server, its bare aiohttp client as the
floor, and evalkit's own driver, pinned to cores of their own. Without that folder this part is skipped, with the
reason. Nothing is installed. Exits non-zero where a promise is not kept.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HARNESS = HERE.parent.parent / "shared" / "bench"
MOST_CPU = 1.6
"""Times the floor's CPU a request."""
LEAST_RATE = 0.7
"""Of the floor's requests a second, once a lane has opened."""
MOST_MB = 250.0
SHORT, LONG = 512, 2048
"""Episodes of 10 requests each, 512 in flight. The short run lasts about a second, and four round trips of it are the
slow start of a lane that does not know its provider; so the rate's promise is for the long one, the others for both."""
ROUNDS = 3


def throughput(folder: Path) -> bool:
    """Both runs beside the floor; the median of the rounds counts."""
    if not (HARNESS / "bench.py").is_file():
        print(f"skipped: throughput: no harness at {HARNESS.relative_to(HERE.parent.parent)}")
        return True
    missing = [tool for tool in ("taskset",) if shutil.which(tool) is None]
    missing += [] if _imports("httptools") else ["the package httptools"]
    if missing:
        print(f"skipped: throughput: the harness needs {' and '.join(missing)}")
        return True
    return all([_compare(folder, SHORT, least_rate=0.0), _compare(folder, LONG, least_rate=LEAST_RATE)])


def _compare(folder: Path, episodes: int, *, least_rate: float) -> bool:
    rows = _harness(folder, episodes)
    floors = [row for row in rows if row["system"] == "floor"]
    ours = [row for row in rows if row["system"] == "evalkit"]
    if any(row["ok"] != row["episodes"] for row in ours):
        print(json.dumps(ours, indent=1))
        return False
    floor_cpu, floor_rate = (_median(floors, key) for key in ("work_cpu_ms_per_req", "rps"))
    cpu, rate, memory = (_median(ours, key) for key in ("work_cpu_ms_per_req", "rps", "peak_rss_mb"))
    rate_promise = f">= {least_rate}" if least_rate else "-"
    print(f"\n{f'{episodes:,} episodes x 10':24}{'floor':>12}{'evalkit':>12}{'ratio':>8}{'promise':>12}")
    print(f"{'CPU ms a request':24}{floor_cpu:12.3f}{cpu:12.3f}{cpu / floor_cpu:8.2f}{f'<= {MOST_CPU}':>12}")
    print(f"{'requests/s':24}{floor_rate:12,.0f}{rate:12,.0f}{rate / floor_rate:8.2f}{rate_promise:>12}")
    print(
        f"{'peak memory, MB':24}{_median(floors, 'peak_rss_mb'):12.0f}{memory:12.0f}{'':8}{f'<= {MOST_MB:.0f}':>12}\n"
    )
    return cpu / floor_cpu <= MOST_CPU and rate / floor_rate >= least_rate and memory <= MOST_MB


def _harness(folder: Path, episodes: int) -> list[dict[str, object]]:
    results = folder / f"results-{episodes}.jsonl"
    systems = ",".join(["floor", *["evalkit,floor"] * ROUNDS])
    command = [sys.executable, str(HARNESS / "bench.py"), "--more", str(HERE / "systems.json"), "--systems", systems]
    command += ["--conc", "512", "--episodes", str(episodes), "--turns", "10", "--json", str(results)]
    command += ["--stub-python", sys.executable]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path}, cwd=folder)
    return [json.loads(line) for line in results.read_text().splitlines()]


def _imports(name: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def _median(rows: list[dict[str, object]], key: str) -> float:
    values = sorted(float(str(row[key])) for row in rows)
    return values[len(values) // 2]


def main() -> int:
    """All benchmarks, throughput first."""
    from bench import episodes, kernels, log, planning, pricing, procurement, results, turns

    with tempfile.TemporaryDirectory() as folder:
        kept = [throughput(Path(folder))]
    for part in (log, kernels, procurement, pricing, planning, episodes, turns, results):
        print()
        kept.append(part.main())
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
