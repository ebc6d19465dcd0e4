"""`events.jsonl`: what happened in a run's sessions, for people and tools. Not part of the log, and never synced.

A crash may cut its last line, and anybody may have edited it. A line that is not a JSON object is ignored; other
readers of the file should do the same.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from evalkit.store.disk import read_lines

FILE = "events.jsonl"


def read_events(run: Path, *kinds: str) -> Iterator[dict[str, Any]]:
    """The events of these kinds, oldest first; none if there is no file. Raises StorageError if it cannot be read.

    Only lines that name such a kind are decoded: a long run has many others.
    """
    marks = [f'"{kind}"'.encode() for kind in kinds]
    for line in read_lines(run / FILE).splitlines():
        if not any(mark in line for mark in marks):
            continue
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict) and event.get("kind") in kinds:
            yield event


def last_session(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(how the last session started, how it ended), as events: empty if there was none, or if it has not ended."""
    started: dict[str, Any] = {}
    ended: dict[str, Any] = {}
    for event in read_events(run, "started", "ended"):
        started, ended = (event, {}) if event["kind"] == "started" else (started, event)
    return started, ended


def budget_of(started: dict[str, Any]) -> int | None:
    """The budget with which a session started, in pico-dollars; None if it had none."""
    budget = started.get("budget_pico_usd")
    return budget if isinstance(budget, int) else None
