"""`python -m tests.sim.mutants`: take one mechanism at a time out of a copy, and see after how many seeds it is missed.

A simulation that finds nothing proves nothing unless it finds what is known to be wrong.

The seed that found a mutant before (`found.py`) is lived first, and alone. "seed 84" in the table is such a one; "85
seeds" is how many were lived, from seed 0 on, until one found it. `--anew` counts for all of them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.sim import mechanisms, mechanisms_agents, mechanisms_log, mechanisms_workers
from tests.sim.found import FOUND_BY
from tests.sim.mechanisms import Mutant

PROJECT = Path(__file__).resolve().parents[2]
BYTECODE = "bytecode"
"""Folder of a copy."""


MUTANTS: tuple[Mutant, ...] = (
    *mechanisms.MUTANTS,
    *mechanisms_log.MUTANTS,
    *mechanisms_agents.MUTANTS,
    *mechanisms_workers.MUTANTS,
)


def main() -> int:
    """0: each mutant was found; 1: some were not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="after how many seeds a mutant counts as not found")
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--anew", action="store_true", help="count from seed 0, whichever seed found them before")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    chosen = [one for one in MUTANTS if given.only in one.name]
    print(f"{'found by':>10}  {'what was taken out':61} {'in seeds that have':42} by which promise", flush=True)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="evalkit-mutants-") as name, ThreadPoolExecutor(given.processes) as pool:
        copies = SimpleQueue[Path]()
        for number in range(given.processes):
            copies.put(_copied(Path(name) / str(number)))

        def hunt(mutant: Mutant) -> tuple[str, str]:
            copy = copies.get()
            with _without(mutant, copy):
                found = hunted(mutant, copy, given.seeds, None if given.anew else FOUND_BY.get(mutant.name))
            copies.put(copy)
            return found

        for mutant, (by, broken) in zip(chosen, pool.map(hunt, chosen), strict=True):
            missed += not by
            needs = "+".join(mutant.needs)
            print(f"{by or 'NOT FOUND':>10}  {mutant.name:62} {needs:42} {plain(broken)}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


def plain(broken: str) -> str:
    """The promise that a seed broke, short, without the places of one machine."""
    return re.sub(r"/\S*/evalkit-sim-\w+/", "", broken)[:110]


def hunted(mutant: Mutant, copy: Path, seeds: int, before: int | None) -> tuple[str, str]:
    """Which seed, or after how many, breaks a promise, and which promise; empty: none of so many seeds does.

    `before`: the seed that found it once.
    """
    if before is not None:
        found = _lived(mutant, copy, before, 1)
        if found is not None:
            return f"seed {found[0]}", found[1]
    found = _lived(mutant, copy, 0, seeds)
    return ("", "") if found is None else (f"{found[0] + 1} seeds", found[1])


def _copied(folder: Path) -> Path:
    """The project, to be changed. One copy serves many mutants: all bytecode but that of one module stays."""
    shutil.copytree(PROJECT / "evalkit", folder / "evalkit", ignore=shutil.ignore_patterns("__pycache__"))
    for other in ("tests", "providers", "instances", "runs", "pyproject.toml"):
        (folder / other).symlink_to(PROJECT / other)
    return folder


@contextmanager
def _without(mutant: Mutant, copy: Path) -> Iterator[None]:
    """The copy without a mechanism."""
    path = copy / "evalkit" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once")
    _write(copy, path, text.replace(mutant.old, mutant.new))
    try:
        yield
    finally:
        _write(copy, path, text)


def _write(copy: Path, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    for compiled in (copy / BYTECODE).rglob(f"{path.stem}.*.pyc"):
        compiled.unlink()  # bytecode is told from that of another source by seconds and length alone


def _lived(mutant: Mutant, copy: Path, first: int, seeds: int) -> tuple[int, str] | None:
    """The first of these seeds in which a promise breaks, and which; None: none does."""
    command = [sys.executable, "-m", "tests.sim", f"--first={first}", f"--seeds={seeds}", "--stop=1"]
    command += ["--processes=1", "--plain", *(f"--always={name}" for name in mutant.needs)]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"PYTHONPATH": str(copy), "PYTHONPYCACHEPREFIX": str(copy / BYTECODE)}
    ran = subprocess.run(command, cwd=copy, env={**given, **own}, capture_output=True, text=True, check=False)
    found = re.search(r"^seed (\d+): (.*)$", ran.stdout, re.MULTILINE)
    if found is None and ran.returncode:
        raise SystemExit(f"{mutant.name}: the simulation itself failed:\n{ran.stderr[-2000:]}")
    return None if found is None else (int(found[1]), found[2])


if __name__ == "__main__":
    sys.exit(main())
