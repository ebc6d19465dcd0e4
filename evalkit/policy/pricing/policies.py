"""The policies that play pricing, by name."""

from collections.abc import Mapping

from evalkit.policy.conversation import PolicyFn
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.pricing import playing
from evalkit.policy.pricing.mistakes import MISTAKES
from evalkit.policy.pricing.oracle import oracle
from evalkit.policy.record import Policy


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
