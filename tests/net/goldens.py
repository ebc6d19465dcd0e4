"""Goldens by id, the groups that make them, and the list of differences that were intended.

`golden/ID.txt` is what the tree said when the net was made, and is never written again. Where a later change means to
say something else, `intended/ID.txt` holds what is said now, and a line of `differences.jsonl` says why.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.net import commands, wire
from tests.net.commands import READERS
from tests.net.workspace import HERE

GOLDENS = HERE / "golden"
DIFFERENCES = HERE / "intended"
REASONS = HERE / "differences.jsonl"

GROUPS: Mapping[str, Callable[[Path], dict[str, str]]] = {
    **{f"commands/{fixture}": commands.of_fixture(fixture) for fixture in READERS},
    "writers": commands.of_writers,
    "alone": commands.of_nothing,
    "flags": commands.of_flags,
    "damage": commands.of_damage,
    "requests": wire.of_requests,
    "ids": wire.of_ids,
    "steps": wire.of_steps,
}
"""What makes the goldens whose ids begin so, in a folder that is given."""


def ids(folder: Path = GOLDENS, group: str = "") -> list[str]:
    """All ids that have a file, of one group or of all."""
    below = folder / group
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in below.rglob("*.txt"))


def group_of(one: str) -> str:
    """The group that makes an id."""
    return next(group for group in GROUPS if one.startswith(f"{group}/"))


def read(folder: Path, one: str) -> str | None:
    """A golden, or what stands in its place; None where there is none."""
    path = folder / f"{one}.txt"
    return path.read_text() if path.exists() else None


def write(folder: Path, one: str, text: str) -> None:
    """Keep a text under an id."""
    path = folder / f"{one}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def reasons() -> dict[str, list[str]]:
    """Why each listed id differs; the lines of the list in order."""
    found: dict[str, list[str]] = {}
    for entry in _entries():
        found.setdefault(entry["id"], []).append(entry["reason"])
    return found


def losses() -> dict[str, list[str]]:
    """The JSON keys that listed ids may have lost."""
    found: dict[str, list[str]] = {}
    for entry in _entries():
        found.setdefault(entry["id"], []).extend(entry.get("loses", []))
    return found


def _entries() -> list[dict[str, Any]]:
    return list(_parsed(REASONS.read_bytes())) if REASONS.exists() else []


@lru_cache(maxsize=1)
def _parsed(lines: bytes) -> tuple[dict[str, Any], ...]:
    """The list's entries; read over and over, a thousand times a run of the tests."""
    return tuple(json.loads(line) for line in lines.splitlines())


def expected(one: str, listed: Mapping[str, object]) -> str | None:
    """What an id must say today; None: nothing may be there any more, or it is not known at all."""
    return read(DIFFERENCES if one in listed else GOLDENS, one)
