"""A mapping that a model wrote as text, read as the reference reads it: a Python literal, the same with its backslash
escapes undone, or JSON.

`ast.literal_eval` is fed only what the scanner below has found to be made of a literal's tokens, nested at most
`MOST_DEPTH` deep and without chains of signs: its parser recurses, and can end the process on anything else.

Differs: the reference dies of numbers, lists and unhashable keys; here they are typed outcomes.
"""

import ast
import re
import warnings
from collections.abc import Callable
from typing import Any

from evalkit.envs.arguments import MOST_BYTES, MOST_DEPTH, Parsed, Refusal, oversize, read_json

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


def read_mapping(value: object) -> Parsed | Refusal:
    """An argument as a mapping: a dict as it is, a text by the reference's three readings in order.

    Outcomes: `wrong_type` (neither text nor dict), `too_large`, `too_deep`, `unparseable` (no reading succeeds),
    `unhashable` (a key is a list), `not_mapping` (the text holds some other value).
    """
    if isinstance(value, dict):
        return Parsed(value)
    if not isinstance(value, str):
        return Refusal("wrong_type", {"type": "string"})
    if oversize(value):
        return Refusal("too_large", {"limit": MOST_BYTES})
    if value.isascii() and _FLAT.fullmatch(value):
        return Parsed({key[1:-1]: _plain(entry) for key, entry in _ENTRY.findall(value)})
    parsed = _first_reading(value)
    if isinstance(parsed, Parsed) and not isinstance(parsed.value, dict):
        return Refusal("not_mapping")
    return parsed


def _plain(entry: str) -> str | int | float:
    if entry[0] in "'\"":
        return entry[1:-1]
    return float(entry) if "." in entry else int(entry)


def _first_reading(text: str) -> Parsed | Refusal:
    too_deep: Refusal | None = None
    for reading in (_literal, _unescaped_literal, _json):
        parsed = reading(text)
        if isinstance(parsed, Parsed) or parsed.outcome == "unhashable":
            return parsed
        if parsed.outcome == "too_deep":
            too_deep = parsed
    return too_deep or Refusal("unparseable")


def _literal(text: str) -> Parsed | Refusal:
    flaw = _scan(text)
    if flaw:
        return Refusal(flaw, {"limit": MOST_DEPTH} if flaw == "too_deep" else {})
    return _quietly(lambda: ast.literal_eval(text))


def _unescaped_literal(text: str) -> Parsed | Refusal:
    if "\\" not in text:
        return Refusal("unparseable")  # nothing to undo: the first reading has said so already
    undone = _quietly(lambda: text.encode().decode("unicode_escape"))
    return _literal(undone.value) if isinstance(undone, Parsed) else undone


def _json(text: str) -> Parsed | Refusal:
    parsed = read_json(text)
    return Refusal("unparseable") if isinstance(parsed, Refusal) and parsed.outcome == "not_json" else parsed


def _quietly(read: Callable[[], Any]) -> Parsed | Refusal:
    """What `read` gives, or why not. Python's warnings of bad escapes and odd numbers are nobody's business here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Parsed(read())
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
