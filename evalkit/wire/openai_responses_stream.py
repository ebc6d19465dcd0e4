"""A streamed reply of OpenAI Responses, assembled to the body that it has unstreamed.

The last event holds the whole response, so what comes before it is not decoded. Some servers leave the output out of
it; then the items are those that ended before.

Source: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

import re
from typing import Any

from evalkit.wire.fields import object_of, text_of
from evalkit.wire.lenient import MalformedReplyError
from evalkit.wire.streams import ErrorEvent, StreamForm, loads_event

_BEFORE = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events before the model begins."""
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_ITEM = "response.output_item.done"
_PIECES = re.compile(
    rb'(?:(?:event: response\.[a-z_.]*\.delta\ndata: |data: \{"type":"response\.[a-z_.]*\.delta")[^\n]*+\n\n)++'
)
"""Events that hold nothing which does not come again."""
_TYPE = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"([a-z_.]++)"')


class ResponsesAssembler:
    """Satisfies `Assembler`."""

    __slots__ = ("_items", "_response", "begun", "done", "size")

    def __init__(self) -> None:
        self.begun, self.done, self.size = False, False, 0
        self._items: dict[int, Any] = {}
        self._response: dict[str, Any] = {}

    def may_wait(self, piece: bytes) -> bool:
        """None: it is hardly read."""
        del piece
        return False

    def skim(self, block: bytes, at: int) -> tuple[int, int]:
        """Pieces of texts."""
        found = _PIECES.match(block, at)
        if found is None:
            return at, 0
        self.begun = True
        return found.end(), block.count(b"\n\n", at, found.end())

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        known = name or _type_in(data)
        value: Any = None
        kind = known.decode("ascii", "replace")
        if not kind:
            value = loads_event(data)
            kind = text_of(value, "type") if isinstance(value, dict) else ""
        if kind != _ITEM and kind not in _ENDS and kind != "error":
            self.begun = self.begun or (kind.startswith("response.") and kind not in _BEFORE)
            return
        value = loads_event(data) if value is None else value
        if not isinstance(value, dict):
            raise MalformedReplyError(f"openai_responses: {kind} without an object")
        if kind == "error":
            raise ErrorEvent(object_of(value, "error") or value)
        self.begun = True
        if kind == _ITEM:
            self._items[len(self._items)] = value.get("item")
            self.size += len(data)
            return
        self._response, self.done = dict(object_of(value, "response")), True

    def may_end(self) -> bool:
        """Never: there is an end mark."""
        return False

    def value(self) -> Any:
        """The body."""
        if not self._response.get("output") and self._items:
            return {**self._response, "output": list(self._items.values())}
        return self._response


def _type_in(data: bytes) -> bytes:
    """An event's type, if its data begin with it."""
    found = _TYPE.match(data)
    return found[1] if found else b""


RESPONSES_STREAM = StreamForm(assembler=ResponsesAssembler, fields=b'"stream":true,')
