"""The content blocks of an assistant's message in Anthropic's format, in both directions; client and server share it.

evalkit reads text and calls; every other block (thinking, redacted thinking) is opaque. Newer models bind a thinking
block to everything before it, so the order of blocks must be kept. The opaque part is therefore the message's layout, a
JSON list: an opaque block as received; a number for a text block of that many characters; null for the next call.
Without opaque blocks there is no opaque part, and text comes before calls.

Chosen: a call's `input` is kept as compact JSON text.
Chosen: blank texts are left out, since the API refuses them, and a message without any block becomes "(no content)".
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from evalkit.dialogue import ToolCall
from evalkit.wire.fields import call_ids, object_text, text_of
from evalkit.wire.lenient import dumps_any, loads_kept


def text_block(text: str) -> bytes:
    """A text as a block; its last byte is the closing brace."""
    return b'{"type":"text","text":%b}' % dumps_any(text)


NO_CONTENT = text_block("(no content)")


def write_content(text: str, calls: Sequence[ToolCall], opaque: bytes) -> bytes:
    """The blocks of an assistant's message, separated by commas; empty if there are none."""
    layout = loads_kept(opaque) if opaque else [len(text)]
    blocks: list[bytes] = []
    offset, left = 0, iter(calls)
    for entry in layout:
        if isinstance(entry, int):
            piece = text[offset : offset + entry]
            offset += entry
            if piece.strip():
                blocks.append(text_block(piece))
        elif entry is not None:
            blocks.append(dumps_any(entry))
        else:
            blocks += map(_call_block, islice(left, 1))
    return b",".join(blocks + [_call_block(call) for call in left])


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
