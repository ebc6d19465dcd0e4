"""A model that does everything wrong, in whatever environment: by its tools alone, with no regard to sense.

Its replies are what an environment's `step` must withstand (`evalkit/testing.py`). Half of them are calls as the
schemas ask for, so that episodes get on.
"""

import json

from evalkit.dialogue import Reply
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import PolicyFn, calling
from evalkit.policy.noisy.mistakes import (
    NON_ASCII,
    Mistakes,
    Moment,
    arguments_of,
    bomb,
    empty,
    huge,
    malformed_json,
    noisy,
    several,
    unknown_tool,
    with_last,
    wrong_type,
)

_ODD = ("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "9" * 400, "1" + "0" * 30, "-1", '""', '" "', "null", "true")
"""Values as JSON's text, or as what models take for it."""
_MANY = 40
"""Calls of one reply."""


def _text_alone(_: Moment) -> Reply:
    return Reply(text=f"I take the best one. {NON_ASCII}")


def _odd_value(moment: Moment) -> Reply:
    value = _ODD[moment.draws.below(len(_ODD))]
    return with_last(moment.good, lambda call: _object(dict.fromkeys(arguments_of(call) or {"x": 0}, value)))


def _object(values: dict[str, str]) -> str:
    """An object of values that are JSON's text already."""
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"


def _left_out(moment: Moment) -> Reply:
    return with_last(moment.good, lambda _: "{}")


def _no_arguments(moment: Moment) -> Reply:
    return with_last(moment.good, lambda _: "")


def _one_more(moment: Moment) -> Reply:
    return with_last(moment.good, lambda call: json.dumps({**arguments_of(call), "reason": NON_ASCII, "": None}))


def _many(moment: Moment) -> Reply:
    return calling(moment.request, [(call.name, call.arguments) for call in moment.good.calls] * _MANY)


def _same_ids(moment: Moment) -> Reply:
    return Reply(text="", calls=moment.good.calls * 3, finish="tool_calls")


def _odd_name(moment: Moment) -> Reply:
    names = ("", "x" * 5000, NON_ASCII, "functions." + "".join(call.name for call in moment.good.calls))
    return calling(moment.request, [(names[moment.draws.below(len(names))], "{}")])


ANYWHERE: Mistakes = (
    *(
        (0.035, mistake)
        for mistake in (
            *(empty, unknown_tool, malformed_json, wrong_type, several, _text_alone, _odd_value, _odd_value, _left_out),
            *(_no_arguments, _one_more, _same_ids, _odd_name),
        )
    ),
    (0.01, _many),
    (0.01, lambda moment: bomb(moment, "{}")),
    (0.01, huge),
)


def mistaken(play: PolicyFn) -> PolicyFn:
    """A policy that plays like another one, and makes each kind of mistake that models make in any environment."""
    return noisy(play, ANYWHERE)


hostile = mistaken(any_tool)
