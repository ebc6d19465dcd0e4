"""The mistakes that are made where an episode is a row of periods: in an action that is one mapping, and with notes."""

import ast
import json
import math
from collections.abc import Callable, Mapping, Sequence

from evalkit.dialogue import Reply
from evalkit.policy.conversation import calling
from evalkit.policy.noisy.mistakes import NON_ASCII, Mistake, Moment, arguments_of, with_last


def text_only(text: str) -> Mistake:
    """Words instead of a call."""

    def _text_only(moment: Moment) -> Reply:
        return calling(moment.request, [], text)

    return _text_only


def unparseable(texts: Sequence[str]) -> Mistake:
    """An action whose text holds no mapping: one of these."""

    def _unparseable(moment: Moment) -> Reply:
        return with_last(
            moment.good,
            lambda call: json.dumps(dict.fromkeys(arguments_of(call), texts[moment.draws.below(len(texts))])),
        )

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


def other_value(moment: Moment, values: Sequence[object]) -> Reply:
    """The action with one of these values in the place of one of its own."""

    def damage(value: dict[object, object]) -> None:
        value[list(value)[moment.draws.below(len(value))]] = values[moment.draws.below(len(values))]

    return damaged(moment.good, damage)


def damaged(good: Reply, damage: Callable[[dict[object, object]], None]) -> Reply:
    """The reply with the mapping in its last call's first argument changed by `damage`; unchanged if there is none."""
    if not good.calls:
        return good
    last = good.calls[-1]
    name, value = next(iter(arguments_of(last).items()), ("", None))
    mapping = ast.literal_eval(value) if isinstance(value, str) and value.startswith("{") else value
    if not isinstance(mapping, Mapping) or not mapping:
        return good
    changed: dict[object, object] = dict(mapping)
    damage(changed)
    return with_last(good, lambda _: json.dumps({name: _written(changed) if isinstance(value, str) else changed}))


def _written(value: Mapping[object, object]) -> str:
    """As a Python literal; as JSON where it holds a number without end, or none, for which literals have no word."""
    endless = any(isinstance(entry, float) and not math.isfinite(entry) for entry in value.values())
    return json.dumps(value) if endless else repr(value)
