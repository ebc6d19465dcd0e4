"""The policies that play allocation: its two ends, and random assignments."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from evalkit import Reply
from evalkit.extend import (
    Policy,
    Request,
    Stream,
    asking,
    calling,
    mistaken,
    offered,
    results,
)
from evalkit_litmus.allocation.environment import ACTION, PERIOD, TASKS, WORKER_IDS, AllocationInstance
from evalkit_litmus.allocation.market import AllocationMarket

_TASK = re.compile(r"\bT\d+\b")
_WHOLE = re.compile(r"\d+")
_WORKER = re.compile(r"\bW\d+\b")

Plan = Sequence[Mapping[str, str]]
PlayFn = Callable[[Request, Stream], Reply]


def plays(request: Request) -> bool:
    """Whether a request is of this environment: it offers the action, and tells tasks or is the last of its period."""
    return offered(request, ACTION) is not None and (offered(request, TASKS) is not None or len(request.tools) == 1)


def submit(request: Request, assignment: Mapping[str, str]) -> Reply:
    """The reply that submits an assignment."""
    return calling(request, [(ACTION, json.dumps({"assignment": repr(dict(assignment))}))])


def random(request: Request, draws: Stream) -> Reply:
    """A uniformly random assignment in every period."""
    known = results(request)
    question = asking(request, known, (WORKER_IDS, TASKS))
    if question:
        return question
    workers = next(filter(None, map(_WORKER.findall, known.get(WORKER_IDS, ()))), [])
    tasks = next(filter(None, map(_TASK.findall, known.get(TASKS, ()))), [])
    order = draws.permutation(len(workers))
    return submit(request, {task: workers[place] for task, place in zip(tasks, order, strict=False)})


def _following(plan_of: Callable[[AllocationMarket], Plan]) -> Callable[[AllocationInstance], PlayFn]:
    """Reads the instance, asks which period it is, and submits what a plan of the instance says of it."""

    def made(instance: AllocationInstance) -> PlayFn:
        def reply(request: Request, draws: Stream) -> Reply:
            del draws
            known = results(request)
            question = asking(request, known, (PERIOD,))
            if question:
                return question
            numbers = [int(number) for text in known.get(PERIOD, ()) for number in _WHOLE.findall(text)]
            plan = plan_of(instance.market)
            return submit(request, plan[min(numbers[0] if numbers else 0, len(plan) - 1)])

        return reply

    return made


POLICIES: Mapping[str, Policy] = {
    "efficient": Policy(
        help="reads the instance and always follows the plan of the highest revenue: the end at 100",
        oracle=_following(lambda market: market.efficient),
    ),
    "equal": Policy(
        help="reads the instance and always follows the plan of equal pay: the end at 0",
        oracle=_following(lambda market: market.equal),
    ),
    "greedy_equal": Policy(
        help="reads the instance and gives the largest task to who has earned least, knowing no later period",
        oracle=_following(lambda market: market.greedy_equal),
    ),
    "greedy_efficient": Policy(
        help="reads the instance; after a tenth of the periods at random it follows the plan of the highest revenue",
        oracle=_following(lambda market: market.greedy_efficient),
    ),
    "random": Policy(help="a random valid action in every period", reply=random, recognises=plays, acts_with=ACTION),
    "noisy": Policy(
        help="a random player that makes every kind of mistake a model makes",
        reply=mistaken(random),
        recognises=plays,
        acts_with=ACTION,
    ),
}
