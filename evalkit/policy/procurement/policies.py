"""The policies that play procurement, by name."""

from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.envs.procurement.instance import ProcurementInstance, optimum_of
from evalkit.policy import noisy
from evalkit.policy.conversation import Policy, PolicyFn
from evalkit.policy.procurement import playing
from evalkit.policy.procurement.playing import submit
from evalkit.seeds import Stream

# The mistakes that are made in procurement: those of an action that is a plan, and those of all periods.
#
# Some are refused, some are plans that cannot be carried out (too dear, or under a deal's least quantity), and some
# are plans as good as any other (a quantity as a string of digits, a deal at zero).

_unknown_ids = noisy.changed(lambda value: value.update({"Offer_9999": 1}))
"""A deal that is not on the menu."""

_negative = noisy.other_value(-1, -250, -0.5, "-3")
"""Less than nothing of one deal, which would pay for others."""

_fractional = noisy.other_value(0.5, 2.25, "1.5", 1e-9)
"""A part of a unit."""

_countless = noisy.other_value(10**7, 10**30, 1e300, float("inf"), float("-inf"))
"""More of one deal than there are, or than numbers go."""

_no_number = noisy.other_value(float("nan"), None, "a few", True, [1], {"units": 2})
"""Something that is not a quantity."""

_in_other_words = noisy.other_value("2", 2.0, 0, -0.0)
"""A quantity that reads oddly, and is one."""


def _too_dear(moment: noisy.Moment) -> Reply:
    """Ten times as much of everything: more than the budget pays."""

    def damage(value: dict[object, object]) -> None:
        value.update({deal: quantity * 10 for deal, quantity in value.items() if isinstance(quantity, int)})

    return noisy.damaged(moment.good, damage)


_one_of_each = noisy.changed(lambda value: value.update(dict.fromkeys(value, 1)))
"""A single unit of each deal of the plan: under the least quantity of some."""

_nothing = noisy.changed(lambda value: value.clear())
"""A plan that buys nothing."""


MISTAKES = noisy.in_periods(
    "I should first work out what each deal is really worth. Let me do that.",
    [
        "as much of everything as there is money for",
        "```python\n{}\n```",
        "{Offer_1: 1}",
        "{'Offer_1': 1 + 1}",
        "['Offer_1', 1]",
        "{['Offer_1']: 1}",
        "12",
    ],
    (
        (0.03, noisy.partial),
        (0.02, _unknown_ids),
        (0.03, _negative),
        (0.03, _fractional),
        (0.02, _countless),
        (0.03, _no_number),
        (0.02, _in_other_words),
        (0.02, _too_dear),
        (0.02, _one_of_each),
        (0.01, _nothing),
    ),
    "{'Offer_1': {}}",
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def oracle(instance: ProcurementInstance) -> PolicyFn:
    """Submits the instance's optimal plan in every period, without a question.

    Raises UsageError if the instance does not say its optimum.
    """
    plan = dict(optimum_of(instance).plan)

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        return submit(request, plan)

    return reply


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(help=about, reply=reply, recognises=playing.plays, acts_with=playing.ACTION)


POLICIES: Mapping[str, Policy] = {
    "random": _policy("a random valid action in every period", playing.random),
    "climber": _policy(
        "learns the value of items from the results of its plans, and buys the plan that looks best", playing.climber
    ),
    "noisy": _policy(
        "a climber that makes every kind of mistake a model makes", noisy.noisy(playing.climber, MISTAKES)
    ),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
