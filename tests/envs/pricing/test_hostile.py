"""Whatever a model answers: an outcome, recorded; texts of bounded length; and the episode goes on."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply
from evalkit.envs.pricing.prices import REFUSALS
from evalkit.envs.pricing.pricing import ACTION, HISTORY, PRICING, TEXTS
from tests.envs.pricing.playing import SMALL, Play, priced
from tests.support import hostile_answers as hostile
from tests.support.examples import examples
from tests.support.period_episodes import replying

NUMBERS = st.integers() | st.floats() | st.sampled_from([1e308, -1e308, 10**400, 0, -0.0, 5e-324, True])
VALUES = hostile.values(NUMBERS | st.sampled_from(["Product_1", "20", "{'Product_1': 20}"]))
PRICES = st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda three: priced(*three)) | st.dictionaries(
    st.sampled_from(["Product_1", "Product_2", "Product_3", "Product_9", "\ud800"]), VALUES
)
ARGUMENTS = (
    hostile.arguments(Play(SMALL), VALUES, "{'Product_1': ")
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": repr(mapping)}))
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": json.dumps(mapping)}))
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": mapping}))
    | st.integers(100, 6_000).map(lambda size: json.dumps({"prices_dict_str": "{'Product_1': " + "9" * size + "}"}))
)
REPLIES = hostile.replies(Play(SMALL), ARGUMENTS)


@settings(max_examples=examples(100))
@given(st.lists(REPLIES, min_size=1, max_size=12), hostile.NO_ACTION, hostile.STYLE)
def test_any_reply_has_a_recorded_outcome_and_moves_the_episode(
    replies: list[Reply], no_action: str, style: str
) -> None:
    play = Play({**SMALL, "periods": 9, "queries": 3, "no_action": no_action}, hostile.styled(Play, style))
    for before, _, facts in hostile.withstood(play, replies):
        for what in ("prices", "quantities", "profits"):
            numbers = facts.get("action", {}).get(what, [0.0] * 3)
            assert len(numbers) == 3
            assert all(isinstance(one, float) and math.isfinite(one) for one in numbers)
        assert len(play.state.history) - len(before.history) < 600
    score = PRICING.score(play.instance, play.facts)
    assert math.isfinite(score.value)
    assert score.value <= 1.01
    assert all(math.isfinite(metric) for metric in score.metrics.values())


@given(st.lists(REPLIES, max_size=6))
def test_the_same_replies_give_the_same_states_texts_and_facts(replies: list[Reply]) -> None:
    line = {**SMALL, "queries": 4}
    hostile.assert_same(Play(line), Play(line), replies)


@pytest.mark.parametrize("no_action", ["keep", "restart"])
def test_a_model_that_never_acts_ends_as_unresponsive_with_nothing(no_action: str) -> None:
    assert hostile.never_act(Play({**SMALL, "no_action": no_action})) == 0.0


def test_calls_after_accepted_prices_change_nothing() -> None:
    play = Play(SMALL)
    good = {"prices_dict_str": repr(priced(5, 6, 7))}
    play.say(replying((ACTION, good), (HISTORY, "{}"), (ACTION, good)))
    assert [call["outcome"] for call in play.facts[0]["calls"]] == ["ok", "after_action", "after_action"]
    assert play.state.period == 1


def test_every_outcome_has_a_text_in_the_pack() -> None:
    assert hostile.texts_of_outcomes(REFUSALS) <= TEXTS.all.keys()
