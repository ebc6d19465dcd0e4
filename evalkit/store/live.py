"""What a running sweep tells other processes of itself: one small JSON file, replaced whole, never synced.

It is no part of the log. Who reads it must ask the lock whether its writer still lives: a kill leaves the file behind.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from evalkit.store.disk import ASIDE

FILE = "live.json"


def publish(run: Path, state: dict[str, Any]) -> None:
    """Make the file hold this. A disk that refuses is passed over: nobody's run depends on being looked at."""
    aside = run / f".{FILE}{ASIDE}"
    with suppress(OSError):
        aside.write_bytes(orjson.dumps(state))
        aside.replace(run / FILE)


def withdraw(run: Path) -> None:
    """The run ends: there is nothing live to tell."""
    with suppress(OSError):
        (run / FILE).unlink(missing_ok=True)


def read_live(run: Path) -> dict[str, Any] | None:
    """What was last published; None if there is nothing, or nothing that can be read."""
    try:
        value = orjson.loads((run / FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None
