"""The loop, under rules of its own: `tell` ends a period with a mapping, `look` shows the last, `get_history` all."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from evalkit.dialogue import Reply, Tool
from evalkit.envs.arguments import Refusal
from evalkit.envs.calls import MOST_ARGUMENTS, MOST_CALLS, MOST_NOTES
from evalkit.envs.environment import Facts, Kit, Observation, Pack
from evalkit.envs.periods import MOST_IDLE, MOST_TRIES, opening, step, tools
from evalkit.envs.rules import (
    AcceptedAction,
    Getter,
    PeriodsState,
    Rules,
)
from evalkit.errors import UsageError
from tests.support.period_episodes import replying


def tell(state: PeriodsState[str], mapping: Mapping[Any, Any]) -> AcceptedAction[str] | Refusal:
    if "word" not in mapping:
        return Refusal("wordless", {"given": len(mapping)})
    word = str(mapping["word"])
    return AcceptedAction(
        world=word, facts={"word": word}, history=f"<{state.period}: {word}>", ended="found" * (word == "x")
    )


RULES: Rules[str] = Rules(
    getters=(
        Getter.history("get_history", "history"),
        Getter.attempt(),
        Getter(name="look", key="", read=lambda state: state.world),
        Getter(name="count", key="count", read=lambda state: [len(state.world)]),
    ),
    action="tell",
    argument="what",
    act=tell,
    refusals={"wordless": frozenset({"given"})},
    restarting=frozenset({"wordless"}),
)
TEXTS = RULES.texts({})
WORDS = {
    key: f"[{key} {' '.join(f'{{{name}}}' for name in sorted(fields))}]"
    for key, fields in TEXTS.all.items()
    if key not in TEXTS.later
}
WORDS["results.style"] = "plain"
PACK = Pack(name="words", digest="d", texts=WORDS)


class Talk:
    """One episode under `RULES`."""

    def __init__(
        self, *, periods: int = 4, queries: int = 3, restarts: bool = False, style: str = "plain", notes: bool = True
    ):
        kit = Kit(pack=replace(PACK, texts={**WORDS, "results.style": style}), notes=notes)
        setting = RULES.setting(kit, TEXTS, periods=periods, queries=queries, restarts=restarts)
        self.state: PeriodsState[str] = PeriodsState(setting=setting, world="")
        self.facts: list[Facts] = []

    def say(self, *calls: tuple[str, object]) -> Observation:
        self.state, seen = step(self.state, replying(*calls))
        self.facts.append(seen.facts)
        return seen

    def texts(self, *calls: tuple[str, object]) -> list[str]:
        return [message.text for message in self.say(*calls).messages]

    @property
    def outcomes(self) -> list[str]:
        return [call["outcome"] for call in self.facts[-1]["calls"]]


def told(word: str) -> tuple[str, object]:
    return "tell", {"what": repr({"word": word})}


def names(offered: tuple[Tool, ...]) -> list[str]:
    return [tool.name for tool in offered]


def test_a_period_is_a_chat_that_an_accepted_action_ends() -> None:
    talk = Talk()
    first = talk.say(("look", "{}"))
    assert [(message.role, message.text) for message in first.messages] == [("tool", ""), ("user", "[reply ]")]
    assert first.messages[0].call_id == "c0"
    assert not first.new_chat
    end = talk.say(told("a"))
    assert end.new_chat
    assert end.messages == ()
    assert end.facts == {
        "period": 0,
        "turn": 1,
        "calls": [{"tool": "tell", "outcome": "ok"}],
        "action": {"word": "a"},
        "period_end": "accepted",
    }
    assert (talk.state.period, talk.state.turn, talk.state.world) == (1, 0, "a")


def test_tools_are_offered_in_order_and_the_last_query_offers_only_the_action() -> None:
    talk = Talk(queries=2)
    everything = ["get_history", "get_attempt_number", "look", "count", "write_notes", "read_notes", "tell"]
    assert names(tools(talk.state)) == everything
    assert tools(talk.state) is tools(replace(talk.state, period=2))
    talk.say()
    assert names(tools(talk.state)) == ["tell"]
    assert talk.texts(("look", "{}")) == []
    assert talk.outcomes == ["not_offered"]
    assert names(tools(talk.state)) == everything


def test_schemas_name_each_argument_with_its_type() -> None:
    schemas = {tool.name: tool.parameters for tool in tools(Talk().state)}
    assert schemas["look"] == {"type": "object", "properties": {}}
    assert schemas["read_notes"] == {
        "type": "object",
        "properties": {"attempt_number": {"type": "integer", "description": "[tools.read_notes.attempt_number ]"}},
        "required": ["attempt_number"],
    }
    assert json.dumps(schemas["tell"])


def test_an_agent_without_notes_is_neither_offered_nor_told_of_them() -> None:
    talk = Talk(notes=False)
    assert not {"write_notes", "read_notes"} & set(names(tools(talk.state)))
    assert [message.text for message in opening(talk.state).messages] == ["[system ]", "[opening ]"]
    assert "[notes.opening ]" in opening(Talk().state).messages[1].text
    talk.say(("write_notes", {"notes": "n"}))
    assert talk.outcomes == ["not_offered"]


def test_the_last_period_opens_with_its_own_prompt() -> None:
    talk = Talk(periods=2)
    assert opening(talk.state).messages[1].text.startswith("[opening ")
    talk.say(told("a"))
    assert opening(talk.state).messages[1].text.startswith("[opening_last ")
    end = talk.say(told("b"))
    assert talk.state.ended == "complete" == end.facts["ended"]
    assert not end.new_chat


def test_an_opening_may_tell_of_the_state_and_need_not_part_in_the_last_period() -> None:
    rules = replace(
        RULES, told={"word": lambda state: state.world, "age": lambda state: state.period}, last_opening=False
    )
    texts = rules.texts({})
    assert "opening_last" not in texts.all
    assert texts.all["opening"] == {"notes", "word", "age"}
    words = {key: text for key, text in WORDS.items() if key in texts.all}
    pack = replace(PACK, texts={**words, "opening": "{age}{word}{other}", "system": "{word}"})
    setting = rules.setting(Kit(pack=pack), texts, periods=2, queries=3, restarts=False)
    state: PeriodsState[str] = PeriodsState(setting=setting, world="a")
    assert [message.text for message in opening(state).messages] == ["{word}", "0a{other}"]
    state, _ = step(state, replying(told("b")))
    assert [message.text for message in opening(state).messages] == ["{word}", "1b{other}"]


def test_an_action_may_end_the_episode() -> None:
    talk = Talk()
    assert talk.say(told("x")).facts["ended"] == "found"
    with pytest.raises(ValueError, match="over: found"):
        step(talk.state, Reply())


def test_a_reply_of_text_alone_is_answered_with_the_reply_prompt() -> None:
    talk = Talk()
    state, seen = step(talk.state, Reply(text="hm"))
    assert [message.role for message in seen.messages] == ["user"]
    assert seen.facts == {"period": 0, "turn": 0, "calls": []}
    assert state.turn == 1


def test_calls_are_answered_in_order_and_those_after_the_action_are_recorded() -> None:
    talk = Talk()
    assert talk.texts(("write_notes", {"notes": "n1"}), ("read_notes", {"attempt_number": 0}), ("count", "")) == [
        "[results.notes_written ]",
        "n1",
        "[0]",
        "[reply ]",
    ]
    talk.say(("write_notes", {"notes": "n2"}), told("a"), ("write_notes", {"notes": "n3"}), told("b"))
    assert talk.outcomes == ["ok", "ok", "after_action", "after_action"]
    assert (talk.state.world, talk.state.notes.get(0)) == ("a", "n1n2")


def test_an_earlier_state_keeps_what_it_had_collected() -> None:
    talk = Talk(queries=9)
    states = [talk.state]
    for note in "abc":
        talk.say(("write_notes", {"notes": note}))
        states.append(talk.state)
    assert [state.notes.get(0) for state in states] == [None, "a", "ab", "abc"]


def test_a_period_without_an_action_is_recorded_and_shown_in_the_history() -> None:
    talk = Talk(queries=2)
    talk.say(told("a"))
    talk.say()
    assert talk.say(("look", "{}")).facts["period_end"] == "no_action"
    talk.say(told("b"))
    assert talk.texts(("get_history", "{}"))[0] == "<0: a>[results.history_no_action 1]<2: b>"
    assert talk.texts(("get_attempt_number", "{}")) == []


def test_five_periods_in_a_row_without_an_action_end_the_episode() -> None:
    talk = Talk(periods=20, queries=1)
    for _ in range(MOST_IDLE - 1):
        talk.say()
    talk.say(told("a"))
    for _ in range(MOST_IDLE - 1):
        assert "ended" not in talk.say().facts
    assert talk.say(("tell", "{}")).facts["ended"] == "unresponsive"
    assert sum(facts.get("period_end") == "no_action" for facts in talk.facts) == 2 * MOST_IDLE - 1


def test_an_episode_of_few_periods_ends_complete_without_an_action() -> None:
    talk = Talk(periods=2, queries=1)
    talk.say()
    assert talk.say().facts["ended"] == "complete"


def test_the_history_can_be_read_once_a_chat() -> None:
    talk = Talk(queries=5)
    assert talk.texts(("get_history", "{}"))[0] == "[results.history_empty ]"
    assert talk.texts(("get_history", "{}"), ("look", "{}"), ("look", "{}"))[0] == "[results.repeat_access get_history]"
    assert talk.outcomes == ["repeat_access", "ok", "ok"]
    talk.say(told("a"))
    assert talk.texts(("get_history", "{}"))[0] == "<0: a>"


def test_a_refused_call_does_not_count_as_having_read() -> None:
    talk = Talk()
    talk.say(("get_history", "[1]"), ("get_history", "{}"))
    assert talk.outcomes == ["not_object", "ok"]


def test_the_style_of_the_reference_wraps_results_in_a_mapping() -> None:
    talk = Talk(style="repr", queries=9)
    talk.say(("write_notes", {"notes": "it's\n"}))
    calls = [
        ("get_history", "{}"),
        ("get_history", "{}"),
        ("get_attempt_number", "{}"),
        ("look", "{}"),
        ("count", "{}"),
    ]
    assert talk.texts(*calls, ("read_notes", {"attempt_number": "0"}), ("write_notes", {"notes": ""}))[:-1] == [
        "{'history': '[results.history_empty ]'}",
        "{'history': '[results.repeat_access get_history]'}",
        "{'attempt_number': 0}",
        "",
        "{'count': [0]}",
        "{'notes': \"it's\\n\"}",
        "[results.notes_written ]",
    ]


@pytest.mark.parametrize(
    ("number", "outcome", "text"),
    [
        (0, "ok", "first"),
        ("0", "ok", "first"),
        (0.0, "ok", "first"),
        (1, "ok", "[results.notes_empty 1]"),
        (2, "future_notes", "[results.future_notes 1]"),
        (10**25, "future_notes", "[results.future_notes 1]"),
        (-1, "negative_notes", "[results.negative_notes 1]"),
        ("last", "wrong_type", "[results.wrong_type attempt_number integer]"),
        (True, "wrong_type", "[results.wrong_type attempt_number integer]"),
        (None, "wrong_type", "[results.wrong_type attempt_number integer]"),
    ],
)
def test_notes_can_be_read_up_to_the_current_period(number: object, outcome: str, text: str) -> None:
    talk = Talk()
    talk.say(("write_notes", {"notes": "first"}), told("a"))
    assert talk.texts(("read_notes", {"attempt_number": number}))[0] == text
    assert talk.outcomes == [outcome]


@pytest.mark.parametrize(
    ("number", "outcome", "text"),
    [
        (0.7, "ok", "first"),
        (False, "ok", "first"),
        (True, "ok", "second"),
        (1.9, "ok", "second"),
        (-1, "ok", "third"),
        ("-1", "ok", "third"),
        (-3, "ok", "first"),
        (-1.5, "ok", "third"),
        (-0.5, "ok", "first"),
        (2, "ok", "third"),
        (-4, "negative_notes", ""),
        (3, "future_notes", ""),
        (1e300, "future_notes", ""),
        ("0.7", "wrong_type", ""),
        (None, "wrong_type", ""),
    ],
)
def test_the_reference_s_restarts_come_with_its_reading_of_attempt_numbers(
    number: object, outcome: str, text: str
) -> None:
    talk = Talk(restarts=True)
    talk.say(("write_notes", {"notes": "first"}), told("a"))
    talk.say(("write_notes", {"notes": "second"}), told("b"))
    talk.say(("write_notes", {"notes": "third"}))
    said = talk.texts(("read_notes", {"attempt_number": number}))
    assert talk.outcomes == [outcome]
    assert said[:1] == ([text] if text else [])  # what the reference dies of restarts the period
    assert talk.facts[-1].get("period_end", "") == ("" if text else "restart")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), [], {}, "", "x" * 10_000, "9" * 5_000])
def test_an_attempt_number_that_is_none_restarts_and_never_raises(number: object) -> None:
    talk = Talk(restarts=True)
    assert talk.say(("read_notes", {"attempt_number": number})).facts["period_end"] == "restart"


def test_notes_of_one_period_are_bounded() -> None:
    talk = Talk(queries=9)
    page = "n" * 60_000
    for _ in range(MOST_NOTES // len(page)):
        talk.say(("write_notes", {"notes": page}))
    assert talk.outcomes == ["ok"]
    assert talk.texts(("write_notes", {"notes": page}))[0] == f"[results.notes_full {MOST_NOTES}]"
    assert talk.outcomes == ["notes_full"]


@pytest.mark.parametrize(
    ("call", "outcome", "text"),
    [
        (("shout", "{}"), "unknown_tool", "[results.unknown_tool shout]"),
        (("", "{}"), "unknown_tool", "[results.unknown_tool ]"),
        (("s" * 500, "{}"), "unknown_tool", f"[results.unknown_tool {'s' * 64}]"),
        (("look", "{"), "not_json", "[results.not_json ]"),
        (("look", "7"), "not_object", "[results.not_object ]"),
        (("look", "[" * 2000), "too_deep", "[results.too_deep 100]"),
        (("look", '{"a": "' + "x" * 70_000), "too_large", "[results.too_large 65536]"),
        (("tell", "{}"), "missing", "[results.missing what]"),
        (("tell", {"what": 7}), "wrong_type", "[results.wrong_type what string]"),
        (("tell", {"what": "7"}), "not_mapping", "[results.not_mapping what]"),
        (("tell", {"what": "word"}), "unparseable", "[results.unparseable what]"),
        (("tell", {"what": "{[]: 1}"}), "unhashable", "[results.unhashable what]"),
        (("tell", {"what": "(" * 200}), "too_deep", "[results.too_deep 100]"),
        (("tell", {"what": "{'a': 1}"}), "wordless", "[results.wordless 1]"),
        (("write_notes", {"notes": 7}), "wrong_type", "[results.wrong_type notes string]"),
        (("write_notes", {}), "missing", "[results.missing notes]"),
        (("read_notes", {}), "missing", "[results.missing attempt_number]"),
    ],
)
def test_each_mistake_has_an_outcome_and_a_text(call: tuple[str, object], outcome: str, text: str) -> None:
    talk = Talk()
    assert talk.texts(call) == [text, "[reply ]"]
    assert talk.facts[-1]["calls"] == [{"tool": call[0][:64], "outcome": outcome}]
    assert talk.state.turn == 1
    restarted = Talk(restarts=True)
    seen = restarted.say(call)
    assert seen.facts["period_end"] == "restart"
    assert seen.new_chat


def test_the_arguments_of_a_reply_are_bounded_together() -> None:
    large = repr({"word": "w"} | dict.fromkeys(range(5_000), 0))
    calls = MOST_ARGUMENTS // len(large)
    talk = Talk()
    texts = talk.texts(*[("tell", {"what": "[" + large})] * (calls + 3))
    assert talk.outcomes == ["unparseable"] * calls + ["too_large"] * 3
    assert texts[calls] == f"[results.too_large {MOST_ARGUMENTS}]"
    assert talk.say(told("a")).acted
    restarted = Talk(restarts=True)
    assert restarted.say(("look", "x" * (MOST_ARGUMENTS + 1))).facts["period_end"] == "restart"


def test_an_argument_that_is_a_mapping_already_is_taken_as_it_is() -> None:
    talk = Talk()
    assert talk.say(("tell", {"what": {"word": "w"}})).facts["action"] == {"word": "w"}


def test_only_so_many_calls_of_a_reply_are_carried_out_but_all_are_answered() -> None:
    talk = Talk()
    seen = talk.say(*[("look", "{}")] * (MOST_CALLS + 3), told("a"))
    assert talk.outcomes == ["ok"] * MOST_CALLS + ["too_many_calls"] * 4
    assert len([message for message in seen.messages if message.role == "tool"]) == MOST_CALLS + 4
    assert talk.state.period == 0


def test_restarts_begin_the_same_period_again_and_keep_the_notes() -> None:
    talk = Talk(queries=2, restarts=True)
    talk.say(told("a"))
    talk.say(("get_history", "{}"), ("write_notes", {"notes": "kept"}))
    seen = talk.say()
    assert (seen.facts["period_end"], seen.new_chat, seen.messages) == ("restart", True, ())
    assert (talk.state.period, talk.state.turn, talk.state.tries, talk.state.history) == (1, 0, 1, "<0: a>")
    talk.say(("get_history", "{}"), ("read_notes", {"attempt_number": 1}), ("shout", "{}"), told("b"))
    assert talk.outcomes == ["ok", "ok", "unknown_tool", "after_restart"]
    assert talk.state.world == "a"
    talk.say(told("b"))
    assert (talk.state.period, talk.state.tries, talk.state.history) == (2, 0, "<0: a><1: b>")


def test_the_tenth_try_of_a_period_is_the_last() -> None:
    talk = Talk(restarts=True)
    for _ in range(MOST_TRIES - 1):
        assert talk.say(("shout", "{}")).new_chat
    last = talk.say(("shout", "{}"))
    assert last.facts["ended"] == "unresponsive"
    assert not last.new_chat


def test_what_the_reference_answers_does_not_restart() -> None:
    talk = Talk(restarts=True, queries=9)
    talk.say(("get_history", "{}"), ("get_history", "{}"), ("read_notes", {"attempt_number": -1}))
    assert "period_end" not in talk.facts[-1]
    assert talk.state.turn == 1


def test_a_pack_that_lacks_a_text_is_refused() -> None:
    partial = replace(PACK, texts={key: text for key, text in WORDS.items() if key != "results.missing"})
    with pytest.raises(UsageError, match=r"'words' lacks results\.missing"):
        RULES.setting(Kit(pack=partial), TEXTS, periods=1, queries=1, restarts=False)
    odd = replace(PACK, texts={**WORDS, "results.style": "loud"})
    with pytest.raises(UsageError, match=r"results\.style"):
        RULES.setting(Kit(pack=odd), TEXTS, periods=1, queries=1, restarts=False)


def test_every_text_may_use_the_fields_it_declares() -> None:
    talk = Talk(queries=9)
    for call in [("look", "{"), ("nope", "{}"), ("tell", {"what": "{}"}), ("read_notes", {"attempt_number": 9})]:
        for text in talk.texts(call):
            assert "{" not in text
