"""Files that are made for the user, and names of files that a user gives. An existing file is never overwritten."""

import os
import re
from pathlib import Path

from evalkit.errors import UsageError


def new_file(name: str, ending: str, what: str) -> Path:
    """Where `what` is to be written. Raises UsageError for another ending, and where the file exists already."""
    path = Path(name)
    if path.suffix != ending:
        raise UsageError(f"{path}: the name of {what} must end in {ending}.")
    if path.exists():
        raise UsageError(f"{path} exists already; nothing was written. Choose another name.")
    return path


def write_new(path: Path, text: str) -> None:
    """Write text to a new file; its parent folders are created. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as flaw:
        raise UsageError(f"{path} cannot be written: {flaw.strerror or flaw}.") from flaw


_IN_A_HOME = re.compile(r"~[^/\s=]*/")


def at_home(name: str) -> str:
    """A path that begins with `~/` or `~somebody/`, as a shell gives it. A bare `~` may be the name of a run."""
    return os.path.expanduser(name) if _IN_A_HOME.match(name) else name  # noqa: PTH111 - an unknown user's stays as it is
