"""The policies that play CostBench, by name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.events import course_of, query_after, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.policy import noisy
from evalkit.policy.conversation import Policy, PolicyFn, calling, turns
from evalkit.policy.costbench import playing
from evalkit.policy.costbench.offers import Offer
from evalkit.policy.costbench.playing import ChatState, call, read_chat, says
from evalkit.seeds import Stream

# The mistakes that are made in CostBench: with a call's types, values and ids, with its place, and with the answer.
#
# A reply without a call ends the episode there, so mistakes of that kind are rare.


_text_only = noisy.text_only("I should first add up what all the ways cost. Let me do that.")


def _missing(moment: noisy.Moment) -> Reply:
    """The good call without one of its arguments."""
    return _damaged(moment, None)


def _bad_value(moment: noisy.Moment) -> Reply:
    """A value that is not among those listed."""
    return _damaged(moment, lambda _: "whatever_is_nice", listed=True)


def _bad_id(moment: noisy.Moment) -> Reply:
    """An id that is none, or has too few or too many digits."""
    wrong = ["<Something>", "12", "00012 or 00013", "", "<TimeInfo0000000000012>"][moment.draws.below(5)]
    return _damaged(moment, lambda _: wrong, listed=False)


def _other_number(moment: noisy.Moment) -> Reply:
    """An id as it should be, with a number that nobody gave."""
    return _damaged(
        moment, lambda good: "".join("9" if character.isdigit() else character for character in good), listed=False
    )


def _more_arguments(moment: noisy.Moment) -> Reply:
    """Arguments that nobody asked for, beside the good ones."""
    return noisy.with_last(
        moment.good, lambda good: json.dumps({"reason": "cheap", **noisy.arguments_of(good), "options": [1, {}]})
    )


def _inaccessible(moment: noisy.Moment) -> Reply:
    """A tool whose inputs are not all held."""
    return _instead(moment, lambda chat: [tool for tool in chat.offers.tools if not tool.need <= chat.held])


def _repeated(moment: noisy.Moment) -> Reply:
    """A tool that has succeeded already."""
    return _instead(moment, lambda chat: [tool for tool in chat.open() if tool.name in chat.gained])


def _extra_call(moment: noisy.Moment) -> Reply:
    """Any tool, although the goal is reached."""
    return _instead(moment, lambda chat: chat.open() if chat.done else [])


def _early_answer(moment: noisy.Moment) -> Reply:
    """The answer before the goal, with a number that happens to be at hand."""
    return calling(moment.request, [], _guess(moment))


def _answer_without_number(moment: noisy.Moment) -> Reply:
    return calling(moment.request, [], "<answer> There is nothing that I could recommend. </answer>")


def _answer_beside_call(moment: noisy.Moment) -> Reply:
    """The good call, and an answer in the same reply."""
    return replace(moment.good, text=_guess(moment))


def _non_ascii(moment: noisy.Moment) -> Reply:
    """The good reply with a text that is hard to print."""
    return replace(moment.good, text=f"{noisy.NON_ASCII}\n{moment.good.text}")


MISTAKES: noisy.Mistakes = (
    (0.005, _text_only),
    (0.005, noisy.empty),
    (0.005, _early_answer),
    (0.005, _answer_without_number),
    (0.01, _answer_beside_call),
    (0.02, noisy.unknown_tool),
    (0.02, noisy.malformed_json),
    (0.02, noisy.wrong_type),
    (0.03, _missing),
    (0.03, _bad_value),
    (0.03, _bad_id),
    (0.02, _other_number),
    (0.02, _more_arguments),
    (0.03, _inaccessible),
    (0.03, _repeated),
    (0.06, _extra_call),
    (0.03, noisy.several),
    (0.02, _non_ascii),
    (0.005, noisy.bomb("{}")),
    (0.002, noisy.huge),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def _instead(moment: noisy.Moment, among: Callable[[ChatState], list[Offer]]) -> Reply:
    """A call of one of these tools in the good reply's place; the good reply if there is none."""
    chat = read_chat(moment.request)
    tools = among(chat) if chat else []
    if chat is None or not tools:
        return moment.good
    return call(moment.request, chat, tools[moment.draws.below(len(tools))])


def _damaged(moment: noisy.Moment, change: Callable[[str], str] | None, *, listed: bool | None = None) -> Reply:
    """The good reply with one argument of its call changed, or left out (None); unchanged if there is none to change.

    `listed`: only an argument whose values the schema lists, or only another one; None: any.
    """
    chat = read_chat(moment.request)
    if chat is None or not moment.good.calls:
        return moment.good
    offer, given = chat.offers.by_name[moment.good.calls[-1].name], noisy.arguments_of(moment.good.calls[-1])
    names = [name for name in given if listed is None or (name in offer.values) == listed]
    if not names:
        return moment.good
    name = names[moment.draws.below(len(names))]
    value = given.pop(name)
    if change is not None:
        given[name] = change(str(value))
    return noisy.with_last(moment.good, lambda _: json.dumps(given))


def _guess(moment: noisy.Moment) -> str:
    chat = read_chat(moment.request)
    ids = list(chat.ids.values()) if chat else []
    return f"<answer> {ids[moment.draws.below(len(ids))]} </answer>" if ids else "<answer> 00000 </answer>"


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
    "noisy": _policy(
        "a replanner that makes every kind of mistake a model makes", noisy.noisy(playing.replanner, MISTAKES)
    ),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
