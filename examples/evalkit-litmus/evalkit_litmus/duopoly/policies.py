"""The policies that play duopoly: its two ends, and random prices."""

import json
import re
from collections.abc import Callable, Mapping

from evalkit import Reply
from evalkit.extend import (
    Policy,
    Request,
    Stream,
    asking,
    calling,
    mistaken,
    offered,
    results,
)
from evalkit_litmus.duopoly import demand
from evalkit_litmus.duopoly.environment import ACTION, PRODUCT, PRODUCTS, DuopolyInstance

_NUMBER = re.compile(r"\d+\.\d+")
PlayFn = Callable[[Request, Stream], Reply]
_DEFAULT = 3.0
"""The highest sensible price where nobody says one."""


def plays(request: Request) -> bool:
    """Whether a request is of this environment: it offers the action."""
    return offered(request, ACTION) is not None


def submit(request: Request, prices: Mapping[str, float]) -> Reply:
    """The reply that sets prices."""
    return calling(request, [(ACTION, json.dumps({"prices_dict_str": repr(dict(prices))}))])


def random(request: Request, draws: Stream) -> Reply:
    """A price drawn uniformly between 0 and the last number of the opening, which is the hint."""
    known = results(request)
    question = asking(request, known, (PRODUCTS,))
    if question:
        return question
    said = next((message.text for message in request.messages if message.role == "user"), "")
    most = float((_NUMBER.findall(said) or [_DEFAULT])[-1])
    return submit(request, {PRODUCT: round(most * draws.uniform(), 2)})


def _at(price_of: Callable[[int, demand.Logit], float]) -> Callable[[DuopolyInstance], PlayFn]:
    """Always one price, that of an end."""

    def made(instance: DuopolyInstance) -> PlayFn:
        price = instance.alpha * price_of(instance.sellers, instance.market)

        def reply(request: Request, draws: Stream) -> Reply:
            del draws
            return submit(request, {PRODUCT: price})

        return reply

    return made


POLICIES: Mapping[str, Policy] = {
    "colluding": Policy(
        help="reads the instance and always sets the monopoly price: the end at 100", oracle=_at(demand.monopoly)
    ),
    "competing": Policy(
        help="reads the instance and always sets the competitive price: the end at 0", oracle=_at(demand.competitive)
    ),
    "random": Policy(help="a random valid action in every period", reply=random, recognises=plays, acts_with=ACTION),
    "noisy": Policy(
        help="a random player that makes every kind of mistake a model makes",
        reply=mistaken(random),
        recognises=plays,
        acts_with=ACTION,
    ),
}
