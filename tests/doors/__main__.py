"""`python -m tests.doors [DOOR ...]`: each door with the library that it opens to.

The libraries exclude each other, so each door gets an environment of its own: made with the newest releases that its
extra allows, tested by `tests/doors/test_DOOR*.py`, measured by `bench/doors.py`, and removed before the next one is
made. Without a name: all doors. Needs the network. Exits non-zero if a door could not be installed, one of its tests
failed, or it costs more than is promised.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]

TESTING = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "markdown-it-py>=3")
"""What the tests need in every environment."""


class Door(NamedTuple):
    """What the environment of one door has beside evalkit."""

    also: tuple[str, ...] = ()
    """Packages that its tests need."""
    extra: bool = True
    """Whether it has the extra of its name; else it needs no library."""
    perhaps: tuple[str, ...] = ()
    """Packages without which some of its tests are skipped: they are large, or not to be had everywhere."""


DOORS = {
    "gym": Door(perhaps=("stable-baselines3>=2.4",)),
    "gateway": Door(also=("langgraph>=1", "langchain-openai>=1", "openai-agents>=0.20"), extra=False),
    "inspect": Door(),
    "mcp": Door(),
    "trl": Door(also=("transformers>=5",), extra=False, perhaps=("torch>=2.6", "trl>=1.16")),
    "verifiers": Door(),
}


def try_door(name: str, door: Door) -> bool:
    """Whether a door's tests pass in a new environment, which is removed."""
    files = sorted(map(str, (PROJECT / "tests" / "doors").glob(f"test_{name}*.py")))
    with tempfile.TemporaryDirectory(prefix=f"evalkit-{name}-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        uv = [sys.executable, "-m", "uv"]
        install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
        surroundings = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
        surroundings["PATH"] = f"{python.parent}{os.pathsep}{surroundings['PATH']}"
        # Of torch the processor's build, unless there are wheels at hand: nothing here has a use for a graphics card.
        if "UV_FIND_LINKS" not in surroundings:
            surroundings.setdefault("UV_TORCH_BACKEND", "cpu")

        def succeeds(words: Sequence[str]) -> bool:
            return subprocess.run(words, cwd=PROJECT, env=surroundings, check=False).returncode == 0

        mine = f"{PROJECT}[{name}]" if door.extra else str(PROJECT)
        if not succeeds([*uv, "venv", "--quiet", str(python.parents[1])]) or not succeeds(
            [*install, *TESTING, *door.also, "--editable", mine]
        ):
            return False
        if door.perhaps and not succeeds([*install, *door.perhaps]):
            print(f"NOT INSTALLED: {', '.join(door.perhaps)}, so what needs them is skipped.", flush=True)
        passed = succeeds([str(python), "-m", "pytest", "-p", "no:cacheprovider", *files])
        return passed and succeeds([str(python), "-m", "bench.doors", name])


def main(wanted: Sequence[str]) -> int:
    """Try the doors named, or all of them."""
    unknown = [name for name in wanted if name not in DOORS]
    if unknown:
        print(f"There is no door {', '.join(unknown)}. There are: {', '.join(DOORS)}.", file=sys.stderr)
        return 2
    failed = []
    for name in wanted or DOORS:
        print(f"== {name}", flush=True)
        if not try_door(name, DOORS[name]):
            failed.append(name)
    print(f"FAILED: {', '.join(failed)}" if failed else "Every door opened.", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
