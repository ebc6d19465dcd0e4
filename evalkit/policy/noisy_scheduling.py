"""The mistakes that are made in scheduling: those in an action that is one mapping, and those with notes."""

import ast
import json
from collections.abc import Callable, Mapping

from evalkit.dialogue import Reply
from evalkit.policy.conversation import calling
from evalkit.policy.noisy import (
    NON_ASCII,
    Mistakes,
    Moment,
    arguments_of,
    bomb,
    empty,
    huge,
    malformed_json,
    several,
    unknown_tool,
    with_last,
    wrong_type,
)


def _text_only(at: Moment) -> Reply:
    return calling(at.request, [], "I should first think about who suits what best. Let me do that.")


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
    return with_last(
        at.good, lambda call: json.dumps(dict.fromkeys(arguments_of(call), texts[at.draws.below(len(texts))]))
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


def _after_action(at: Moment) -> Reply:
    """The good calls, then one more and a spoiled copy, which come too late if the first was an accepted action."""
    calls = [(call.name, call.arguments) for call in at.good.calls]
    return calling(at.request, [*calls, ("get_attempt_number", "{}"), *((name, "{}") for name, _ in calls)])


def _bomb(at: Moment) -> Reply:
    return bomb(at, "{'W1': {}}")


def _future_notes(at: Moment) -> Reply:
    """Reads the notes of an attempt that is yet to come, or of none."""
    attempts = ["1000000", '"soon"', "-5", "null", "1e400"]
    return calling(at.request, [("read_notes", f'{{"attempt_number": {attempts[at.draws.below(len(attempts))]}}}')])


def _non_ascii(at: Moment) -> Reply:
    """The good calls with a text that is hard to print, and notes of the same kind before them."""
    calls = [(call.name, call.arguments) for call in at.good.calls]
    return calling(at.request, [("write_notes", json.dumps({"notes": NON_ASCII})), *calls], text=NON_ASCII)


def _writes_notes(at: Moment) -> Reply:
    """Writes notes and reads the first ones: useful behaviour, but turns without progress."""
    notes = json.dumps({"notes": f"Tried something; {at.draws.below(100)} % sure that it helped.\n"})
    return calling(at.request, [("write_notes", notes), ("read_notes", '{"attempt_number": 0}')])


MISTAKES: Mistakes = (
    (0.03, _text_only),
    (0.02, empty),
    (0.02, unknown_tool),
    (0.02, malformed_json),
    (0.03, wrong_type),
    (0.03, _unparseable),
    (0.03, _partial),
    (0.03, _duplicate),
    (0.03, _unknown_ids),
    (0.03, several),
    (0.04, _after_action),
    (0.01, _bomb),
    (0.002, huge),
    (0.02, _future_notes),
    (0.03, _non_ascii),
    (0.05, _writes_notes),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def _damaged(good: Reply, damage: Callable[[dict[object, object]], None]) -> Reply:
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
    return with_last(good, lambda _: json.dumps({name: repr(changed) if isinstance(value, str) else changed}))
