"""What a model thought before it answered, as far as its provider shows it, in words that every dialect shares.

A dialect keeps what it must send back in a reply's opaque part: thinking blocks, reasoning items, thoughts with their
signatures. What it need not send back but a reader wants is `Reply.reasoning`. Both are read here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Reply
from evalkit.wire.fields import object_of, text_of
from evalkit.wire.lenient import loads_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """A reply's reasoning."""

    text: str
    """What the provider shows, whole or summed up; empty: nothing."""
    hidden: int
    """Pieces that it sent encrypted, without a word that can be read."""


def thoughts_of(reply: Reply) -> Thoughts:
    """The reasoning of a reply of any dialect."""
    pieces = [reply.reasoning, *(_pieces(loads_kept(reply.opaque)) if reply.opaque else ())]
    shown = [piece for piece in pieces if piece]
    # Some servers state the same text under two names.
    return Thoughts(text="\n\n".join(dict.fromkeys(shown)), hidden=sum(piece is None for piece in pieces))


def _pieces(kept: Any) -> Iterator[str | None]:
    """The texts in an opaque part, None for each that is encrypted."""
    if isinstance(kept, dict):
        message = object_of(kept, "message")
        yield text_of(message, "reasoning_content")
        details = message.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict):
                yield _first(detail, "text", "summary", "data")
    for entry in kept if isinstance(kept, list) else ():
        if not isinstance(entry, dict):
            continue
        kind = entry.get("type")
        if kind == "thinking":
            yield _first(entry, "thinking", "signature")
        elif kind == "redacted_thinking":
            yield None
        elif kind == "reasoning":
            yield from _item(entry)
        elif entry.get("thought") is True:
            yield text_of(entry, "text")


def _item(item: Mapping[str, Any]) -> Iterator[str | None]:
    """A reasoning item of OpenAI's Responses: its whole text, else its summary."""
    shown = item_text(item)
    if shown or item.get("encrypted_content"):
        yield shown or None


def item_text(item: Mapping[str, Any]) -> str:
    """What a reasoning item of OpenAI's Responses shows."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = [text_of(part, "text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        if any(texts):
            return "\n\n".join(filter(None, texts))
    return ""


def _first(fields: Mapping[str, Any], *names: str) -> str | None:
    """The first of these fields that has a text; None where only the last has, which nobody can read."""
    *shown, hidden = names
    text = next((text_of(fields, name) for name in shown if text_of(fields, name)), "")
    return None if not text and text_of(fields, hidden) else text
