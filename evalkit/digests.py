"""What makes two conversations the same: digests of what was sent, answered and observed, 16 bytes of SHA-256 each.

A request's digest is chained: the digest of a chat's first request covers its tools and opening messages; each later
digest covers the previous one and what was added since. So the cost of a turn depends on its new bytes only, not on the
length of the chat. Every part is preceded by its length, so that two different sequences of parts never have the same
bytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from struct import Struct

import orjson

from evalkit.dialogue import Message, Tool

SIZE = 16
"""Bytes of a digest."""

NOTHING = bytes(SIZE)
"""Used where there is nothing to digest: the observation of a request that the provider refused."""


Messages = Iterable[Message] | bytes
"""Messages, or what `encoded` made of them: more than one digest may cover the same."""


def texts_digest(messages: Messages) -> bytes:
    """Digest of what the agent reads as the consequence of a reply: the observation, and a new chat's opening."""
    return _digest(b"texts", encoded(messages))


def chain_open(messages: Messages, tools: Sequence[Tool]) -> bytes:
    """Digest of a chat's first request: its opening messages and the tools it offers."""
    return _digest(b"open", _kept_tools(tools), encoded(messages))


def chain_turn(previous: bytes, reply: bytes, observation: Messages, tools: Sequence[Tool] | None) -> bytes:
    """Digest of the request that follows `previous` in the same chat.

    `reply` is the logged JSON of the answer to `previous`; `tools` is None if the same tools are offered as before.
    """
    offered = b"" if tools is None else _tools(tools)
    return _digest(b"turn", previous, reply, offered, encoded(observation))


def step_digest(request_digest: bytes, reply: bytes | None, facts: bytes, observation_digest: bytes) -> bytes:
    """Digest of a log row: what was asked, answered (None: nothing), found and shown."""
    if reply is None:
        return _digest(b"step", request_digest, facts, observation_digest)
    return _digest(b"step", request_digest, facts, observation_digest, reply)


def ask_digest(role: str, shown: bytes, messages: Messages, tools: Sequence[Tool] | None, settings: bytes) -> bytes:
    """Digest of a request of an agent's code.

    role      which model it asks
    shown     digest of what the environment shows; empty where the agent composed the messages
    messages  those that it composed
    tools     those that it composed; None: those that the environment offers
    settings  its own sampling, as JSON
    """
    offered = b"" if tools is None else _tools(tools)  # of code that may change them: none are kept
    return _digest(b"ask", role.encode(), shown, encoded(messages), b"" if tools is None else b"own", offered, settings)


def encoded(messages: Messages) -> bytes:
    """The messages as JSON: different messages never give the same."""
    if isinstance(messages, bytes):
        return messages
    value = [
        (
            message.role,
            message.text,
            message.call_id,
            message.opaque.decode("latin-1"),
            [(call.id, call.name, call.arguments) for call in message.calls],
            *([message.reasoning] if message.reasoning else ()),
        )
        for message in messages
    ]
    try:
        return orjson.dumps(value)
    except TypeError:
        # Half a surrogate pair: another place refuses it, so a digest must not fail on it first.
        return json.dumps(value).encode()


def _tools(tools: Sequence[Tool]) -> bytes:
    value = [(tool.name, tool.description, tool.parameters) for tool in tools]
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)


_MOST_KEPT = 64
_KEPT: dict[int, tuple[Sequence[Tool], bytes]] = {}
"""By identity: tools that opened a chat, and their JSON. Most chats of a kind of instance offer the very same."""


def _kept_tools(tools: Sequence[Tool]) -> bytes:
    if not isinstance(tools, tuple):
        return _tools(tools)
    kept = _KEPT.get(id(tools))
    if kept is None or kept[0] is not tools:
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        kept = _KEPT[id(tools)] = tools, _tools(tools)
    return kept[1]


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a tool's parameters hold {value!r}, which is not JSON")


_length = Struct(">Q").pack


def _digest(kind: bytes, *parts: bytes) -> bytes:
    framed = kind
    for part in parts:
        framed = framed + _length(len(part)) + part  # in this order a long part is copied once
    return sha256(framed).digest()[:SIZE]
