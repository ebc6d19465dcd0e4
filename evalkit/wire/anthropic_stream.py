"""A streamed reply of Anthropic Messages, assembled to the body that it has unstreamed.

The blocks come one after the other, each with a start, pieces and an end; then the reason to stop and the usage. Of the
tokens that the reply took, the first event states only those of its beginning: without a later figure they are unknown.

Chosen: without its end mark a stream is whole if its reason to stop and its usage came, as in `openai_chat_stream.py`.
Chosen: a call's input that is not JSON, since it was cut, becomes `{"_raw": text}`, as where such a call is sent back.
Source: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.wire.fields import RAW, object_of, text_of
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_kept
from evalkit.wire.streams import Assembler, StreamForm, joined, loads_event, raise_error
from evalkit.wire.usage import larger, stated

_INPUT = frozenset({"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""By the type of a delta: its field that holds the next piece."""


class AnthropicAssembler(Assembler):
    """Of Anthropic Messages."""

    __slots__ = ("_blocks", "_cited", "_message", "_pieces", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        """By block and field."""
        self._cited: dict[int, list[Any]] = {}

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        value = loads_event(data)
        if not isinstance(value, dict):
            raise MalformedReplyError(f"anthropic_messages: no object in {data[:200]!r}")
        kind = value.get("type")
        if kind == "content_block_delta":
            self._add(value, name, data)
        elif kind == "content_block_start":
            self._start(value)
        elif kind == "message_start":
            self._expect(not self.begun, data)
            self.begun = True
            self._message = dict(object_of(value, "message"))
            self._usage = dict(object_of(self._message, "usage"))
            self._usage.pop("output_tokens", None)
        elif kind == "message_delta":
            self._expect(self.begun, data)
            self._message |= object_of(value, "delta")
            self._count(object_of(value, "usage"))
        elif kind == "message_stop":
            self._expect(self.begun, data)
            self.done = True
        elif kind == "error":
            raise_error(value)

    def may_end(self) -> bool:
        """Whether the reason to stop and the usage came."""
        return bool(self._message.get("stop_reason")) and "output_tokens" in self._usage

    def value(self) -> Any:
        """The body."""
        content = [self._block(place) for place in sorted(self._blocks)]
        return {**self._message, "content": content, "usage": self._usage}

    def _count(self, said: Mapping[str, Any]) -> None:
        """A later statement of usage: of the input the larger statement counts, of any other figure the larger. After
        another model has taken over, its statement counts: the first was made for the model that declined."""
        if any(block.get("type") == "fallback" for block in self._blocks.values()):
            self._usage |= {name: figure for name, figure in said.items() if figure is not None}
            return
        read = {name: figure for name, figure in said.items() if name in _INPUT and figure is not None}
        known = {name: figure for name, figure in self._usage.items() if name in _INPUT}
        self._usage |= larger(known, {**known, **read})
        for name, figure in said.items():
            if name not in _INPUT and figure is not None:
                before = stated(self._usage, name)
                later = stated(said, name)
                self._usage[name] = max(before, later) if before is not None and later is not None else figure

    def _expect(self, true: bool, data: bytes) -> None:
        if not true:
            raise MalformedReplyError(f"anthropic_messages: out of order: {data[:200]!r}")

    def _start(self, value: Mapping[str, Any]) -> None:
        place, block = value.get("index"), value.get("content_block")
        if type(place) is not int or place in self._blocks or not isinstance(block, dict) or not self.begun:
            raise MalformedReplyError(f"anthropic_messages: no start of a block: {dumps_any(value)[:200]!r}")
        self._blocks[place], self._pieces[place] = dict(block), {}
        self.size += 1

    def _add(self, value: Mapping[str, Any], name: bytes, data: bytes) -> None:
        place, delta = value.get("index"), object_of(value, "delta")
        if type(place) is not int or place not in self._blocks:
            raise MalformedReplyError(f"anthropic_messages: a piece of no block: {dumps_any(value)[:200]!r}")
        kind = text_of(delta, "type")
        field = _PIECES.get(kind)
        if field:
            piece = text_of(delta, field)
            pieces = self._pieces[place].setdefault(field, [])
            pieces.append(piece)
            self.size += len(piece)
            self.like.learn(name, data, b'"%b"' % field.encode(), piece, pieces)
        elif kind == "signature_delta":
            self._blocks[place]["signature"] = text_of(delta, "signature")
            self.size += len(text_of(delta, "signature"))
        elif kind == "citations_delta":
            self._cited.setdefault(place, []).append(delta.get("citation"))

    def _block(self, place: int) -> dict[str, Any]:
        block, pieces = self._blocks[place], self._pieces[place]
        if place in self._cited:
            block = {**block, "citations": [*(block.get("citations") or ()), *self._cited[place]]}
        for field, texts in pieces.items():
            if field != "partial_json":
                block = {**block, field: text_of(block, field) + joined(texts)}
            elif any(texts):
                block = {**block, "input": _input(joined(texts))}
        return block


def _input(text: str) -> Any:
    """A call's input, as the JSON that came in pieces."""
    try:
        return loads_kept(text.encode("utf-8", "replace"))
    except MalformedReplyError:
        return {RAW: text}


ANTHROPIC_STREAM = StreamForm(assembler=AnthropicAssembler, fields=b'"stream":true,')
