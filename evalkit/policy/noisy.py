"""A model that does everything wrong, in whatever environment: by its tools alone, with no regard to sense.

Its replies are what an environment's `step` must withstand (`evalkit/testing.py`). Half of them are calls as the
schemas ask for, so that episodes get on.
"""

import ast
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from evalkit.dialogue import Reply, Request, ToolCall
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import PolicyFn, calling
from evalkit.seeds import Stream

# An agent that means well and makes every kind of mistake, each with a fixed probability.
#
# It takes the reply another policy would give and spoils it. Most replies are left alone: it makes progress, more
# slowly. What each mistake brings about is the environment's to say; that all of them have a defined, recorded
# outcome is what this policy is for. Each environment has its own list in the file of its
# name.


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


def bomb(inside: str) -> Mistake:
    """Brackets nested beyond every parser's patience: as the arguments, or in `inside` at `{}` as each one's text."""
    nested = "[" * _BOMB_DEPTH + "]" * _BOMB_DEPTH
    text = inside.replace("{}", nested)

    def _bomb(moment: Moment) -> Reply:
        if moment.draws.below(2):
            return with_last(moment.good, lambda _: nested)
        return with_last(moment.good, lambda call: json.dumps(dict.fromkeys(arguments_of(call), text)))

    return _bomb


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


_ODD = ("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "9" * 400, "1" + "0" * 30, "-1", '""', '" "', "null", "true")
"""Values as JSON's text, or as what models take for it."""
_MANY = 40
"""Calls of one reply."""


def _text_alone(_: Moment) -> Reply:
    return Reply(text=f"I take the best one. {NON_ASCII}")


def _odd_value(moment: Moment) -> Reply:
    value = _ODD[moment.draws.below(len(_ODD))]
    return with_last(moment.good, lambda call: _object(dict.fromkeys(arguments_of(call) or {"x": 0}, value)))


def _object(values: dict[str, str]) -> str:
    """An object of values that are JSON's text already."""
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"


def _arguments(text: str) -> Mistake:
    """The good calls, the last one's arguments replaced."""
    return lambda moment: with_last(moment.good, lambda _: text)


def _one_more(moment: Moment) -> Reply:
    return with_last(moment.good, lambda call: json.dumps({**arguments_of(call), "reason": NON_ASCII, "": None}))


def _many(moment: Moment) -> Reply:
    return calling(moment.request, [(call.name, call.arguments) for call in moment.good.calls] * _MANY)


def _same_ids(moment: Moment) -> Reply:
    return Reply(text="", calls=moment.good.calls * 3, finish="tool_calls")


def _odd_name(moment: Moment) -> Reply:
    names = ("", "x" * 5000, NON_ASCII, "functions." + "".join(call.name for call in moment.good.calls))
    return calling(moment.request, [(names[moment.draws.below(len(names))], "{}")])


ANYWHERE: Mistakes = (
    *(
        (0.035, mistake)
        for mistake in (
            *(empty, unknown_tool, malformed_json, wrong_type, several, _text_alone, _odd_value, _odd_value),
            *(_arguments("{}"), _arguments(""), _one_more, _same_ids, _odd_name),
        )
    ),
    (0.01, _many),
    (0.01, bomb("{}")),
    (0.01, huge),
)


def mistaken(play: PolicyFn) -> PolicyFn:
    """A policy that plays like another one, and makes each kind of mistake that models make in any environment."""
    return noisy(play, ANYWHERE)


hostile = mistaken(any_tool)


# The mistakes that are made where an episode is a row of periods: in an action that is one mapping, and with notes.


def text_only(text: str) -> Mistake:
    """Words instead of a call."""

    def _text_only(moment: Moment) -> Reply:
        return calling(moment.request, [], text)

    return _text_only


def unparseable(texts: Sequence[str]) -> Mistake:
    """An action whose text holds no mapping: one of these."""

    def _unparseable(moment: Moment) -> Reply:
        text = texts[moment.draws.below(len(texts))]
        return with_last(moment.good, lambda call: json.dumps(dict.fromkeys(arguments_of(call), text)))

    return _unparseable


def partial(moment: Moment) -> Reply:
    """The action without one of its entries."""

    def damage(value: dict[object, object]) -> None:
        value.pop(list(value)[moment.draws.below(len(value))])

    return damaged(moment.good, damage)


def after_action(moment: Moment) -> Reply:
    """The good calls, then one more and a spoiled copy, which come too late if the first was an accepted action."""
    calls = [(call.name, call.arguments) for call in moment.good.calls]
    return calling(moment.request, [*calls, ("get_attempt_number", "{}"), *((name, "{}") for name, _ in calls)])


def future_notes(moment: Moment) -> Reply:
    """Reads the notes of an attempt that is yet to come, or of none."""
    attempts = ["1000000", '"soon"', "-5", "null", "1e400"]
    return calling(
        moment.request, [("read_notes", f'{{"attempt_number": {attempts[moment.draws.below(len(attempts))]}}}')]
    )


def non_ascii(moment: Moment) -> Reply:
    """The good calls with a text that is hard to print, and notes of the same kind before them."""
    calls = [(call.name, call.arguments) for call in moment.good.calls]
    return calling(moment.request, [("write_notes", json.dumps({"notes": NON_ASCII})), *calls], text=NON_ASCII)


def writes_notes(moment: Moment) -> Reply:
    """Writes notes and reads the first ones: useful behaviour, but turns without progress."""
    notes = json.dumps({"notes": f"Tried something; {moment.draws.below(100)} % sure that it helped.\n"})
    return calling(moment.request, [("write_notes", notes), ("read_notes", '{"attempt_number": 0}')])


def other_value(*values: object) -> Mistake:
    """The action with one of these values in the place of one of its own."""

    def _other_value(moment: Moment) -> Reply:
        def damage(value: dict[object, object]) -> None:
            value[list(value)[moment.draws.below(len(value))]] = values[moment.draws.below(len(values))]

        return damaged(moment.good, damage)

    return _other_value


def changed(damage: Callable[[dict[object, object]], None]) -> Mistake:
    """The action with its mapping changed by `damage`."""
    return lambda moment: damaged(moment.good, damage)


def damaged(good: Reply, damage: Callable[[dict[object, object]], None]) -> Reply:
    """The reply with the mapping in its last call's first argument changed by `damage`; unchanged if there is none."""
    if not good.calls:
        return good
    last = good.calls[-1]
    name, value = next(iter(arguments_of(last).items()), ("", None))
    mapping = ast.literal_eval(value) if isinstance(value, str) and value.startswith("{") else value
    if not isinstance(mapping, Mapping) or not mapping:
        return good
    spoiled: dict[object, object] = dict(mapping)
    damage(spoiled)
    return with_last(good, lambda _: json.dumps({name: _written(spoiled) if isinstance(value, str) else spoiled}))


def _written(value: Mapping[object, object]) -> str:
    """As a Python literal; as JSON where it holds a number without end, or none, for which literals have no word."""
    endless = any(isinstance(entry, float) and not math.isfinite(entry) for entry in value.values())
    return json.dumps(value) if endless else repr(value)


def in_periods(
    words: str,
    texts: Sequence[str],
    own: Mistakes,
    nested: str,
    *,
    late: float = 0.03,
    odd: float = 0.02,
    notes: float = 0.04,
) -> Mistakes:
    """All mistakes where an episode is a row of periods, with an environment's `own`.

    words    said instead of a call
    texts    actions that hold no mapping
    nested   a mapping with `{}` where brackets are nested
    late, odd, notes   probabilities of `after_action`, `non_ascii` and `writes_notes`
    """
    return (
        *((0.03, text_only(words)), (0.02, empty), (0.02, unknown_tool), (0.02, malformed_json), (0.03, wrong_type)),
        (0.03, unparseable(texts)),
        *own,
        *((0.03, several), (late, after_action), (0.01, bomb(nested)), (0.002, huge), (0.02, future_notes)),
        *((odd, non_ascii), (notes, writes_notes)),
    )
