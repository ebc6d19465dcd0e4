"""Procurement's policies: what they read, what they learn, and how well they buy."""

import ast
import json
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
from evalkit.envs.procurement.instance import market_of
from evalkit.envs.procurement.market import is_feasible
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.errors import UsageError
from evalkit.policy.conversation import answer
from evalkit.policy.market_reading import ReadDeal, read_budget, read_menu, read_purchases
from evalkit.policy.noisy import Moment
from evalkit.policy.procurement import policies as noisy_procurement
from evalkit.policy.procurement.playing import climber, cover, improve, learn, make_shop, random, worth
from evalkit.seeds import Stream
from tests.policy.chatting import chat
from tests.support.episode_loop import Episode, kit, play, policy

SIZES: dict[str, dict[str, Any]] = {
    "basic": {"categories": 3, "products": 12, "p_items": 0.8, "p_quantity": 0.5, "p_budget": 0.5},
    "medium": {"categories": 5, "products": 30, "p_items": 0.5, "p_quantity": 0.2, "p_budget": 0.2},
    "hard": {"categories": 10, "products": 100, "p_items": 0.1, "p_quantity": 0.1, "p_budget": 0.1},
}
EFFECTIVENESS = {"basic": 3, "medium": 5, "hard": 20}

MENU = """- Offer_1: [additional upfront cost $19.47] $17.69 for 1 unit of A1 and 1 unit of B2
- Offer_2: [minimum order quantity 2] $10.68 for 2 units of B1
- Offer_3: $1.38 for 2 units of B2, 1 unit of A4, and 1 unit of AB1
"""
GETTERS = ("get_previous_purchase_data", "get_equipment_information", "get_budget", "get_attempt_number")
ACTION = Tool(
    name="submit_purchase_plan",
    description="",
    parameters={"type": "object", "properties": {"purchase_plan": {"type": "string"}}, "required": ["purchase_plan"]},
)
TOOLS = (*(Tool(name=name, description="", parameters={"type": "object"}) for name in GETTERS), ACTION)
HISTORY = """Attempt 0:
Plan: {'Offer_3': 7, 'Offer_1': 0, 'Offer_2': 2}
It supports 4.67 workers and costs 31.02

Attempt 1:
Plan: {'Offer_2': 1, 'Offer_1': 0, 'Offer_3': 0}
Invalid: of Offer_2 2 are needed, 1 was ordered

Attempt 2:
Plan: {'Offer_1': 100, 'Offer_2': 0, 'Offer_3': 0}
Invalid: 1788.47 is more than 60.00

Attempt 3:
Nothing was bought.

Attempt 4:
Plan: {'Offer_1': 2, 'Offer_2': 0, 'Offer_3': 1}
It supports 0.00 workers and costs 56.23
"""
KNOWN = {
    "get_previous_purchase_data": HISTORY,
    "get_equipment_information": MENU,
    "get_budget": "{'budget': 60.0}",
}


def asked(answers: dict[str, str], **said: Any) -> Request:
    return chat(answers, tools=TOOLS, **said)


def bought(reply: Reply) -> dict[str, int]:
    """The plan a reply submits, and nothing else."""
    (call,) = reply.calls
    assert call.name == "submit_purchase_plan"
    plan = ast.literal_eval(json.loads(call.arguments)["purchase_plan"])
    assert isinstance(plan, dict)
    return plan


@lru_cache
def lines(size: str, count: int = 4) -> tuple[Mapping[str, Any], ...]:
    """The reference's first instances of a difficulty."""
    parameters = {**SIZES[size], "effectiveness_most": EFFECTIVENESS[size], "generator": "reference"}
    return tuple(PROCUREMENT.generate(parameters, count, 0))


def played(name: str, line: Mapping[str, Any], **fields: Any) -> Episode:
    line = {**line, **fields}
    return play(PROCUREMENT, line, policy(name, "procurement", instance=PROCUREMENT.load(line)))


def test_a_menu_is_read_whatever_stands_around_it() -> None:
    expected = (
        ReadDeal(id="Offer_1", price=1769, fixed=1947, least=1, contents=(("A1", 1), ("B2", 1))),
        ReadDeal(id="Offer_2", price=1068, fixed=0, least=2, contents=(("B1", 2),)),
        ReadDeal(id="Offer_3", price=138, fixed=0, least=1, contents=(("B2", 2), ("A4", 1), ("AB1", 1))),
    )
    reworded = MENU.replace("- ", "* ").replace("[additional upfront cost $19.47]", "$19.47 once, then")
    reworded = reworded.replace("[minimum order quantity 2]", "at least 2, each").replace("unit", "piece")
    for text in (MENU, f"Deals, best first:\n\n{MENU}\n(3 deals)", repr({"menu": MENU}), reworded):
        assert read_menu(text) == expected, text
    assert read_menu("- Offer_1: $3 for 12 units of A1") == (
        ReadDeal(id="Offer_1", price=300, fixed=0, least=1, contents=(("A1", 12),)),
    )
    assert [read_budget(text) for text in ("{'budget': 109.77}", "109.77", "You have $60.", "nothing")] == [
        10977,
        10977,
        6000,
        None,
    ]


@pytest.mark.parametrize(
    "text",
    [
        HISTORY,
        repr({"previous_purchase_data": HISTORY}),
        repr({"previous_purchase_data": HISTORY.replace("It supports", "It's enough for")}),
        json.dumps({"previous_purchase_data": HISTORY}),
        HISTORY.replace("It supports 4.67 workers and costs 31.02", "It costs 31.02 and supports 4.67 workers").replace(
            "It supports 0.00 workers and costs 56.23", "It costs 56.23, for 0.00 workers"
        ),
    ],
)
def test_only_feasible_plans_are_read_from_a_history(text: str) -> None:
    found = read_purchases(text, read_menu(MENU), 6000)
    assert [(one.quantities, one.workers) for one in found] == [
        ({"Offer_3": 7, "Offer_2": 2}, 4.67),
        ({"Offer_1": 2, "Offer_3": 1}, 0.0),
    ]


@given(st.text(max_size=200))
def test_reading_never_fails(text: str) -> None:
    deals = read_menu(MENU)
    assert len(read_purchases(text + HISTORY, deals, 6000)) <= 2 + text.count("{")
    assert all(deal.contents for deal in read_menu(text + MENU))
    read_budget(text)


def test_effects_are_learned_up_to_a_scale_for_each_category() -> None:
    true = np.array([1.0, 3.0, 7.0, 2.0, 20.0])
    category = np.array([0, 0, 0, 1, 1])
    draws = np.random.default_rng(3)
    units = draws.integers(0, 9, size=(40, 5)).astype(float)
    groups = (category[:, None] == np.arange(2)).astype(float)
    workers = np.round(np.prod((units * true) @ groups, axis=1) ** 0.5, 2)
    belief = learn(units[workers > 0], list(workers[workers > 0]), category)
    found = belief.best()
    assert np.allclose(found[:3] / found[0], true[:3] / true[0], rtol=0.02)
    assert np.allclose(found[3:] / found[3], true[3:] / true[3], rtol=0.02)
    assert np.allclose(belief.drawn(Stream(1)) / belief.drawn(Stream(2)), 1, rtol=1.5)


def test_of_what_was_never_bought_nothing_is_known() -> None:
    belief = learn(np.zeros((0, 3)), [], np.array([0, 0, 1]))
    assert belief.best().tolist() == [1.0, 1.0, 1.0]
    drawn = np.log([belief.drawn(Stream(seed)) for seed in range(400)])
    assert abs(drawn.mean()) < 0.1
    assert abs(drawn.std() - 0.7) < 0.1


def test_the_search_finds_the_best_plan_that_enumeration_finds() -> None:
    deals = read_menu(MENU + "- Offer_4: $4.00 for 3 units of A2\n- Offer_5: $2.50 for 1 unit of AB1\n")
    gains = np.array([[2.0, 1, 0], [0, 4, 0], [2, 2, 1], [6, 0, 0], [0, 0, 1]])
    shop = make_shop(deals, gains, 1500)
    found = improve(shop, cover(deals, gains, 1500))
    plans = [(0, b, c, d, e) for b in (0,) for c in range(11) for d in range(4) for e in range(7)]
    costs = {plan: sum(deal.cost(one) for deal, one in zip(deals, plan, strict=True)) for plan in plans}
    best = max((plan for plan in plans if costs[plan] <= 1500), key=lambda plan: worth(shop, plan))
    assert worth(shop, found) == pytest.approx(worth(shop, best))


def test_a_chat_begins_with_all_questions_in_one_reply() -> None:
    first = climber(asked({}), Stream(0))
    assert [call.name for call in first.calls] == [
        "get_equipment_information",
        "get_budget",
        "get_previous_purchase_data",
    ]
    assert [call.name for call in random(asked({}), Stream(0)).calls] == ["get_equipment_information", "get_budget"]
    one = climber(asked({}, parallel_calls=False), Stream(0))
    assert [call.name for call in one.calls] == ["get_equipment_information"]
    assert bought(climber(chat({}, tools=(ACTION,)), Stream(0))) == {}
    assert bought(random(chat({}, tools=(ACTION,)), Stream(0))) == {}


def test_an_action_that_takes_an_object_gets_one() -> None:
    tools = (*TOOLS[:-1], replace(ACTION, parameters={"properties": {"plan": {"type": "object"}}}))
    (call,) = climber(chat(KNOWN, tools=tools), Stream(0)).calls
    assert all(type(quantity) is int for quantity in json.loads(call.arguments)["plan"].values())


def test_the_climber_repeats_itself_in_the_same_place_only() -> None:
    assert answer("climber", climber, asked(KNOWN, seed=3)) == answer("climber", climber, asked(KNOWN, seed=3))
    line = lines("medium")[1]
    assert played("climber", line, periods=15).facts == played("climber", line, periods=15).facts


@pytest.mark.parametrize("size", SIZES)
def test_random_plans_can_always_be_paid(size: str) -> None:
    line = lines(size)[0]
    market = market_of(PROCUREMENT.load(line)).market
    places = {deal.id: place for place, deal in enumerate(market.deals)}
    episode = played("random", line, periods=40)
    plans = [facts["action"]["plan"] for facts in episode.facts if "action" in facts]
    assert len(plans) == 40
    assert len({str(plan) for plan in plans}) > 30
    for plan in plans:
        quantities = [0] * len(market.deals)
        for name, quantity in plan.items():
            quantities[places[name]] = quantity
        assert is_feasible(market, tuple(quantities))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("size", "least"), [("basic", 0.999), ("medium", 0.995), ("hard", 0.97)])
def test_the_climber_learns_and_the_oracle_is_never_beaten(size: str, least: float) -> None:
    scores: dict[str, list[float]] = {"random": [], "climber": [], "oracle": []}
    for line in lines(size)[: 4 if size == "hard" else 3]:
        for name, found in scores.items():
            episode = played(name, line, **({"periods": 30} if size == "hard" else {}))
            assert episode.ending == "complete"
            assert {outcome for _, outcome in episode.outcomes()} == {"ok"}
            assert episode.score.value <= 1.0
            found.append(episode.score.value)
            if name == "climber":
                assert episode.score.metrics["feasible_plans"] == 30 if size == "hard" else 100
                assert episode.score.value > episode.score.metrics["first_score"]
    assert min(scores["oracle"]) == 1.0
    assert min(scores["climber"]) > least
    assert all(random < climbed for random, climbed in zip(scores["random"], scores["climber"], strict=True))


def test_the_oracle_takes_one_turn_a_period_and_needs_the_optimum() -> None:
    line = lines("basic")[0]
    episode = played("oracle", line, periods=3)
    assert (len(episode.facts), episode.score.metrics["first_score"], episode.score.solved) == (3, 1.0, True)
    with pytest.raises(UsageError, match="optimum"):
        policy("oracle", "procurement", instance=PROCUREMENT.load({key: line[key] for key in line if key != "optimum"}))


def test_results_in_any_style_lead_to_the_same_plans() -> None:
    plain = kit("procurement", notes=False)
    wrapped = replace(plain, pack=replace(plain.pack, texts={**plain.pack.texts, "results.style": "repr"}))
    line = {**lines("basic")[2], "periods": 12}
    one, other = (play(PROCUREMENT, line, policy("climber"), brings=brings) for brings in (plain, wrapped))
    assert one.replies == other.replies
    assert one.facts == other.facts


@pytest.mark.exhaustive
def test_noisy_makes_every_kind_of_mistake_and_still_learns() -> None:
    found: Counter[str] = Counter()
    for seed, line in enumerate(lines("basic")):
        episode = play(PROCUREMENT, line, policy("noisy"), seed=seed)
        found += Counter(outcome for _, outcome in episode.outcomes())
        assert episode.ending == "complete"
        assert episode.score.value > 0.95
    wanted = {"unknown_deals", "not_numbers", "fractional", "negative", "too_many", "unparseable", "not_mapping"}
    wanted |= {"after_action", "future_notes", "not_json", "not_object", "repeat_access", "too_deep", "unknown_tool"}
    assert wanted | {"ok", "unhashable", "wrong_type"} <= set(found)


def test_every_mistake_spoils_a_plan_in_a_way_of_its_own() -> None:
    request = asked({**KNOWN, "get_equipment_information": MENU.replace("2 units of B2, 1 unit of A4, and ", "")})
    good = climber(request, Stream(1))
    names = {id(one): name for name, one in vars(noisy_procurement).items()}
    replies = {
        names.get(id(mistake), mistake.__name__): mistake(Moment(request=request, good=good, draws=Stream(5)))
        for _, mistake in noisy_procurement.MISTAKES
    }
    assert len(replies) == len(noisy_procurement.MISTAKES)
    assert good not in replies.values()
    assert len({repr(reply) for reply in replies.values()}) == len(replies)
    whole = bought(good)
    assert len(bought(replies["partial"])) == len(whole) - 1
    assert bought(replies["_too_dear"]) == {deal: 10 * quantity for deal, quantity in whole.items()}
    assert bought(replies["_nothing"]) == {}
    assert min(bought(replies["_unknown_ids"]).keys() - whole.keys()) == "Offer_9999"
