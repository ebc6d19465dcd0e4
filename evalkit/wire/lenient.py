"""A reply's JSON, read so that nothing that was paid for is thrown away.

Strict JSON (orjson) decides first. What it refuses is read again with replacement: bad UTF-8 and lone surrogates become
U+FFFD, NaN and numbers of any size are taken, raw control characters are kept, text behind the value is dropped, and
what is nested deeper than `DEPTH` becomes null. Only a body with no JSON value at its start is no reply at all, and one
of more than `MOST_PARTS` parts, which no model writes and which would hold up everybody else.

All of it is linear in the body. `ON_LOOP_BYTES` says which bodies are read where others wait.
"""

import json
import math
import re
from typing import Any

import orjson

DEPTH = 200
"""Deeper nesting is cut off in lenient reading; every fold over a value may then recurse."""

_DIGITS = 4000
"""Longer integers become floats: Python refuses to convert them (its limit is 4300 digits), and they mean nothing."""

MOST_PARTS = 2**18
"""Objects, lists and members of a body. So many take a parser up to 0.1 s, during which nothing else runs, not even
another thread; a reply has some hundreds."""

ON_LOOP_BYTES = 32 * 1024
"""Longer bodies are read in a thread. The worst of this length stall an event loop for some 10 ms; most replies are
shorter, and a thread costs more than reading them."""

# An unterminated string runs to the end, as for the parser that will refuse it; so scanning is linear in any text.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BRACKETS = re.compile(rf"{_STRING}|[\[{{]|[\]}}]", re.DOTALL)
_PARTS = re.compile(rf"{_STRING}|[\[{{:]++".encode(), re.DOTALL)
_QUOTE = ord('"')
_SURROGATES = re.compile("[\ud800-\udfff]")


class MalformedReplyError(Exception):
    """A 200 body that holds no reply."""


def loads_lenient(body: bytes) -> tuple[Any, bool]:
    """The body's value, and whether strict JSON refused it (then the raw bytes are worth keeping).

    Raises MalformedReplyError where the body does not start with a JSON value, or holds too many parts.
    """
    if len(body) > MOST_PARTS and _has_too_many_parts(body):
        raise MalformedReplyError(f"more than {MOST_PARTS} objects, lists and members; it starts {body[:200]!r}")
    try:
        return orjson.loads(body), False
    except orjson.JSONDecodeError:
        return _read_again(body), True


def loads_kept(data: bytes) -> Any:
    """The value of which `dumps_any` made `data`: an opaque part, which may have more parts than its body had."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _read_again(data)


def dumps_any(value: Any) -> bytes:
    """JSON of whatever `loads_lenient` gave: also integers beyond 64 bits, which orjson does not write.

    What JSON has no word for is null: a number that is none or infinite. So is what is nested deeper than `DEPTH`,
    where anything else in the value is beyond orjson.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        plain = _writable(value, DEPTH)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _writable(value: Any, levels: int) -> Any:
    """The value as strict JSON can say it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_writable(item, levels - 1) for item in value] if levels else None
    if isinstance(value, dict):
        return {key: _writable(item, levels - 1) for key, item in value.items()} if levels else None
    return value


def _has_too_many_parts(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") + body.count(b":") <= MOST_PARTS:
        return False
    parts = 0
    for token in _PARTS.finditer(body):
        if body[token.start()] != _QUOTE:
            parts += token.end() - token.start()
            if parts > MOST_PARTS:
                return True
    return False


def _read_again(body: bytes) -> Any:
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    decoder = json.JSONDecoder(strict=False, parse_int=_parse_int)
    try:
        value, _ = decoder.raw_decode(_cut_depth(text))
    except ValueError as flaw:
        raise MalformedReplyError(f"no JSON in the body: {flaw}; it starts {body[:200]!r}") from flaw
    return _clean(value)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _cut_depth(text: str) -> str:
    """The text with every value nested deeper than `DEPTH` replaced by null."""
    kept: list[str] = []
    depth, copied = 0, 0
    for token in _BRACKETS.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
            if depth == DEPTH + 1:
                kept += text[copied : token.start()], "null"
        elif mark in "]}":
            if depth == DEPTH + 1:
                copied = token.end()
            depth -= 1
            if depth <= 0:
                break
    return text if not kept else "".join(kept) + (text[copied:] if depth <= DEPTH else "")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
