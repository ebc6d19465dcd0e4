"""The one guard of everything that is printed: results, errors, warnings, tracebacks.

What comes through it is seen: a character that could move a cursor, or hide or reorder text, is written as an escape.
Keys that this process has read, and long pieces of them, are removed. Tables and the live display pass by it, with a
console that does the same and adds its own colours (`Output`).

Where a reader has gone (`evalkit report RUN | head`) or a disk is full, printing ends and the command goes on. A full
disk is told.
"""

import codecs
import errno
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from evalkit.redact import KEYS
from evalkit.text import json_escapes, visible, visible_json

# Output in encodings that lack some of the characters (`PYTHONIOENCODING=ascii`, an ISO-8859-1 locale): what one
# lacks is written in plain ASCII, and no command fails at its last line because of a dash.

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−─━═╌╍┄┅┈┉╴╶╸╺", "-"),
        **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻", "|"),
        **dict.fromkeys("‘’‚′", "'"),
        **dict.fromkeys("“”„″", '"'),
        **dict.fromkeys("•·∙", "*"),
        "…": "...",
        "×": "x",
        "≤": "<=",
        "≥": ">=",
        "±": "+-",
        "→": "->",
        "←": "<-",
        "≈": "~",
        "\u00a0": " ",
    }
)


def _plain(flaw: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks: letters without their accents, lines of ASCII, else `?`."""
    assert isinstance(flaw, UnicodeEncodeError)
    return "".join(map(_as_ascii, flaw.object[flaw.start : flaw.end])), flaw.end


def _as_ascii(character: str) -> str:
    if "\u2500" <= character <= "\u257f":
        return character.translate(_PLAIN) if ord(character) in _PLAIN else "+"
    if "\u2580" <= character <= "\u259f":
        return "#"
    text = unicodedata.normalize("NFKD", character.translate(_PLAIN)).encode("ascii", "ignore").decode()
    return text or "?"


def _escaped(flaw: UnicodeError) -> tuple[str, int]:
    """The same characters in JSON, where a string may escape them."""
    assert isinstance(flaw, UnicodeEncodeError)
    return json_escapes(flaw.object[flaw.start : flaw.end]), flaw.end


codecs.register_error("evalkit-plain", _plain)
codecs.register_error("evalkit-json", _escaped)


class GuardedStream:
    """A stream that takes any text and shows every character of it. All else is as on the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """What is unguarded. A console of rich writes there by itself, because of this name."""
        self.holds_json(False)

    def holds_json(self, json: bool) -> None:
        """Whether what is written from now on is JSON, which stays the same value."""
        self._escape = visible_json if json else visible
        if isinstance(self.rich_proxied_file, io.TextIOWrapper):
            self.rich_proxied_file.reconfigure(errors="evalkit-json" if json else "evalkit-plain")

    def write(self, text: str) -> int:
        """Write a text; the number of its characters."""
        self.rich_proxied_file.write(self._escape(KEYS.text(text, good=True)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """From now on both outputs of this process are guarded; standard output holds text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, GuardedStream):
            stream.holds_json(False)
        elif stream is not None:
            setattr(sys, name, GuardedStream(stream))


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Within, both outputs are guarded; then they are as before."""
    before = sys.stdout, sys.stderr
    guard_streams()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unguarded(stream: TextIO) -> TextIO:
    """What is unguarded, for what evalkit itself writes to move a cursor."""
    return cast(TextIO, getattr(stream, "rich_proxied_file", stream))


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def is_unwritable(flaw: OSError) -> bool:
    """Whether it is about a stream that takes nothing more. Of a file it would have the name."""
    return isinstance(flaw, BrokenPipeError) or (flaw.errno in _UNWRITABLE and flaw.filename is None)


@contextmanager
def unread(stream: TextIO | None = None) -> Iterator[None]:
    """Within, a closed pipe or a full disk ends the printing alone; what follows still happens. `stream`: default
    standard output."""
    to = sys.stdout if stream is None else stream
    try:
        yield
        to.flush()
    except OSError as flaw:
        if not is_unwritable(flaw):
            raise
        give_up(to, flaw)


def give_up(stream: TextIO, flaw: OSError) -> None:
    """Nothing more is written to a stream; says why, unless its reader has gone of itself."""
    discard(stream)
    if not isinstance(flaw, BrokenPipeError) and stream is not sys.stderr:
        with suppress(OSError):
            print(f"evalkit: the output cannot be written: {flaw.strerror}.", file=sys.stderr, flush=True)


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that comes, nowhere: Python would write it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
