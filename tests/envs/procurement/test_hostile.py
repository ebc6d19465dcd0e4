"""Whatever a model answers: an outcome, recorded; texts of bounded length; and the episode goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply
from evalkit.envs.calls import RESTARTING
from evalkit.envs.procurement.plan import REFUSALS
from evalkit.envs.procurement.procurement import ACTION, HISTORY, PROCUREMENT, TEXTS
from tests.envs.procurement.purchasing import KIT, SMALL, Play
from tests.support import hostile_answers as hostile
from tests.support.examples import examples
from tests.support.period_episodes import replying

LINE = PROCUREMENT.describe(PROCUREMENT.load(SMALL))
VALUES = hostile.values(st.booleans() | st.integers() | st.floats() | st.sampled_from(["one", "3", "{'one': 3}"]))
QUANTITIES = (
    st.integers(0, 12)
    | st.integers(-5, 10**10)
    | st.floats()
    | st.none()
    | st.booleans()
    | st.sampled_from(["4", "-1", "1.0", "٣", "1_0", "x", 10**5000, 10**300, 1j, (1,)])
)
PLANS = st.dictionaries(st.sampled_from(["one", "two", "three"]), st.integers(0, 12) | st.floats(0, 9)) | (
    st.dictionaries(st.sampled_from(["one", "two", "three", "five", "{ids}", "\ud800"]), QUANTITIES)
)


def literal(plan: object) -> str:
    try:
        return repr(plan)
    except ValueError:  # a number of more digits than Python writes
        return "{'one': " + "9" * 5001 + "}"


ARGUMENTS = (
    hostile.arguments(Play(SMALL), VALUES, "{'one': ")
    | PLANS.map(lambda plan: json.dumps({"purchase_plan": literal(plan)}))
    | st.dictionaries(st.sampled_from(["one", "two", "nope"]), st.floats() | st.integers(-1, 5)).map(
        lambda plan: json.dumps({"purchase_plan": plan})
    )
)
REPLIES = hostile.replies(Play(SMALL), ARGUMENTS)


@settings(max_examples=examples(100))
@given(st.lists(REPLIES, min_size=1, max_size=12), hostile.NO_ACTION, hostile.STYLE)
def test_any_reply_has_a_recorded_outcome_and_moves_the_episode(
    replies: list[Reply], no_action: str, style: str
) -> None:
    play = Play({**LINE, "periods": 9, "queries": 3, "no_action": no_action}, hostile.styled(Play, style))
    for _, _, facts in hostile.withstood(play, replies):
        if "action" in facts:
            action = facts["action"]
            assert action["feasible"] == (not action["reasons"])
            assert all(type(quantity) is int and quantity > 0 for quantity in action["plan"].values())
    score = PROCUREMENT.score(play.instance, play.facts)
    assert 0.0 <= score.value <= 1.0
    assert score.metrics["queries"] <= len(replies)


@given(st.lists(REPLIES, max_size=6))
def test_the_same_replies_give_the_same_states_texts_and_facts(replies: list[Reply]) -> None:
    line = {**SMALL, "queries": 4}
    hostile.assert_same(Play(line), Play(line), replies)


@settings(max_examples=examples(200))
@given(PLANS)
def test_no_plan_scores_above_the_optimum(plan: dict[str, object]) -> None:
    play = Play(LINE)
    play.say(replying((ACTION, {"purchase_plan": literal(plan)})))
    assert play.outcome in {"ok", *REFUSALS, *RESTARTING}
    score = PROCUREMENT.score(play.instance, play.facts)
    assert 0.0 <= score.value <= 1.0
    assert score.solved == (score.value == 1.0)


@pytest.mark.parametrize("no_action", ["keep", "restart"])
def test_a_model_that_never_acts_ends_as_unresponsive(no_action: str) -> None:
    assert hostile.never_act(Play({**LINE, "no_action": no_action})) == 0.0


def test_calls_after_an_accepted_plan_change_nothing() -> None:
    play = Play(SMALL)
    good = {"purchase_plan": "{'one': 2}"}
    play.say(replying((ACTION, good), (HISTORY, "{}"), ("write_notes", {"notes": "late"}), (ACTION, good)))
    outcomes = [call["outcome"] for call in play.facts[0]["calls"]]
    assert outcomes == ["ok", "after_action", "after_action", "after_action"]
    assert play.state.period == 1
    assert play.state.notes.get(0) is None


def test_every_outcome_has_a_text_in_the_pack() -> None:
    assert hostile.texts_of_outcomes(REFUSALS) <= TEXTS.all.keys()


def test_texts_in_a_plan_cannot_fill_the_log_or_the_chat() -> None:
    play = Play(SMALL, KIT)
    long = {f"x{i}" * 40: 1 for i in range(300)}
    assert len(play.call(ACTION, {"purchase_plan": repr(long)})) < 2000
    assert play.outcome == "unknown_deals"
