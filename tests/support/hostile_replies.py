"""What a server may send in place of a reply: bytes that cost a careless reader more than their number. Each grows."""

from collections.abc import Callable, Mapping

Maker = Callable[[int], bytes]
"""(n) -> about n bytes."""


def times(piece: bytes, *, before: bytes = b"", after: bytes = b"") -> Maker:
    """A piece as often as it fits, between two others."""
    return lambda n: before + piece * max(1, n // len(piece)) + after


def _numbered(piece: bytes, *, before: bytes, after: bytes) -> Maker:
    return lambda n: before + b",".join(piece % i for i in range(max(1, n // (len(piece) + 4)))) + after


def _cut(n: int) -> bytes:
    """Valid, with a string that is unterminated in the bytes that are looked at."""
    return b'{"error":{"message":"' + b'\\"' * (n // 2) + b'"}}'


BODIES: Mapping[str, Maker] = {
    "nothing but quotes": times(b'"'),
    "nothing but backslashes": times(b"\\"),
    "escaped quotes in an unterminated string": times(b'\\"', before=b'{"a":"'),
    "escaped quotes in a string": _cut,
    "escaped quotes without a string": times(b'\\"'),
    "an unterminated string": times(b"x", before=b'{"a":"'),
    "quotes and backslashes": times(b'"\\'),
    "strings that end in backslashes": times(b'"a\\\\",', before=b"["),
    "opening brackets": times(b"["),
    "opening braces": times(b"{"),
    "opened members": times(b'{"a":'),
    "closing brackets": times(b"]"),
    "deep and closed": lambda n: b"[" * (n // 2) + b"]" * (n // 2),
    "deep and crossed": lambda n: b"[{" * (n // 4) + b"]}" * (n // 4),
    "deep, then strings": lambda n: b"[" * 300 + b'"",' * (n // 3),
    "shallow brackets": times(b"[[],[],"),
    "empty lists": times(b"[],", before=b"[", after=b"1]"),
    "empty objects": times(b"{},", before=b"[", after=b"1]"),
    "sawteeth": times(b"[" * 199 + b"]" * 199 + b",", before=b"[", after=b"1]"),
    "members": _numbered(b'"%x":1', before=b"{", after=b"}"),
    "members of one name": times(b'"a":1,', before=b"{", after=b'"a":1}'),
    "members of one hash": _numbered(b'"\\u0000%x":null', before=b"{", after=b"}"),
    "numbers": times(b"1,", before=b"[", after=b"1]"),
    "an endless integer": times(b"9", before=b'{"a":', after=b"}"),
    "an endless fraction": times(b"3", before=b'{"a":0.', after=b"}"),
    "an endless exponent": times(b"9", before=b'{"a":1e', after=b"}"),
    "a long exponent of zeros": times(b"0", before=b'{"a":1e', after=b"1}"),
    "minus signs": times(b"-"),
    "integers beyond 64 bits": times(b"123456789012345678901,", before=b'{"a":[1e999,', after=b"1]}"),
    "integers of thousands of digits": times(b"9" * 5000 + b",", before=b"[NaN,", after=b"1]"),
    "words for no number": times(b"NaN,-Infinity,", before=b"[", after=b"1]"),
    "bad UTF-8": times(b"\xff", before=b'{"a":"', after=b'"}'),
    "cut UTF-8": times(b"\xf0\x9f", before=b'{"a":"', after=b'"}'),
    "half surrogates": times(b"\\ud800", before=b'{"a":"', after=b'"}'),
    "control characters": times(b"\x00\x01", before=b'{"a":"', after=b'"}'),
    "byte order marks": times(b"\xef\xbb\xbf"),
    "white space": times(b" \t\r\n", after=b"1"),
    "white space behind": times(b" \n", before=b"{}"),
    "many values": times(b"{}\n"),
    "server-sent events": times(b'data: {"choices":[]}\n\n'),
    "comments": times(b"/*"),
    "markup": times(b"<"),
    "titles that never begin": times(b"<title"),
    "a title that never ends": times(b"x", before=b"<title>"),
    "attributes of a title": times(b"a=b ", before=b"<html><title "),
    "titles of blanks": times(b"<title> "),
    "percent signs": times(b"%"),
    "escaped percent signs": times(b"%25"),
    "escapes": times(b"\\u0073", before=b'{"a":"', after=b'"}'),
    "escaped escapes": times(b"\\\\u0073", before=b'{"a":"', after=b'"}'),
    "slashes": times(b"\\/", before=b'{"a":"', after=b'"}'),
    "zeros": times(b"\x00"),
}
"""Bodies by what they are."""
