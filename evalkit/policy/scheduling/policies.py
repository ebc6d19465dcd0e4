"""The policies that play scheduling, by name.

It shows what a perfect score looks like, and that the environment gives it to optimal actions.
"""

from collections.abc import Mapping, Sequence

from evalkit.dialogue import Reply, Request
from evalkit.envs.scheduling.instance import SchedulingInstance, market_of
from evalkit.envs.scheduling.market import stable_matching
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.record import Policy
from evalkit.policy.scheduling import playing
from evalkit.policy.scheduling.mistakes import MISTAKES
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


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(help=about, reply=reply, recognises=playing.plays, acts_with=playing.ACTION)


POLICIES: Mapping[str, Policy] = {
    "random": _policy("a random valid action in every period", playing.random),
    "knuth": _policy("repairs one random reported blocking pair per period (the paper's heuristic)", playing.knuth),
    "noisy": _policy("a knuth that makes every kind of mistake a model makes", noisy(playing.knuth, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
