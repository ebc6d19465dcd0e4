"""Whatever a model answers: an outcome, recorded; texts of bounded length; and the episode goes on."""

import json
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.env.calls import RESTARTING
from evalkit.env.environment import Kit
from evalkit.env.procurement.plan import REFUSALS
from evalkit.env.procurement.procurement import ACTION, HISTORY, PROCUREMENT, TEXTS
from evalkit.env.rules import STYLES
from tests.env.procurement.purchasing import KIT, PACK, SMALL, Play
from tests.periods import replying

LINE = PROCUREMENT.describe(PROCUREMENT.load(SMALL))
KNOWN = {key.removeprefix("results.") for key in TEXTS} | {"ok", "after_action", "after_restart"}
ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
NAMES = (
    st.sampled_from([*(tool.name for tool in PROCUREMENT.tools(Play(SMALL).state)), "nope", "", "x" * 400]) | ANY_TEXT
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.sampled_from(["one", "3", "{'one': 3}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=6,
)
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
    ANY_TEXT
    | VALUES.map(json.dumps)
    | VALUES.map(lambda value: json.dumps({"purchase_plan": value, "notes": value, "attempt_number": value}))
    | PLANS.map(lambda plan: json.dumps({"purchase_plan": literal(plan)}))
    | st.dictionaries(st.sampled_from(["one", "two", "nope"]), st.floats() | st.integers(-1, 5)).map(
        lambda plan: json.dumps({"purchase_plan": plan})
    )
    | st.integers(90, 20_000).map(lambda depth: json.dumps({"purchase_plan": "{'one': " + "[" * depth}))
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
    play = Play({**LINE, "periods": 9, "queries": 3, "no_action": no_action}, kit)
    for reply in replies:
        if play.state.ended:
            break
        before = play.state
        seen = play.say(reply)
        facts = orjson.loads(orjson.dumps(seen.facts))
        assert facts == seen.facts
        assert [call["outcome"] in KNOWN for call in facts["calls"]] == [True] * len(reply.calls)
        assert all(len(call["tool"]) <= 64 for call in facts["calls"])
        moved = (play.state.period, play.state.tries, play.state.turn)
        assert moved > (before.period, before.tries, before.turn) or play.state.ended
        goes_on = not seen.new_chat and not play.state.ended
        assert [message.call_id for message in seen.messages] == [*(call.id for call in reply.calls), ""] * goes_on
        own = len(before.history) + sum(len(call.arguments) for call in reply.calls)
        assert all(len(message.text) < 4000 + 2 * own for message in seen.messages)
        for message in seen.messages:
            message.text.encode()
        if "action" in facts:
            action = facts["action"]
            assert action["feasible"] == (not action["reasons"])
            assert all(type(quantity) is int and quantity > 0 for quantity in action["plan"].values())
    score = PROCUREMENT.score(play.instance, play.facts)
    assert 0.0 <= score.value <= 1.0
    assert score.metrics["queries"] <= len(replies)


@given(st.lists(REPLIES, max_size=6))
def test_the_same_replies_give_the_same_states_texts_and_facts(replies: list[Reply]) -> None:
    one, other = (Play({**SMALL, "queries": 4}) for _ in range(2))
    for reply in replies:
        if not one.state.ended:
            assert one.say(reply) == other.say(reply)
    assert one.facts == other.facts
    assert one.state.history == other.state.history


@settings(max_examples=200)
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
    play = Play({**LINE, "no_action": no_action})
    while not play.state.ended:
        play.say(Reply(text="Let me think."))
    assert play.state.ended == "unresponsive"
    assert len(play.facts) == {"keep": 5 * 40, "restart": 10 * 40}[no_action]
    assert PROCUREMENT.score(play.instance, play.facts).value == 0.0


def test_calls_after_an_accepted_plan_change_nothing() -> None:
    play = Play(SMALL)
    good = {"purchase_plan": "{'one': 2}"}
    play.say(replying((ACTION, good), (HISTORY, "{}"), ("write_notes", {"notes": "late"}), (ACTION, good)))
    outcomes = [call["outcome"] for call in play.facts[0]["calls"]]
    assert outcomes == ["ok", "after_action", "after_action", "after_action"]
    assert play.state.period == 1
    assert play.state.notes.get(0) is None


def test_every_outcome_has_a_text_in_the_pack() -> None:
    assert {f"results.{outcome}" for outcome in (*RESTARTING, *REFUSALS)} <= TEXTS.keys()


def test_texts_in_a_plan_cannot_fill_the_log_or_the_chat() -> None:
    play = Play(SMALL, KIT)
    long = {f"x{i}" * 40: 1 for i in range(300)}
    assert len(play.call(ACTION, {"purchase_plan": repr(long)})) < 2000
    assert play.outcome == "unknown_deals"
