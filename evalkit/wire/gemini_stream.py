"""A streamed reply of Gemini, assembled to the body that it has unstreamed.

Each event is a whole response with the next parts. There is no end mark: a reply has ended if its reason to finish
came, and the connection was closed in good order. Usage counts if some comes with that reason, or after it; of several
statements the largest.

Chosen: adjacent parts that hold nothing but text are one part, thoughts and answer apart. A part with a signature stays
as it came, since the API wants it back on the same part; it may come alone, with an empty text.
Source: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from typing import Any

from evalkit.wire.fields import object_of, text_of
from evalkit.wire.streams import StreamForm, joined, loads_event, raise_error
from evalkit.wire.usage import larger

_PLAIN = frozenset({"text", "thought"})


class GeminiAssembler:
    """Satisfies `Assembler`."""

    __slots__ = ("_candidate", "_counted", "_ended", "_parts", "_top", "_usage", "begun", "done", "size")

    def __init__(self) -> None:
        self.begun, self.done, self.size = False, False, 0
        self._top: dict[str, Any] = {}
        self._candidate: dict[str, Any] | None = None
        self._parts: list[Any] = []
        """Parts; of a text in pieces, a pair of its first part and the pieces."""
        self._usage: Any = None
        self._counted = False
        """Whether usage came with the reason to finish, or after it."""
        self._ended = False

    def may_wait(self, piece: bytes) -> bool:
        """None: nothing tells the last."""
        del piece
        return False

    def skim(self, block: bytes, at: int) -> tuple[int, int]:
        """None: each event counts the tokens so far."""
        del at
        return len(block), 0

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        del name
        value = loads_event(data)
        if not isinstance(value, dict):
            return
        raise_error(value)
        candidates = value.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if isinstance(candidate, dict):
            self.begun = True
            self._candidate = {**(self._candidate or {}), **candidate}
            parts = object_of(candidate, "content").get("parts")
            for part in parts if isinstance(parts, list) else ():
                self._add(part)
            self._ended = self._ended or bool(candidate.get("finishReason"))
        blocked = text_of(object_of(value, "promptFeedback"), "blockReason")
        self._ended = self._ended or bool(blocked)
        if value.get("usageMetadata"):
            self._usage = larger(self._usage, value["usageMetadata"])
            self._counted = self._ended
        self._top |= {key: member for key, member in value.items() if key not in ("candidates", "usageMetadata")}

    def may_end(self) -> bool:
        """Whether the reason to finish came."""
        return self._ended

    def value(self) -> Any:
        """The body."""
        body = dict(self._top)
        if self._candidate is not None:
            parts = [_part(part) for part in self._parts]
            content = {**object_of(self._candidate, "content"), "parts": parts}
            body["candidates"] = [{**self._candidate, "content": content}]
        return {**body, "usageMetadata": self._usage} if self._counted else body

    def _add(self, part: Any) -> None:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) or part.keys() - _PLAIN:
            self._parts.append(part)
            self.size += 1 + (len(text) if isinstance(text, str) else 0)
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, tuple) and last[0].get("thought") == part.get("thought"):
            last[1].append(text)
        else:
            self._parts.append((part, [text]))
        self.size += len(text)


def _part(part: Any) -> Any:
    return {**part[0], "text": joined(part[1])} if isinstance(part, tuple) else part


GEMINI_STREAM = StreamForm(assembler=GeminiAssembler, path="/models/{model}:streamGenerateContent?alt=sse")
