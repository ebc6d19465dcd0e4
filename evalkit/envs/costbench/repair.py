"""A call's arguments, read as leniently as the reference reads them: what can only have been meant is taken so.

A text that is valid JSON is what it says. A text in a text is parsed again, three times at most. What is not valid is
tried once more without the marks that end a call in some chat templates, then without quotes around it, then with
escapes taken off; each time as it is, and cut to its outermost braces or with braces put around bare pairs. The first
reading that gives an object counts.
Source: specification, section 4.3, step 3.
Chosen: the order of these repairs, and that no text at all is refused: the reference does not say what it means either.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evalkit.envs.arguments import Refusal, read_json

MOST_ROUNDS = 3
"""How often a text within a text is parsed."""

MARKS = ("<|call|>", "</tool_call>", "<|im_end|>")
"""What chat templates put after a call; some models write it into the arguments."""

_QUOTES = "\"'`"


def read_call(text: str) -> dict[str, Any] | Refusal:
    """The arguments object of a call. Outcomes: `too_large`, `too_deep`, `not_json`, `not_object`."""
    decoded = _decoded(text, MOST_ROUNDS)
    if not isinstance(decoded, _BrokenText):
        return decoded
    for repaired in _repairs(decoded.text):
        again = _decoded(repaired, decoded.rounds)
        if isinstance(again, dict):
            return again
    return Refusal("not_json")


@dataclass(frozen=True, slots=True)
class _BrokenText:
    """A text that is not JSON."""

    text: str
    rounds: int
    """How often texts within it may still be parsed."""


def _decoded(text: str, rounds: int) -> dict[str, Any] | Refusal | _BrokenText:
    """The object that the text holds, or a text in it, and so on."""
    while True:
        parsed = read_json(text)
        if isinstance(parsed, Refusal):
            return _BrokenText(text, rounds) if parsed.outcome == "not_json" else parsed
        if isinstance(parsed.value, dict):
            return parsed.value
        if not isinstance(parsed.value, str):
            return Refusal("not_object")
        if not rounds:
            return Refusal("not_json")
        text, rounds = parsed.value, rounds - 1


def _repairs(text: str) -> Iterator[str]:
    """What the text may have been meant to be: each repair continues from the one before it."""
    text = _without_marks(text)
    yield text
    yield from _braced(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1].strip()
        yield text
        yield from _braced(text)
    if "\\" in text:
        text = text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        yield text
        yield from _braced(text)


def _braced(text: str) -> Iterator[str]:
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        yield text[first : last + 1]
    elif ":" in text:
        yield "{" + text + "}"


def _without_marks(text: str) -> str:
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        mark = next((mark for mark in MARKS if text.endswith(mark, 0, end)), "")
        if not mark:
            return text[:end].lstrip()
        end -= len(mark)
