"""A reply's JSON, read so that nothing that was paid for is thrown away.

Strict JSON (orjson) decides first. What it refuses is read again with replacement: bad UTF-8 and lone surrogates become
U+FFFD, NaN and numbers of any size are taken, raw control characters are kept, text behind the value is dropped, and
what is nested deeper than `DEPTH` becomes null. Only a body with no JSON value at its start is no reply at all.
"""

import json
import re
from typing import Any

import orjson

DEPTH = 200
"""Deeper nesting is cut off in lenient reading; every fold over a value may then recurse."""

_DIGITS = 4000
"""Longer integers become floats: Python refuses to convert them (its limit is 4300 digits), and they mean nothing."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")


class MalformedReplyError(Exception):
    """A 200 body that holds no reply."""


def loads_lenient(body: bytes) -> tuple[Any, bool]:
    """The body's value, and whether strict JSON refused it (then the raw bytes are worth keeping).

    Raises MalformedReplyError where the body does not start with a JSON value.
    """
    try:
        return orjson.loads(body), False
    except orjson.JSONDecodeError:
        return _read_again(body), True


def dumps_any(value: Any) -> bytes:
    """JSON of whatever `loads_lenient` gave: also integers beyond 64 bits, which orjson does not write."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


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
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return value
