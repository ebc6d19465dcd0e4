"""A fixture as a working folder of its own, and commands called in it: what they print, and their exit codes."""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalkit.cli.main import main

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"
RUN = Path("runs") / "sweep"
"""Where a fixture's run lies in its folder; its sweep is `sweep.toml`, its providers are in `providers/`."""

SURROUNDINGS = {"COLUMNS": "160", "LOGNAME": "somebody", "USER": "somebody"}
"""Variables that commands see: tables are as wide as this in the goldens."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        """As the goldens have it."""
        parts = [f"exit {self.code}\n"]
        if self.err:
            parts.append(f"--- stderr\n{self.err}")
        if self.out:
            parts.append(f"--- stdout\n{self.out}")
        return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def copy(name: str, parent: Path, *, as_name: str = "") -> Path:
    """A copy of a fixture that may be written to."""
    return Path(shutil.copytree(RUNS / name, parent / (as_name or name)))


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, in the surroundings of the goldens."""
    before, place = dict(os.environ), Path.cwd()
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        del os.environ[name]  # tables of providers say which keys are set
    os.environ.update(SURROUNDINGS)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(before)


def call(folder: Path, *words: str) -> Said:
    """One command in this process. An exception that leaves it stands in the place of the exit code's words."""
    # Tables of `sql --csv` are written as bytes, beneath the text.
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True), io.StringIO()
    with inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except Exception as flaw:  # noqa: BLE001
            # What a user would see as a traceback: its kind is golden, so that no other takes its place unseen.
            return Said(1, _text(out), f"{err.getvalue()}traceback: {type(flaw).__name__}")
    return Said(code, _text(out), err.getvalue())


def _text(out: io.TextIOWrapper) -> str:
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
