"""What a run is to find out, as lines for people: from the plain values that it publishes while it is played."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalkit.client.lanes.stats import ServerStats
from evalkit.results.answers import best_words
from evalkit.text import many, span

# The servers of a lane in a line.

MOST_SHOWN = 8
"""Servers in a line; those that are away come first."""
MOST_WORDS = 80
"""Characters of what one of them said last."""


def server_words(servers: Sequence[ServerStats]) -> str:
    """Requests in flight and allowed at each; of one that is away, since when and why."""
    order = sorted(servers, key=lambda server: (not server.is_down, not server.paused_s))
    words = [_words(server) for server in order[:MOST_SHOWN]]
    rest = order[MOST_SHOWN:]
    if rest:
        flying = sum(server.in_flight for server in rest)
        words.append(f"{len(rest):,} more {flying:,}/{sum(server.window for server in rest):,}")
    return ", ".join(words)


def _words(server: ServerStats) -> str:
    if server.is_down:
        return f"{server.server} down for {span(server.down_s)} ({server.trouble[:MOST_WORDS]})"
    if server.paused_s:
        return f"{server.server} paused for {span(server.paused_s)}"
    return f"{server.server} {server.in_flight:,}/{server.window:,}"


def counted(question: Mapping[str, Any] | None) -> str:
    """How much of it is answered; empty without a question."""
    if question is None:
        return ""
    answers = question["answers"]
    still = sum(answer["open"] for answer in answers)
    return f"{len(answers) - still:,} of {many(len(answers), 'question')} answered"


def open_lines(question: Mapping[str, Any] | None, most: int) -> Iterator[str]:
    """The questions that are open, each with what is known; those first that have come furthest."""
    if question is None:
        return
    still = [answer for answer in _promised(question) if answer["open"] and answer["draws"]]
    still.sort(key=lambda answer: answer["high"] - answer["low"])
    yield from (f"{answer['words']} {many(answer['draws'], 'draw')}" for answer in still[:most])
    if len(still) > most:
        yield f"and {len(still) - most:,} more open questions"


def _promised(question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Without pairs in a search for the best one: no answer and no interval of a pair is promised then."""
    return [answer for answer in question["answers"] if question["best"] is None or len(answer["about"]) == 1]


def question_lines(question: Mapping[str, Any] | None, most: int) -> Iterator[str]:
    """All of it: what is answered first."""
    if question is None:
        return
    yield f"{counted(question)}:"
    if question["best"] is not None:
        yield f"  {best_words(question['best'], question['margin'], decided=question['decided'])}"
    for answer in _promised(question):
        if answer["answered_at"]:
            yield f"  {answer['words']} Answered with {many(answer['answered_at'], 'draw')}."
    yield from (f"  {line}" for line in open_lines(question, most))
