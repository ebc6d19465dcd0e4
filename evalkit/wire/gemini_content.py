"""The parts of a model's turn in Gemini's format, in both directions; client and server share it.

evalkit reads text and calls. A part may contain more (`thoughtSignature`), and some parts contain nothing else
(thoughts). All of it must be sent back on the same part, in the same order. The opaque part is therefore the turn's
layout, a JSON list: an object is a part as it came; a pair `[n, members]` a text of n characters with the other members
of its part; a pair `[null, members]` the next call, likewise. With only text and calls there is no opaque part, and
text comes before calls.

Chosen: a call that came without an id, or with one that is taken, is named after its place. The name goes back with it,
since the API pairs calls and results by it.
Chosen: arguments that are left out are an empty object, because the format has no other way to write one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from evalkit.dialogue import Message, ToolCall
from evalkit.wire.fields import call_ids, object_text, text_of
from evalkit.wire.history import NOTHING_SAID, UNNAMED
from evalkit.wire.lenient import dumps_any, loads_kept

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.:-]")
_START = re.compile(r"[a-zA-Z_]")


def accepted_name(name: str) -> str:
    """A tool's name as the API takes it: it begins with a letter or `_`."""
    name = _NOT_IN_NAMES.sub("_", name)
    return (name if _START.match(name) else "_" + name)[:64] if name else UNNAMED


def _further(members: Mapping[str, Any] | None) -> bytes:
    return b"," + dumps_any(members)[1:-1] if members else b""


def text_part(text: str, members: Mapping[str, Any] | None = None) -> bytes:
    """A text as a part, with what else the part holds."""
    return b'{"text":%b%b}' % (dumps_any(text), _further(members))


NO_CONTENT = text_part(NOTHING_SAID)
"""A turn needs a part beside thoughts, and a part a text."""


def write_parts(text: str, calls: Sequence[ToolCall], opaque: bytes) -> bytes:
    """The parts of a model's turn, separated by commas; empty if there are none."""
    layout = loads_kept(opaque) if opaque else [(len(text), None)]
    parts: list[bytes] = []
    offset, left = 0, iter(calls)
    for entry in layout:
        if isinstance(entry, dict):
            parts.append(dumps_any(entry))
            continue
        size, members = entry
        if size is None:
            parts += (_call_part(call, members) for call in islice(left, 1))
        elif size or members:
            parts.append(text_part(text[offset : offset + size], members))
            offset += size
    return b",".join(parts + [_call_part(call, None) for call in left])


def returned_parts(message: Message) -> bytes:
    """The parts of a model's turn as the API takes them back; one at least is more than a thought."""
    calls = [replace(call, name=accepted_name(call.name)) for call in message.calls]
    parts = write_parts(message.text, calls, message.opaque)
    if message.text or calls or not all(_is_thought(entry) for entry in loads_kept(message.opaque or b"[]")):
        return parts
    return parts + b"," + NO_CONTENT if parts else NO_CONTENT


def _is_thought(entry: Any) -> bool:
    """Whether a part of the layout is a thought, or an empty text."""
    return bool(entry.get("thought")) if isinstance(entry, dict) else not entry[0]


def read_parts(content: Sequence[Any]) -> tuple[str, tuple[ToolCall, ...], bytes]:
    """(text, calls, opaque part) of a turn's parts. Anything that is not a part is skipped."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    layout: list[Any] = []
    ids = iter(call_ids(_given_ids(content)))
    for part in content:
        if not isinstance(part, dict) or not part:
            continue
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, dict):
            calls.append(_call(call, next(ids)))
            layout.append([None, _without(part, "functionCall")])
        elif isinstance(text, str) and not part.get("thought"):
            texts.append(text)
            layout.append([len(text), _without(part, "text")])
        else:
            layout.append(part)
    plain = not any(isinstance(entry, dict) or entry[1] for entry in layout)
    return "".join(texts), tuple(calls), b"" if plain else dumps_any(layout)


def _given_ids(content: Sequence[Any]) -> list[str]:
    calls = [part.get("functionCall") for part in content if isinstance(part, dict)]
    return [text_of(call, "id") for call in calls if isinstance(call, dict)]


def _call(call: dict[str, Any], call_id: str) -> ToolCall:
    value = call.get("args")
    return ToolCall(
        id=call_id, name=text_of(call, "name"), arguments="{}" if value is None else dumps_any(value).decode("utf-8")
    )


def _call_part(call: ToolCall, members: Mapping[str, Any] | None) -> bytes:
    return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (
        dumps_any(call.id),
        dumps_any(call.name or UNNAMED),
        object_text(call.arguments),
        _further(members),
    )


def _without(part: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return {key: value for key, value in part.items() if key != name} or None
