"""The tool calls of one streamed reply of Chat Completions: which piece belongs to which call.

By the documentation each piece has the place of its call, and the first one its id and its name. Servers depart from
that: a new id in every piece, one id at several places, the same place for all calls, each call once more, whole, in
the last event, or in each piece all that came so far. A name is what begins a call, since there is none without it; so
a piece without a name goes on with one, whatever its id.

Chosen: a piece that has a name and another id than the call at its place is another call, because some servers give all
calls the same place; unless that call has the same name and its arguments have not ended yet.
Source: https://platform.openai.com/docs/api-reference/chat-streaming; github.com/vllm-project/vllm/pull/23522,
github.com/mudler/LocalAI/issues/9722, github.com/InternLM/lmdeploy/issues/3412.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import orjson

from evalkit.wire.fields import object_of, text_of
from evalkit.wire.streams import joined

_MOST_LOOKS = 256


class _StreamedCall:
    """One call as far as it came."""

    __slots__ = ("further", "id", "name", "pieces", "value")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        """Of its arguments."""
        self.value: Any = None
        """Arguments that came as a value, not as a text."""
        self.further: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        return joined(self.pieces)

    def whole(self) -> str:
        """Its arguments; where each piece is all that came so far, the last one."""
        text, pieces = self.arguments, self.pieces
        if len(pieces) < 2 or _is_object(text) or not _is_object(pieces[-1]):
            return text
        return pieces[-1] if all(later.startswith(one) for one, later in pairwise(pieces)) else text


class StreamedCalls:
    """All calls of a reply, in order."""

    __slots__ = ("_by_id", "_by_place", "_calls", "_looks")

    def __init__(self) -> None:
        self._looks = 0
        self._calls: list[_StreamedCall] = []
        self._by_id: dict[str, _StreamedCall] = {}
        self._by_place: dict[int, _StreamedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, piece: Mapping[str, Any]) -> int:
        """The next piece. Returns how many characters of it are kept."""
        call, function = self._call_of(piece), object_of(piece, "function")
        name, arguments = text_of(function, "name"), function.get("arguments")
        call.further |= {
            field: member for field, member in piece.items() if field not in ("index", "id", "function") and member
        }
        again = bool(name) and name == call.name
        if not again:
            call.name += name
        if isinstance(arguments, str):
            came = call.arguments if again and _is_object(arguments) else ""
            if came and arguments.startswith(came):  # the call once more, and whole
                arguments = arguments[len(came) :]
            if arguments:
                call.pieces.append(arguments)
            return len(arguments)
        if arguments is not None:
            call.value = arguments
        return 0

    def pieces_of(self, piece: Mapping[str, Any]) -> list[str]:
        """The pieces of arguments to which one that was added belongs."""
        return self._call_of(piece).pieces

    def value(self) -> list[dict[str, Any]]:
        """The calls as the reply has them in one piece."""
        return [
            {
                "id": call.id,
                "type": "function",
                **call.further,
                "function": {"name": call.name, "arguments": call.whole() if call.value is None else call.value},
            }
            for call in self._distinct()
        ]

    def _distinct(self) -> list[_StreamedCall]:
        """The calls without those that are others over again, or the rest of them: the id tells."""
        kept: list[_StreamedCall] = []
        first: dict[str, _StreamedCall] = {}
        for call in self._calls:
            twin = first.setdefault(call.id, call) if call.id else call
            same = call.name in ("", twin.name)
            if twin is not call and same and "" in (call.name and call.arguments, twin.arguments):
                twin.pieces += call.pieces
            elif twin is call or not same or call.arguments != twin.arguments:
                kept.append(call)
        return kept

    def _call_of(self, piece: Mapping[str, Any]) -> _StreamedCall:
        """The call that a piece belongs to."""
        own = text_of(piece, "id")
        call = self._here(piece.get("index"), own, object_of(piece, "function"))
        if call is None:
            call = _StreamedCall()
            self._calls.append(call)
        call.id = call.id or own
        if own:
            self._by_id[own] = call
        if type(place := piece.get("index")) is int:
            self._by_place[place] = call
        return call

    def _here(self, place: Any, own: str, function: Mapping[str, Any]) -> _StreamedCall | None:
        """The call that goes on with a piece; None: another one begins."""
        name, arguments = text_of(function, "name"), text_of(function, "arguments")
        last = self._calls[-1] if self._calls else None
        if type(place) is not int:
            call = self._by_id.get(own, None if name else last) if own else last
        else:
            call = self._by_place.get(place)
            if call is None and not name:  # at a place of its own, what has no name goes on with what has one
                call = self._by_id.get(own)
                return call or (last if last is not None and last.name and arguments and self._open(last) else None)
        if call is None or not name or not call.name or (own == call.id if own else type(place) is int):
            return call
        return call if name == call.name and arguments and self._open(call) else None

    def _open(self, call: _StreamedCall) -> bool:
        """Whether a call's arguments have not ended yet. Each look reads all of them, so there are only some."""
        self._looks += 1
        return self._looks > _MOST_LOOKS or (call.value is None and not _is_object(call.arguments))


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
