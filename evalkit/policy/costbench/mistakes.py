"""The mistakes that are made in CostBench: with a call's types, values and ids, with its place, and with the answer.

A reply without a call ends the episode there, so mistakes of that kind are rare.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from evalkit.dialogue import Reply
from evalkit.policy.conversation import calling
from evalkit.policy.costbench.offers import Offer
from evalkit.policy.costbench.playing import call
from evalkit.policy.costbench.reading import ChatState, read_chat
from evalkit.policy.noisy.mistakes import (
    NON_ASCII,
    Mistakes,
    Moment,
    arguments_of,
    bomb,
    empty,
    huge,
    malformed_json,
    several,
    unknown_tool,
    with_last,
    wrong_type,
)


def _text_only(at: Moment) -> Reply:
    return calling(at.request, [], "I should first add up what all the ways cost. Let me do that.")


def _missing(at: Moment) -> Reply:
    """The good call without one of its arguments."""
    return _damaged(at, None)


def _bad_value(at: Moment) -> Reply:
    """A value that is not among those listed."""
    return _damaged(at, lambda _: "whatever_is_nice", listed=True)


def _bad_id(at: Moment) -> Reply:
    """An id that is none, or has too few or too many digits."""
    wrong = ["<Something>", "12", "00012 or 00013", "", "<TimeInfo0000000000012>"][at.draws.below(5)]
    return _damaged(at, lambda _: wrong, listed=False)


def _other_number(at: Moment) -> Reply:
    """An id as it should be, with a number that nobody gave."""
    return _damaged(at, lambda good: "".join("9" if one.isdigit() else one for one in good), listed=False)


def _more_arguments(at: Moment) -> Reply:
    """Arguments that nobody asked for, beside the good ones."""
    return with_last(at.good, lambda made: json.dumps({"reason": "cheap", **arguments_of(made), "options": [1, {}]}))


def _inaccessible(at: Moment) -> Reply:
    """A tool whose inputs are not all held."""
    return _instead(at, lambda chat: [tool for tool in chat.offers.tools if not tool.need <= chat.held])


def _repeated(at: Moment) -> Reply:
    """A tool that has succeeded already."""
    return _instead(at, lambda chat: [tool for tool in chat.open() if tool.name in chat.gained])


def _extra_call(at: Moment) -> Reply:
    """Any tool, although the goal is reached."""
    return _instead(at, lambda chat: chat.open() if chat.done else [])


def _early_answer(at: Moment) -> Reply:
    """The answer before the goal, with a number that happens to be at hand."""
    return calling(at.request, [], _guess(at))


def _answer_without_number(at: Moment) -> Reply:
    return calling(at.request, [], "<answer> There is nothing that I could recommend. </answer>")


def _answer_beside_call(at: Moment) -> Reply:
    """The good call, and an answer in the same reply."""
    return replace(at.good, text=_guess(at))


def _non_ascii(at: Moment) -> Reply:
    """The good reply with a text that is hard to print."""
    return replace(at.good, text=f"{NON_ASCII}\n{at.good.text}")


def _bomb(at: Moment) -> Reply:
    return bomb(at, "{}")


MISTAKES: Mistakes = (
    (0.005, _text_only),
    (0.005, empty),
    (0.005, _early_answer),
    (0.005, _answer_without_number),
    (0.01, _answer_beside_call),
    (0.02, unknown_tool),
    (0.02, malformed_json),
    (0.02, wrong_type),
    (0.03, _missing),
    (0.03, _bad_value),
    (0.03, _bad_id),
    (0.02, _other_number),
    (0.02, _more_arguments),
    (0.03, _inaccessible),
    (0.03, _repeated),
    (0.06, _extra_call),
    (0.03, several),
    (0.02, _non_ascii),
    (0.005, _bomb),
    (0.002, huge),
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def _instead(at: Moment, among: Callable[[ChatState], list[Offer]]) -> Reply:
    """A call of one of these tools in the good reply's place; the good reply if there is none."""
    chat = read_chat(at.request)
    tools = among(chat) if chat else []
    if chat is None or not tools:
        return at.good
    return call(at.request, chat, tools[at.draws.below(len(tools))])


def _damaged(at: Moment, change: Callable[[str], str] | None, *, listed: bool | None = None) -> Reply:
    """The good reply with one argument of its call changed, or left out (None); unchanged if there is none to change.

    `listed`: only an argument whose values the schema lists, or only another one; None: any.
    """
    chat = read_chat(at.request)
    if chat is None or not at.good.calls:
        return at.good
    offer, given = chat.offers.by_name[at.good.calls[-1].name], arguments_of(at.good.calls[-1])
    names = [name for name in given if listed is None or (name in offer.values) == listed]
    if not names:
        return at.good
    name = names[at.draws.below(len(names))]
    value = given.pop(name)
    if change is not None:
        given[name] = change(str(value))
    return with_last(at.good, lambda _: json.dumps(given))


def _guess(at: Moment) -> str:
    chat = read_chat(at.request)
    ids = list(chat.ids.values()) if chat else []
    return f"<answer> {ids[at.draws.below(len(ids))]} </answer>" if ids else "<answer> 00000 </answer>"
