"""The policies that play scheduling, by name."""

from collections.abc import Mapping

from evalkit.policy.conversation import PolicyFn
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.record import Policy
from evalkit.policy.scheduling import playing
from evalkit.policy.scheduling.mistakes import MISTAKES
from evalkit.policy.scheduling.oracle import oracle


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(help=about, reply=reply, recognises=playing.plays, acts_with=playing.ACTION)


POLICIES: Mapping[str, Policy] = {
    "random": _policy("a random valid action in every period", playing.random),
    "knuth": _policy("repairs one random reported blocking pair per period (the paper's heuristic)", playing.knuth),
    "noisy": _policy("a knuth that makes every kind of mistake a model makes", noisy(playing.knuth, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
