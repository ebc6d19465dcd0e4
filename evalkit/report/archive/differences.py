"""Two versions of a file of numbers, value by value: what differs, and how many numbers are the same.

The last digits of a number may depend on the machine, because sums of fractions and functions of the mathematical
library may round otherwise there. Such a number counts as the same, and is counted apart.
"""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

LAST_DIGITS = 1e-9
"""The relative difference up to which two numbers differ in their last digits alone."""
WORDS = frozenset({"title", "notes", "query", "columns"})
"""Keys of a report whose values are words: another version of evalkit may say them otherwise."""


@dataclass(slots=True)
class NumberCount:
    """What was compared so far."""

    numbers: int = 0
    rounded: int = 0
    """Of these, those that differ in their last digits."""


def differences(name: str, stored: bytes, made: bytes, tally: NumberCount, *, words: bool) -> Iterator[str]:
    """What differs, each as a place and two values.

    `words`: whether titles and notes are compared too; if not, what only `made` has is no difference. Raises
    ValueError if `stored` cannot be read.
    """
    read = _rows if name.endswith(".csv") else orjson.loads
    yield from _compare("", read(stored), read(made), tally, words)


def _rows(data: bytes) -> list[dict[str, Any]]:
    return [dict(row) for row in csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""))]


def _compare(place: str, stored: Any, made: Any, tally: NumberCount, words: bool) -> Iterator[str]:
    stored, made = _value(stored), _value(made)
    if isinstance(stored, dict) and isinstance(made, dict):
        for key in {**stored, **(made if words else {})}:
            if words or key not in WORDS:
                inner = f"{place}.{key}" if place else str(key)
                yield from _compare(inner, stored.get(key, _NONE), made.get(key, _NONE), tally, words)
    elif isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        for index, (one, other) in enumerate(zip(stored, made, strict=True), 1):
            yield from _compare(f"{place}[{index}]", one, other, tally, words)
    elif not _same(stored, made, tally):
        yield f"{place}: it holds {_shown(stored)}, the log gives {_shown(made)}"


_NONE = object()
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|nan|-?inf", re.ASCII)
_MOST_DIGITS = 30


def _value(value: Any) -> Any:
    """What a cell of a CSV file says: a number or JSON as such, where it is one."""
    if not isinstance(value, str):
        return value
    if value[:1] in {"{", "["}:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    if len(value) > _MOST_DIGITS or not _NUMBER.fullmatch(value):
        return value
    return int(value) if value.lstrip("-").isdecimal() else float(value)


def _same(stored: Any, made: Any, tally: NumberCount) -> bool:
    if not (_is_number(stored) and _is_number(made)):
        return type(stored) is type(made) and bool(stored == made)
    tally.numbers += 1
    same = same_number(stored, made)
    tally.rounded += same and stored != made and not math.isnan(stored)
    return same


def same_number(stored: float, made: float) -> bool:
    """Whether two numbers are the same but for their last digits; whole numbers, exactly."""
    if stored == made or (math.isnan(stored) and math.isnan(made)):
        return True
    whole = isinstance(stored, int) and isinstance(made, int)
    return not whole and math.isclose(stored, made, rel_tol=LAST_DIGITS, abs_tol=LAST_DIGITS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is _NONE:
        return "nothing"
    if isinstance(value, list):
        return f"{len(value):,} entries"
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


MOST_SHOWN = 60
