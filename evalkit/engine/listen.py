"""Where the coordinator of a run listens for workers of other machines, and the token that both sides must know."""

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.store.bucket import is_bucket

VARIABLE = "EVALKIT_JOIN_TOKEN"
LEAST = 16
"""Letters of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """What a call of `run` says of it."""

    address: str = "127.0.0.1:0"
    """`HOST:PORT`; port 0: any that is free."""
    certificate: Path | None = None
    """A PEM file for TLS, without which only this machine can be listened for."""
    key: Path | None = None
    """Of the certificate; None: it is in the same file."""
    token_file: Path | None = None


def coordinators_token(place: Path, file: Path | None) -> tuple[str, Path | None]:
    """(the token of a run's coordinator, the file that it is in): of the environment or the file, or a new one, in a
    file that only this user can read. Raises UsageError."""
    given = _given(file)
    if given is not None:
        return given, file
    path = file or own_file(place)
    token = secrets.token_urlsafe(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            path.unlink()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as written:
            written.write(token + "\n")
    except OSError as flaw:
        raise UsageError(
            f"The token for workers cannot be written to {path} ({flaw.strerror}). Set {VARIABLE}, or name another "
            "file by `--token-file`."
        ) from flaw
    return token, path


def workers_token(place: Path, file: Path | None) -> str | None:
    """The token that a worker shows; None if there is none yet. Raises UsageError for one that is none."""
    return _given(file) or (_read(own_file(place)) if file is None else None)


def own_file(place: Path) -> Path:
    """Where a user's own runs and workers find the token of a run, on machines that share their home."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = str(place) if is_bucket(place) else str(place.resolve())
    return Path(state) / "evalkit" / "join" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.token"


def _given(file: Path | None) -> str | None:
    """The token that the user has chosen; None if there is none."""
    said = os.environ.get(VARIABLE, "").strip()
    if said:
        return _checked(said, VARIABLE)
    return None if file is None else _read(file)


def _read(file: Path) -> str | None:
    try:
        return _checked(file.read_text().strip(), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"{file}: the token cannot be read ({type(flaw).__name__}).") from flaw


def _checked(token: str, where: str) -> str:
    if len(token) < LEAST:
        raise UsageError(f"{where}: a token has at least {LEAST} letters. `openssl rand -hex 32` makes one.")
    return token
