"""Pricing's policies: what they read, what they infer, and how well they price."""

import ast
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, Request, Tool
from evalkit.envs.pricing.instance import market_of
from evalkit.envs.pricing.optimum import solve
from evalkit.envs.pricing.pricing import PRICING
from evalkit.policy.conversation import answer
from evalkit.policy.market_reading import Sold, hint, read_sales, whole
from evalkit.policy.noisy import Moment
from evalkit.policy.pricing import policies as noisy_pricing
from evalkit.policy.pricing.playing import Total, best_markup, fixed, forecast, learner, random
from evalkit.seeds import Stream
from tests.policy.chatting import chat
from tests.support.episode_loop import Episode, kit, play, policy

SIZES = {"basic": 1, "medium": 4, "hard": 10}
PRODUCTS = ("Product_1", "Product_10")
GETTERS = ("get_previous_pricing_data", "get_product_ids", "get_attempt_number")
ACTION = Tool(
    name="set_prices",
    description="",
    parameters={"type": "object", "properties": {"prices_dict_str": {"type": "string"}}, "required": []},
)
TOOLS = (*(Tool(name=name, description="", parameters={"type": "object"}) for name in GETTERS), ACTION)
HISTORY = """Attempt 0:
Product_1:
Price: 12.00
Quantity: 40.50
Profit: -3.25
Cost: 1.50
Product_10:
Price: 7.25
Quantity: 0.00
Profit: 0.00
Cost: 2.00

Attempt 1:
No prices were set.

Attempt 2:
Product_1:
Price: 14.00
Quantity: 30.00
Profit: 20.00
Cost: 1.50
Product_10:
Price: 3.00
Quantity: 5.00
Profit: 1.00
Cost: 2.00

"""
SALES = {
    0: {
        "Product_1": Sold(price=12.0, quantity=40.5, profit=-3.25, cost=1.5),
        "Product_10": Sold(price=7.25, quantity=0.0, profit=0.0, cost=2.0),
    },
    2: {
        "Product_1": Sold(price=14.0, quantity=30.0, profit=20.0, cost=1.5),
        "Product_10": Sold(price=3.0, quantity=5.0, profit=1.0, cost=2.0),
    },
}
KNOWN = {
    "get_product_ids": "['Product_1', 'Product_10']",
    "get_attempt_number": "3",
    "get_previous_pricing_data": HISTORY,
}
BEGIN = {**KNOWN, "get_attempt_number": "0", "get_previous_pricing_data": "{'previous_pricing_data': ''}"}


def asked(answers: dict[str, str], *, opening: str = "Begin. Not above 38.11.", **said: Any) -> Request:
    request = chat(answers, tools=TOOLS, **said)
    return replace(request, messages=(replace(request.messages[0], text=opening), *request.messages[1:]))


def prices(reply: Reply) -> dict[str, float]:
    """The prices a reply sets, and nothing else."""
    (call,) = reply.calls
    assert call.name == "set_prices"
    found = ast.literal_eval(json.loads(call.arguments)["prices_dict_str"])
    assert isinstance(found, dict)
    return found


@lru_cache
def lines(size: str, count: int = 4) -> tuple[Mapping[str, Any], ...]:
    """The reference's first instances of a difficulty: both ways of drifting in turn."""
    return tuple(PRICING.generate({"products": SIZES[size], "generator": "reference"}, count, 0))


def played(name: str, line: Mapping[str, Any], **fields: Any) -> Episode:
    line = {**line, **fields}
    return play(PRICING, line, policy(name, "pricing", instance=PRICING.load(line)))


@pytest.mark.parametrize(
    "text",
    [
        HISTORY,
        repr({"previous_pricing_data": HISTORY}),
        repr({"previous_pricing_data": HISTORY.replace("No prices", "It's so: no prices")}),
        json.dumps({"previous_pricing_data": HISTORY}),
        HISTORY.replace("Price: ", "").replace("Quantity: ", "").replace("Profit: ", "").replace("Cost: ", ""),
        HISTORY.replace("Quantity", "Units sold").replace("Profit", "Earned").replace(":\n", ":\n\t"),
    ],
)
def test_a_history_is_read_whatever_its_words(text: str) -> None:
    assert read_sales(text, PRODUCTS) == SALES


def test_numbers_in_another_order_are_told_apart_by_their_labels() -> None:
    text = "Attempt 5:\nProduct_1:\nCost: 1.50\nProfit: 20.00\nPrice: 14.00\nQuantity: 30.00\n"
    assert read_sales(text, PRODUCTS) == {5: {"Product_1": SALES[2]["Product_1"]}}


@given(st.text(max_size=200))
def test_reading_never_fails(text: str) -> None:
    assert len(read_sales(text + HISTORY, PRODUCTS)) >= 2
    assert hint(text + " 38.11.") == 38.11
    assert whole(text + " 4") is not None


def test_the_hint_is_the_openings_last_number_with_decimals() -> None:
    assert hint("In 100 attempts: do not go above $38.11.") == 38.11
    assert hint("Round 3 of 100.") is None


def test_a_line_and_a_swing_are_forecast_exactly_and_a_leap_is_not_believed() -> None:
    times = np.arange(30.0)
    steady = np.stack([5 + 0.02 * times, 3 - 0.01 * times])
    swinging = np.stack([5 + 2 * np.sin(2 * np.pi * times / 13), 3 + np.sin(2 * np.pi * times / 13)])
    errors = np.full((2, 30), 1e-3)
    assert np.allclose(forecast(steady, errors, times, 32.0), [5.64, 2.68], atol=1e-4)
    at = math.sin(2 * math.pi * 30 / 13)
    assert np.allclose(forecast(swinging, errors, times, 30.0), [5 + 2 * at, 3 + at], atol=1e-4)
    leaping = np.where(times < 29, 4.0 + (times % 2), 9.0)[None]
    assert 4 < float(forecast(leaping, errors[:1], times, 30.0)[0]) < 14


def test_figures_that_were_not_seen_are_filled_in_from_their_drift() -> None:
    times = np.array([0.0, 1, 2, 5, 6, 7, 9])
    seen = np.stack([5 + 0.1 * times, np.full(7, np.nan)])
    seen[0, 2:4] = np.nan
    found = forecast(seen, np.full((2, 7), 1e-3), times, 10.0)
    assert found[0] == pytest.approx(6.0, abs=1e-6)
    assert math.isnan(found[1])
    assert forecast(seen[:, :2], np.full((2, 2), 1e-3), times[:2], 2.0)[0] == pytest.approx(5.15)


@pytest.mark.parametrize(("size", "level", "mu"), [(100.0, 2.0, 1.0), (100.0, 4.0, 0.5), (350.0, 1.0, 2.0)])
def test_the_best_markup_follows_from_a_few_periods(size: float, level: float, mu: float) -> None:
    def sold(markup: float) -> float:
        return size / (1 + math.exp(markup / mu - level))

    totals = [Total(markup=m * mu, spread=0.0, quantity=sold(m * mu)) for m in (0.5, 1.5, 2.5, 3.5, 1.7)]
    grid = np.linspace(0.01, 10, 20_000) * mu
    best = grid[np.argmax([m * sold(m) for m in grid])]
    found = best_markup(totals)
    assert found is not None
    assert found * sold(found) > 0.9995 * best * sold(best)


def test_one_period_or_demand_that_rises_tells_no_markup() -> None:
    assert best_markup([Total(markup=1.0, spread=0.0, quantity=50.0)]) is None
    assert best_markup([Total(markup=m, spread=0.0, quantity=10 * m) for m in (1.0, 2.0)]) is None
    assert best_markup([Total(markup=m, spread=0.0, quantity=0.0) for m in (1.0, 2.0)]) is None


def test_a_chat_begins_with_all_questions_in_one_reply() -> None:
    names = ["get_product_ids", "get_attempt_number", "get_previous_pricing_data"]
    assert [call.name for call in learner(asked({}), Stream(0)).calls] == names
    assert [call.name for call in learner(asked({}, parallel_calls=False), Stream(0)).calls] == names[:1]
    assert [call.name for call in fixed(asked({}), Stream(0)).calls] == [names[0], names[2]]
    assert [call.name for call in random(asked({}), Stream(0)).calls] == names[:1]
    for play_one in (learner, fixed, random):
        assert prices(play_one(chat({}, tools=(ACTION,)), Stream(0))) == {}


def test_the_first_prices_come_from_the_hint_or_from_a_default() -> None:
    assert prices(learner(asked(BEGIN), Stream(0))) == dict.fromkeys(PRODUCTS, 3.81)
    assert prices(fixed(asked(BEGIN), Stream(0))) == dict.fromkeys(PRODUCTS, 19.05)
    assert prices(fixed(asked(BEGIN, opening="Begin."), Stream(0))) == dict.fromkeys(PRODUCTS, 5.0)
    drawn = [prices(random(asked(BEGIN), Stream(seed)))["Product_1"] for seed in range(300)]
    assert 0 < min(drawn) < max(drawn) < 38.11
    assert abs(sum(drawn) / 300 - 19.05) < 4 * 11 / 300**0.5


def test_fixed_prices_stay_the_same_and_go_by_cost() -> None:
    # The first period's prices, 12 and 7.25, go in proportion to costs of 1.5 and 2.
    assert prices(fixed(asked(KNOWN), Stream(0))) == {"Product_1": 8.25, "Product_10": 11.0}
    episode = played("fixed", lines("medium")[0], periods=12)
    said = [tuple(facts["action"]["prices"]) for facts in episode.facts if "action" in facts]
    assert len(said) == 12
    assert len(set(said[1:])) == 1


def test_an_action_that_takes_an_object_gets_one() -> None:
    tools = (*TOOLS[:-1], replace(ACTION, parameters={"properties": {"prices": {"type": "object"}}}))
    (call,) = learner(chat(KNOWN, tools=tools), Stream(0)).calls
    assert json.loads(call.arguments)["prices"].keys() == set(PRODUCTS)


def test_prices_that_gave_all_away_do_not_mislead_the_learner() -> None:
    given = HISTORY.replace("Attempt 1:\nNo prices were set.\n", "Attempt 1:\n" + "Product_1:\n0 90 -135 1.5\n")
    for text in (given, given.replace("\n0 90 -135 1.5", "\n-1.00 95.00 -150.00 1.50")):
        found = prices(learner(asked({**KNOWN, "get_previous_pricing_data": text}), Stream(0)))
        assert 5 < found["Product_1"] < 50


def test_a_product_that_never_sold_gets_cheaper_until_it_does() -> None:
    text = "Attempt 0:\nProduct_1:\n30.00 0.00 0.00 1.50\nProduct_10:\n30.00 0.00 0.00 2.00\n"
    found = prices(learner(asked({**KNOWN, "get_previous_pricing_data": text}), Stream(0)))
    assert found == dict.fromkeys(PRODUCTS, 3.81)
    lower = prices(learner(asked({**KNOWN, "get_previous_pricing_data": text.replace("30.00", "3.81")}), Stream(0)))
    assert max(lower.values()) < 2


def test_the_learner_repeats_itself_in_the_same_place_only() -> None:
    assert answer("learner", learner, asked(KNOWN, seed=3)) == answer("learner", learner, asked(KNOWN, seed=3))
    line = lines("medium")[1]
    assert played("learner", line, periods=15).facts == played("learner", line, periods=15).facts


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
def test_the_learner_learns_and_the_oracle_is_never_beaten(size: str) -> None:
    for line in lines(size, 2 if size == "hard" else 4):
        scores = {}
        for name in ("random", "fixed", "learner", "oracle"):
            episode = played(name, line)
            assert episode.ending == "complete"
            assert {outcome for _, outcome in episode.outcomes()} == {"ok"}
            scores[name] = episode.score.value
        # Profits are counted with two decimals: each may be 0.005 off.
        off = 0.005 * SIZES[size] / solve(market_of(PRICING.load(line))).profit
        assert abs(scores["oracle"] - 1) <= off
        assert all(score <= 1 + off for score in scores.values())
        assert scores["learner"] > 0.99
        assert scores["random"] < scores["fixed"] < scores["learner"] - 0.02


def test_the_oracle_asks_for_the_period_and_prices_it() -> None:
    line = lines("medium")[1]
    market = market_of(PRICING.load(line))
    markup = solve(market).markup
    episode = played("oracle", line, periods=5)
    assert len(episode.facts) == 10
    said = [facts["action"]["prices"] for facts in episode.facts if "action" in facts]
    for period, one in enumerate(said):
        alphas = market.drift.alphas(period)
        assert one == pytest.approx([a * (c + markup) for a, c in zip(alphas, market.costs, strict=True)])
    last = policy("oracle", "pricing", instance=PRICING.load(line))(chat({}, tools=(ACTION,)))
    assert list(prices(last).values()) == pytest.approx(said[0])


def test_results_in_any_style_lead_to_the_same_prices() -> None:
    plain = kit("pricing", notes=False)
    wrapped = replace(plain, pack=replace(plain.pack, texts={**plain.pack.texts, "results.style": "repr"}))
    line = {**lines("medium")[2], "periods": 12}
    for name in ("learner", "fixed"):
        one, other = (play(PRICING, line, policy(name), brings=brings) for brings in (plain, wrapped))
        assert one.replies == other.replies
        assert one.facts == other.facts


@pytest.mark.exhaustive
def test_noisy_makes_every_kind_of_mistake_and_still_earns() -> None:
    found: Counter[str] = Counter()
    scores = []
    for seed, line in enumerate(lines("medium")):
        episode = play(PRICING, line, policy("noisy"), seed=seed)
        found += Counter(outcome for _, outcome in episode.outcomes())
        assert episode.ending == "complete"
        scores.append(episode.score.value)
    assert min(scores) > 0.4
    wanted = {"unknown_products", "missing_products", "not_numbers", "not_finite", "unparseable", "not_mapping"}
    wanted |= {"after_action", "future_notes", "not_json", "not_object", "repeat_access", "too_deep", "unknown_tool"}
    assert wanted | {"ok", "unhashable", "wrong_type"} <= set(found)


def test_every_mistake_spoils_prices_in_a_way_of_its_own() -> None:
    request = asked(KNOWN)
    good = learner(request, Stream(1))
    names = {id(one): name for name, one in vars(noisy_pricing).items()}
    replies = {
        names.get(id(mistake), mistake.__name__): mistake(Moment(request=request, good=good, draws=Stream(5)))
        for _, mistake in noisy_pricing.MISTAKES
    }
    assert len(replies) == len(noisy_pricing.MISTAKES)
    assert good not in replies.values()
    assert len({repr(reply) for reply in replies.values()}) == len(replies)
    assert len(prices(replies["partial"])) == 1
    assert prices(replies["_free"]) == dict.fromkeys(PRODUCTS, 0)
    assert min(prices(replies["_negative"]).values()) < 0
    assert max(prices(replies["_sky_high"]).values()) >= 1e4
