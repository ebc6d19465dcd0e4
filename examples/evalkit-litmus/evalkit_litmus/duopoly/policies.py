"""The policies that play duopoly: its two ends, and random prices."""

import re
from collections.abc import Callable, Mapping

from evalkit.extend import (
    ANYWHERE,
    Policy,
    PolicyFn,
    Reply,
    Request,
    Stream,
    action_arguments,
    asking,
    calling,
    ids_in,
    noisy,
    offered,
    results,
)
from evalkit_litmus.duopoly import demand
from evalkit_litmus.duopoly.environment import ACTION, PRODUCT, PRODUCTS, DuopolyInstance

_NUMBER = re.compile(r"\d+\.\d+")
_DEFAULT = 3.0
"""The highest sensible price where nobody says one."""


def plays(request: Request) -> bool:
    """Whether a request is of this environment: it offers the action."""
    return offered(request, ACTION) is not None


def submit(request: Request, prices: Mapping[str, float]) -> Reply:
    """The reply that sets prices."""
    tool = offered(request, ACTION)
    return calling(request, [(ACTION, action_arguments(tool, prices) if tool else "{}")])


def random(request: Request, draws: Stream) -> Reply:
    """A price drawn uniformly between 0 and the last number of the opening, which is the hint."""
    known = results(request)
    question = asking(request, known, (PRODUCTS,))
    if question:
        return question
    said = next((message.text for message in request.messages if message.role == "user"), "")
    most = float((_NUMBER.findall(said) or [_DEFAULT])[-1])
    products = next(filter(None, map(ids_in, known.get(PRODUCTS, ()))), [PRODUCT])
    return submit(request, {product: round(most * draws.uniform(), 2) for product in products})


def _at(price_of: Callable[[int], float]) -> Callable[[DuopolyInstance], PolicyFn]:
    """Always one price, that of an end."""

    def made(instance: DuopolyInstance) -> PolicyFn:
        price = instance.alpha * price_of(instance.sellers)

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
        reply=noisy(random, ANYWHERE),
        recognises=plays,
        acts_with=ACTION,
    ),
}
