"""The policies that play pricing, by name."""

from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.envs.pricing.instance import PricingInstance, market_of
from evalkit.envs.pricing.optimum import best_prices
from evalkit.policy.conversation import PolicyFn, asking, results
from evalkit.policy.market_reading import whole
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.pricing import playing
from evalkit.policy.pricing.mistakes import MISTAKES
from evalkit.policy.pricing.playing import ATTEMPT, submit
from evalkit.policy.record import Policy
from evalkit.seeds import Stream


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
    "noisy": _policy("a learner that makes every kind of mistake a model makes", noisy(playing.learner, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
