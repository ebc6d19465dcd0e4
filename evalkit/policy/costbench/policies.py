"""The policies that play CostBench, by name."""

from collections.abc import Mapping

from evalkit.policy.conversation import PolicyFn
from evalkit.policy.costbench import playing
from evalkit.policy.costbench.mistakes import MISTAKES
from evalkit.policy.costbench.oracle import oracle
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.record import Policy


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(
        help=about, reply=reply, recognises=playing.plays, acts_with="any that state a cost and an output type"
    )


POLICIES: Mapping[str, Policy] = {
    "random": _policy("any tool whose inputs are available", playing.random),
    "greedy": _policy("calls the tool that is cheapest per replaced step (the paper's baseline)", playing.greedy),
    "planner": _policy("finds the cheapest plan at the start and follows it as long as possible", playing.planner),
    "replanner": _policy("finds the cheapest plan again in every turn", playing.replanner),
    "noisy": _policy("a replanner that makes every kind of mistake a model makes", noisy(playing.replanner, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
