"""Commands of evalkit as processes of their own, which begin with its libraries loaded.

A new process spends most of a short command's time on importing libraries. Here one process imports them, but nothing
of evalkit or of plug-ins, and each command is a fork of it, with a folder, an environment, a path and a memory of its
own. macOS does not allow forks after such libraries were loaded: there each command is a new process.
"""

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = (
    *("aiohttp", "aiohttp.web", "duckdb", "jinja2", "msgspec", "numpy", "orjson", "pyarrow", "pyarrow.compute"),
    *("pyarrow.parquet", "rich.console", "rich.progress", "rich.table", "scipy.stats", "tenacity", "uvloop"),
)
"""What the commands import themselves, each when it needs it."""


def evalkit(words: tuple[str, ...], here: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """`python -m evalkit` in a folder: its exit code, and what it printed."""
    if sys.platform == "darwin":
        whole = [sys.executable, "-m", "evalkit", *words]
        return subprocess.run(whole, capture_output=True, text=True, cwd=here, env=environment, check=False)
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        order = {"words": words, "here": str(here), "environment": dict(environment), "out": str(out), "err": str(err)}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


@cache
def _server() -> "subprocess.Popen[str]":
    """The process that forks. It ends with this one."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.support.forked_commands"]
    server = subprocess.Popen(
        words, cwd=PROJECT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    """Fork for each line of the standard input, and print the exit code. Returns at its end, and in each fork."""
    for library in LIBRARIES:
        importlib.import_module(library)
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            _become(json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(order: Mapping[str, Any]) -> None:
    """Run the command in this process, as `python -m evalkit` does."""
    environment = dict(order["environment"])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(order["here"])
    given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [order["here"], *given, *(path for path in sys.path if path != str(PROJECT))]
    sys.path_importer_cache.clear()
    for number, path in enumerate((os.devnull, order["out"], order["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["evalkit", *order["words"]]
    runpy.run_module("evalkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
