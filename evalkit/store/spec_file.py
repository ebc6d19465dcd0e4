"""`spec/000000.json`, `000001.json`, ...: the sweep as it was written when a session began, for people and archives.

The manifest says what was frozen, and replay needs nothing else. This says what was asked for: limits, budget and
deadline too. A session whose sweep differs from the newest file adds the next one; none is ever changed.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import orjson

from evalkit.errors import StorageError
from evalkit.store import disk
from evalkit.store.folder import next_numbered, numbered
from evalkit.store.json_text import decode

FOLDER = "spec"


class KeptSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    source: str
    """The name of the file that the sweep was read from, without its folders; `spec` for a mapping."""
    settings: tuple[str, ...] = msgspec.field(name="set", default=())
    """What the command line replaced in it: `agents.gpt.effort=high`."""
    spec: dict[str, Any]
    """What it says with that, as plain values."""


def keep_spec(run: Path, spec: Mapping[str, Any], source: str, settings: tuple[str, ...] = ()) -> None:
    """Keep what a session was asked for, unless the newest file says the same. The caller has locked the run.

    Nothing depends on it: it is not synced, and a disk that refuses it is no error.
    """
    kept = KeptSpec(source=Path(source).name, settings=settings, spec=dict(spec))
    data = orjson.dumps(msgspec.to_builtins(kept), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    folder = run / FOLDER
    files = numbered(folder)
    with suppress(StorageError):
        if files and disk.read_whole(files[-1]) == data:
            return
    disk.put(next_numbered(folder), data)


def read_spec(run: Path) -> KeptSpec | None:
    """The newest; None for a run that has none. Raises CorruptLogError, StorageError."""
    files = numbered(run / FOLDER)
    data = disk.read_whole(files[-1]) if files else None
    return None if data is None else decode(data, KeptSpec, str(files[-1]), REMEDY)


REMEDY = "Delete the file: no other file depends on it."
