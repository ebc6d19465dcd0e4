"""A streamed reply of OpenAI Chat Completions, assembled to the body that it has unstreamed.

Of the choices the first counts: evalkit asks for one. Pieces of a text are joined, pieces of a call found by its id or
its place (`chat_calls.py`), and pieces of `reasoning_details` by type and place; of any other field the last value
holds. Usage counts if some comes with the reason to finish, or after it: some servers state what was used so far in
every event. Of several statements the largest counts.

Chosen: without its end mark a stream is whole if its reason to finish and its usage came: some servers never send one.
Source: https://platform.openai.com/docs/api-reference/chat-streaming, https://openrouter.ai/docs/api/reference/streaming.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.wire.alike import Alike
from evalkit.wire.chat_calls import StreamedCalls
from evalkit.wire.fields import object_of, text_of
from evalkit.wire.streams import ErrorEvent, StreamForm, joined, loads_event, raise_error
from evalkit.wire.usage import larger

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_PIECES = ("text", "summary", "data")
"""Fields of a reasoning detail that come in pieces."""
_NOT_KEPT = frozenset({"choices", "usage", "object", "error"})


class ChatAssembler:
    """Satisfies `Assembler`."""

    __slots__ = (
        "_calls",
        "_choice",
        "_counted",
        "_delta",
        "_details",
        "_like",
        "_message",
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
        self._calls = StreamedCalls()
        self._details: list[Any] = []
        self._usage: Any = None
        self._counted = False
        """Whether usage came with the reason to finish, or after it."""
        self._delta = False
        """Whether a choice had anything of a message, if only an empty one."""

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
        if isinstance(choice, dict) and choice.get("error"):
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
            self._like.learn(name, data, b'"%b"' % field.encode(), piece, self._texts[field])
        elif field == "tool_calls" and isinstance(piece, list) and len(piece) == 1 and isinstance(piece[0], dict):
            function = object_of(piece[0], "function")
            if text_of(function, "arguments") and not function.get("name"):
                pieces = self._calls.pieces_of(piece[0])
                self._like.learn(name, data, b'"arguments"', function["arguments"], pieces)

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
                    self._like.forget()
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
