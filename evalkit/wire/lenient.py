"""A reply's JSON, read so that nothing that was paid for is lost.

Strict JSON (orjson) decides first. What it refuses is read again with replacement: bad UTF-8 and lone surrogates become
U+FFFD, NaN and numbers of any size are accepted, raw control characters are kept, text after the value is dropped, and
anything nested deeper than `DEPTH` becomes null. Only two kinds of body are not replies: one without a JSON value at
its start, and one of more than `MOST_PARTS` parts, which no model writes and which would block everything else.

The time is linear in the body. Bodies of up to `ON_LOOP_BYTES` are read on the event loop.
"""

import json
import math
import re
from typing import Any

import orjson

DEPTH = 200
"""Deeper nesting is cut off in lenient reading; so a function over a value may recurse."""

_DIGITS = 4000
"""Longer integers become floats: Python refuses to convert them (its limit is 4300 digits), and they mean nothing."""

MOST_PARTS = 2**18
"""Objects, lists and members of a body. This many take a parser up to 0.1 s, during which nothing else runs, not even
another thread; a reply has some hundreds."""

ON_LOOP_BYTES = 32 * 1024
"""Longer bodies are read in a thread. The worst of this length stall an event loop for some 10 ms; most replies are
shorter, and a thread costs more than reading them."""

# An unterminated string runs to the end, as for the parser that will refuse it; so scanning is linear in any text.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BRACKETS = re.compile(rf"{_STRING}|[\[{{]++|[\]}}]++", re.DOTALL)
_PARTS = re.compile(rf"{_STRING}|[\[{{:]++".encode(), re.DOTALL)
_QUOTE = ord('"')
_SURROGATES = re.compile("[\ud800-\udfff]")


class MalformedReplyError(Exception):
    """A 200 body without a reply."""


def loads_lenient(body: bytes) -> tuple[Any, bool]:
    """The body's value, and whether strict JSON refused it (then the raw bytes are worth keeping).

    Raises MalformedReplyError if the body does not start with a JSON value, or has too many parts.
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

    What JSON cannot express becomes null: NaN and infinity. So does anything nested deeper than `DEPTH`, if orjson
    cannot write the value.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        plain = _writable(value, DEPTH)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _writable(value: Any, levels: int) -> Any:
    """The value as strict JSON can express it."""
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
    if text.count("[") + text.count("{") <= DEPTH:
        return text
    kept: list[str] = []
    depth, copied = 0, 0
    for token in _BRACKETS.finditer(text):
        start, end = token.span()
        if text[start] in "[{":
            if depth <= DEPTH < depth + end - start:
                kept += text[copied : start + DEPTH - depth], "null"
            depth += end - start
        elif text[start] in "]}":
            if depth > DEPTH >= depth - (end - start):
                copied = start + depth - DEPTH
            depth -= end - start
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
