"""The mistakes that are made in scheduling: those of an action that is one assignment, and those of all periods."""

from evalkit.dialogue import Reply
from evalkit.policy.noisy import mistakes, periods

_text_only = periods.text_only("I should first think about who suits what best. Let me do that.")

_unparseable = periods.unparseable(
    [
        "give everybody what they like best",
        "```python\n{}\n```",
        "{W1: T1}",
        "{'W1': 1 + }",
        "['W1', 'T1']",
        "{['W1']: 'T1'}",
    ]
)


def _duplicate(moment: mistakes.Moment) -> Reply:
    """The action with one value given twice."""

    def damage(value: dict[object, object]) -> None:
        keys = list(value)
        value[keys[0]] = value[keys[-1]]

    return periods.damaged(moment.good, damage)


def _unknown_ids(moment: mistakes.Moment) -> Reply:
    """The action with one key and one value that nobody has."""
    return periods.damaged(moment.good, lambda value: value.update({"X99": "Y99"}))


def _bomb(moment: mistakes.Moment) -> Reply:
    return mistakes.bomb(moment, "{'W1': {}}")


MISTAKES: mistakes.Mistakes = (
    (0.03, _text_only),
    (0.02, mistakes.empty),
    (0.02, mistakes.unknown_tool),
    (0.02, mistakes.malformed_json),
    (0.03, mistakes.wrong_type),
    (0.03, _unparseable),
    (0.03, periods.partial),
    (0.03, _duplicate),
    (0.03, _unknown_ids),
    (0.03, mistakes.several),
    (0.04, periods.after_action),
    (0.01, _bomb),
    (0.002, mistakes.huge),
    (0.02, periods.future_notes),
    (0.03, periods.non_ascii),
    (0.05, periods.writes_notes),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""
