"""An agent that means well and makes every kind of mistake, each with a fixed probability.

It takes the reply another policy would give and spoils it. Most replies are left alone: it makes progress, more slowly.
What each mistake brings about is the environment's to say; that all of them have a defined, recorded outcome is what
this policy is for. Here are the machinery and the mistakes that can be made anywhere; `periods.py` has those of
environments played in periods, and each environment has its own list in the file of its name.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evalkit.dialogue import Reply, Request, ToolCall
from evalkit.policy.conversation import PolicyFn, calling
from evalkit.seeds import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a mistake is made of."""

    request: Request
    good: Reply
    """The reply as it should be."""
    draws: Stream


Mistake = Callable[[Moment], Reply]

Mistakes = Sequence[tuple[float, Mistake]]
"""Each with its probability a reply; what remains to 1 is the reply as it should be."""

NON_ASCII = "Ünïcödé: 寿司, приве́т, 🧮, \u202eabc\u202c, \x00, \ufffe."

_HUGE_BYTES = 100_000
_BOMB_DEPTH = 3_000


def noisy(play: PolicyFn, mistakes: Mistakes) -> PolicyFn:
    """The policy `play`, spoiled by these mistakes."""

    def reply(request: Request, draws: Stream) -> Reply:
        good = play(request, draws)
        left = draws.uniform()
        for probability, mistake in mistakes:
            left -= probability
            if left < 0:
                return mistake(Moment(request=request, good=good, draws=draws))
        return good

    return reply


def empty(moment: Moment) -> Reply:
    """Neither text nor a call."""
    return calling(moment.request, [])


def unknown_tool(moment: Moment) -> Reply:
    """A call of a tool that does not exist."""
    return calling(moment.request, [("solve_everything", '{"quickly": true}')])


def malformed_json(moment: Moment) -> Reply:
    """The good calls, the last one's arguments without their last character."""
    return with_last(moment.good, lambda call: call.arguments[:-1])


def wrong_type(moment: Moment) -> Reply:
    """Arguments that are not an object, or an object whose values have the wrong type."""
    values: list[object] = [7, 2.5, None, True, [1, [2]], {"a": {"b": None}}]
    wrong = values[moment.draws.below(len(values))]
    if moment.draws.below(2):
        return with_last(moment.good, lambda _: json.dumps(wrong))
    return with_last(moment.good, lambda call: json.dumps(dict.fromkeys(arguments_of(call), wrong)))


def several(moment: Moment) -> Reply:
    """The good calls twice, under ids of their own."""
    return calling(moment.request, [(call.name, call.arguments) for call in (*moment.good.calls, *moment.good.calls)])


def bomb(moment: Moment, inside: str) -> Reply:
    """Brackets nested beyond every parser's patience: as the arguments, or in `inside` at `{}` as each one's text."""
    nested = "[" * _BOMB_DEPTH + "]" * _BOMB_DEPTH
    if moment.draws.below(2):
        return with_last(moment.good, lambda _: nested)
    text = inside.replace("{}", nested)
    return with_last(moment.good, lambda call: json.dumps(dict.fromkeys(arguments_of(call), text)))


def huge(moment: Moment) -> Reply:
    """The first argument alone, and far larger than any environment reads."""
    return with_last(
        moment.good, lambda call: json.dumps(dict.fromkeys(list(arguments_of(call))[:1], "x" * _HUGE_BYTES))
    )


def with_last(good: Reply, arguments: Callable[[ToolCall], str]) -> Reply:
    """The reply with the last call's arguments replaced; unchanged if it calls nothing."""
    if not good.calls:
        return good
    last = good.calls[-1]
    return replace(good, calls=(*good.calls[:-1], replace(last, arguments=arguments(last))))


def arguments_of(call: ToolCall) -> dict[str, object]:
    """The arguments of a call that the good policy made."""
    read = json.loads(call.arguments)
    return read if isinstance(read, dict) else {}
