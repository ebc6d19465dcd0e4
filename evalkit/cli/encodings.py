"""Output in encodings that lack some of the characters (`PYTHONIOENCODING=ascii`, an ISO-8859-1 locale): what one lacks
is written in plain ASCII, and no command fails at its last line because of a dash."""

import codecs
import io
import unicodedata
from typing import TextIO

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
