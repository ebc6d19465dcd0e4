"""`python -m tests.integrations [NAME ...]`: each integration with the library that it opens to.

The libraries exclude each other, so each integration gets an environment of its own: made with the newest releases that
its extra allows, tested by `tests/integrations/test_NAME*.py`, measured by `bench/integrations.py`, and removed before
the next one is made. Without a name: all integrations. Needs the network. Exits non-zero if an integration could not be
installed, one of its tests failed, or it costs more than is promised.
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


class Integration(NamedTuple):
    """What the environment of one integration has beside evalkit."""

    also: tuple[str, ...] = ()
    """Packages that its tests need."""
    extra: bool = True
    """Whether it has the extra of its name; else it needs no library."""
    perhaps: tuple[str, ...] = ()
    """Packages without which some of its tests are skipped: they are large, or not to be had everywhere."""


INTEGRATIONS = {
    "gym": Integration(perhaps=("stable-baselines3>=2.4",)),
    "gateway": Integration(also=("langgraph>=1", "langchain-openai>=1", "openai-agents>=0.20"), extra=False),
    "inspect": Integration(),
    "mcp": Integration(),
    "trl": Integration(also=("transformers>=5",), extra=False, perhaps=("torch>=2.6", "trl>=1.16")),
    "verifiers": Integration(),
}


def try_door(name: str, integration: Integration) -> bool:
    """Whether an integration's tests pass in a new environment, which is removed."""
    files = sorted(map(str, (PROJECT / "tests" / "integrations").glob(f"test_{name}*.py")))
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

        mine = f"{PROJECT}[{name}]" if integration.extra else str(PROJECT)
        if not succeeds([*uv, "venv", "--quiet", str(python.parents[1])]) or not succeeds(
            [*install, *TESTING, *integration.also, "--editable", mine]
        ):
            return False
        if integration.perhaps and not succeeds([*install, *integration.perhaps]):
            print(f"NOT INSTALLED: {', '.join(integration.perhaps)}, so what needs them is skipped.", flush=True)
        passed = succeeds([str(python), "-m", "pytest", "-p", "no:cacheprovider", *files])
        return passed and succeeds([str(python), "-m", "bench.integrations", name])


def main(wanted: Sequence[str]) -> int:
    """Try the integrations named, or all of them."""
    unknown = [name for name in wanted if name not in INTEGRATIONS]
    if unknown:
        print(f"There is no integration {', '.join(unknown)}. There are: {', '.join(INTEGRATIONS)}.", file=sys.stderr)
        return 2
    failed = []
    for name in wanted or INTEGRATIONS:
        print(f"== {name}", flush=True)
        if not try_door(name, INTEGRATIONS[name]):
            failed.append(name)
    print(f"FAILED: {', '.join(failed)}" if failed else "Every integration opened.", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
