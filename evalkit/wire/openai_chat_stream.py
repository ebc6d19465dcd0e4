"""A streamed reply of OpenAI Chat Completions, assembled to the body that it has unstreamed.

Of the choices the first counts: evalkit asks for one. Pieces of a text are joined, pieces of a call found by its id or
its place (`chat_calls.py`), and pieces of `reasoning_details` by type and place; of any other field the last value
holds. Usage counts if some comes with the reason to finish, or after it: some servers state what was used so far in
every event. Of several statements the largest counts.

Chosen: without its end mark a stream is whole if its reason to finish and its usage came: some servers never send one.
Source: https://platform.openai.com/docs/api-reference/chat-streaming, https://openrouter.ai/docs/api/reference/streaming.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from evalkit.wire.fields import first_object, is_object, object_of, text_of
from evalkit.wire.streams import Assembler, ErrorEvent, StreamForm, joined, loads_event, raise_error
from evalkit.wire.usage import larger

# The tool calls of one streamed reply of Chat Completions: which piece belongs to which call.
#
# By the documentation each piece has the place of its call, and the first one its id and its name. Servers depart
# from that: a new id in every piece, one id at several places, the same place for all calls, each call once more,
# whole, in the last event, or in each piece all that came so far. A name is what begins a call, since there is none
# without it; so a piece without a name goes on with one, whatever its id.
#
# Chosen: a piece that has a name and another id than the call at its place is another call, because some servers give
# all calls the same place; unless that call has the same name and its arguments have not ended yet. Source:
# https://platform.openai.com/docs/api-reference/chat-streaming; github.com/vllm-project/vllm/pull/23522,
# github.com/mudler/LocalAI/issues/9722, github.com/InternLM/lmdeploy/issues/3412.

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
        if len(pieces) < 2 or is_object(text) or not is_object(pieces[-1]):
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
            came = call.arguments if again and is_object(arguments) else ""
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
        return self._looks > _MOST_LOOKS or (call.value is None and not is_object(call.arguments))


_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_PIECES = ("text", "summary", "data")
"""Fields of a reasoning detail that come in pieces."""
_NOT_KEPT = frozenset({"choices", "usage", "object", "error"})


class ChatAssembler(Assembler):
    """Of Chat Completions."""

    __slots__ = (
        "_calls",
        "_choice",
        "_counted",
        "_delta",
        "_details",
        "_message",
        "_texts",
        "_top",
        "_usage",
    )

    def __init__(self) -> None:
        super().__init__()
        self._top: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[Any]] = {name: [] for name in _TEXTS}
        self._calls = StreamedCalls()
        self._details: list[Any] = []
        self._usage: Any = None
        self._counted = False
        """Whether usage came with the reason to finish, or after it."""
        self._delta = False
        """Whether a choice had anything of a message, if only an empty one."""

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        if data == b"[DONE]":
            self.done = True
            return
        value = loads_event(data)
        if not isinstance(value, dict):
            return
        choice = first_object(value, "choices")
        if choice and choice.get("index"):
            return  # of another choice, which nobody asked for
        finish = None
        if choice is not None:
            self.begun = True
            finish = choice.get("finish_reason")
            delta = choice.get("delta")
            if not delta and not self._has_said:  # a whole reply as a stream of one event
                delta = choice.get("message")
            if isinstance(delta, dict):
                self._delta = True
                self._add(delta)
                if len(delta) == 1 and not finish and not value.get("usage") and not value.get("error"):
                    self._learn(name, data, delta)
        if finish or not self._top.get("model") or not self._top.get("id"):
            self._note(value)
        if finish == "error":
            error = object_of(value, "error") or object_of(choice or {}, "error")
            raise ErrorEvent(error or {"message": "The provider cut the reply off."})
        if "error" in value:
            raise_error(value)
        if value.get("object") == "error":
            raise ErrorEvent(value)
        if finish:
            self._choice["finish_reason"] = finish
        if choice and choice.get("error"):
            self._choice["error"] = choice["error"]
        if value.get("usage"):
            self._usage = larger(self._usage, value["usage"])
            self._counted = bool(self._choice)

    def may_end(self) -> bool:
        """Whether the reason to finish and the usage came."""
        return "finish_reason" in self._choice and self._counted

    @property
    def _has_said(self) -> bool:
        return bool(self._message or self._calls or any(self._texts.values()))

    def value(self) -> Any:
        """The body."""
        message = {"role": "assistant", "content": None, **self._message}
        for name, pieces in self._texts.items():
            if pieces:
                message[name] = _text(pieces)
        if self._calls:
            message["tool_calls"] = self._calls.value()
        if self._details:
            message["reasoning_details"] = [_detail(detail) for detail in self._details]
        body = {**self._top, "object": "chat.completion"}
        if self.begun:
            body["choices"] = [{"index": 0, **({"message": message} if self._delta else {}), **self._choice}]
        return {**body, "usage": self._usage} if self._counted else body

    def _note(self, value: Mapping[str, Any]) -> None:
        """Fields of the whole reply, from the first event that has a value for them."""
        for name, member in value.items():
            if member and name not in _NOT_KEPT:
                self._top.setdefault(name, member)

    def _learn(self, name: bytes, data: bytes, delta: Mapping[str, Any]) -> None:
        ((field, piece),) = delta.items()
        if not piece or not self._top.get("id"):
            return
        if field in self._texts and isinstance(piece, str):
            self.like.learn(name, data, b'"%b"' % field.encode(), piece, self._texts[field])
        elif field == "tool_calls" and isinstance(piece, list) and len(piece) == 1 and isinstance(piece[0], dict):
            function = object_of(piece[0], "function")
            if text_of(function, "arguments") and not function.get("name"):
                pieces = self._calls.pieces_of(piece[0])
                self.like.learn(name, data, b'"arguments"', function["arguments"], pieces)

    def _add(self, delta: Mapping[str, Any]) -> None:
        for name, piece in delta.items():
            if not piece:
                continue
            if name in self._texts:
                self._texts[name].append(piece)
                self.size += len(piece) if isinstance(piece, str | list) else 1
            elif name == "tool_calls" and isinstance(piece, list):
                calls = len(self._calls)
                self.size += sum(self._calls.add(call) for call in piece if isinstance(call, dict))
                if len(self._calls) != calls:
                    self.like.forget()
            elif name == "reasoning_details" and isinstance(piece, list):
                for detail in piece:
                    self._add_detail(detail)
            else:
                self._message[name] = piece

    def _add_detail(self, piece: Any) -> None:
        if not isinstance(piece, dict):
            return
        pieces = {name: piece[name] for name in _PIECES if isinstance(piece.get(name), str)}
        self.size += sum(map(len, pieces.values()))
        last = self._details[-1] if self._details else None
        if last is not None and _continues(last, piece):
            for name, text in pieces.items():
                last.setdefault(name, []).append(text)
            last |= {name: member for name, member in piece.items() if name not in pieces and member is not None}
        else:
            self._details.append({name: [pieces[name]] if name in pieces else piece[name] for name in piece})


def _continues(last: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    """Whether a piece belongs to the last reasoning detail. An encrypted one without a place is whole."""
    if last.get("type") != piece.get("type") or last.get("index") != piece.get("index"):
        return False
    if last.get("id") and piece.get("id") and last["id"] != piece["id"]:
        return False
    return "index" in piece or "data" not in piece


def _detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: joined(member) if name in _PIECES and isinstance(member, list) else member
        for name, member in detail.items()
    }


def _text(pieces: list[Any]) -> Any:
    """Pieces of a text; as a list of parts, if one of them was a list."""
    if all(isinstance(piece, str) for piece in pieces):
        return joined(pieces)
    parts: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append({"type": "text", "text": piece})
        elif isinstance(piece, list):
            parts += piece
    return parts


CHAT_STREAM = StreamForm(
    assembler=ChatAssembler,
    fields=b'"stream":true,',
    options=b'"stream_options":{"include_usage":true},',
)
