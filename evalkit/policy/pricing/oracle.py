"""The privileged policy of pricing: it reads the instance and acts optimally in every period."""

from evalkit.dialogue import Reply, Request
from evalkit.envs.pricing.instance import PricingInstance, market_of
from evalkit.envs.pricing.optimum import best_prices
from evalkit.policy.conversation import PolicyFn, asking, results
from evalkit.policy.market_reading import whole
from evalkit.policy.pricing.playing import ATTEMPT, submit
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
