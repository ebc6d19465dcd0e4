"""What a running sweep says of itself, as its page polls it."""

import time
from pathlib import Path
from typing import Any

from evalkit.store.live import read_live
from evalkit.store.lock import holder
from evalkit.text import bounded

MOST_TEXT = 300
"""Characters of any one text."""

SILENT_S = 10.0
"""A process that has said nothing for so long, and holds the lock, is said to be silent."""


def progress(directory: Path) -> dict[str, Any]:
    """`running`: whether a process writes the run; `silent_s`: for how long it has said nothing, if that is long;
    `live`: what it published last (`docs/run-directory.md`), or null.

    Texts in it (names, a provider's words) are safe to show.
    """
    writer = holder(directory)
    if writer is None:
        return {"running": False, "silent_s": None, "live": None}
    live = read_live(directory)
    # A file that an earlier process left behind says nothing of this one.
    written_at = live.get("at") if live is not None else None
    if not isinstance(written_at, int | float) or written_at < writer.started_at:
        return {"running": True, "silent_s": None, "live": None}
    silent = time.time() - written_at
    return {"running": True, "silent_s": round(silent) if silent > SILENT_S else None, "live": _shown(live)}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return bounded(value, MOST_TEXT)
    if isinstance(value, dict):
        return {bounded(str(key), MOST_TEXT): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value
