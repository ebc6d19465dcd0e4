"""The privileged policy: it reads the instance and acts optimally at once.

It shows what a perfect score looks like, and that the environment gives it to an optimal action.
"""

from collections.abc import Sequence
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.env.scheduling.instance import Instance as SchedulingInstance
from evalkit.env.scheduling.instance import market_of
from evalkit.env.scheduling.market import stable_matching
from evalkit.errors import UsageError
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.scheduling import submit
from evalkit.seeds import Stream


def oracle(instance: Any) -> PolicyFn:
    """The oracle of one instance; which environment it belongs to is seen from its type.

    Raises UsageError for an instance of an environment that has no oracle.
    """
    if isinstance(instance, SchedulingInstance):
        return scheduling(instance)
    raise UsageError(f"The policy 'oracle' cannot read a {type(instance).__name__}.")


def scheduling(instance: SchedulingInstance) -> PolicyFn:
    """Submits the worker-optimal stable matching, without a question. The matching is computed at the first request."""
    found: Sequence[int] = ()

    def reply(request: Request, draws: Stream) -> Reply:
        nonlocal found
        del draws
        market, _ = market_of(instance)
        found = found or stable_matching(market)
        tasks = market.tasks
        return submit(request, {worker: tasks[t] for worker, t in zip(market.workers, found, strict=True)})

    return reply
