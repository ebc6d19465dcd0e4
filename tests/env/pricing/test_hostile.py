"""Whatever a model answers: an outcome, recorded; texts of bounded length; and the episode goes on."""

import json
import math
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.env.calls import RESTARTING
from evalkit.env.environment import Kit
from evalkit.env.pricing.prices import REFUSALS
from evalkit.env.pricing.pricing import ACTION, HISTORY, PRICING, TEXTS
from evalkit.env.rules import STYLES
from tests.env.pricing.playing import PACK, SMALL, Play, priced
from tests.periods import replying

KNOWN = {key.removeprefix("results.") for key in TEXTS} | {"ok", "after_action", "after_restart"}
ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
NAMES = st.sampled_from([*Play(SMALL).tools(), "nope", "", "x" * 400]) | ANY_TEXT
NUMBERS = st.integers() | st.floats() | st.sampled_from([1e308, -1e308, 10**400, 0, -0.0, 5e-324, True])
VALUES = st.recursive(
    st.none() | NUMBERS | ANY_TEXT | st.sampled_from(["Product_1", "20", "{'Product_1': 20}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=6,
)
PRICES = st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda three: priced(*three)) | st.dictionaries(
    st.sampled_from(["Product_1", "Product_2", "Product_3", "Product_9", "\ud800"]), VALUES
)
ARGUMENTS = (
    ANY_TEXT
    | VALUES.map(json.dumps)
    | VALUES.map(lambda value: json.dumps({"prices_dict_str": value, "notes": value, "attempt_number": value}))
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": repr(mapping)}))
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": json.dumps(mapping)}))
    | PRICES.map(lambda mapping: json.dumps({"prices_dict_str": mapping}))
    | st.integers(90, 20_000).map(lambda depth: json.dumps({"prices_dict_str": "{'Product_1': " + "[" * depth}))
    | st.integers(100, 6_000).map(lambda size: json.dumps({"prices_dict_str": "{'Product_1': " + "9" * size + "}"}))
)
REPLIES = st.builds(
    Reply,
    text=ANY_TEXT,
    calls=st.lists(st.builds(ToolCall, id=ANY_TEXT, name=NAMES | st.just(ACTION), arguments=ARGUMENTS), max_size=5).map(
        tuple
    ),
)


@settings(max_examples=100)
@given(st.lists(REPLIES, min_size=1, max_size=12), st.sampled_from(["keep", "restart"]), st.sampled_from(STYLES))
def test_any_reply_has_a_recorded_outcome_and_moves_the_episode(
    replies: list[Reply], no_action: str, style: str
) -> None:
    kit = Kit(pack=replace(PACK, texts={**PACK.texts, "results.style": style}))
    play = Play({**SMALL, "periods": 9, "queries": 3, "no_action": no_action}, kit)
    for reply in replies:
        if play.state.ended:
            break
        before = play.state
        seen = play.say(reply)
        facts = orjson.loads(orjson.dumps(seen.facts))
        assert [call["outcome"] in KNOWN for call in facts["calls"]] == [True] * len(reply.calls)
        for what in ("prices", "quantities", "profits"):
            numbers = facts.get("action", {}).get(what, [0.0] * 3)
            assert len(numbers) == 3
            assert all(isinstance(one, float) and math.isfinite(one) for one in numbers)
        moved = (play.state.period, play.state.tries, play.state.turn)
        assert moved > (before.period, before.tries, before.turn) or play.state.ended
        goes_on = not seen.new_chat and not play.state.ended
        assert [message.call_id for message in seen.messages] == [*(call.id for call in reply.calls), ""] * goes_on
        own = len(before.history) + sum(len(call.arguments) for call in reply.calls)
        assert all(len(message.text) < 4000 + 2 * own for message in seen.messages)
        assert len(play.state.history) - len(before.history) < 600
        for message in seen.messages:
            message.text.encode()
    score = PRICING.score(play.instance, play.facts)
    assert math.isfinite(score.value)
    assert score.value <= 1.01
    assert all(math.isfinite(metric) for metric in score.metrics.values())


@given(st.lists(REPLIES, max_size=6))
def test_the_same_replies_give_the_same_states_texts_and_facts(replies: list[Reply]) -> None:
    one, other = (Play({**SMALL, "queries": 4}) for _ in range(2))
    for reply in replies:
        if not one.state.ended:
            assert one.say(reply) == other.say(reply)
    assert one.facts == other.facts
    assert one.state.history == other.state.history


@pytest.mark.parametrize("no_action", ["keep", "restart"])
def test_a_model_that_never_acts_ends_as_unresponsive_with_nothing(no_action: str) -> None:
    play = Play({**SMALL, "no_action": no_action})
    while not play.state.ended:
        play.say(Reply(text="Let me think."))
    assert play.state.ended == "unresponsive"
    assert len(play.facts) == {"keep": 5 * 40, "restart": 10 * 40}[no_action]
    score = PRICING.score(play.instance, play.facts)
    assert (score.value, score.solved) == (0.0, False)


def test_calls_after_accepted_prices_change_nothing() -> None:
    play = Play(SMALL)
    good = {"prices_dict_str": repr(priced(5, 6, 7))}
    play.say(replying((ACTION, good), (HISTORY, "{}"), (ACTION, good)))
    assert [call["outcome"] for call in play.facts[0]["calls"]] == ["ok", "after_action", "after_action"]
    assert play.state.period == 1


def test_every_outcome_has_a_text_in_the_pack() -> None:
    assert {f"results.{outcome}" for outcome in (*RESTARTING, *REFUSALS)} <= TEXTS.keys()
