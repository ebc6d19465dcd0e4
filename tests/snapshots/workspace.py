"""A kept run as a working folder of its own, and commands called in it: what they print, and their exit codes."""

import contextlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

from evalkit.cli.main import main
from tests.provider.serving import in_place
from tests.support.dialect_sweep import inside

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
RUNS = HERE / "runs"
RUN = Path("runs") / "sweep"
"""Where a run lies in its folder; its sweep is `sweep.toml`, its providers are in `providers/`."""

SURROUNDINGS = {"COLUMNS": "160", "LOGNAME": "somebody", "USER": "somebody"}
"""Variables that commands see: tables are as wide as this in the snapshots."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        """As the snapshots have it."""
        parts = [f"exit {self.code}\n"]
        if self.err:
            parts.append(f"--- stderr\n{self.err}")
        if self.out:
            parts.append(f"--- stdout\n{self.out}")
        return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def copy(name: str, parent: Path, *, as_name: str = "") -> Path:
    """A copy of a run's folder that may be written to."""
    return Path(shutil.copytree(RUNS / name, parent / (as_name or name)))


def call(folder: Path, *words: str) -> Said:
    """One command in this process."""
    # Tables of `sql --csv` are written as bytes, beneath the text.
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True), io.StringIO()
    with inside(folder, **SURROUNDINGS), in_place(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return Said(code, _text(out), err.getvalue())


def _text(out: io.TextIOWrapper) -> str:
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
