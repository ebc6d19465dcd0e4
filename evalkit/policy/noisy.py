"""An agent that means well and makes every kind of mistake, each with a fixed probability.

It takes the reply another policy would give and spoils it, so it works in every environment whose action takes one
mapping. Most replies are left alone: it makes progress, more slowly. What each mistake brings about is the
environment's to say; that all of them have a defined, recorded outcome is what this policy is for.
"""

import ast
import json
from collections.abc import Callable, Mapping
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

_HUGE_BYTES = 100_000
_BOMB_DEPTH = 3_000
_NON_ASCII = "Ünïcödé: 寿司, приве́т, 🧮, \u202eabc\u202c, \x00, \ufffe."


def noisy(play: PolicyFn) -> PolicyFn:
    """The policy `play`, spoiled by `MISTAKES`."""

    def reply(request: Request, draws: Stream) -> Reply:
        good = play(request, draws)
        left = draws.uniform()
        for probability, mistake in MISTAKES:
            left -= probability
            if left < 0:
                return mistake(Moment(request=request, good=good, draws=draws))
        return good

    return reply


def _text_only(at: Moment) -> Reply:
    return calling(at.request, [], "I should first think about who suits what best. Let me do that.")


def _empty(at: Moment) -> Reply:
    return calling(at.request, [])


def _unknown_tool(at: Moment) -> Reply:
    return calling(at.request, [("solve_everything", '{"quickly": true}')])


def _malformed_json(at: Moment) -> Reply:
    """The good calls, the last one's arguments without their last character."""
    return _with_last(at.good, lambda call: call.arguments[:-1])


def _wrong_type(at: Moment) -> Reply:
    """Arguments that are no object, or an object whose values have the wrong type."""
    values: list[object] = [7, 2.5, None, True, [1, [2]], {"a": {"b": None}}]
    wrong = values[at.draws.below(len(values))]
    if at.draws.below(2):
        return _with_last(at.good, lambda _: json.dumps(wrong))
    return _with_last(at.good, lambda call: json.dumps(dict.fromkeys(_arguments(call), wrong)))


def _unparseable(at: Moment) -> Reply:
    """An action whose text holds no mapping."""
    texts = [
        "give everybody what they like best",
        "```python\n{}\n```",
        "{W1: T1}",
        "{'W1': 1 + }",
        "['W1', 'T1']",
        "{['W1']: 'T1'}",
    ]
    return _with_last(
        at.good, lambda call: json.dumps(dict.fromkeys(_arguments(call), texts[at.draws.below(len(texts))]))
    )


def _partial(at: Moment) -> Reply:
    """The action without one of its entries."""

    def damage(value: dict[object, object]) -> None:
        value.pop(list(value)[at.draws.below(len(value))])

    return _damaged(at.good, damage)


def _duplicate(at: Moment) -> Reply:
    """The action with one value given twice."""

    def damage(value: dict[object, object]) -> None:
        keys = list(value)
        value[keys[0]] = value[keys[-1]]

    return _damaged(at.good, damage)


def _unknown_ids(at: Moment) -> Reply:
    """The action with one key and one value that nobody has."""
    return _damaged(at.good, lambda value: value.update({"X99": "Y99"}))


def _several(at: Moment) -> Reply:
    """The good calls twice, under ids of their own."""
    return calling(at.request, [(call.name, call.arguments) for call in (*at.good.calls, *at.good.calls)])


def _after_action(at: Moment) -> Reply:
    """The good calls, then one more and a spoiled copy, which come too late if the first was an accepted action."""
    calls = [(call.name, call.arguments) for call in at.good.calls]
    return calling(at.request, [*calls, ("get_attempt_number", "{}"), *((name, "{}") for name, _ in calls)])


def _bomb(at: Moment) -> Reply:
    """Brackets nested beyond every parser's patience, as the arguments or as the action's text."""
    nested = "[" * _BOMB_DEPTH + "]" * _BOMB_DEPTH
    if at.draws.below(2):
        return _with_last(at.good, lambda _: nested)
    return _with_last(at.good, lambda call: json.dumps(dict.fromkeys(_arguments(call), "{'W1': " + nested + "}")))


def _huge(at: Moment) -> Reply:
    return _with_last(at.good, lambda call: json.dumps(dict.fromkeys(_arguments(call), "x" * _HUGE_BYTES)))


def _future_notes(at: Moment) -> Reply:
    """Reads the notes of an attempt that is yet to come, or of none."""
    attempts = ["1000000", '"soon"', "-5", "null", "1e400"]
    return calling(at.request, [("read_notes", f'{{"attempt_number": {attempts[at.draws.below(len(attempts))]}}}')])


def _non_ascii(at: Moment) -> Reply:
    """The good calls with a text that is hard to print, and notes of the same kind before them."""
    calls = [(call.name, call.arguments) for call in at.good.calls]
    return calling(at.request, [("write_notes", json.dumps({"notes": _NON_ASCII})), *calls], text=_NON_ASCII)


def _writes_notes(at: Moment) -> Reply:
    """Writes notes and reads the first ones: useful behaviour, but turns without progress."""
    notes = json.dumps({"notes": f"Tried something; {at.draws.below(100)} % sure that it helped.\n"})
    return calling(at.request, [("write_notes", notes), ("read_notes", '{"attempt_number": 0}')])


MISTAKES: tuple[tuple[float, Mistake], ...] = (
    (0.03, _text_only),
    (0.02, _empty),
    (0.02, _unknown_tool),
    (0.02, _malformed_json),
    (0.03, _wrong_type),
    (0.03, _unparseable),
    (0.03, _partial),
    (0.03, _duplicate),
    (0.03, _unknown_ids),
    (0.03, _several),
    (0.04, _after_action),
    (0.01, _bomb),
    (0.002, _huge),
    (0.02, _future_notes),
    (0.03, _non_ascii),
    (0.05, _writes_notes),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def _with_last(good: Reply, arguments: Callable[[ToolCall], str]) -> Reply:
    """The reply with the last call's arguments replaced."""
    if not good.calls:
        return good
    last = good.calls[-1]
    return replace(good, calls=(*good.calls[:-1], replace(last, arguments=arguments(last))))


def _damaged(good: Reply, damage: Callable[[dict[object, object]], None]) -> Reply:
    """The reply with the mapping in its last call's first argument changed by `damage`; unchanged if there is none."""
    if not good.calls:
        return good
    last = good.calls[-1]
    name, value = next(iter(_arguments(last).items()), ("", None))
    mapping = ast.literal_eval(value) if isinstance(value, str) and value.startswith("{") else value
    if not isinstance(mapping, Mapping) or not mapping:
        return good
    changed: dict[object, object] = dict(mapping)
    damage(changed)
    return _with_last(good, lambda _: json.dumps({name: repr(changed) if isinstance(value, str) else changed}))


def _arguments(call: ToolCall) -> dict[str, object]:
    """The arguments of a call that the good policy made."""
    read = json.loads(call.arguments)
    return read if isinstance(read, dict) else {}
