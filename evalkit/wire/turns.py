"""Turns, for formats with a separate field for the system text and one turn for all user messages between two replies:
messages are merged as they join a chat, so that it is not repeated for every body.
"""

from collections.abc import Iterable
from itertools import groupby

SYSTEM = b"\x01"
"""What an encoded system text begins with: a byte that JSON never holds."""

_END = b"]}"
"""What a turn ends with: of its content, then of itself."""


def extend_turns(parts: list[bytes], encoded: Iterable[bytes], _quirks: object = None, *, user: bytes) -> None:
    """Append encoded messages to a chat's parts, in place: system texts to the first part, which contains all of them,
    and the user's content to the open turn. `user` is what each turn of the user's begins with.

    Adjacent messages are merged in one operation: a reply may have as many results as fit into its body.
    """
    for kind, run in groupby(encoded, key=lambda part: _kind_of(part, user)):
        pieces = list(run)
        if kind == "system":
            _add_system(parts, [piece[1:] for piece in pieces if piece[1:]])
        elif kind == "user":
            contents = [piece.removeprefix(user).removesuffix(_END) for piece in pieces]
            if parts and parts[-1].startswith(user):
                contents.insert(0, parts.pop().removeprefix(user).removesuffix(_END))
            parts.append(user + b",".join(contents) + _END)
        else:
            parts.extend(pieces)


def _kind_of(part: bytes, user: bytes) -> str:
    if part.startswith(SYSTEM):
        return "system"
    return "user" if part.startswith(user) else ""


def _add_system(parts: list[bytes], texts: list[bytes]) -> None:
    if parts and parts[0].startswith(SYSTEM):
        texts.insert(0, parts.pop(0)[1:])
    if texts:
        parts.insert(0, SYSTEM + b",".join(texts))
