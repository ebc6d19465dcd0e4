"""Projects that pip installs for real, and commands of evalkit that find them: the path is all that tells."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import forked_commands
from tests.support.patience import PATIENCE_S

PROJECT = Path(__file__).resolve().parent.parent.parent
STUBS = PROJECT / "tests" / "plugins" / "projects"
EXAMPLES = PROJECT / "examples"


def pip_install(projects: Sequence[Path], site: Path) -> None:
    """Install projects into a folder, without a network; skips the test where nothing here can build them."""
    pytest.importorskip("hatchling", reason="building a package takes hatchling, which is not installed here")
    pytest.importorskip("pip", reason="installing a package takes pip, which is not installed here")
    flaw = pip_flaw(projects, site)
    assert not flaw, flaw


def pip_flaw(projects: Sequence[Path], site: Path) -> str:
    """Install them; what went wrong, or an empty string."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [*words, "--target", str(site), *map(str, projects)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=site.parent,
    )
    return done.stderr if done.returncode else ""


def copies_of(projects: Path, folder: Path) -> list[Path]:
    """The projects in a folder, copied to another one, where building may leave what it likes."""
    return [
        Path(shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__")))
        for path in sorted(projects.iterdir())
        if (path / "pyproject.toml").is_file()
    ]


class Installed:
    """A folder of the path in which packages are installed, and a folder to work in."""

    def __init__(self, site: Path, here: Path) -> None:
        self.site, self.here = site, here
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(site)])}

    def python(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A call of Python that finds evalkit and the packages."""
        return subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, cwd=self.here, env=self.environment, check=False
        )

    def evalkit(self, *words: str, code: int = 0) -> str:
        """What a command of evalkit prints. Asserts its exit code."""
        done = forked_commands.evalkit(words, self.here, self.environment)
        assert done.returncode == code, f"evalkit {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def started(self, *words: str, says: str) -> Iterator[str]:
        """A command of evalkit that goes on until the block ends; the URL that it prints in a line with `says`."""
        process = subprocess.Popen(
            [sys.executable, "-m", "evalkit", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.here,
            env=self.environment,
        )
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                said += line
                found = re.search(rf"{says}.*?(http://[\w.:]+)", line)
                if found:
                    yield found[1]
                    return
            raise AssertionError(said)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def page(url: str, words: str) -> str:
    """What a page says; asked for again until it has these words, for pages of a run come before it has been read."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        if words in text:
            return text
        assert time.monotonic() < until, f"{url} never says {words!r}:\n{text}"
        time.sleep(0.1)
