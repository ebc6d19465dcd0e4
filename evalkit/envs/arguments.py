"""A tool call's arguments: bounded, parsed safely, and never an exception.

The text is the model's. Before a parser sees it, its size and nesting are looked at, so that no input can use up the
stack or the memory. What comes back is a value or a `Refusal` with a typed outcome, which an environment puts in words.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
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


class ParsedValue(msgspec.Struct, frozen=True):
    """A value that was read; it may be anything, None included."""

    value: Any


def read_json(text: str) -> ParsedValue | Refusal:
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
    return ParsedValue(value) if end == len(text) else Refusal("not_json")


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


# A mapping that a model wrote as text, read as the reference reads it: a Python literal, the same with its backslash
# escapes undone, or JSON.
#
# `ast.literal_eval` is fed only what the scanner below has found to be made of a literal's tokens, nested at most
# `MOST_DEPTH` deep and without chains of signs: its parser recurses, and can end the process on anything else.
#
# Differs: the reference dies of numbers, lists and unhashable keys; here they are typed outcomes.

# Everything a literal is made of, as Python's own tokenizer cuts it. Comments and strings swallow brackets; a text that
# this cannot cut is not a literal. A line ends at \r too.
_TOKEN = re.compile(
    r"""(?P<skip>[ \t\f\r\n]++|\#[^\r\n]*+)
      | (?:[bBuUrR]|[bB][rR]|[rR][bB])?
        (?P<string>'''(?:[^'\\]|\\.|'(?!''))*+''' | \"""(?:[^"\\]|\\.|"(?!""))*+\"""
          | '(?:[^'\\\r\n]|\\.)*+' | "(?:[^"\\\r\n]|\\.)*+")
      | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<comma>[,:]) | (?P<sign>[+-])
      | (?P<other>\.?[0-9][0-9a-zA-Z_.]*+ | True\b | False\b | None\b | set\b)
    """,
    re.VERBOSE | re.DOTALL,
)
# The ordinary case, a flat mapping of plain texts to plain texts or plain numbers, which needs no parser.
_PLAIN = r"""(?:'[^'\\\r\n\0]*+'|"[^"\\\r\n\0]*+")"""
_NUMBER = r"(?:0|[1-9][0-9]{0,15}+)(?:\.[0-9]{1,20}+)?+"
_FLAT = re.compile(rf"\{{(?: *+{_PLAIN} *+: *+(?:{_PLAIN}|{_NUMBER}) *+(?:,|(?=\}})))*+ *+\}}")
_ENTRY = re.compile(rf"({_PLAIN}) *+: *+({_PLAIN}|{_NUMBER})")
_MOST_SIGNS = 4
"""In one number: `-1-2j` has two."""


def read_mapping(value: object) -> ParsedValue | Refusal:
    """An argument as a mapping: a dict as it is, a text by the reference's three readings in order.

    Outcomes: `wrong_type` (neither text nor dict), `too_large`, `too_deep`, `unparseable` (no reading succeeds),
    `unhashable` (a key is a list), `not_mapping` (the text holds some other value).
    """
    if isinstance(value, dict):
        return ParsedValue(value)
    if not isinstance(value, str):
        return Refusal("wrong_type", {"type": "string"})
    if oversize(value):
        return Refusal("too_large", {"limit": MOST_BYTES})
    if value.isascii() and _FLAT.fullmatch(value):
        return ParsedValue({key[1:-1]: _plain(entry) for key, entry in _ENTRY.findall(value)})
    parsed = _first_reading(value)
    if isinstance(parsed, ParsedValue) and not isinstance(parsed.value, dict):
        return Refusal("not_mapping")
    return parsed


def _plain(entry: str) -> str | int | float:
    if entry[0] in "'\"":
        return entry[1:-1]
    return float(entry) if "." in entry else int(entry)


def _first_reading(text: str) -> ParsedValue | Refusal:
    too_deep: Refusal | None = None
    for reading in (_literal, _unescaped_literal, _json):
        parsed = reading(text)
        if isinstance(parsed, ParsedValue) or parsed.outcome == "unhashable":
            return parsed
        if parsed.outcome == "too_deep":
            too_deep = parsed
    return too_deep or Refusal("unparseable")


def _literal(text: str) -> ParsedValue | Refusal:
    flaw = _scan(text)
    if flaw:
        return Refusal(flaw, {"limit": MOST_DEPTH} if flaw == "too_deep" else {})
    return _quietly(lambda: ast.literal_eval(text))


def _unescaped_literal(text: str) -> ParsedValue | Refusal:
    if "\\" not in text:
        return Refusal("unparseable")  # nothing to undo: the first reading has said so already
    undone = _quietly(lambda: text.encode().decode("unicode_escape"))
    return _literal(undone.value) if isinstance(undone, ParsedValue) else undone


def _json(text: str) -> ParsedValue | Refusal:
    parsed = read_json(text)
    return Refusal("unparseable") if isinstance(parsed, Refusal) and parsed.outcome == "not_json" else parsed


def _quietly(read: Callable[[], Any]) -> ParsedValue | Refusal:
    """What `read` gives, or why not. Python's warnings of bad escapes and odd numbers are nobody's business here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ParsedValue(read())
    except TypeError:
        return Refusal("unhashable")
    except (ValueError, SyntaxError):
        return Refusal("unparseable")
    except (RecursionError, MemoryError):
        return Refusal("too_deep", {"limit": MOST_DEPTH})


def _scan(text: str) -> str:
    """Why a text must not be given to Python's parser: `unparseable`, `too_deep`, or an empty string."""
    offset = depth = signs = 0
    while offset < len(text):
        token = _TOKEN.match(text, offset)
        if not token:
            return "unparseable"
        kind, offset = token.lastgroup, token.end()
        if kind == "open":
            depth, signs = depth + 1, 0
            if depth > MOST_DEPTH:
                return "too_deep"
        elif kind == "close":
            depth, signs = max(depth - 1, 0), 0
        elif kind == "comma":
            signs = 0
        elif kind == "sign":
            signs += 1
            if signs > _MOST_SIGNS:
                return "unparseable"
    return ""
