"""Values that are kept for good, in files of their own: one a line, so that a diff shows each that was lost or changed.

No option of pytest rewrites them. `python -m MODULE NAME ...` does, where MODULE says what it makes.
"""

import difflib
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

Makers = Mapping[str, Callable[[Path], list[str]]]
"""By the name of a file of values: what makes its lines today, in a folder that is given."""


def check_kept(file: Path, today: list[str], module: str) -> None:
    """Fail where the lines made today are not those of a file; say which were lost and which are new."""
    kept = file.read_text().splitlines() if file.exists() else []
    if kept == today:
        return
    lines = [*difflib.unified_diff(kept, today, "kept", "today", n=0, lineterm="")]
    shown = "\n".join([*lines[:60], *([f"and {len(lines) - 60} more lines"] if len(lines) > 60 else [])])
    lost, new = (sum(line.startswith(sign) for line in lines[2:]) for sign in "-+")
    raise AssertionError(
        f"{file.name}: {lost} kept values are gone or changed, {new} are new:\n{shown}\n"
        f"Others depend on these values. If the change is meant: python -m {module} {file.stem}"
    )


def write_kept(folder: Path, makers: Makers) -> None:
    """Write the files that the command line names, or all."""
    for name in sys.argv[1:] or makers:
        with tempfile.TemporaryDirectory() as place:
            (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in makers[name](Path(place))))
