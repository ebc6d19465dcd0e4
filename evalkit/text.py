"""Text for people. What a model wrote is made safe to look at: nothing in it can move a cursor, or hide or reorder
text."""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence

BOUND = 2_000
"""Characters of one text that are shown."""

_VARIABLE = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\b[\w-]*\d[\w-]*(?:\.\d+)*\b""")


def visible(text: str) -> str:
    """The text with line breaks kept. Every other character without a visible shape is written as an escape.

    That is: control characters (terminal escapes among them), direction marks and other format characters, half
    surrogate pairs, private and unassigned code points.
    """
    if text.isprintable():
        return text
    return "\n".join([line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n")])


def visible_json(text: str) -> str:
    """JSON that has the same value, in which what `visible` escapes is escaped as JSON does."""
    return "\n".join([line if line.isprintable() else "".join(map(_in_json, line)) for line in text.split("\n")])


def _in_json(char: str) -> str:
    return char if _is_seen(char) or char in "\t\r" else json_escapes(char)


def json_escapes(text: str) -> str:
    """Each character as JSON can write it in ASCII."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _shown(char: str) -> str:
    if _is_seen(char):
        return char
    code = ord(char)
    if char == "\t":
        return "\\t"
    if char == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_seen(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def bounded(text: str, most: int = BOUND) -> str:
    """At most `most` characters of the text, made visible; says how many more there are."""
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}... {len(text) - most:,} more characters"


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A table for a notebook: nothing of its texts is read as HTML."""

    def line(cells: Sequence[str], kind: str) -> str:
        return f"<tr>{''.join(f'<{kind}>{html.escape(visible(cell))}</{kind}>' for cell in cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    below = "".join(f"<div><small>{html.escape(visible(note))}</small></div>" for note in notes)
    caption = f"<caption>{html.escape(visible(title))}</caption>" if title else ""
    return f"<table>{caption}<thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>{below}"


def many(count: int, one: str, several: str = "") -> str:
    """A number of things: `1 episode`, `2,048 episodes`; `several`: the plural, where it is not `one` with an s.

    >>> many(1, "query", "queries"), many(0, "query", "queries")
    ('1 query', '0 queries')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def span(value: float) -> str:
    """A time for people, roughly: `40 s`, `12 min`, `3.5 h`."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def seconds(value: float) -> str:
    """A time with a unit that fits: `0`, `850 ms`, `12.3 s`, `5.2 min`."""
    if value >= 120:
        return f"{value / 60:,.1f} min"
    if value >= 1:
        return f"{value:.1f} s"
    if value >= 0.0095:
        return f"{value * 1000:.0f} ms"
    return f"{value * 1000:.1f} ms" if value >= 0.00005 else "0"


def wording(words: str) -> str:
    """A refusal's words without what differs from request to request: quoted values, numbers, ids.

    >>> wording("Request req_8f2 failed: messages[12] has role 'user'.")
    'Request * failed: messages[*] has role *.'
    """
    return " ".join(_VARIABLE.sub("*", words).split())
