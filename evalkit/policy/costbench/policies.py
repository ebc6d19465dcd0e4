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
    "random": _policy("any tool whose inputs are held", playing.random),
    "greedy": _policy(
        "calls the tool that is cheapest for each step it stands for (the paper's baseline)", playing.greedy
    ),
    "planner": _policy("finds the cheapest plan at the start and follows it until it cannot go on", playing.planner),
    "replanner": _policy("finds the cheapest plan afresh in every turn", playing.replanner),
    "noisy": _policy("a replanner that makes every kind of mistake a model makes", noisy(playing.replanner, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the first on", oracle=oracle),
}
