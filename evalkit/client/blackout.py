"""A key is taken out of whatever comes back from a provider, before anything else sees it.

Some endpoints repeat the key they were sent: in an error, in a redirect, and debugging proxies even in a good reply.
What is not here reaches no log, message or report; and since the log holds what was read, replay is not touched.
"""

import re

SECRET_CHARS = 16
"""A shorter key is no secret (`EMPTY`, `none`, as local servers take them) and may be a word of a good reply: there it
stays. Providers' keys are longer."""

_STANDS_IN = b"***"
_ESCAPES = (b"\\u00", b"\\/")
"""How JSON may write a printable ASCII character otherwise."""


class Blackout:
    """One key, and how it may come back; without a key all that comes back stays as it is."""

    __slots__ = ("_escaped", "_key")

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._escaped = re.compile(b"".join(map(_spellings, key)))

    def text(self, text: str) -> str:
        """Words for people, without the key."""
        return text.replace(self._key.decode(), _STANDS_IN.decode()) if self._key else text

    def body(self, body: bytes, *, good: bool) -> bytes:
        """A body without the key; `good`: it is a reply, not an error."""
        if not self._key or (good and len(self._key) < SECRET_CHARS):
            return body
        if self._key in body:
            body = body.replace(self._key, _STANDS_IN)
        # Looked for only where there are such escapes at all: a pattern takes 50 times as long as a text.
        if any(escape in body for escape in _ESCAPES):
            body = self._escaped.sub(_STANDS_IN, body)
        return body


def _spellings(char: str) -> bytes:
    """A pattern for one character of the key as JSON may spell it."""
    code = ord(char)
    return b"(?:%b|\\\\%b|\\\\u00(?i:%02x))" % (re.escape(char.encode()), re.escape(char.encode()), code)
