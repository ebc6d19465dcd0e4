"""The privileged policy: it reads the instance and acts optimally at once.

It shows what a perfect score looks like, and that the environment gives it to optimal actions.
"""

import json
from collections.abc import Sequence
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.events import course_of, query_after, world_of
from evalkit.envs.costbench.instances.instance import Instance as CostbenchInstance
from evalkit.envs.pricing.instance import PricingInstance
from evalkit.envs.pricing.instance import market_of as pricing_market_of
from evalkit.envs.pricing.optimum import best_prices
from evalkit.envs.procurement.instance import ProcurementInstance, optimum_of
from evalkit.envs.scheduling.instance import SchedulingInstance, market_of
from evalkit.envs.scheduling.market import stable_matching
from evalkit.errors import UsageError
from evalkit.policy.pricing import playing as prices
from evalkit.policy.procurement import playing as plans
from evalkit.policy.conversation import PolicyFn, asking, calling, results, turns
from evalkit.policy.market_reading import whole
from evalkit.policy.costbench.reading import says
from evalkit.policy.scheduling.playing import submit
from evalkit.seeds import Stream


def oracle(instance: Any) -> PolicyFn:
    """The oracle of one instance; which environment it belongs to is seen from its type.

    Raises UsageError for an instance of an environment that has no oracle.
    """
    if isinstance(instance, SchedulingInstance):
        return scheduling(instance)
    if isinstance(instance, ProcurementInstance):
        return procurement(instance)
    if isinstance(instance, PricingInstance):
        return pricing(instance)
    if isinstance(instance, CostbenchInstance):
        return costbench(instance)
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


def procurement(instance: ProcurementInstance) -> PolicyFn:
    """Submits the instance's optimal plan in every period, without a question.

    Raises UsageError where the instance does not say its optimum.
    """
    plan = dict(optimum_of(instance).plan)

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        return plans.submit(request, plan)

    return reply


def pricing(instance: PricingInstance) -> PolicyFn:
    """Asks which period it is, and sets its best prices, which the instance's alphas follow.

    Where it can no longer ask, it takes the period for the first.
    """

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        known = results(request)
        question = asking(request, known, (prices.ATTEMPT,))
        if question:
            return question
        said = (whole(text) for text in known.get(prices.ATTEMPT, ()))
        period = next((number for number in said if number is not None), 0)
        market = pricing_market_of(instance)
        return prices.submit(request, dict(zip(market.products, best_prices(market, period), strict=True)))

    return reply


def costbench(instance: CostbenchInstance) -> PolicyFn:
    """Makes the calls of the segmented ground truth, one a turn with the right arguments, and gives the right answer.

    It goes by the turn alone: the ground truth depends on nothing that an agent does.
    """

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        course, world, turn = course_of(instance), world_of(instance), turns(request) + 1
        if turn > len(course.path):
            return calling(request, [], f"<answer> {_right_id(instance, turn, world.goal_type)} </answer>")
        tool = world.tools[world.place[course.path[turn - 1]]]
        arguments = {name: _right_value(instance, turn, name) for name in tool.inputs}
        return calling(request, [(tool.name, json.dumps(arguments))], says((), tool.name, tool.output))

    return reply


def _right_value(instance: CostbenchInstance, turn: int, name: str) -> str:
    """What to give for an input type in the assistant's turn, counted from 1."""
    key = world_of(instance).dimensions.get(name)
    return _right_id(instance, turn, name) if key is None else _query(instance, turn).preferences[key]


def _right_id(instance: CostbenchInstance, turn: int, name: str) -> str:
    """The id of a type in the assistant's turn. Constants stay what the first message said."""
    query, catalogue = _query(instance, turn), instance.catalogue
    given = instance.query.given if name in catalogue.constants else query.given
    label = world_of(instance).labels[name]
    return show_id(label, given.get(name, query.number), catalogue.digits[instance.split])


def _query(instance: CostbenchInstance, turn: int) -> Query:
    """What is wanted in a turn: what happens in a turn counts from the next one on."""
    return query_after(instance, sum(event.at < turn for event in course_of(instance).events))
