"""The mistakes that are made in procurement: those of an action that is a plan, and those of all periods.

Some are refused, some are plans that cannot be carried out (too dear, or under a deal's least quantity), and some are
plans as good as any other (a quantity as a text of digits, a deal at zero).
"""

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
    other_value,
    partial,
    text_only,
    unparseable,
    writes_notes,
)

_text_only = text_only("I should first work out what each deal is really worth. Let me do that.")

_unparseable = unparseable(
    [
        "as much of everything as there is money for",
        "```python\n{}\n```",
        "{Offer_1: 1}",
        "{'Offer_1': 1 + 1}",
        "['Offer_1', 1]",
        "{['Offer_1']: 1}",
        "12",
    ]
)


def _unknown_ids(moment: Moment) -> Reply:
    """A deal that is not on the menu."""
    return damaged(moment.good, lambda value: value.update({"Offer_9999": 1}))


def _negative(moment: Moment) -> Reply:
    """Less than nothing of one deal, which would pay for others."""
    return other_value(moment, [-1, -250, -0.5, "-3"])


def _fractional(moment: Moment) -> Reply:
    """A part of a unit."""
    return other_value(moment, [0.5, 2.25, "1.5", 1e-9])


def _countless(moment: Moment) -> Reply:
    """More of one deal than there are, or than numbers go."""
    return other_value(moment, [10**7, 10**30, 1e300, float("inf"), float("-inf")])


def _no_number(moment: Moment) -> Reply:
    """Something that is no quantity."""
    return other_value(moment, [float("nan"), None, "a few", True, [1], {"units": 2}])


def _in_other_words(moment: Moment) -> Reply:
    """A quantity that reads oddly, and is one."""
    return other_value(moment, ["2", 2.0, 0, -0.0])


def _too_dear(moment: Moment) -> Reply:
    """Ten times as much of everything: more than the budget pays."""

    def damage(value: dict[object, object]) -> None:
        value.update({deal: quantity * 10 for deal, quantity in value.items() if isinstance(quantity, int)})

    return damaged(moment.good, damage)


def _one_of_each(moment: Moment) -> Reply:
    """A single unit of each deal of the plan: under the least quantity of some."""
    return damaged(moment.good, lambda value: value.update(dict.fromkeys(value, 1)))


def _nothing(moment: Moment) -> Reply:
    """A plan that buys nothing."""
    return damaged(moment.good, lambda value: value.clear())


def _bomb(moment: Moment) -> Reply:
    return bomb(moment, "{'Offer_1': {}}")


MISTAKES: Mistakes = (
    (0.03, _text_only),
    (0.02, empty),
    (0.02, unknown_tool),
    (0.02, malformed_json),
    (0.03, wrong_type),
    (0.03, _unparseable),
    (0.03, partial),
    (0.02, _unknown_ids),
    (0.03, _negative),
    (0.03, _fractional),
    (0.02, _countless),
    (0.03, _no_number),
    (0.02, _in_other_words),
    (0.02, _too_dear),
    (0.02, _one_of_each),
    (0.01, _nothing),
    (0.03, several),
    (0.03, after_action),
    (0.01, _bomb),
    (0.002, huge),
    (0.02, future_notes),
    (0.02, non_ascii),
    (0.04, writes_notes),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""
