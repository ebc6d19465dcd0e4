"""The policies that play procurement, by name."""

from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.envs.procurement.instance import ProcurementInstance, optimum_of
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.procurement import playing
from evalkit.policy.procurement.mistakes import MISTAKES
from evalkit.policy.procurement.playing import submit
from evalkit.policy.record import Policy
from evalkit.seeds import Stream


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
    "noisy": _policy("a climber that makes every kind of mistake a model makes", noisy(playing.climber, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
