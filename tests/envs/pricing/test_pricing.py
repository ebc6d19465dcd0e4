from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.dialogue import Request
from evalkit.envs.environment import Kit
from evalkit.envs.pricing.optimum import best_prices
from evalkit.envs.pricing.prices import MOST_PRICE
from evalkit.envs.pricing.pricing import PRICING, TEXTS
from evalkit.envs.replay import advance, begin
from evalkit.policy.table import player
from evalkit.replies import decode_reply, encode_reply
from evalkit.seeds import Stream
from evalkit.spec.packs import read_pack
from tests.envs.pricing.playing import KIT, PACK, SMALL, Play, priced, reference, rows, setting
from tests.support.period_episodes import replying

PRODUCTS = ("Product_1", "Product_2", "Product_3")


def test_the_paper_s_examples_are_seed_0_of_basic() -> None:
    play = Play(reference("basic", 0))
    assert "38.11" in play.opening()[1].text
    assert play.call("get_product_ids") == "['Product_1']"
    action = play.submit({"Product_1": 20})["action"]
    assert action == {"prices": [20.0], "quantities": [24.76], "profits": [40.92], "repeat": False}
    action = play.submit({"Product_1": 28.0})["action"]
    assert action == {"prices": [28.0], "quantities": [7.81], "profits": [23.5], "repeat": False}
    assert play.call("get_attempt_number") == "2"
    assert play.history() == (
        "Attempt 0:\nProduct_1:\nPrice: 20.00\nQuantity: 24.76\nProfit: 40.92\nCost: 1.72\n\n"
        "Attempt 1:\nProduct_1:\nPrice: 28.00\nQuantity: 7.81\nProfit: 23.50\nCost: 1.72\n\n"
    )


def test_golden_replays_bring_the_same_period_by_period_and_the_notebook_s_score(shared: Path) -> None:
    cases = [case for case in rows(shared, "score_replays.jsonl") if case["env"] == "pricing"]
    assert cases
    for case in cases:
        play = Play(reference(case["difficulty"], case["seed"]))
        for prices, (quantities, profits) in zip(case["actions"], case["per_period"], strict=True):
            action = play.submit(prices)["action"]
            assert action["prices"] == list(prices.values())
            assert (action["quantities"], action["profits"]) == (list(quantities.values()), list(profits.values()))
        assert play.state.ended == "complete"
        score = PRICING.score(play.instance, play.facts)
        assert score.value == pytest.approx(case["notebook"]["ratio"], rel=4e-13)
        assert score.metrics["exploration_rate"] == case["notebook"]["exploration_rate"]


def test_an_opening_names_the_hint_of_its_block_and_no_other_text_moves() -> None:
    play = Play(reference("basic", 0))
    plain = Play(reference("basic", 0, hint=False)).opening()
    golden = ["38.11", "37.24", "36.38", "35.51", "34.64", "33.78", "32.91", "32.04", "31.18", "30.31"]
    for period in range(100):
        system, asked = play.opening()
        assert system == plain[0]
        assert asked.text.startswith(plain[1].text)
        assert golden[period // 10] in asked.text.removeprefix(plain[1].text)
        play.submit({"Product_1": 20})
    assert not [word for word in ("3.", "price higher") if word in plain[1].text]


def test_the_tools_are_the_reference_s_in_its_order() -> None:
    assert Play(SMALL).tools() == [
        "get_previous_pricing_data",
        "get_product_ids",
        "get_attempt_number",
        "write_notes",
        "read_notes",
        "set_prices",
    ]
    assert PRICING.offers(Play(SMALL).instance) == 6
    (prices,) = PRICING.tools(Play(SMALL).state)[-1].parameters["properties"].items()  # type: ignore[attr-defined]
    assert (prices[0], prices[1]["type"]) == ("prices_dict_str", "string")


def test_results_may_be_shown_as_the_reference_shows_them() -> None:
    kit = Kit(pack=replace(PACK, texts={**PACK.texts, "results.style": "repr"}))
    play = Play(SMALL, kit)
    assert play.call("get_product_ids") == "{'product_ids': ['Product_1', 'Product_2', 'Product_3']}"
    play.submit(priced(5, 6, 7))
    assert play.history().startswith("{'previous_pricing_data': 'Attempt 0:\\nProduct_1:\\nPrice: 5.00\\nQuantity: ")
    assert play.history().startswith("{'previous_pricing_data': ")
    assert play.outcome == "repeat_access"


def test_the_standard_texts_use_their_fields_and_no_others() -> None:
    spare = {"tool", "action", "type", "attempt", "price_short", "price_signed", "quantity_signed", "profit_signed"}
    for variant in ("", "reasoning"):
        texts = read_pack("standard", "pricing", variant).texts
        assert texts.keys() == TEXTS.all.keys() - TEXTS.later.keys()
        for key, text in texts.items():
            used = {
                name for name in {name for fields in TEXTS.all.values() for name in fields} if "{" + name + "}" in text
            }
            assert TEXTS.all[key] - spare <= used <= TEXTS.all[key], key


def told(kit: Kit) -> list[str]:
    play = Play(SMALL, kit)
    return [message.text for message in play.opening()] + [str(tool) for tool in PRICING.tools(play.state)]


def test_the_agent_is_told_of_neither_a_drift_nor_the_number_of_periods_nor_the_score() -> None:
    for text in told(KIT):
        for word in ("drift", "over time", "shift", "chang", "last", "100", "score", "demand"):
            assert word not in text.lower()


def test_reasoning_models_are_not_asked_to_write_their_thinking_down() -> None:
    assert [text for text in told(KIT) if "thinking" in text.lower()]
    quiet = told(Kit(pack=read_pack("standard", "pricing", "reasoning")))
    assert not [text for text in quiet if "reason" in text.lower() or "thinking" in text.lower()]


def test_an_agent_without_notes_reads_nothing_of_them() -> None:
    assert not [text for text in told(Kit(pack=PACK, notes=False)) if "note" in text.lower()]


def test_no_period_parts_with_another_opening() -> None:
    play = Play({**SMALL, "periods": 2, "hint": False})
    first = play.opening()
    play.submit(priced(1, 2, 3))
    assert play.opening() == first
    assert play.submit(priced(1, 2, 3))["ended"] == "complete"


@pytest.mark.parametrize(
    ("mapping", "outcome", "ids"),
    [
        ({}, "missing_products", "'Product_1', 'Product_2', 'Product_3'"),
        ({"Product_1": 1, "Product_3": 1}, "missing_products", "'Product_2'"),
        ({**priced(1, 2), "product_3": 3}, "missing_products", "'Product_3'"),
        (priced(1, 2, 3, 4), "unknown_products", "'Product_4'"),
        (priced(1, 2, 3) | {4: 1, (5,): 1}, "unknown_products", "int, tuple"),
        ({**priced(1, 2, "three"), "x" * 900: 4}, "unknown_products", repr("x" * 64)),
        (priced(1, "2", 3), "not_numbers", "'Product_2'"),
        (priced(True, None, [3]), "not_numbers", "'Product_1', 'Product_2', 'Product_3'"),
        (priced(1, 2, 1 + 2j), "not_numbers", "'Product_3'"),
    ],
)
def test_what_are_no_prices_is_refused_with_the_first_reason(mapping: dict[Any, Any], outcome: str, ids: str) -> None:
    for no_action in ("keep", "restart"):
        play = Play({**SMALL, "no_action": no_action})
        seen = play.say(setting(mapping))
        assert play.outcome == outcome
        assert seen.messages[0].text.endswith(f": {ids}.")
        assert "action" not in seen.facts
        assert play.state.turn == 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_prices_that_are_not_finite_are_refused(word: str) -> None:
    play = Play(SMALL)
    play.say(setting(f'{{"Product_1": {word}, "Product_2": 2, "Product_3": 3}}'))
    assert play.outcome == "not_finite"
    assert play.state.period == 0


@pytest.mark.parametrize("said", ["20", "[1, 2, 3]", "Product_1: 20", "", "{'Product_1': 1 + 2}", 20, None, [1]])
def test_what_is_no_mapping_is_refused_and_answered(said: object) -> None:
    play = Play(SMALL)
    seen = play.say(setting(said))
    assert play.outcome in ("not_mapping", "unparseable", "wrong_type")
    assert seen.messages[0].text
    assert play.state.period == 0


def test_a_mapping_may_come_as_an_object_and_in_any_order() -> None:
    play, other = Play(SMALL), Play(SMALL)
    play.say(replying(("set_prices", {"prices_dict_str": {"Product_3": 3, "Product_1": 1, "Product_2": 2.5}})))
    other.submit(priced(1, 2.5, 3))
    assert play.facts[-1]["action"] == other.facts[-1]["action"]
    assert play.facts[-1]["action"]["prices"] == [1.0, 2.5, 3.0]


def test_any_finite_price_is_accepted_and_counts_within_bounds() -> None:
    play = Play(SMALL)
    action = play.submit(priced(1e308, 10**400, 5))["action"]
    assert action["prices"] == [MOST_PRICE, MOST_PRICE, 5.0]
    assert action["quantities"][:2] == action["profits"][:2] == [0.0, 0.0]
    assert action["quantities"][2] > 0
    action = play.submit(priced(-1e308, 0, -0.0))["action"]
    assert action["quantities"] == [100.0, 0.0, 0.0]
    assert -1e18 < action["profits"][0] < -1e15
    assert len(play.history()) < 1000


def test_what_is_shown_is_rounded_and_what_is_sold_is_not() -> None:
    play = Play(SMALL)
    exact, rounded = (play.submit(priced(*prices))["action"] for prices in ((5.0049, 6, 7), (5.0, 6, 7)))
    assert exact["prices"][0] == 5.0049
    assert exact["quantities"] != rounded["quantities"]
    # They are shown alike, and so count as the same prices.
    assert (exact["repeat"], rounded["repeat"]) == (False, True)
    assert play.history().count("Price: 5.00\n") == 2


def test_a_period_without_prices_is_in_the_history() -> None:
    play = Play({**SMALL, "queries": 1})
    play.say(replying())
    assert play.facts[-1]["period_end"] == "no_action"
    assert play.state.history == "Attempt 0:\nNo prices were set.\n\n"


def test_the_best_prices_bring_the_score_to_one() -> None:
    play = Play({**SMALL, "periods": 30, "products": 6})
    while not play.state.ended:
        play.submit(priced(*best_prices(play.state.world.market, play.state.period)))
    score = PRICING.score(play.instance, play.facts)
    assert score.solved
    assert score.value == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("policy", ["random", "fixed", "learner"])
def test_logged_replies_reproduce_what_was_played(policy: str) -> None:
    line = {**SMALL, "periods": 12}
    position, log, turns = begin(PRICING, PRICING.load(line), KIT), [], []
    while not position.ending:
        request = Request(
            messages=tuple(position.messages), tools=position.tools, sampling=PRICING.defaults, seed=position.step
        )
        log.append(encode_reply(player(policy, "pricing")(request, Stream(3, position.step))))
        turns.append(advance(PRICING, position, decode_reply(log[-1]), log[-1]))
    again = begin(PRICING, PRICING.load(PRICING.describe(PRICING.load(line))), KIT)
    replayed = [advance(PRICING, again, decode_reply(data), data) for data in log]
    assert [turn.step_digest for turn in replayed] == [turn.step_digest for turn in turns]
    assert (again.ending, again.request_digest) == (position.ending, position.request_digest)
    assert position.ending == "complete"


def test_states_are_values() -> None:
    play = Play(SMALL)
    before = play.state
    one = play.submit(priced(5, 6, 7))
    play.state = before
    assert play.submit(priced(5, 6, 7)) == one
    with pytest.raises(AttributeError):
        before.period = 3  # type: ignore[misc]
    assert not hasattr(before.world, "__dict__")
