"""The policies that play pricing, by name."""

import json
from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.envs.pricing.instance import PricingInstance, market_of
from evalkit.envs.pricing.optimum import best_prices
from evalkit.policy import noisy
from evalkit.policy.conversation import Policy, PolicyFn, asking, results
from evalkit.policy.market_reading import whole
from evalkit.policy.pricing import playing
from evalkit.policy.pricing.playing import ATTEMPT, submit
from evalkit.seeds import Stream

# The mistakes that are made in pricing: those of an action that is a price for each product, and those of all
# periods.
#
# Some are refused; prices that are far too high or below zero are prices all the same, and bring nothing, or a loss.


def _bare_number(moment: noisy.Moment) -> Reply:
    """One price, and no word of what it is the price of."""
    return noisy.with_last(moment.good, lambda call: json.dumps(dict.fromkeys(noisy.arguments_of(call), "19.99")))


_unknown_ids = noisy.changed(lambda value: value.update({"Product_9999": 1.0}))
"""A price for a product that does not exist."""

_negative = noisy.other_value(-0.01, -0.5, -1)
"""A price that is paid to whoever buys."""

_sky_high = noisy.other_value(1e4, 10**9, 1e300, 10**400)
"""A price at which nobody buys."""

_not_finite = noisy.other_value(float("nan"), float("inf"), float("-inf"))
"""A number that is none, or has no end."""

_no_number = noisy.other_value(None, "9.99", "cheap", True, [9.99], {"price": 9.99})
"""Something that is not a price."""

_free = noisy.changed(lambda value: value.update(dict.fromkeys(value, 0)))
"""Everything for nothing."""


MISTAKES = noisy.in_periods(
    "I should first think about what people would pay. Let me do that.",
    [
        "a little more than yesterday",
        "```python\n{}\n```",
        "{Product_1: 9.99}",
        "{'Product_1': 2 * 5}",
        "['Product_1', 9.99]",
        "{['Product_1']: 9.99}",
    ],
    (
        (0.01, _bare_number),
        (0.03, noisy.partial),
        (0.03, _unknown_ids),
        (0.02, _negative),
        (0.02, _sky_high),
        (0.02, _not_finite),
        (0.03, _no_number),
        (0.01, _free),
    ),
    "{'Product_1': {}}",
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def oracle(instance: PricingInstance) -> PolicyFn:
    """Asks which period it is, and sets its best prices, which the instance's alphas follow.

    Where it can no longer ask, it takes the period for the first.
    """

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        known = results(request)
        question = asking(request, known, (ATTEMPT,))
        if question:
            return question
        numbers = (whole(text) for text in known.get(ATTEMPT, ()))
        period = next((number for number in numbers if number is not None), 0)
        market = market_of(instance)
        return submit(request, dict(zip(market.products, best_prices(market, period), strict=True)))

    return reply


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(help=about, reply=reply, recognises=playing.plays, acts_with=playing.ACTION)


POLICIES: Mapping[str, Policy] = {
    "random": _policy("a random valid action in every period", playing.random),
    "fixed": _policy(
        "half the highest sensible price at first, then always the same prices, in proportion to costs",
        playing.fixed,
    ),
    "learner": _policy(
        "infers how prices drift and how demand falls with them, and sets the markup that earns most", playing.learner
    ),
    "noisy": _policy(
        "a learner that makes every kind of mistake a model makes", noisy.noisy(playing.learner, MISTAKES)
    ),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
