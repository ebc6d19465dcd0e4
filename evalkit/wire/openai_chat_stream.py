"""A streamed reply of OpenAI Chat Completions, assembled to the body that it has unstreamed.

Of the choices the first counts: evalkit asks for one. Pieces of a text are joined, pieces of a call found by its place
or by its id, and pieces of `reasoning_details` by type and place; of any other field the last value holds. Usage counts
if it comes with the reason to finish, or after it: some servers state what was used so far in every event.

Chosen: a call with another id than the one at its place is another call, because some servers give all the same place.
Source: https://platform.openai.com/docs/api-reference/chat-streaming, https://openrouter.ai/docs/api/reference/streaming.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.wire.alike import Alike
from evalkit.wire.fields import object_of, text_of
from evalkit.wire.streams import ErrorEvent, StreamForm, joined, loads_event, raise_error

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_PIECES = ("text", "summary", "data")
"""Fields of a reasoning detail that come in pieces."""
_NOT_KEPT = frozenset({"choices", "usage", "object", "error"})


class ChatAssembler:
    """Satisfies `Assembler`."""

    __slots__ = (
        "_calls",
        "_choice",
        "_details",
        "_like",
        "_message",
        "_places",
        "_texts",
        "_top",
        "_usage",
        "begun",
        "done",
        "size",
    )

    def __init__(self) -> None:
        self.begun, self.done, self.size = False, False, 0
        self._like = Alike()
        self._top: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[Any]] = {name: [] for name in _TEXTS}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int | str, dict[str, Any]] = {}
        self._details: list[Any] = []
        self._usage: Any = None

    def may_wait(self, piece: bytes) -> bool:
        """Whether it looks like events alike."""
        return self._like.framed(piece)

    def skim(self, block: bytes, at: int) -> tuple[int, int]:
        """Events alike."""
        end, events, size = self._like.skim(block, at)
        self.size += size
        return end, events

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        if data == b"[DONE]":
            self.done = True
            return
        value = loads_event(data)
        if not isinstance(value, dict):
            return
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict) and choice.get("index"):
            return  # of another choice, which nobody asked for
        finish = None
        if isinstance(choice, dict):
            self.begun = True
            finish = choice.get("finish_reason")
            delta = choice.get("delta")
            if isinstance(delta, dict):
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
        if finish:
            self._choice["finish_reason"] = finish
        if self._choice and value.get("usage"):
            self._usage = value["usage"]

    def may_end(self) -> bool:
        """Never: there is an end mark."""
        return False

    def value(self) -> Any:
        """The body."""
        message = {"role": "assistant", "content": None, **self._message}
        for name, pieces in self._texts.items():
            if pieces:
                message[name] = _text(pieces)
        if self._calls:
            message["tool_calls"] = [_call(call) for call in self._calls]
        if self._details:
            message["reasoning_details"] = [_detail(detail) for detail in self._details]
        body = {**self._top, "object": "chat.completion"}
        if self.begun:
            body["choices"] = [{"index": 0, "message": message, **self._choice}]
        return body if self._usage is None else {**body, "usage": self._usage}

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
            self._like.learn(name, data, b'"%b"' % field.encode(), piece, self._texts[field])
        elif field == "tool_calls" and isinstance(piece, list) and len(piece) == 1 and isinstance(piece[0], dict):
            function = object_of(piece[0], "function")
            if text_of(function, "arguments") and not function.get("name"):
                pieces = self._call_of(piece[0])["arguments"]
                self._like.learn(name, data, b'"arguments"', function["arguments"], pieces)

    def _add(self, delta: Mapping[str, Any]) -> None:
        for name, piece in delta.items():
            if not piece:
                continue
            if name in self._texts:
                self._texts[name].append(piece)
                self.size += len(piece) if isinstance(piece, str | list) else 1
            elif name == "tool_calls" and isinstance(piece, list):
                for call in piece:
                    if isinstance(call, dict):
                        self._add_call(call)
            elif name == "reasoning_details" and isinstance(piece, list):
                for detail in piece:
                    self._add_detail(detail)
            else:
                self._message[name] = piece

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        function = object_of(piece, "function")
        call = self._call_of(piece)
        call["further"] |= {
            name: member for name, member in piece.items() if name not in ("index", "id", "function") and member
        }
        call["id"] = call["id"] or text_of(piece, "id")
        name, arguments = text_of(function, "name"), function.get("arguments")
        if name != call["name"]:
            call["name"] += name
        if isinstance(arguments, str):
            call["arguments"].append(arguments)
            self.size += len(arguments)
        elif arguments is not None:
            call["value"] = arguments

    def _call_of(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        """The call that a piece belongs to: that of its place, or of its id where it has no place, else the last."""
        place, own = piece.get("index"), text_of(piece, "id")
        key = place if type(place) is int else own
        call = self._places.get(key) if key != "" else self._calls[-1] if self._calls else None
        if call is None or (own and call["id"] and call["id"] != own):
            call = {"id": own, "name": "", "arguments": [], "value": None, "further": {}}
            self._calls.append(call)
            self._places[key] = call
            self._like.forget()
        return call

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


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["value"] if call["value"] is not None else joined(call["arguments"])
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call["id"], "type": "function", **call["further"], "function": function}


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
