"""Turns, for formats that have the system text in a field of its own and all that the user says between two replies in
one turn: messages are put together as they join a chat, so that no body has to do it again.
"""

from collections.abc import Iterable
from itertools import groupby

SYSTEM = b"\x01"
"""What an encoded system text begins with: a byte that JSON never holds."""

_END = b"]}"
"""What a turn ends with: of its content, then of itself."""


def extend_turns(parts: list[bytes], encoded: Iterable[bytes], *, user: bytes) -> None:
    """Put encoded messages behind a chat's parts, in place: system texts into the first one, which holds all of them,
    the user's content into the turn that is open. `user` is what each turn of the user's begins with.

    What stands next to each other is put together at once: a reply may have as many results as fit into its body.
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
