"""The lines of docs/install.md, each tried with the built wheel in the place of what an index would give.

`installed` behind a fence: its lines are run one after the other, each block in a folder of its own, with uv and pipx
that keep what they install in a folder of the test. `container` is run where Docker runs; `clone` is not run again,
since the caller is one. Needs the network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.document_blocks import PROJECT, Block, blocks_of

PAGE = "docs/install.md"
KINDS = ("installed", "container", "clone")
OWED = 3
"""The exit code of a run that was limited: episodes remain."""


def install_blocks() -> list[Block]:
    """Those of the page, in order."""
    return [block for block in blocks_of(PAGE) if block.language == "sh"]


def lines_of(block: Block) -> Iterator[str]:
    """A block's commands, without comments."""
    for line in block.text.splitlines():
        command = line.partition("  #")[0].strip()
        if command:
            yield command


@contextmanager
def reader(wheel: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a reader whose tools find the wheel, and install into a folder that is taken away."""
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        found = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        tools = Path(sys.executable).parent  # uv
        environment = {
            **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")},
            "PATH": f"{room / 'bin'}:{room / 'only'}:/usr/local/bin:/usr/bin:/bin",
            "UV_FIND_LINKS": str(wheel.parent),
            "PIP_FIND_LINKS": found,
            "UV_CONSTRAINT": str(PROJECT / "requirements.lock"),
            "UV_TOOL_DIR": str(room / "tools"),
            "UV_TOOL_BIN_DIR": str(room / "bin"),
            "PIPX_HOME": str(room / "pipx"),
            "PIPX_BIN_DIR": str(room / "bin"),
        }
        (room / "only").mkdir()
        for tool in ("uv", "uvx"):
            (room / "only" / tool).symlink_to(tools / tool)
        # The Python that built the wheel, under the name that a reader's has.
        (room / "only" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (room / "only" / "python3").chmod(0o755)
        environment["UV_PYTHON"] = environment["PIPX_DEFAULT_PYTHON"] = sys.executable
        yield environment


def run(line: str, folder: Path, environment: Mapping[str, str]) -> None:
    """One line, as a shell reads it. Raises SystemExit if it fails."""
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in ((0, OWED) if "--limit" in line else (0,)):
        raise SystemExit(f"{PAGE}: {line}\n{done.stdout}{done.stderr}\nexit code {done.returncode}")


def has_docker() -> bool:
    """Whether containers can be started here."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def try_page(wheel: Path) -> None:
    """Every line of the page that can be tried here; raises SystemExit at the first that fails."""
    for block in install_blocks():
        kind = next(word for word in block.words if word in KINDS)
        if kind == "clone" or (kind == "container" and not has_docker()):
            print(f"{block.place}: not tried: {'this is one' if kind == 'clone' else 'no Docker runs here'}")
            continue
        with reader(wheel) as environment, tempfile.TemporaryDirectory() as folder:
            if "pipx" in block.text:
                run("uv tool install pipx", Path(folder), environment)
            if block.text.startswith("evalkit"):
                run("uv tool install evalkit-econ", Path(folder), environment)
            for line in lines_of(block):
                run(line, PROJECT if kind == "container" else Path(folder), environment)
                print(f"{block.place}: {line}", flush=True)
