"""What makes two conversations the same: digests of what was sent, answered and observed, 16 bytes of SHA-256 each.

A request's digest is chained: that of a chat's first request covers tools and opening, that of each later one covers
the one before and what joined since. So a turn costs the bytes that are new, however long the chat is. Every part is
framed by its length, so that no two different sequences of parts have the same bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from evalkit.dialogue import Message, Tool

SIZE = 16
"""Bytes of a digest."""

NOTHING = bytes(SIZE)
"""Stands where there is nothing to digest: the observation of a request that the provider refused."""


def texts_digest(messages: Iterable[Message]) -> bytes:
    """Digest of what the agent reads as the consequence of a reply: the observation, and a new chat's opening."""
    return _digest(b"texts", _message_parts(messages))


def chain_open(messages: Iterable[Message], tools: Sequence[Tool]) -> bytes:
    """Digest of a chat's first request: its opening messages and the tools it offers."""
    return _digest(b"open", (_tools(tools), *_message_parts(messages)))


def chain_turn(previous: bytes, reply: bytes, observation: Iterable[Message], tools: Sequence[Tool] | None) -> bytes:
    """Digest of the request that follows `previous` in the same chat.

    `reply` is the logged JSON of the answer to `previous`; `tools` is None as long as the same tools are offered.
    """
    offered = b"same" if tools is None else _tools(tools)
    return _digest(b"turn", (previous, reply, offered, *_message_parts(observation)))


def step_digest(request_digest: bytes, reply: bytes | None, facts: bytes, observation_digest: bytes) -> bytes:
    """Digest of a log row: what was asked, answered (None: nothing), found and shown."""
    answered = (b"none",) if reply is None else (b"reply", reply)
    return _digest(b"step", (request_digest, facts, observation_digest, *answered))


def _message_parts(messages: Iterable[Message]) -> Iterator[bytes]:
    for message in messages:
        yield message.role.encode()
        yield _bytes(message.text)
        yield _bytes(message.call_id)
        yield message.opaque
        yield len(message.calls).to_bytes(4, "big")
        for call in message.calls:
            yield _bytes(call.id)
            yield _bytes(call.name)
            yield _bytes(call.arguments)


def _tools(tools: Sequence[Tool]) -> bytes:
    value = [[tool.name, tool.description, tool.parameters] for tool in tools]
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a tool's parameters hold {value!r}, which is no JSON")


def _bytes(text: str) -> bytes:
    # Total: half a surrogate pair is refused elsewhere, a digest must not be the first to stumble over it.
    return text.encode("utf-8", "surrogatepass")


def _digest(kind: bytes, parts: Iterable[bytes]) -> bytes:
    framed = bytearray(kind)
    for part in parts:
        framed += len(part).to_bytes(8, "big")
        framed += part
    return hashlib.sha256(framed).digest()[:SIZE]
