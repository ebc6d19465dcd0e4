"""The policies that play CostBench, by name."""

import json
from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.events import course_of, query_after, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.policy.conversation import PolicyFn, calling, turns
from evalkit.policy.costbench import playing
from evalkit.policy.costbench.mistakes import MISTAKES
from evalkit.policy.costbench.reading import says
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.record import Policy
from evalkit.seeds import Stream


def oracle(instance: PlanningProblem) -> PolicyFn:
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


def _right_value(instance: PlanningProblem, turn: int, name: str) -> str:
    """What to give for an input type in the assistant's turn, counted from 1."""
    key = world_of(instance).dimensions.get(name)
    return _right_id(instance, turn, name) if key is None else _query(instance, turn).preferences[key]


def _right_id(instance: PlanningProblem, turn: int, name: str) -> str:
    """The id of a type in the assistant's turn. Constants stay what the first message said."""
    query, catalogue = _query(instance, turn), instance.catalogue
    given = instance.query.given if name in catalogue.constants else query.given
    label = world_of(instance).labels[name]
    return show_id(label, given.get(name, query.number), catalogue.digits[instance.split])


def _query(instance: PlanningProblem, turn: int) -> Query:
    """What is wanted in a turn: what happens in a turn counts from the next one on."""
    return query_after(instance, sum(event.at < turn for event in course_of(instance).events))


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
