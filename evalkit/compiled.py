"""Compiled kernels in the main path: the plain twin serves until they are ready, so that nobody waits for a compiler.

A kernel is a function that numba compiles; its plain twin, in Python or numpy, gives the same values. Importing numba
and the first kernel takes 0.6 CPU s (compiling them 5 to 12 s), so no short command does: a twin serves the first calls
of a process. Then the kernels are taken from the user's cache beside the caller. Where they are not in it, a process of
its own compiles them, and goes on if its caller ends.

In us a call, its arrays included, by `python -m bench.compiled` on a busy machine with two cores:

    what                        plain   compiled    compiled from   and after so many calls
    blocking pairs, n = 50         10          4
    blocking pairs, n = 200        90         11    n = 200         2,000
    blocking pairs, n = 1000    2,170        190
    shortest paths, N = 5         2.8        3.0
    shortest paths, N = 8         4.5        4.4    N = 8           100,000
    shortest paths, N = 15       11.0       10.0

Procurement's search takes about a second plain up to 10,000 deals times categories, and is compiled above that.
"""

import hashlib
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any


class Kernels:
    """The kernels of one module. Its `warm()` calls each, so that it is compiled, or taken from the cache."""

    def __init__(self, name: str, after: int = 0) -> None:
        """`after`: so many calls are left to the plain twin."""
        self.name, self._after, self._calls = name, after, 0
        self._module: ModuleType | None = None
        self._thread: Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._never = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

    def ready(self, *, at_once: bool = False) -> ModuleType | None:
        """The module, if its kernels can be called; else their plain twins serve. Asked before each call.

        at_once: import what the cache holds before returning, and not beside the caller.
        """
        if self._module is None and not self._never:
            self._calls += 1
            if self._calls > self._after:
                self._begin(at_once)
        return self._module

    def _begin(self, at_once: bool) -> None:
        if self._thread is not None:
            return
        if _mark(self.name).exists():
            self._thread = Thread(target=self._load)
            self._thread.start()
            if at_once:
                self._thread.join()
        elif self._child is None:
            self._child = _compile(self.name)
            self._never = self._child is None
        elif self._child.poll():  # it has failed
            self._never = True

    def _load(self) -> None:
        module = import_module(self.name)
        module.warm()
        self._module = module


def keep_here() -> None:
    """Have numba keep what it compiles from now on in our own folder."""
    config: Any = import_module("numba.core.config")  # its stub does not know what it reads from the environment
    config.CACHE_DIR = str(_folder())
    # Else it reads what every installed package declares, to run the code of those that extend it.
    entrypoints: Any = import_module("numba.core.entrypoints")
    entrypoints._already_initialized = True


@cache
def _folder() -> Path:
    """Below `NUMBA_CACHE_DIR` where it is set, else the user's cache; another one for other sources and versions.

    numba looks at a kernel's own file alone, and finds its code by the place and time of that.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    digest = hashlib.sha256(repr([sys.version, *map(version, ("numba", "llvmlite", "numpy"))]).encode())
    for path in sorted(Path(__file__).parent.joinpath("envs").rglob("*.py")):
        digest.update(f"{path}\0{path.stat().st_mtime_ns}\0".encode() + path.read_bytes())
    return (Path(given) if given else user / "evalkit" / "kernels") / digest.hexdigest()[:16]


def _mark(name: str) -> Path:
    """A file that is there once all kernels of a module are in the cache."""
    return _folder() / f"{name}.ready"


def _compile(name: str) -> "subprocess.Popen[bytes] | None":
    """A process that compiles a module's kernels into the cache; None where nothing can be kept."""
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        if not os.access(_folder(), os.W_OK):
            return None
        nothing = subprocess.DEVNULL
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__, name],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
    except OSError:
        return None


def main(name: str) -> None:
    """Compile a module's kernels, and say that they are there."""
    os.nice(10)
    import_module(name).warm()
    _mark(name).touch()


if __name__ == "__main__":
    main(sys.argv[1])
