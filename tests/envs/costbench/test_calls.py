import json
from dataclasses import replace
from typing import Any

import pytest

from evalkit.envs.costbench.instances.costs import show_cost
from tests.support.costbench_episodes import Episode, make_instance, travel_with_errand

DECIDE, SEARCH, BOTH = "Decide_Dining_Preference", "Search_Dining_Candidates", "Dining_Preference_and_Search"
STEP, FINISH = "Dining_Refinement_Step1", "Dining_Finish_from_Step1_3Steps"


def called(name: str, episode: Episode | None = None, **other: object) -> tuple[str, str]:
    """Outcome and text of a call with the right arguments but for some."""
    episode = episode or Episode(make_instance())
    text = episode.call(name, **other).messages[0].text
    return episode.outcome, text


def test_a_good_call_is_charged_gives_its_type_and_shows_the_id() -> None:
    episode = Episode(make_instance())
    world = episode.state.setup.world
    seen = episode.call(DECIDE)
    assert seen.facts["calls"] == [{"tool": DECIDE, "outcome": "ok", "cost": 1792}]
    assert episode.state.have == world.start | world.bit["DiningPreference"]
    assert f"<DiningPreference{episode.instance.query.number:05d}>" in seen.messages[0].text
    assert seen.messages[0].text.endswith(" Cost: 17.92")
    assert (seen.messages[0].role, seen.messages[0].call_id) == ("tool", "c0")


def test_a_composite_gives_only_its_last_output() -> None:
    episode = Episode(make_instance())
    world = episode.state.setup.world
    seen = episode.call(BOTH)
    assert episode.state.have == world.start | world.bit["DiningCandidate_Raw"]
    assert f"{DECIDE} -> {SEARCH}" in seen.messages[0].text
    assert f"<DiningCandidateSet{episode.instance.query.number:05d}>" in seen.messages[0].text
    episode.call(FINISH)
    assert episode.facts[-1]["calls"][0]["goal"] is True
    assert episode.facts[-1]["goal"] is True
    assert f"<DiningCandidate{episode.instance.query.number:05d}>" in episode.call(FINISH).messages[0].text


def test_results_say_by_what_candidates_are_filtered_so_far() -> None:
    episode = Episode(make_instance(length=7))
    episode.call("Dining_Full_Planning_to_Step2")
    seen = episode.call("Dining_Refinement_Step3")
    assert "availability, location, reputation. DiningCandidate_L3_Reviewed: " in seen.messages[0].text
    seen = episode.call("Dining_Refinement_Step4")
    assert "reputation, restrictions; these are the final ones. DiningCandidate_L4_Verified: " in seen.messages[0].text
    short = Episode(make_instance(length=3))
    assert "these are the final ones" in short.call(BOTH).messages[0].text


@pytest.mark.parametrize(
    "name",
    ["Dining_Finish", "Search_Location_Candidates", "Dining_Complete_5Steps_Pipeline", "", "x" * 5000, "{tool}\ud800"],
)
def test_a_tool_that_is_not_offered_is_unknown(name: str) -> None:
    episode = Episode(make_instance())
    text = episode.raw(name, "{}")
    assert episode.outcome == "unknown_tool"
    assert text.startswith("[ERROR]")
    assert "Cost:" not in text
    assert len(text) < 200
    json.dumps(episode.facts).encode()
    assert episode.facts[-1]["calls"][0].keys() == {"tool", "outcome"}


def test_the_tool_that_does_everything_is_offered_where_the_instance_says_so() -> None:
    episode = Episode(make_instance(whole=True))
    assert episode.call("Dining_Complete_5Steps_Pipeline").facts["goal"] is True


def refused(name: str, arguments: object, *before: str, **fields: Any) -> tuple[str, str]:
    episode = Episode(make_instance(**fields))
    for one in before:
        episode.call(one)
    held = episode.state.have
    text = episode.raw(name, arguments if isinstance(arguments, str) else json.dumps(arguments))
    assert episode.state.have == held
    assert episode.facts[-1]["calls"][0].keys() == {"tool", "outcome"}
    place = episode.state.setup.world.place[name]
    assert text.startswith("[ERROR]")
    assert text.endswith(f" Cost: {show_cost(episode.state.terms.costs[place])}")
    return episode.outcome, text


WISHES = {
    "LocationPreference": "<LocationPreference00017>",
    "DiningCategory": "restaurant",
    "DiningTier": "popular_local_mainstay",
    "DiningStyle": "culinary_quality_priority",
    "DiningFeaturePackage": "unique_themed_environment",
}
IDS = {"DiningPreference": "<DiningPreference00012>", "LocationPreference": "x", "TimeInfo": "y"}


def test_a_tool_whose_inputs_are_not_held_is_inaccessible_whatever_its_arguments() -> None:
    outcome, text = refused("Select_Final_Dining", "no JSON")
    assert outcome == "inaccessible"
    assert "DiningCandidate_L2_Located" in text
    assert (
        "there are DiningCategory, DiningFeaturePackage, DiningStyle, DiningTier, LocationPreference, TimeInfo" in text
    )


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ("", "not_json"),
        ("{not json", "not_json"),
        ("[1, 2]", "not_object"),
        ("[" * 200, "too_deep"),
        (" " + "x" * 70_000, "too_large"),
        ("{}", "missing"),
        ({**WISHES, "DiningCategory": "spaceport"}, "bad_value"),
        ({**WISHES, "DiningCategory": ["restaurant"]}, "bad_value"),
        ({**WISHES, "DiningCategory": None}, "bad_value"),
        ({**WISHES, "LocationPreference": "<LocationPreference99999>"}, "unknown_context"),
        ({**WISHES, "LocationPreference": "<LocationPreference00257>"}, "unknown_context"),
        ({**WISHES, "LocationPreference": "<LocationPreference00000>"}, "unknown_context"),
        ({**WISHES, "LocationPreference": "00017"}, "unknown_context"),
        ({**WISHES, "LocationPreference": "<LocationPreference017>"}, "unknown_context"),
        ({**WISHES, "LocationPreference": "<DiningPreference00017>"}, "unknown_context"),
        ({**WISHES, "LocationPreference": 17}, "unknown_context"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_with_the_reason(arguments: object, outcome: str) -> None:
    assert refused(DECIDE, arguments)[0] == outcome


def test_a_missing_argument_is_named() -> None:
    arguments = {name: value for name, value in WISHES.items() if name != "DiningTier"}
    outcome, text = refused(DECIDE, arguments)
    assert outcome == "missing"
    assert "DiningTier" in text


def test_a_value_that_is_not_listed_is_answered_with_the_list() -> None:
    assert (
        "coffee_shop, restaurant, street_food_vendor, bakery" in refused(DECIDE, {**WISHES, "DiningCategory": "x"})[1]
    )


@pytest.mark.parametrize(
    "said", ["<X123>", "", "none", "<DiningPreference000123>", 123, ["1"], "\u0661\u0662\u0663\u0664"]
)
def test_an_id_without_the_right_number_of_digits_is_refused(said: object) -> None:
    assert refused(SEARCH, {**IDS, "DiningPreference": said}, DECIDE)[0] == "bad_id"


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("<DiningPreference00012>", "00012"),
        ("12345", "12345"),
        ("<X9>9999", "99999"),
        (54321, "54321"),
        ("0 0 0 0 1", "00001"),
        ("\u0661\u0662\u0663\u0664\u0665", "12345"),  # digits are digits in any script, as in the reference
        ("\u00b9\u00b2345", "12345"),
    ],
)
def test_a_wrong_id_that_is_well_formed_is_carried_on(said: object, number: str) -> None:
    episode = Episode(make_instance())
    episode.call(DECIDE)
    outcome, text = called(SEARCH, episode, DiningPreference=said)
    assert outcome == "ok"
    assert f"<DiningCandidateSet{number}>" in text


@pytest.mark.parametrize("said", ["LocationPreference00018", "<LocationPreference00018", " <LocationPreference00018> "])
def test_the_context_s_id_decides_whose_preference_it_is_and_may_lack_brackets(said: str) -> None:
    instance = make_instance()
    outcome, text = called(DECIDE, LocationPreference=said)
    assert outcome == "ok"
    assert f"<DiningPreference{instance.query.number + 256:05d}>" in text


def test_constants_and_further_arguments_are_not_looked_at() -> None:
    episode = Episode(make_instance())
    assert called(DECIDE, episode, Colour="red")[0] == "ok"
    assert called(SEARCH, episode, TimeInfo="whenever", LocationPreference="?")[0] == "ok"


def test_a_wrong_wish_gives_another_number() -> None:
    instance = make_instance()
    value = next(v for v in instance.catalogue.tasks["dining"].test["tier"] if v != instance.query.preferences["tier"])
    assert f"<DiningPreference{instance.query.number:05d}>" not in called(DECIDE, DiningTier=value)[1]


def test_a_component_s_mistake_is_named() -> None:
    episode = Episode(make_instance())
    assert called(BOTH, episode, LocationPreference="<LocationPreference99999>")[0] == "unknown_context"
    assert called(BOTH, episode, DiningTier="?")[0] == "bad_value"


@pytest.mark.parametrize(
    ("name", "other", "outcome"),
    [
        (DECIDE, {"LocationPreference": "<LocationPreference00018>"}, "wrong_id"),
        (DECIDE, {"LocationPreference": "<LocationPreference99999>"}, "unknown_context"),
        (DECIDE, {"LocationPreference": "LocationPreference00017"}, "ok"),
        (BOTH, {"TimeInfo": "<TimeInfo00905>"}, "wrong_id"),
        (BOTH, {"TimeInfo": "<TimeInfo00904>"}, "ok"),
    ],
)
def test_a_strict_instance_refuses_ids_that_the_user_did_not_give(
    name: str, other: dict[str, str], outcome: str
) -> None:
    assert called(name, Episode(make_instance(strict=True)), **other)[0] == outcome


def test_the_search_for_a_place_needs_the_preference_that_was_settled() -> None:
    episode = Episode(make_instance("location"))
    assert called("Search_Location_Candidates", episode)[0] == "inaccessible"
    assert called("Decide_Location_Preference", episode)[0] == "ok"
    assert (
        called("Search_Location_Candidates", episode, LocationPreference="<LocationPreference00250>")[1].count("00250")
        == 1
    )


def test_training_ids_have_seven_digits() -> None:
    episode = Episode(make_instance(split="train"))
    assert f"<DiningPreference{episode.instance.query.number:07d}>" in called(DECIDE, episode)[1]
    assert called(SEARCH, episode, DiningPreference="00012")[0] == "bad_id"


def parcel() -> Episode:
    return Episode(make_instance("parcel", 0, travel_with_errand(), alternatives=()))


def test_a_graph_settles_and_carries_the_number_as_a_chain_does() -> None:
    episode = parcel()
    number = episode.instance.query.number
    for name in ("Weigh", "Pack"):
        assert f"{number:05d}>" in called(name, episode)[1]
    assert called("Send", episode)[0] == "inaccessible"
    assert f"<Slot{number:05d}>" in called("Book", episode)[1]
    assert called("Send", episode, Box="00003", Weight="?")[1].count("<ParcelReceipt00003>") == 1
    assert episode.facts[-1]["goal"] is True


def test_a_graph_s_composite_runs_its_components_with_all_inputs() -> None:
    episode = parcel()
    assert called("Pack_and_Weigh", episode)[0] == "ok"
    assert called("Book_and_Send", episode)[0] == "inaccessible"
    assert called("Pack", episode, ParcelStyle="three")[0] == "bad_value"
    assert called("Pack", episode)[0] == "ok"
    assert called("Book_and_Send", episode, Box="<Box7>")[0] == "bad_id"
    outcome, text = called("Book_and_Send", episode)
    assert outcome == "ok"
    assert "Book -> Send" in text


def test_a_graph_s_instructions_speak_of_no_stages() -> None:
    text = parcel().opening()[0].text
    assert "stages" not in text
    assert "filtered" not in text
    assert "Weigh, Pack, Book, Send" in text
    assert "<answer> <ParcelReceiptddddd> </answer>" in text


def test_a_ban_s_price_is_that_of_the_moment() -> None:
    episode = Episode(make_instance(block="ban_tool", blocks=1, length=3))
    costs = tuple(cents + 7 for cents in episode.state.terms.costs)
    episode.state = replace(episode.state, terms=replace(episode.state.terms, costs=costs))
    assert episode.call(DECIDE).facts["calls"][0]["cost"] == costs[0]
