"""What a running sweep publishes for other processes: one small JSON file, replaced as a whole, never synced.

It is not part of the log. A reader must check with the lock whether the writer is alive: a kill leaves the file behind.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from evalkit.errors import StorageError
from evalkit.store.bucket import BucketPath
from evalkit.store.disk import ASIDE, put

FILE = "live.json"


def publish(run: Path, state: dict[str, Any]) -> None:
    """Write the file. If the disk refuses, nothing happens: no run depends on being watched."""
    if isinstance(run, BucketPath):
        put(run / FILE, orjson.dumps(state))
        return
    aside = run / f".{FILE}{ASIDE}"
    with suppress(OSError):
        aside.write_bytes(orjson.dumps(state))
        aside.replace(run / FILE)


def withdraw(run: Path) -> None:
    """The run ends: remove the file."""
    with suppress(OSError, StorageError):
        (run / FILE).unlink(missing_ok=True)


def read_live(run: Path) -> dict[str, Any] | None:
    """What was last published; None if there is nothing, or nothing that can be read."""
    try:
        value = orjson.loads((run / FILE).read_bytes())
    except (OSError, StorageError, orjson.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None
