import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.costbench import step
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.events import course_of
from evalkit.envs.environment import Kit
from evalkit.errors import UsageError
from tests.support.costbench_episodes import Episode, make_instance, standard_kit, travel_with_errand
from tests.support.period_episodes import replying

DECIDE, SEARCH, BOTH = "Decide_Dining_Preference", "Search_Dining_Candidates", "Dining_Preference_and_Search"
WRONG = "<answer> <DiningCandidate99999> </answer>"
BANNED = [standard_kit().pack.texts[f"banned.{i}"] for i in range(1, 11)]


def scheduled(*events: dict[str, Any], **fields: Any) -> Episode:
    return Episode(make_instance(schedule=events, **fields))


def test_a_partial_pack_is_refused() -> None:
    pack = standard_kit().pack
    texts = {key: text for key, text in pack.texts.items() if key not in ("system", "banned.3")}
    with pytest.raises(UsageError, match=r"prompt pack 'standard' lacks banned.3, system\."):
        step.start(make_instance(), Kit(pack=replace(pack, texts=texts)))


def test_a_line_that_states_another_optimum_is_refused() -> None:
    with pytest.raises(UsageError, match="optimum"):
        Episode(make_instance(optimum=1))


def test_an_answer_of_the_right_form_ends_the_episode() -> None:
    episode = Episode(make_instance())
    seen = episode.say(Reply(text=WRONG))
    assert step.ended(episode.state) == "answered"
    assert seen.messages == ()
    assert seen.facts["answer"] == "99999"
    assert seen.facts["ended"] == "answered"
    assert seen.facts["calls"] == []
    with pytest.raises(ValueError, match="over"):
        step.step(episode.state, Reply())


def test_calls_beside_an_answer_are_not_executed() -> None:
    episode = Episode(make_instance())
    seen = episode.say(replying((DECIDE, episode.arguments(DECIDE)), (SEARCH, {}), text=WRONG))
    assert seen.facts["calls"] == [
        {"tool": DECIDE, "outcome": "not_executed"},
        {"tool": SEARCH, "outcome": "not_executed"},
    ]
    assert seen.messages == ()
    assert episode.state.have == episode.state.setup.world.start


@pytest.mark.parametrize("text", ["<answer>1234</answer>", "<answer>123456</answer>", "<answer>12345", "12345"])
def test_an_answer_of_another_form_lets_calls_go_on(text: str) -> None:
    episode = Episode(make_instance())
    seen = episode.say(replying((DECIDE, episode.arguments(DECIDE)), text=text))
    assert episode.outcome == "ok"
    assert not step.ended(episode.state)
    assert seen.facts.get("answer") == ("" if "<answer>" in text else None)


@pytest.mark.parametrize("text", ["", "I will think.", "<answer>none</answer>"])
def test_without_a_call_the_episode_ends(text: str) -> None:
    episode = Episode(make_instance())
    seen = episode.say(Reply(text=text))
    assert seen.facts["ended"] == step.ended(episode.state) == "no_call"
    assert seen.facts.get("silent", False) is (text == "")


def test_only_the_first_call_of_a_turn_is_carried_out() -> None:
    episode = Episode(make_instance())
    seen = episode.say(replying((DECIDE, episode.arguments(DECIDE)), (DECIDE, "{}"), ("x" * 99, "")))
    assert [call["outcome"] for call in seen.facts["calls"]] == ["ok", "extra_parallel", "extra_parallel"]
    assert [message.call_id for message in seen.messages] == ["c0", "c1", "c2"]
    assert all(message.text.startswith("[ERROR]") for message in seen.messages[1:])
    assert [call["tool"] for call in seen.facts["calls"]] == [DECIDE, DECIDE, "x" * 64]


def test_the_step_limit_ends_the_episode_and_counts_every_message() -> None:
    episode = Episode(make_instance(steps=3))
    for _ in range(2):
        assert not episode.call(DECIDE).facts.get("ended")
    seen = episode.call(DECIDE)
    assert seen.facts["ended"] == step.ended(episode.state) == "step_limit"
    assert seen.facts["turn"] == 3
    assert seen.messages == ()


@pytest.mark.parametrize(("reply", "ending"), [(Reply(text=WRONG), "answered"), (Reply(text="x"), "no_call")])
def test_the_last_message_may_end_the_episode_by_itself(reply: Reply, ending: str) -> None:
    episode = Episode(make_instance(steps=2))
    episode.call(DECIDE)
    assert episode.say(reply).facts["ended"] == ending


def test_only_the_first_text_is_looked_at_for_a_plan() -> None:
    episode = Episode(make_instance())
    paths = f"{BOTH} -> Dining_Finish_from_Step1_3Steps\n{DECIDE} -> Select_Final_Dining"
    assert "plan" not in episode.call(DECIDE).facts
    first = episode.say(replying((SEARCH, "{}"), text=paths)).facts
    assert first["plan"] == {"paths": 2, "valid": 1}
    assert "silent" not in first
    assert "plan" not in episode.say(replying((SEARCH, "{}"), text=paths)).facts


def test_the_same_tools_are_one_object_until_something_changes() -> None:
    episode = scheduled({"at": 2, "kind": "cost_change", "costs": {DECIDE: 900}})
    before = step.tools(episode.state)
    episode.call(DECIDE)
    assert step.tools(episode.state) is before
    seen = episode.call(SEARCH)
    assert seen.facts["events"] == [{"kind": "cost_change"}]
    assert len(seen.messages) == 1
    after = step.tools(episode.state)
    assert after is not before
    assert "cost of 9.0 units" in after[0].description
    assert after[1] == before[1]
    assert episode.call(DECIDE).facts["calls"][0]["cost"] == 900
    assert step.tools(episode.state) is after


def test_removed_tools_vanish_from_the_list_and_are_unknown() -> None:
    episode = scheduled({"at": 1, "kind": "remove_tools", "size": 2}, {"at": 2, "kind": "remove_tools", "size": 4})
    everything = episode.tools()
    assert episode.call(BOTH).facts["calls"][0]["outcome"] == "ok"
    twos = [tool.name for tool in episode.state.setup.world.tools if tool.size == 2]
    assert episode.tools() == [name for name in everything if name not in twos]
    seen = episode.call(BOTH)
    assert episode.outcome == "unknown_tool"
    assert "Cost:" not in seen.messages[0].text
    # The second removal takes the place of the first.
    fours = [tool.name for tool in episode.state.setup.world.tools if tool.size == 4]
    assert episode.tools() == [name for name in everything if name not in fours]
    assert episode.call(BOTH).facts["calls"][0]["outcome"] == "ok"


def test_removing_what_is_not_there_changes_nothing() -> None:
    episode = scheduled({"at": 1, "kind": "remove_tools", "size": 9})
    before = step.tools(episode.state)
    assert episode.call(DECIDE).facts["events"] == [{"kind": "remove_tools"}]
    assert step.tools(episode.state) is before


@pytest.mark.parametrize("arguments", [None, "{not json", "{}"])
def test_a_ban_takes_the_place_of_the_call_and_lasts(arguments: str | None) -> None:
    episode = scheduled({"at": 1, "kind": "ban_tool"})
    for turn in range(3):
        seen = episode.call(DECIDE) if arguments is None else episode.say(replying((DECIDE, arguments)))
        assert seen.facts["calls"] == [{"tool": DECIDE, "outcome": "banned", "cost": 1792}]
        assert ("events" in seen.facts) is (turn == 0)
        text = seen.messages[0].text
        assert any(sentence in text for sentence in BANNED)
        assert text.startswith("[ERROR]")
        assert text.endswith(" Cost: 17.92")
    assert DECIDE in episode.tools()
    assert episode.state.have == episode.state.setup.world.start
    # A composite with the banned tool in it still works.
    assert episode.call(BOTH).facts["calls"][0]["outcome"] == "ok"


def test_a_name_that_no_tool_has_is_banned_too_and_costs_nothing() -> None:
    episode = scheduled({"at": 1, "kind": "ban_tool"}, {"at": 3, "kind": "ban_tool"})
    for _ in range(2):
        text = episode.raw("Dining_Nope", "{}")
        assert episode.facts[-1]["calls"] == [{"tool": "Dining_Nope", "outcome": "banned"}]
        assert "Cost:" not in text
    # A ban on a banned name is an event like any other.
    assert episode.say(replying(("Dining_Nope", "{}"))).facts["events"] == [{"kind": "ban_tool"}]
    assert len(episode.state.bans) == 1


def test_a_failing_call_is_charged_and_works_when_made_again() -> None:
    episode = scheduled({"at": 1, "kind": "tool_failure"})
    seen = episode.call(DECIDE)
    assert seen.facts["calls"] == [{"tool": DECIDE, "outcome": "failed", "cost": 1792}]
    assert seen.facts["events"] == [{"kind": "tool_failure"}]
    assert seen.messages[0].text.startswith("[ERROR]")
    assert seen.messages[0].text.endswith(" Cost: 17.92")
    assert episode.call(DECIDE).facts["calls"][0]["outcome"] == "ok"


def test_a_change_of_mind_is_told_and_begins_anew() -> None:
    episode = scheduled({"at": 1, "kind": "preference_change"})
    before, told = episode.instance.query, step.tools(episode.state)
    seen = episode.call("Dining_Full_Planning_to_Step2")
    changed = episode.instance.alternatives[0]
    assert episode.state.query is changed
    assert episode.state.have == episode.state.setup.world.start
    assert [message.role for message in seen.messages] == ["tool", "user"]
    assert f"<DiningCandidateSet{before.number:05d}>" in seen.messages[0].text
    text = seen.messages[1].text
    assert changed.text in text
    assert show_id("LocationPreference", changed.given["LocationPreference"], 5) in text
    assert "TimeInfo still holds" in text
    assert step.tools(episode.state) is told
    assert episode.call("Select_Final_Dining").facts["calls"][0]["outcome"] == "inaccessible"
    assert f"<DiningPreference{changed.number:05d}>" in episode.call(DECIDE).messages[0].text


def test_where_no_context_is_given_a_change_of_mind_names_none() -> None:
    instance = make_instance("location", schedule=({"at": 1, "kind": "preference_change"},))
    text = Episode(instance).call("Decide_Location_Preference").messages[1].text
    assert "LocationPreference" not in text
    assert "TimeInfo still holds" in text


def test_the_goal_is_lost_when_wishes_change() -> None:
    episode = scheduled({"at": 2, "kind": "preference_change"}, length=3)
    episode.call(DECIDE)
    seen = episode.call("Dining_Finalize_from_Search")
    assert seen.facts["calls"][0]["goal"] is True
    assert seen.facts["goal"] is False


def test_one_event_a_turn_and_none_is_forgotten() -> None:
    events = [{"at": 1, "kind": "ban_tool"}, {"at": 2, "kind": "cost_change"}, {"at": 3, "kind": "tool_failure"}]
    episode = scheduled(*events)
    fired = [episode.call(BOTH).facts.get("events", []) for _ in range(5)]
    assert [[event["kind"] for event in one] for one in fired] == [
        ["ban_tool"],
        ["cost_change"],
        ["tool_failure"],
        [],
        [],
    ]


def test_a_turn_without_a_call_fires_nothing() -> None:
    assert "events" not in scheduled({"at": 1, "kind": "cost_change"}).say(Reply(text="x")).facts
    assert "events" not in scheduled({"at": 1, "kind": "ban_tool"}).say(Reply(text=WRONG)).facts


def test_events_behind_a_call_fire_whatever_became_of_it() -> None:
    episode = scheduled({"at": 1, "kind": "cost_change"})
    assert episode.say(replying(("nope", ""))).facts["events"] == [{"kind": "cost_change"}]


def test_an_earlier_state_stays_as_it_was() -> None:
    episode = scheduled({"at": 1, "kind": "ban_tool"}, {"at": 2, "kind": "preference_change"})
    first = episode.state
    episode.call(DECIDE)
    episode.call(BOTH)
    assert (first.steps, first.fired, first.bans, first.have) == (0, 0, frozenset(), first.setup.world.start)
    again, seen = step.step(first, replying((DECIDE, "{}")))
    assert seen.facts == episode.facts[0]
    assert again.bans == {DECIDE}


NAMES = st.sampled_from(
    [
        DECIDE,
        SEARCH,
        BOTH,
        "Select_Final_Dining",
        "Weigh",
        "Send",
        "Pack_and_Weigh",
        "Book_and_Send",
        "nope",
        "",
        "\ud800",
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["one", "restaurant", "<TimeInfo00904>", "<LocationPreference00017>", "00012", "<LocationPreference00300>"]
    ),
)
KEYS = st.sampled_from(
    ["DiningCategory", "TimeInfo", "LocationPreference", "DiningPreference", "ParcelTier", "Box", "x"]
)
ARGUMENTS = st.one_of(
    st.text(max_size=30),
    st.dictionaries(KEYS, st.one_of(VALUES, st.lists(VALUES, max_size=2)), max_size=6).map(json.dumps),
    st.just("right"),
)
TEXTS = st.one_of(
    st.just(""), st.text(max_size=20), st.sampled_from([WRONG, "<answer>1</answer>", f"{DECIDE} -> {SEARCH}"])
)
EVENTS = st.lists(
    st.sampled_from(["ban_tool", "preference_change", "remove_tools", "cost_change", "tool_failure"]), max_size=4
)
OUTCOMES = {
    *("ok", "banned", "failed", "unknown_tool", "inaccessible", "too_large", "too_deep", "not_json", "not_object"),
    *("missing", "bad_value", "bad_id", "unknown_context", "wrong_id", "extra_parallel", "not_executed"),
}


@given(
    st.lists(st.tuples(TEXTS, st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3)), max_size=8),
    EVENTS,
    st.sampled_from(["dining", "location", "parcel"]),
    st.booleans(),
)
def test_whatever_an_agent_does_has_a_defined_outcome(
    turns: list[tuple[str, list[tuple[str, str]]]], kinds: list[str], task: str, strict: bool
) -> None:
    schedule = tuple({"at": at, "kind": kind} for at, kind in enumerate(kinds, 1))
    catalogue = travel_with_errand()
    length = 0 if task == "parcel" else 4
    episode = Episode(make_instance(task, length, catalogue, strict=strict, schedule=schedule, steps=6))
    for text, calls in turns:
        if step.ended(episode.state):
            break
        place = episode.state.setup.world.place
        made = []
        for i, (name, said) in enumerate(calls):
            right = json.dumps(episode.arguments(name)) if name in place else "{}"
            made.append(ToolCall(id=f"c{i}", name=name, arguments=right if said == "right" else said))
        seen = episode.say(Reply(text=text, calls=tuple(made)))
        assert {call["outcome"] for call in seen.facts["calls"]} <= OUTCOMES
        assert len(seen.messages) >= (0 if seen.facts.get("ended") else len(made))
        json.dumps(seen.facts, ensure_ascii=False).encode()
        [message.text.encode() for message in seen.messages]
        for call in seen.facts["calls"]:
            assert ("cost" in call) <= (call["outcome"] in {"ok", "banned", "failed"})
        assert set(episode.tools()) <= set(place)
    assert len(course_of(episode.instance).events) >= episode.state.fired
