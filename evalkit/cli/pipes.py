"""Output that nobody takes: where its reader has gone (`evalkit report RUN | head`) or its disk is full, printing ends
and the command goes on. A full disk is told."""

import codecs
import errno
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

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
    units = flaw.object[flaw.start : flaw.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), flaw.end


codecs.register_error("evalkit-plain", _plain)
codecs.register_error("evalkit-json", _escaped)


def write_any(stream: TextIO | None, *, json: bool = False) -> None:
    """From now on the stream takes any text; `json`: it holds JSON, which stays the same value."""
    # Bytes of a name that are no text pass through `surrogateescape` as they came.
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "surrogateescape":
        stream.reconfigure(errors="evalkit-json" if json else "evalkit-plain")


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
