"""What is a plan, what one brings about, and what is refused."""

import json
from typing import Any

import pytest

from evalkit.envs.arguments import MOST_IDS
from evalkit.envs.procurement.explicit import MOST_QUANTITY
from evalkit.envs.procurement.plan import OVER, REFUSALS, SHORT
from tests.envs.procurement.purchasing import SMALL, Play, buying, reference


def test_a_plan_s_facts() -> None:
    play = Play(SMALL)
    assert play.buy({"one": 2, "two": 3}) == {
        "feasible": True,
        "reasons": [],
        "cost": 400 + 700 + 450,
        "totals": [4 + 36, 10],
        "product": "400",
        "plan": {"one": 2, "two": 3},
        "repeat": False,
        "repeat_text": False,
    }


def test_what_cannot_be_bought_is_an_attempt_with_reasons_in_the_order_written() -> None:
    play = Play({**SMALL, "menu": [*SMALL["menu"], {**SMALL["menu"][2], "id": "four", "least": 9}]})
    action = play.buy({"four": 8, "two": 10, "three": 1})
    assert action["reasons"] == [
        {"reason": SHORT, "deal": "four", "quantity": 8, "least": 9},
        {"reason": SHORT, "deal": "three", "quantity": 1, "least": 3},
        {"reason": OVER, "cost": 2200, "budget": 2000},
    ]
    assert (action["feasible"], action["cost"], action["totals"]) == (False, 2200, [147, 108])
    assert play.state.period == 1
    assert play.history() == (
        "Attempt 0:\n"
        "Submitted plan: {'four': 8, 'two': 10, 'three': 1, 'one': 0}\n"
        "Result: the plan cannot be carried out.\n"
        "\tOf four only 8 were ordered; the least that can be is 9.\n"
        "\tOf three only 1 were ordered; the least that can be is 3.\n"
        "\tIn total it would cost 22.00; the budget is 20.00.\n"
        "\n"
    )


def test_a_plan_of_exactly_the_budget_can_be_bought() -> None:
    play = Play({**SMALL, "budget": "8.20", "menu": [{**SMALL["menu"][0], "price": 0.82}]})
    assert play.buy({"one": 10})["feasible"]
    assert [reason["reason"] for reason in play.buy({"one": 11})["reasons"]] == [OVER]


@pytest.mark.parametrize("quantity", [3, 3.0, "3", " +3 ", "3.0", "03"])
def test_whole_numbers_in_any_dress_are_quantities(quantity: object) -> None:
    action = Play(SMALL).buy({"one": quantity})
    assert (action["plan"], action["cost"]) == ({"one": 3}, 600)


@pytest.mark.parametrize("said", ['{"one": 3, "two": 0}', "{'one': 3}", '{\\"one\\": 3}', "{'one': 3,}"])
def test_a_plan_may_be_written_in_the_ways_the_reference_reads(said: str) -> None:
    play = Play(SMALL)
    play.say(buying(said))
    assert play.facts[0]["action"]["plan"] == {"one": 3}


@pytest.mark.parametrize(
    ("plan", "outcome", "words"),
    [
        ({"five": 1}, "unknown_deals", "'five'"),
        ({"One": 1, "one": -1}, "unknown_deals", "'One'"),
        ({1: 1, None: 2, ("one",): 3}, "unknown_deals", "int, NoneType, tuple"),
        ({"one": -1}, "negative", "'one'"),
        ({"one": "-4"}, "negative", "'one'"),
        ({"one": 1.5, "two": -1}, "fractional", "'one'"),
        ({"one": -0.5}, "fractional", "'one'"),
        ({"one": True}, "not_numbers", "'one'"),
        ({"one": None}, "not_numbers", "'one'"),
        ({"one": "many", "two": [1], "three": {}}, "not_numbers", "'one', 'two', 'three'"),
        ({"one": "1.5"}, "not_numbers", "'one'"),
        ({"one": 3j}, "not_numbers", "'one'"),
        ({"one": 10**9 + 1}, "too_many", "'one'"),
        ({"one": 1e300}, "too_many", "'one'"),
        ({"one": 10**4000}, "too_many", "'one'"),
        ({f"x{i}": 1 for i in range(99)}, "unknown_deals", ", ".join(f"'x{i}'" for i in range(MOST_IDS)) + ", ..."),
    ],
)
def test_what_is_no_plan_is_refused_and_the_period_goes_on(plan: dict[Any, Any], outcome: str, words: str) -> None:
    play = Play(SMALL)
    seen = play.say(buying(plan))
    assert play.outcome == outcome
    assert seen.messages[0].text.endswith(f": {words}.")
    assert "action" not in seen.facts
    assert (play.state.period, play.state.turn) == (0, 1)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    play = Play(SMALL)
    play.say(buying(f'{{"one": {number}}}'))
    assert play.outcome == "not_numbers"


def test_only_an_unknown_deal_restarts_the_period_where_restarts_are_asked_for() -> None:
    for plan, tries in (({"five": 1}, 1), ({"one": -1}, 0), ({"one": 0.5}, 0), ({"one": None}, 0)):
        play = Play({**SMALL, "no_action": "restart"})
        play.say(buying(plan))
        assert play.state.tries == tries
    assert {"unknown_deals", "not_numbers", "fractional", "negative", "too_many"} == set(REFUSALS)


def test_nothing_at_all_and_the_most_of_everything_can_be_recorded() -> None:
    play = Play(SMALL)
    assert play.buy({}) == {**play.buy({"one": 0}), "repeat": False, "repeat_text": False}
    action = play.buy({"one": MOST_QUANTITY, "two": MOST_QUANTITY, "three": MOST_QUANTITY})
    assert max(action["cost"], *action["totals"]) < 2**63
    assert json.loads(json.dumps(action)) == action


def test_repeats_by_what_is_bought_and_by_how_it_is_written() -> None:
    play = Play(SMALL)
    plans: list[tuple[dict[str, object], bool, bool]] = [
        ({"one": 1, "two": 2}, False, False),
        ({"one": 1, "two": 2}, True, True),
        ({"one": 1, "two": 2, "three": 0}, True, True),  # deals left out follow in the menu's order
        ({"two": 2, "one": 1}, True, False),
        ({"three": 0, "one": 1, "two": 2}, True, False),
        ({"one": 1.0, "two": 2}, True, False),
        ({"one": 2, "two": 2}, False, False),
        ({"two": 2, "one": 1}, True, True),
    ]
    for plan, repeat, repeat_text in plans:
        action = play.buy(plan)
        assert (action["repeat"], action["repeat_text"]) == (repeat, repeat_text)


def test_golden_replays_have_the_reference_s_distinct_texts(shared: Any) -> None:
    rows = [
        json.loads(text)
        for text in (shared / "goldens/econagentbench/score_replays.jsonl").read_text().split("\n")
        if text
    ]
    rows = [row for row in rows if row["env"] == "procurement"]
    assert len(rows) == 4
    for row in rows:
        play = Play(reference(row["difficulty"].lower(), row["seed"]))
        actions = [play.buy(plan) for plan in row["actions"]]
        share = sum(not action["repeat_text"] for action in actions) / len(actions)
        assert share == row["notebook"]["exploration_rate"]
        for action, (cost, _, feasible) in zip(actions, row["per_period"], strict=True):
            assert (action["cost"], action["feasible"]) == (round(cost * 100), feasible)
