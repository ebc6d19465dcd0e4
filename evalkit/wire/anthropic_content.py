"""The content blocks of an assistant's message in Anthropic's format, in both directions; client and server share it.

evalkit reads text and calls; every other block (thinking, redacted thinking) is opaque. Newer models bind a thinking
block to everything before it, so the order of blocks must be kept. The opaque part is therefore the message's layout, a
JSON list: an opaque block as received; a number for a text block of that many characters; null for the next call.
Without opaque blocks there is no opaque part, and text comes before calls.

Chosen: a call's `input` is kept as compact JSON text.
Chosen: blank texts are left out, since the API refuses them, and a message without any block becomes "(no content)". So
does the end of a message that ends in thinking, which the API refuses too (forgecode #2107); thinking that was cut off
there, and so has no signature, is left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from evalkit.dialogue import Message, ToolCall
from evalkit.wire.fields import call_ids, object_text, text_of
from evalkit.wire.history import NOTHING_SAID, fitting_id, plain_name
from evalkit.wire.lenient import dumps_any, loads_kept

_THINKING = ("thinking", "redacted_thinking")
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the API takes as a call's id."""


def text_block(text: str) -> bytes:
    """A text as a block; its last byte is the closing brace."""
    return b'{"type":"text","text":%b}' % dumps_any(text)


NO_CONTENT = text_block(NOTHING_SAID)


def write_content(text: str, calls: Sequence[ToolCall], opaque: bytes) -> bytes:
    """The blocks of an assistant's message, separated by commas; empty if there are none."""
    return b",".join(block for _, block in _blocks(text, calls, _layout(text, opaque)))


def returned_content(message: Message) -> bytes:
    """The blocks of an assistant's message as the API takes them back; at least one."""
    layout = _layout(message.text, message.opaque)
    if layout and _is_cut(layout[-1]):
        layout.pop()
    calls = [replace(call, id=fitting_id(call.id, ID), name=plain_name(call.name)) for call in message.calls]
    blocks = list(_blocks(message.text, calls, layout))
    if not blocks or blocks[-1][0]:
        blocks.append((False, NO_CONTENT))
    return b",".join(block for _, block in blocks)


def _layout(text: str, opaque: bytes) -> list[Any]:
    layout: list[Any] = loads_kept(opaque) if opaque else [len(text)]
    return layout


def _is_cut(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "thinking" and not entry.get("signature")


def _blocks(text: str, calls: Sequence[ToolCall], layout: list[Any]) -> Iterator[tuple[bool, bytes]]:
    """(whether it is thinking, block)."""
    offset, left = 0, iter(calls)
    for entry in layout:
        if isinstance(entry, int):
            piece = text[offset : offset + entry]
            offset += entry
            if piece.strip():
                yield False, text_block(piece)
        elif entry is not None:
            yield entry.get("type") in _THINKING, dumps_any(entry)
        else:
            yield from ((False, _call_block(call)) for call in islice(left, 1))
    yield from ((False, _call_block(call)) for call in left)


def read_content(content: Sequence[Any]) -> tuple[str, tuple[ToolCall, ...], bytes]:
    """(text, calls, opaque part) of a reply's blocks. Anything that is not a block is skipped."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    layout: list[Any] = []
    used = [block for block in content if isinstance(block, dict) and block.get("type") == "tool_use"]
    ids = iter(call_ids([text_of(block, "id") for block in used]))
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            texts.append(text_of(block, "text"))
            layout.append(len(texts[-1]))
        elif kind == "tool_use":
            calls.append(_call(block, next(ids)))
            layout.append(None)
        elif isinstance(kind, str):
            layout.append(block)
    plain = all(entry is None or isinstance(entry, int) for entry in layout)
    return "".join(texts), tuple(calls), b"" if plain else dumps_any(layout)


def _call(block: dict[str, Any], call_id: str) -> ToolCall:
    value = block.get("input")
    return ToolCall(
        id=call_id, name=text_of(block, "name"), arguments="" if value is None else dumps_any(value).decode("utf-8")
    )


def _call_block(call: ToolCall) -> bytes:
    return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
        dumps_any(call.id),
        dumps_any(call.name),
        object_text(call.arguments),
    )
