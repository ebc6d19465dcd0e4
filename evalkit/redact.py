"""Keys are removed from every response of a provider, before anything else sees it; from all that is printed, and from
the lines of `events.jsonl`.

Some endpoints repeat the key that they received: in an error, in a redirect, and debugging proxies even in a good
reply. The log holds the text without it, so replay is not affected.

A key is found as it is; with any of its characters escaped, some of them several times over (`%2D`, `\\u002d`, `\\x2d`,
`\\/`); in hexadecimal digits; and in Base64 of either alphabet, wherever it stands in the text that was encoded. Of a
key that is a secret each piece of at least `PIECE` characters is found too, as it is. A key is not found in shorter
pieces (line breaks, masks), in other encodings (HTML's, Base32, compressed) or in two of these at once.
The time is linear in the length of the searched text.
"""

import base64
import re
import threading
from collections.abc import Iterable, Iterator

SECRET_CHARS = 16
"""A shorter key is not a secret (`EMPTY`, `none`, for local servers) and may be a word of a good reply, so it is kept
there. Providers' keys are longer."""

LEAST_ENCODED = 8
"""A shorter key is not searched in hexadecimal digits or Base64, where it would be a common piece of text."""

PIECE, MOST_PIECES = 12, 16
"""Characters of a secret that are removed where they stand together: errors quote keys shortened. Of a longer secret,
such as a token, one part in so many: each body is searched for all of them."""

_STANDS_IN = b"***"
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_BEGINNING = 32
_WINDOW = 64 * 1024
"""Bytes that are searched at once: other threads can run between two such pieces."""
_LONGEST = 16
"""Bytes that one character may be escaped to."""


class Redactor:
    """Keys, and the forms in which they may come back; without a key every response stays as it is.

    It may be used in several threads, and changed on the event loop.
    """

    __slots__ = ("_known", "_learning", "_secrets")

    def __init__(self, *keys: str) -> None:
        self._learning = threading.Lock()
        self._known: dict[str, _Secret] = {}
        self._secrets: list[_Secret] = []
        self.learn(*keys)

    def learn(self, *keys: str, forget: Iterable[str] = ()) -> None:
        """Remove these keys too, and no longer those to `forget`, because they have expired."""
        fresh = {key: _Secret(key) for key in {*keys} - {""} - self._known.keys()}
        if not fresh and self._known.keys().isdisjoint(forget):
            return
        with self._learning:
            known = {key: secret for key, secret in self._known.items() if key not in forget} | fresh
            # A key that begins with another key comes first.
            self._known, self._secrets = known, [known[key] for key in sorted(known, key=len, reverse=True)]

    def text(self, text: str, *, good: bool = False) -> str:
        """A message for people, without the keys; `good`: as for `body`."""
        if not self._secrets:
            return text
        return self.body(text.encode("utf-8", "surrogatepass"), good=good).decode("utf-8", "surrogatepass")

    def body(self, body: bytes, *, good: bool) -> bytes:
        """A body without the keys; `good`: it is a reply, not an error."""
        for secret in self._secrets:
            if not good or secret.size >= SECRET_CHARS:
                body = secret.taken_out_of(body)
        return body


class _Secret:
    """One key in all its spellings."""

    __slots__ = ("_escape", "_least", "_longest", "_parts", "_pattern", "_plain", "size")

    def __init__(self, key: str) -> None:
        self.size = len(key)
        raw, wrapped = key.encode(), list[bytes]()
        self._plain = [raw]
        if self.size >= LEAST_ENCODED:
            wrapped = _in_base64(raw)
            self._plain += [raw.hex().encode(), raw.hex().upper().encode(), *wrapped]
            self._plain += [text.translate(_URLSAFE) for text in wrapped if text.translate(_URLSAFE) != text]
        self._least = max(PIECE, self.size // MOST_PIECES)
        # Each piece has one of these parts within it, wherever it begins.
        width, secret = self._least // 2, self.size >= SECRET_CHARS
        self._parts = [(at, raw[at : at + width]) for at in range(0, len(raw) - width + 1, width) if secret]
        self._pattern = _pattern(raw, wrapped)
        self._longest = _LONGEST * max(map(len, self._plain))
        marks = {bytes([char]) for text in self._plain for char in text if not bytes([char]).isalnum()}
        self._escape = re.compile(rb"\\(?:%b)" % b"|".join([b"u00", b"x", *map(re.escape, sorted(marks))]))

    def taken_out_of(self, body: bytes) -> bytes:
        # Looked for only where there are such escapes at all: the whole pattern takes 20 times as long as these. And
        # first, since of a key that begins with `\\/` the rest would be left after a backslash.
        if self._escape.search(body) or _PERCENT.search(body):
            body = self._searched(body)
        for plain in self._plain:
            # A long token is prepared for its search each time: most bodies do not have its beginning either.
            if plain[:_BEGINNING] in body and plain in body:
                body = body.replace(plain, _STANDS_IN)
        kept, done = list[bytes](), 0
        for start, stop in sorted(self._pieces(body)):
            kept += [body[done:start], _STANDS_IN] if start >= done else []
            done = max(done, stop)
        return b"".join([*kept, body[done:]]) if kept else body

    def _pieces(self, body: bytes) -> Iterator[tuple[int, int]]:
        """(the beginning, the end) of each piece of the key in a body, in no order. Backslashes before one belong to
        it: they would escape what stands in for it."""
        raw = self._plain[0]
        for place, part in self._parts:
            at = body.find(part)
            while at >= 0:
                start, first, stop, behind = at, place, at + len(part), place + len(part)
                while start and first and body[start - 1] == raw[first - 1]:
                    start, first = start - 1, first - 1
                while stop < len(body) and behind < len(raw) and body[stop] == raw[behind]:
                    stop, behind = stop + 1, behind + 1
                if stop - start >= self._least:
                    while body[start - 1 : start] == b"\\":
                        start -= 1
                    yield start, stop
                at = body.find(part, stop)

    def _searched(self, body: bytes) -> bytes:
        """The body without what fits the pattern, searched window by window."""
        kept: list[bytes] = []
        offset = 0
        while offset < len(body):
            stop = offset + _WINDOW
            match = self._pattern.search(body, offset, stop + self._longest)
            if match is None or match.start() >= stop:
                kept.append(body[offset:stop])
                offset = stop
            else:
                kept += body[offset : match.start()], _STANDS_IN
                offset = match.end()
        return b"".join(kept)


_URLSAFE = bytes.maketrans(b"+/", b"-_")


def _in_base64(raw: bytes) -> list[bytes]:
    """The characters that depend on the key alone, wherever it begins within the three bytes of a group."""
    cores = []
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(raw)) * 8 // 6
        cores.append(base64.b64encode(bytes(before) + raw)[shared:whole])
    return cores


def _pattern(raw: bytes, wrapped: Iterable[bytes]) -> re.Pattern[bytes]:
    """The key, or one of its texts in Base64, escaped in any way.

    It begins with one set of characters, which a search skips to twenty times as fast as to alternatives.
    """
    forms = [([bytes([raw[0]])], b"".join(map(_spellings, raw[1:])))]
    forms += [
        (_alphabets(text[0]), b"".join(map(_base64_spellings, text[1:]))) for text in wrapped if not text.isalnum()
    ]
    begins = re.escape(b"".join(char for first, _ in forms for char in first))
    rest = b"|".join(b"(?:%b)%b" % (b"|".join(map(_begun, first)), then) for first, then in forms)
    return re.compile(rb"[%%\\%b](?:%b)" % (begins, rest))


def _begun(char: bytes) -> bytes:
    """A pattern for what follows the first byte of a spelling of a character."""
    raw = b"" if char == b"\\" else rb"|(?<=%b)" % re.escape(char)
    return rb"(?<=%%)%b|(?<=\\)%b" % (_behind_percent(char), _behind_backslash(char)) + raw


def _behind_percent(char: bytes) -> bytes:
    return b"(?:25){1,4}+" if char == b"%" else b"(?:25){0,3}+" + _digits(char)


def _behind_backslash(char: bytes) -> bytes:
    """Bounded, like what follows the percent sign, so that a search is linear."""
    itself = b"" if char.isalnum() else b"|" + re.escape(char)
    if char == b"\\":
        return rb"\\{0,7}+(?:(?:u00|x)5[cC])?"
    return rb"\\{0,7}+(?:(?:u00|x)%b%b)" % (_digits(char), itself)


def _digits(char: bytes) -> bytes:
    """A pattern for the character's two hexadecimal digits."""
    return b"".join(b"[%c%c]" % (code, code - 32) if code >= ord("a") else b"%c" % code for code in char.hex().encode())


def _spellings(code: int) -> bytes:
    """A pattern for one character of the key after its first one."""
    char = bytes([code])
    return rb"(?:%%%b|\\%b|%b)" % (_behind_percent(char), _behind_backslash(char), re.escape(char))


def _base64_spellings(code: int) -> bytes:
    """A pattern for one character of a text in Base64: only characters other than letters and digits are ever escaped
    there."""
    char = bytes([code])
    return char if char.isalnum() else b"(?:%b)" % b"|".join(_spellings(spelling[0]) for spelling in _alphabets(code))


def _alphabets(code: int) -> list[bytes]:
    """A character of Base64 in both alphabets."""
    char = bytes([code])
    return [char] if char.isalnum() else [char, char.translate(_URLSAFE)]


KEYS = Redactor()
"""All keys that this process has read. One for all: an answer of one provider may hold the key of another."""
