"""Turns, for formats that have the system text in a field of its own and all that the user says between two replies in
one turn: messages are put together as they join a chat, so that no body has to do it again.
"""

SYSTEM = b"\x01"
"""What an encoded system text begins with: a byte that JSON never holds."""

_END = b"]}"
"""What a turn ends with: of its content, then of itself."""


def append_turn(parts: list[bytes], part: bytes, *, user: bytes) -> None:
    """Put an encoded message behind a chat's parts, in place: a system text into the first one, which holds all of
    them, the user's content into the turn that is open. `user` is what each turn of the user's begins with."""
    if part.startswith(SYSTEM):
        if parts and parts[0].startswith(SYSTEM):
            parts[0] += b"," + part[1:] if part[1:] else b""
        elif part[1:]:
            parts.insert(0, part)
    elif parts and part.startswith(user) and parts[-1].startswith(user):
        parts[-1] = parts[-1].removesuffix(_END) + b"," + part[len(user) :]
    else:
        parts.append(part)
