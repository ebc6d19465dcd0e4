"""Whatever a model answers: an outcome, recorded; texts of bounded length; and the episode goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply, Request
from evalkit.envs.replay import advance, begin
from evalkit.envs.scheduling.assignment import REFUSALS
from evalkit.envs.scheduling.scheduling import ACTION, HISTORY, SCHEDULING, TEXTS
from evalkit.policy.table import player
from evalkit.seeds import Stream
from tests.support import hostile_answers as hostile
from tests.support.examples import examples
from tests.support.period_episodes import replying
from tests.support.scheduling_episodes import KIT, SMALL, Play, matched

VALUES = hostile.values(st.booleans() | st.integers() | st.floats() | st.sampled_from(["W1", "T1", "{'W1': 'T1'}"]))
ASSIGNMENTS = st.permutations(range(1, 6)).map(lambda tasks: matched(*tasks)) | st.dictionaries(
    st.sampled_from(["W1", "W2", "W3", "W4", "W5", "W9", "\ud800"]), st.sampled_from(["T1", "T2", "T9", "{ids}"])
)
ARGUMENTS = (
    hostile.arguments(Play(SMALL), VALUES, "{'W1': ")
    | ASSIGNMENTS.map(lambda mapping: json.dumps({"assignment": repr(mapping)}))
    | ASSIGNMENTS.map(lambda mapping: json.dumps({"assignment": mapping}))
    | st.tuples(st.sampled_from(["[", '{"a":', "(", "{'a':", '"', "\\"]), st.integers(90, 40_000)).map(
        lambda made: made[0] * made[1]
    )
)
REPLIES = hostile.replies(Play(SMALL), ARGUMENTS, often=False)


@settings(max_examples=examples(150))
@given(st.lists(REPLIES, min_size=1, max_size=12), hostile.NO_ACTION, hostile.STYLE)
def test_any_reply_has_a_recorded_outcome_and_moves_the_episode(
    replies: list[Reply], no_action: str, style: str
) -> None:
    play = Play({**SMALL, "periods": 9, "queries": 3, "no_action": no_action}, hostile.styled(Play, style))
    for _ in hostile.withstood(play, replies):
        pass
    assert 0.0 <= SCHEDULING.score(play.instance, play.facts).metrics["queries"] <= len(replies)


@given(st.lists(REPLIES, max_size=6))
def test_the_same_replies_give_the_same_states_texts_and_facts(replies: list[Reply]) -> None:
    line = {**SMALL, "queries": 4}
    hostile.assert_same(Play(line), Play(line), replies)


def test_half_a_surrogate_pair_in_notes_can_be_shown_again() -> None:
    play = Play(SMALL)
    play.call("write_notes", '{"notes": "a\\ud800b"}')
    assert play.call("read_notes", {"attempt_number": 0}) == "a\ufffdb"


def test_an_unknown_tool_s_name_cannot_fill_the_log_or_the_chat() -> None:
    play = Play(SMALL)
    text = play.call("\ud800" + "x" * 100_000)
    assert len(text) < 200
    assert play.facts[-1]["calls"][0]["tool"] == "\ufffd" + "x" * 63


def test_a_name_that_looks_like_a_field_is_shown_as_it_is() -> None:
    assert "{action}" in Play(SMALL).call("{action}")


@pytest.mark.parametrize("no_action", ["keep", "restart"])
def test_a_model_that_never_acts_ends_as_unresponsive(no_action: str) -> None:
    assert hostile.never_act(Play({**SMALL, "no_action": no_action})) == 0.0


def test_calls_after_an_accepted_assignment_change_nothing() -> None:
    play = Play(SMALL)
    good = {"assignment": repr(matched(1, 2, 3, 4, 5))}
    play.say(replying((ACTION, good), (HISTORY, "{}"), ("write_notes", {"notes": "late"}), (ACTION, good)))
    assert [call["outcome"] for call in play.facts[0]["calls"]] == [
        "ok",
        "after_action",
        "after_action",
        "after_action",
    ]
    assert play.state.period == 1
    assert play.state.notes.get(0) is None


def test_every_outcome_has_a_text_in_the_pack() -> None:
    assert hostile.texts_of_outcomes(REFUSALS) <= TEXTS.all.keys()


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_that_makes_every_mistake_plays_to_the_end(seed: int) -> None:
    instance = SCHEDULING.load({**SMALL, "n": 12, "seed": seed, "periods": 30})
    position, play = begin(SCHEDULING, instance, KIT), player("noisy", "scheduling")
    seen: set[str] = set()
    while not position.ending:
        request = Request(
            messages=tuple(position.messages), tools=position.tools, sampling=SCHEDULING.defaults, seed=position.step
        )
        turn = advance(SCHEDULING, position, play(request, Stream(seed, position.step)), b"")
        seen |= {call["outcome"] for call in turn.facts["calls"]}
    assert position.ending in ("complete", "stable")
    assert seen <= hostile.outcomes(Play)
    assert len(seen) > 3
