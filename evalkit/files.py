"""Files that are made for the user, whole or not at all, and names of files that a user gives."""

import errno
import os
import re
import secrets
from pathlib import Path

from evalkit.errors import UsageError

TOO_LONG = "A name has at most 255 bytes, a path 4,095. Choose a shorter one."
"""What to do about a name that no usual file system takes."""


def new_file(name: str, ending: str, what: str, more: str = "") -> Path:
    """Where `what` is to be written. Raises UsageError for another ending, and where the file exists already: `more`
    is what else can be done then."""
    path = Path(name)
    if path.suffix != ending:
        raise UsageError(f"{path}: the name of {what} must end in {ending}.")
    if path.exists():
        remedy = f"Choose another name, or remove the file first. {more}".strip()
        raise UsageError(f"{path} exists already; nothing was written. {remedy}")
    return path


def write_new(path: Path, text: str) -> None:
    """Write text to a new file; its parent folders are created. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        write_whole(path, text.encode())
    except OSError as flaw:
        raise UsageError(f"{path} cannot be written: {flaw.strerror or flaw}.") from flaw


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or what a link leads to; an older one stays as it is until the new one is complete. Raises
    OSError."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_bytes(data)
        return
    aside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        aside.write_bytes(data)
        if path.exists():
            aside.chmod(path.stat().st_mode)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


_IN_A_HOME = re.compile(r"~[^/\s=]*/")


def at_home(name: str) -> str:
    """A path that begins with `~/` or `~somebody/`, as a shell gives it. A bare `~` may be the name of a run."""
    return os.path.expanduser(name) if _IN_A_HOME.match(name) else name  # noqa: PTH111 - an unknown user's stays as it is
