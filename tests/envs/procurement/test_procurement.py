"""Whole episodes: the paper's examples, what the agent reads, and tools."""

import json
from pathlib import Path

import pytest

from evalkit.envs.environment import Kit, Pack
from evalkit.envs.procurement.procurement import ACTION, BUDGET, HISTORY, MENU, PROCUREMENT
from evalkit.envs.rules import ATTEMPT, READ_NOTES, WRITE_NOTES
from evalkit.errors import UsageError
from evalkit.spec.packs import read_pack
from tests.envs.procurement.purchasing import KIT, PACK, SMALL, Play, reference
from tests.support.period_episodes import replying

PAPER = reference("basic", 0, budget="109.98")
FIRST = {"Offer_4": 1, "Offer_9": 1, "Offer_11": 1, "Offer_12": 1}
SECOND = {"Offer_4": 3, "Offer_9": 2, "Offer_10": 1, "Offer_7": 1}


def with_texts(**texts: str) -> Kit:
    return Kit(pack=Pack(name="mine", digest="d", texts={**PACK.texts, **texts}))


def test_the_paper_s_examples_are_seed_0_of_basic() -> None:
    play = Play(PAPER)
    assert play.call(BUDGET) == "109.98"
    assert play.call(ATTEMPT) == "0"
    play.buy(FIRST)
    play.buy(SECOND)
    zeros = ", ".join(f"'Offer_{i}': 0" for i in (1, 2, 3, 5, 6, 7, 8, 10))
    others = ", ".join(f"'Offer_{i}': 0" for i in (1, 2, 3, 5, 6, 8, 11, 12))
    assert play.history() == (
        "Attempt 0:\n"
        f"Submitted plan: {{'Offer_4': 1, 'Offer_9': 1, 'Offer_11': 1, 'Offer_12': 1, {zeros}}}\n"
        "Result: the plan supports 4.67 workers and costs 50.04.\n"
        "\n"
        "Attempt 1:\n"
        f"Submitted plan: {{'Offer_4': 3, 'Offer_9': 2, 'Offer_10': 1, 'Offer_7': 1, {others}}}\n"
        "Result: the plan supports 0.00 workers and costs 87.54.\n"
        "\n"
    )
    assert play.call(ATTEMPT) == "2"


def test_the_paper_s_budget_has_the_optimum_of_the_anchor(shared: Path) -> None:
    anchor = json.loads((shared / "goldens/econagentbench/paper_appendix_anchor.json").read_text())
    line = PROCUREMENT.describe(PROCUREMENT.load(PAPER))
    optimum = line["optimum"]
    assert (optimum["product"], optimum["cost"], optimum["plan"]) == (
        anchor["product_of_totals"],
        anchor["cost_cents"],
        anchor["plan"],
    )
    play = Play(line)
    action = play.buy(optimum["plan"])
    assert action["totals"] == anchor["category_totals"]
    score = PROCUREMENT.score(play.instance, play.facts)
    assert (score.value, score.solved, score.metrics["solved_period"]) == (1.0, True, 0)


def test_golden_menus_are_what_the_menu_tool_shows(shared: Path) -> None:
    rows = (shared / "goldens/econagentbench/procurement_instances.jsonl").read_text().splitlines()
    for row in map(json.loads, rows):
        play = Play(reference(row["difficulty"].lower(), row["seed"]))
        assert play.call(MENU) == row["menu_text"]
        assert play.call(BUDGET) == str(row["budget"])


def test_a_menu_says_price_conditions_and_contents() -> None:
    assert Play(SMALL).call(MENU) == (
        "- one: $2.00 for 2 units of A1 and 1 unit of B2\n"
        "- two: [additional upfront cost $7.00] $1.50 for 4 units of A2\n"
        "- three: [minimum order quantity 3] $2.25 for 1 unit of B1, 1 unit of A2, and 2 units of B2\n"
    )


def test_the_style_repr_wraps_what_the_reference_wraps() -> None:
    play = Play(SMALL, with_texts(**{"results.style": "repr"}))
    assert play.call(BUDGET) == "{'budget': 20.0}"
    assert play.call(ATTEMPT) == "{'attempt_number': 0}"
    assert play.call(MENU).startswith("- one: $2.00")
    play.buy({"one": 1})
    assert play.history() == repr(
        {
            "previous_purchase_data": (
                "Attempt 0:\nSubmitted plan: {'one': 1, 'two': 0, 'three': 0}\n"
                "Result: the plan supports 3.16 workers and costs 2.00.\n\n"
            )
        }
    )


@pytest.mark.parametrize("name", [HISTORY, MENU])
def test_history_and_menu_are_shown_once_a_chat(name: str) -> None:
    play = Play(SMALL)
    first = play.call(name)
    assert play.outcome == "ok"
    again = play.call(name)
    assert play.outcome == "repeat_access"
    assert again != first
    play.buy({})
    play.call(name)
    assert play.outcome == "ok"
    for _ in range(2):
        play.call(BUDGET)
        assert play.outcome == "ok"


def test_tools_are_offered_in_the_reference_s_order_and_the_action_alone_at_last() -> None:
    play = Play({**SMALL, "queries": 2})
    assert play.tools() == [HISTORY, MENU, BUDGET, ATTEMPT, WRITE_NOTES, READ_NOTES, ACTION]
    assert PROCUREMENT.offers(play.instance) == 7
    play.call(BUDGET)
    assert play.tools() == [ACTION]
    assert Play(SMALL, Kit(pack=PACK, notes=False)).tools() == [HISTORY, MENU, BUDGET, ATTEMPT, ACTION]


def test_an_empty_history_and_a_period_without_a_plan() -> None:
    play = Play({**SMALL, "queries": 2})
    assert play.history() == "No attempt has been made yet."
    play.say(replying())
    assert play.history() == "Attempt 0:\nNo plan was submitted.\n\n"


def test_the_agent_is_told_of_neither_the_number_of_periods_nor_effectiveness_nor_the_score() -> None:
    play = Play({**SMALL, "periods": 77})
    told = [message.text for message in play.opening()]
    told += [str(tool) for tool in PROCUREMENT.tools(play.state)]
    told += [play.call(MENU), play.call(BUDGET)]
    assert not [text for text in told if "77" in text or "score" in text.lower() or "effective" in text.lower()]


def test_a_system_text_may_tell_the_number_of_periods() -> None:
    kit = with_texts(system="You have {periods} attempts, {notes}{attempts}.")
    play = Play({**SMALL, "periods": 77}, kit)
    assert play.opening()[0].text == f"You have 77 attempts, {PACK.texts['notes.system']}{{attempts}}."
    assert Play({**SMALL, "periods": 5}, kit).opening()[0].text.startswith("You have 5 attempts")


def test_every_period_opens_alike() -> None:
    play = Play({**SMALL, "periods": 3})
    openings = []
    while not play.state.ended:
        openings.append(play.opening())
        play.buy({"one": 1})
    assert openings == [openings[0]] * 3
    assert play.state.ended == "complete"
    assert "opening_last" not in PROCUREMENT.texts.all


def test_the_variant_for_reasoning_models_asks_for_no_thinking_to_be_written_down() -> None:
    reasoning = read_pack("standard", "procurement", "reasoning")
    changed = {key for key in PACK.texts if PACK.texts[key] != reasoning.texts[key]}
    assert changed == {"notes.system", "tools.write_notes.notes", "tools.read_notes.description"}
    for key in changed:
        assert "thinking" not in reasoning.texts[key]
        assert "why you did" not in reasoning.texts[key]


def test_a_pack_without_a_text_is_refused() -> None:
    texts = {key: text for key, text in PACK.texts.items() if key not in ("system", "results.menu_pair")}
    with pytest.raises(UsageError, match=r"lacks results\.menu_pair, system"):
        PROCUREMENT.start(PROCUREMENT.load(SMALL), Kit(pack=Pack(name="mine", digest="d", texts=texts)))


def test_an_optimum_once_found_does_not_end_the_episode() -> None:
    play = Play({**SMALL, "periods": 3})
    assert play.say(replying((ACTION, {"purchase_plan": {"one": 10}}))).facts.get("ended") is None
    assert play.state.period == 1


def test_states_are_values_and_replay_from_any_of_them_gives_the_same() -> None:
    play = Play(SMALL)
    play.buy({"one": 1})
    before = play.state
    one = play.buy({"two": 3})
    play.state = before
    assert play.buy({"two": 3}) == one
    assert not one["repeat"]
    for value in (before, before.world, before.world.market, before.world.market.deals[0]):
        assert not hasattr(value, "__dict__")
    assert PROCUREMENT.start(play.instance, KIT).world.market is before.world.market
