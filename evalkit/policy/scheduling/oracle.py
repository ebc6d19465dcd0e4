"""The privileged policy of scheduling: it reads the instance and acts optimally at once.

It shows what a perfect score looks like, and that the environment gives it to optimal actions.
"""

from collections.abc import Sequence

from evalkit.dialogue import Reply, Request
from evalkit.envs.scheduling.instance import SchedulingInstance, market_of
from evalkit.envs.scheduling.market import stable_matching
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.scheduling.playing import submit
from evalkit.seeds import Stream


def oracle(instance: SchedulingInstance) -> PolicyFn:
    """Submits the worker-optimal stable matching, without a question. The matching is computed at the first request."""
    matching: Sequence[int] = ()

    def reply(request: Request, draws: Stream) -> Reply:
        nonlocal matching
        del draws
        market, _ = market_of(instance)
        matching = matching or stable_matching(market)
        tasks = market.tasks
        return submit(request, {worker: tasks[t] for worker, t in zip(market.workers, matching, strict=True)})

    return reply
