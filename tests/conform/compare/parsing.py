"""Golden cases of the action string: what the reference's parser makes of it, and what ours does."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.envs.arguments import ParsedValue, read_mapping
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, judged

RESTARTS = frozenset({"ValueError"})
"""Exceptions after which the reference throws the chat away; all others end its run."""

BOUNDS = frozenset({"too_large", "too_deep"})


def parse_dict(row: Row, data: Path | None) -> GoldenVerdict:
    """One input: the same mapping, or refused by both. A crash of the reference is refused by us."""
    del data
    golden, ours = row["result"], read_mapping(row["input"])
    if isinstance(ours, ParsedValue):
        if "ok" in golden:
            return judged(golden["ok"], as_json(ours.value), "result")
        if "ok_repr" in golden:
            return judged(golden["ok_repr"], repr(ours.value), "result")
        return differing(f"golden raises {golden['raises']}, ours reads {ours.value!r}")
    if "raises" not in golden:
        if ours.outcome in BOUNDS:
            return documented("action-bounded")
        return differing(f"golden reads {golden.get('ok', golden.get('ok_repr'))!r}, ours refuses it: {ours.outcome}")
    return EQUAL if golden["raises"] in RESTARTS else documented("action-crash")


def as_json(value: Any) -> Any:
    """A value as golden files write it: keys as texts, tuples as lists, numbers that JSON lacks by name."""
    if isinstance(value, Mapping):
        return {_key(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _key(key: object) -> str:
    """A mapping's key as JSON has it."""
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else str(key)
