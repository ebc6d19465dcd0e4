"""`python -m tests.sim.mutants`: take one mechanism at a time out of a copy, and see after how many seeds it is missed.

A simulation that finds nothing proves nothing unless it finds what is known to be wrong.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sim import mechanisms, mechanisms_log
from tests.sim.mechanisms import Mutant

PROJECT = Path(__file__).resolve().parents[2]


MUTANTS: tuple[Mutant, ...] = (*mechanisms.MUTANTS, *mechanisms_log.MUTANTS)


def main() -> int:
    """0: each mutant was found; 1: some were not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    print(f"{'found after':>10}  {'what was taken out':61} {'in seeds that have':42} by which promise")
    parser.add_argument("--seeds", type=int, default=300, help="after how many seeds a mutant counts as not found")
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    chosen = [one for one in MUTANTS if given.only in one.name]
    missed = 0
    with ThreadPoolExecutor(given.processes) as pool:
        for mutant, found in zip(chosen, pool.map(lambda one: hunted(one, given.seeds), chosen), strict=True):
            missed += found is None
            after, promise = ("NOT FOUND", "") if found is None else (f"{found[0]} seeds", plain(found[1]))
            print(f"{after:>10}  {mutant.name:62} {'+'.join(mutant.needs):42} {promise}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


def plain(broken: str) -> str:
    """The promise that a seed broke, short, without the places of one machine."""
    return re.sub(r"/\S*/evalkit-sim-\w+/", "", broken)[:110]


def hunted(mutant: Mutant, seeds: int) -> tuple[int, str] | None:
    """After how many seeds a promise breaks, and which; None: none did."""
    with tempfile.TemporaryDirectory(prefix="evalkit-mutant-") as name:
        folder = Path(name)
        shutil.copytree(PROJECT / "evalkit", folder / "evalkit", ignore=shutil.ignore_patterns("__pycache__"))
        for other in ("tests", "providers", "instances", "runs", "pyproject.toml"):
            (folder / other).symlink_to(PROJECT / other)
        path = folder / "evalkit" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(
                f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once"
            )
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "tests.sim",
            "--seeds",
            str(seeds),
            "--stop",
            "1",
            "--processes",
            "1",
            "--plain",
            *(f"--always={name}" for name in mutant.needs),
        ]
        ran = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": name}, capture_output=True, text=True, check=False
        )
    found = re.search(r"^seed (\d+): (.*)$", ran.stdout, re.MULTILINE)
    if found is None and ran.returncode:
        raise SystemExit(f"{mutant.name}: the simulation itself failed:\n{ran.stderr[-2000:]}")
    return None if found is None else (int(found[1]) + 1, found[2])


if __name__ == "__main__":
    sys.exit(main())
