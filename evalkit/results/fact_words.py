"""The facts of a turn in words, as its reader wants them: one line a fact, whatever the environment."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from evalkit.envs.calls import OK
from evalkit.text import bounded

KNOWN = frozenset({"period", "turn"})
"""What the turn's heading says."""

TITLES = {"period_end": "period ends", "ended": "episode ends"}

MOST = 300
"""Characters of one line."""

MOST_LISTED = 12
"""Entries of a list that are named."""


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """What happened in a turn, a line a fact; each is safe to print. Empty where there is nothing to say."""
    lines = list[str]()
    for key, value in facts.items():
        if key in KNOWN or value in (None, "", [], {}):
            continue
        if key == "calls" and isinstance(value, list):
            lines += _calls(value)
        else:
            lines.append(f"{TITLES.get(key, _spaced(key))}: {_words(value)}")
    return [bounded(line, MOST) for line in lines]


def _calls(calls: Sequence[Any]) -> Iterator[str]:
    """What came of the calls, those of one outcome that follow one another on one line."""
    known = [call for call in calls if isinstance(call, Mapping)]
    for outcome, group in groupby(known, key=lambda call: str(call.get("outcome", ""))):
        tools = ", ".join(_call(call) for call in group)
        yield f"{tools}: {'done' if outcome == OK else _spaced(outcome)}"


def _call(call: Mapping[str, Any]) -> str:
    more = {name: value for name, value in call.items() if name not in ("tool", "outcome")}
    return f"{call.get('tool', '')}{f' ({_words(more)})' if more else ''}"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_spaced(str(name))} {_words(item)}" for name, item in value.items() if item not in ([], {}))
    if isinstance(value, list):
        more = f" and {len(value) - MOST_LISTED:,} more" if len(value) > MOST_LISTED else ""
        return ", ".join(_item(item) for item in value[:MOST_LISTED]) + more
    return f"{value:,}" if isinstance(value, int | float) else _spaced(str(value)) if value else "none"


def _item(value: Any) -> str:
    """An entry of a list: a pair as `W1 and T5`."""
    return " and ".join(map(_words, value)) if isinstance(value, list) else _words(value)


def _spaced(name: str) -> str:
    return name.replace("_", " ")
