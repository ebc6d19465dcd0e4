"""A call's arguments, read as leniently as the reference reads them: what can only have been meant is taken so.

A text that is valid JSON is what it says. A text in a text is parsed again, three times at most. What is not valid is
tried once more without the marks that end a call in some chat templates, without quotes around it, with escapes taken
off, cut to its outermost braces, and with braces put around bare pairs; the first reading that gives an object counts.
Source: specification, section 4.3, step 3.
Chosen: the order of these repairs, and that no text at all is refused: the reference does not say what it means either.
"""

from collections.abc import Iterator
from typing import Any

from evalkit.env.arguments import Refusal, read_json

MOST_ROUNDS = 3
"""How often a text within a text is parsed."""

MARKS = ("<|call|>", "</tool_call>", "<|im_end|>")
"""What chat templates put behind a call; some models write it into the arguments."""

_QUOTES = "\"'`"


def read_call(text: str) -> dict[str, Any] | Refusal:
    """The arguments object of a call. Outcomes: `too_large`, `too_deep`, `not_json`, `not_object`."""
    return _read(text, MOST_ROUNDS)


def _read(text: str, rounds: int) -> dict[str, Any] | Refusal:
    found = _parsed(text, rounds)
    if not isinstance(found, Refusal) or found.outcome != "not_json":
        return found
    for repaired in _repairs(text):
        again = _parsed(repaired, rounds)
        if not isinstance(again, Refusal):
            return again
    return found


def _parsed(text: str, rounds: int) -> dict[str, Any] | Refusal:
    """The object that the text holds, or that a text in it holds."""
    read = read_json(text)
    if isinstance(read, Refusal):
        return read
    if isinstance(read.value, dict):
        return read.value
    if isinstance(read.value, str) and rounds:
        return _read(read.value, rounds - 1)
    return Refusal("not_json" if isinstance(read.value, str) else "not_object")


def _repairs(text: str) -> Iterator[str]:
    """What the text may have been meant to be, each from the one before it."""
    text = _without_marks(text)
    yield text
    if len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1].strip()
        yield text
    if "\\" in text:
        plain = text.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "\n")
        yield plain
        yield from _braced(plain)
    yield from _braced(text)


def _braced(text: str) -> Iterator[str]:
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        yield text[first : last + 1]
    elif ":" in text:
        yield "{" + text + "}"


def _without_marks(text: str) -> str:
    text = text.strip()
    while True:
        for mark in MARKS:
            if text.endswith(mark):
                text = text[: -len(mark)].rstrip()
                break
        else:
            return text
