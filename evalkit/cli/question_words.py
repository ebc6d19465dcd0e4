"""What a run is to find out, as lines for people: from the plain values that it publishes while it is played."""

from collections.abc import Iterator, Mapping
from typing import Any


def counted(question: Mapping[str, Any] | None) -> str:
    """How much of it is answered; empty without a question."""
    if question is None:
        return ""
    answers = question["answers"]
    still = sum(answer["open"] for answer in answers)
    return f"{len(answers) - still:,} of {len(answers):,} questions answered"


def open_lines(question: Mapping[str, Any] | None, most: int) -> Iterator[str]:
    """The questions that are open, each with what is known; those first that have come furthest."""
    if question is None:
        return
    still = [answer for answer in question["answers"] if answer["open"] and answer["draws"]]
    still.sort(key=lambda answer: answer["high"] - answer["low"])
    yield from (f"{answer['words']} {answer['draws']:,} draws" for answer in still[:most])
    if len(still) > most:
        yield f"and {len(still) - most:,} more open questions"


def question_lines(question: Mapping[str, Any] | None, most: int) -> Iterator[str]:
    """All of it: what is answered first."""
    if question is None:
        return
    yield f"{counted(question)}:"
    for answer in question["answers"]:
        if answer["answered_at"]:
            yield f"  {answer['words']} Answered with {answer['answered_at']:,} draws."
    yield from (f"  {line}" for line in open_lines(question, most))
