"""The privileged policy of procurement: it reads the instance and acts optimally at once."""

from evalkit.dialogue import Reply, Request
from evalkit.envs.procurement.instance import ProcurementInstance, optimum_of
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.procurement.playing import submit
from evalkit.seeds import Stream


def oracle(instance: ProcurementInstance) -> PolicyFn:
    """Submits the instance's optimal plan in every period, without a question.

    Raises UsageError where the instance does not say its optimum.
    """
    plan = dict(optimum_of(instance).plan)

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        return submit(request, plan)

    return reply
