"""A tool call's arguments: bounded, parsed safely, and never an exception.

The text is the model's. Before a parser sees it, its size and nesting are looked at, so that no input can use up the
stack or the memory. What comes back is a value or a `Refusal` with a typed outcome, which an environment puts in words.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

MOST_BYTES = 64 * 1024
"""Of a call's arguments, and of a text in them that is parsed once more; in UTF-8."""

MOST_DEPTH = 100
"""Brackets within brackets."""

MOST_SHOWN = 64
"""Characters of a name that the agent made up, where it is recorded or shown."""

MOST_IDS = 20
"""Offending ids that a refusal names."""

# An unterminated string runs to the end, as for the parser that will refuse it; so scanning is linear in any text.
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_DECODER = json.JSONDecoder()
_BLANKS = " \t\n\r"
"""What JSON allows around a value."""
_WHOLE = re.compile(r"\s*([+-]?\d{1,18})(?:\.0*)?\s*")


class Refusal(msgspec.Struct, frozen=True):
    """Why a call did nothing."""

    outcome: str
    """Typed: `not_json`, `too_deep`, `missing`, ...; recorded in the facts."""
    values: Mapping[str, object] = msgspec.field(default_factory=dict)
    """What the text that explains it may name."""


def read_arguments(text: str) -> dict[str, Any] | Refusal:
    """The arguments object of a call. No text at all counts as an empty object.

    Outcomes: `too_large`, `too_deep`, `not_json`, `not_object`.
    Chosen: `NaN` and `Infinity` are read as the reference's parsers read them; a repeated key's last value counts.
    """
    if text == "{}" or not text.strip():
        return {}
    value = read_json(text)
    if isinstance(value, Refusal):
        return value
    return value.value if isinstance(value.value, dict) else Refusal("not_object")


class Parsed(msgspec.Struct, frozen=True):
    """A value that was read; it may be anything, None included."""

    value: Any


def read_json(text: str) -> Parsed | Refusal:
    """A JSON text's value. Outcomes: `too_large`, `too_deep`, `not_json`."""
    if oversize(text):
        return Refusal("too_large", {"limit": MOST_BYTES})
    # Few brackets cannot nest deeply, wherever they are.
    if text.count("[") + text.count("{") > MOST_DEPTH and _json_depth(text) > MOST_DEPTH:
        return Refusal("too_deep", {"limit": MOST_DEPTH})
    text = text.strip(_BLANKS)
    try:
        value, end = _DECODER.raw_decode(text)  # a third of the time of `json.loads`, which looks for blanks itself
    except ValueError:  # also a number of more digits than Python converts
        return Refusal("not_json")
    return Parsed(value) if end == len(text) else Refusal("not_json")


def oversize(text: str) -> bool:
    """Whether a text is longer than `MOST_BYTES`."""
    size = len(text)
    return size > MOST_BYTES // 4 and (size > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES)


def _json_depth(text: str) -> int:
    """How deep brackets nest outside strings; counting ends where it is too deep."""
    depth = deepest = 0
    for bracket in _BRACKET.finditer(_JSON_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
        if deepest > MOST_DEPTH:
            break
    return deepest


def text_argument(arguments: Mapping[str, Any], name: str) -> str | Refusal:
    """A text among the arguments, fit to be shown again. Outcomes: `missing`, `wrong_type`."""
    if name not in arguments:
        return Refusal("missing", {"argument": name})
    value = arguments[name]
    return clean(value) if isinstance(value, str) else Refusal("wrong_type", {"argument": name, "type": "string"})


def whole_argument(arguments: Mapping[str, Any], name: str) -> int | Refusal:
    """A whole number among the arguments: an integer, an integral float, or either as text. Outcomes as above."""
    if name not in arguments:
        return Refusal("missing", {"argument": name})
    value = arguments[name]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    match = _WHOLE.fullmatch(value) if isinstance(value, str) and len(value) <= MOST_SHOWN else None
    return int(match[1]) if match else Refusal("wrong_type", {"argument": name, "type": "integer"})


def clean(text: str) -> str:
    """The text with each half of a surrogate pair replaced: whatever we show or record can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def shown(name: str) -> str:
    """A name that the agent made up, as it is recorded and shown: cut to `MOST_SHOWN` characters."""
    return clean(name[:MOST_SHOWN])


def listed(ids: Sequence[object]) -> str:
    """Ids as a string of bounded length, whatever they are."""
    named = ", ".join(
        repr(shown(value)) if isinstance(value, str) else type(value).__name__ for value in ids[:MOST_IDS]
    )
    return f"{named}, ..." if len(ids) > MOST_IDS else named
