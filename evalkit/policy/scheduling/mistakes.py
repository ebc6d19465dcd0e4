"""The mistakes that are made in scheduling: those of an action that is one assignment, and those of all periods."""

from evalkit.dialogue import Reply
from evalkit.policy.noisy.mistakes import (
    Mistakes,
    Moment,
    bomb,
    empty,
    huge,
    malformed_json,
    several,
    unknown_tool,
    wrong_type,
)
from evalkit.policy.noisy.periods import (
    after_action,
    damaged,
    future_notes,
    non_ascii,
    partial,
    text_only,
    unparseable,
    writes_notes,
)

_text_only = text_only("I should first think about who suits what best. Let me do that.")

_unparseable = unparseable(
    [
        "give everybody what they like best",
        "```python\n{}\n```",
        "{W1: T1}",
        "{'W1': 1 + }",
        "['W1', 'T1']",
        "{['W1']: 'T1'}",
    ]
)


def _duplicate(moment: Moment) -> Reply:
    """The action with one value given twice."""

    def damage(value: dict[object, object]) -> None:
        keys = list(value)
        value[keys[0]] = value[keys[-1]]

    return damaged(moment.good, damage)


def _unknown_ids(moment: Moment) -> Reply:
    """The action with one key and one value that nobody has."""
    return damaged(moment.good, lambda value: value.update({"X99": "Y99"}))


def _bomb(moment: Moment) -> Reply:
    return bomb(moment, "{'W1': {}}")


MISTAKES: Mistakes = (
    (0.03, _text_only),
    (0.02, empty),
    (0.02, unknown_tool),
    (0.02, malformed_json),
    (0.03, wrong_type),
    (0.03, _unparseable),
    (0.03, partial),
    (0.03, _duplicate),
    (0.03, _unknown_ids),
    (0.03, several),
    (0.04, after_action),
    (0.01, _bomb),
    (0.002, huge),
    (0.02, future_notes),
    (0.03, non_ascii),
    (0.05, writes_notes),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""
