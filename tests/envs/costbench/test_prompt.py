import json
import re
from dataclasses import replace
from hashlib import sha256

import pytest

from evalkit.envs.costbench import prompt
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms
from evalkit.envs.costbench.events import terms_of, world_of
from evalkit.envs.costbench.instances.costs import show_cost
from evalkit.envs.costbench.prompt import example, ways
from evalkit.envs.costbench.step import LATER_TEXTS, TEXTS
from evalkit.spec.packs import read_pack
from tests.support.costbench_episodes import Episode, make_instance, standard_kit

TEXT = standard_kit().pack.texts
EXPLICIT = read_pack("explicit", "costbench").texts

SPARE = frozenset(
    {"tool", "first", "count", "number", "title", "stages", "context", "constants", "task", "criterion"}
) | {
    *(
        "structure",
        "argument",
        "required_list",
        "current_list",
        "options_list",
        "options",
        "value",
        "id",
        "what",
        "type",
        "label",
    ),
}
"""Fields that a wording may do without: which tool was called is known to whoever called it, and some fields are others
in another form, for wordings that are imported."""


def system(**fields: object) -> str:
    return Episode(make_instance(**fields)).opening()[0].text  # type: ignore[arg-type]


def test_the_standard_pack_holds_every_text_and_uses_its_fields() -> None:
    assert TEXT.keys() == TEXTS.keys()
    names = {name for fields in TEXTS.values() for name in fields}
    for pack in (TEXT, EXPLICIT):
        for key, text in pack.items():
            used = {name for name in names if "{" + name + "}" in text}
            spare = SPARE | (
                {"digits", "label", "number"} if key.startswith(("system", "results", "arguments")) else set()
            )
            spare |= {"ids"} if key.startswith("changed") and pack is TEXT else set()
            assert used <= TEXTS[key], key
            assert not text or TEXTS[key] - spare <= used, key


def test_every_error_is_marked_as_one_and_no_result_is() -> None:
    results = {key for key in TEXT if key.startswith(("results.", "banned."))}
    fine = {
        key for key in results if key.split(".")[1] in {"process", "first", "second", "step", "last", "graph", "cost"}
    }
    fine |= {key for key in results if key.endswith(("_final", "_joint")) or "step_" in key or "cost_" in key}
    fine |= {key for key in results if key.startswith(("results.deed", "results.criterion"))}
    for pack in (TEXT, EXPLICIT):
        assert all(pack[key].startswith("[ERROR] ") for key in results - fine if pack[key])
        assert not any("[ERROR]" in pack[key] for key in fine)
        for kind in ("banned", "changed"):
            assert len({pack[f"{kind}.{i}"] for i in range(1, 11)}) == 10


def test_the_standard_wording_tells_no_more_than_the_reference_s() -> None:
    """What the reference leaves an agent to find out; the pack `explicit` says it."""
    text = Episode(make_instance()).opening()[0].text
    said = text + json.dumps([[tool.description, tool.parameters] for tool in Episode(make_instance()).state.tools])
    for word in ("afterwards", "refused", "change the request", "without a call", "no call", "additionalProperties"):
        assert word not in said, word
    # How an id is written is shown of the answer and of one that is made up; no argument says it.
    assert "ddddd" not in json.dumps([tool.parameters for tool in Episode(make_instance()).state.tools])
    assert not any("digit" in TEXT[key] for key in TEXT if key.startswith(("results.", "arguments.")))
    for i in range(1, 11):
        # Neither for good nor for how long, and nothing of what becomes of what is held.
        assert not re.search(r"any more|for good|permanently|will not|stopped|retired|withdrawn", TEXT[f"banned.{i}"])
        assert not re.search(r"beginning|start over|anew|drop", TEXT[f"changed.{i}"] + TEXT["changes.constants"])


def test_the_standard_wording_tells_no_less() -> None:
    episode = Episode(make_instance(length=8))
    text = episode.opening()[0].text
    assert "do not describe it or write it out as text" in text
    offered = {tool.name: tool for tool in episode.state.tools}
    times = offered["Search_Dining_Candidates"].parameters["properties"]["TimeInfo"]["description"]  # type: ignore[index]
    assert "period" in times
    assert "no difference" in times
    assert "kind, level, style and feature" in offered["Decide_Dining_Preference"].description
    kept = ["in season", "easy for the user", "reputation", "restriction", "for their price"]
    for step, words in enumerate(kept, 1):
        assert words in offered[f"Dining_Refinement_Step{step}"].description
    assert all(words in offered["Dining_Refine_Step1_to_Step5"].description for words in kept)
    assert all(words in offered["Dining_Search_to_Final_7Steps"].description for words in kept)
    raw = offered["Dining_Refinement_Step2"].parameters["properties"]["DiningCandidate_L1_Available"]  # type: ignore[index]
    assert "availability" in raw["description"]


def test_explicit_is_what_standard_was() -> None:
    """Its texts are the old ones, so what is younger says what a pack says that was frozen without it."""
    later = {key: EXPLICIT[key] for key in LATER_TEXTS}
    assert later == LATER_TEXTS
    old = {key: text for key, text in EXPLICIT.items() if key not in LATER_TEXTS}
    instance = make_instance(length=6)
    plain, resumed = (
        Episode(instance, replace(standard_kit(), pack=replace(standard_kit().pack, texts=texts)))
        for texts in (EXPLICIT, {**LATER_TEXTS, **old})
    )
    assert plain.opening() == resumed.opening()
    assert plain.state.tools == resumed.state.tools
    assert "what is made in between you do not hold afterwards" in plain.opening()[0].text
    assert all(tool.parameters["additionalProperties"] is False for tool in plain.state.tools)
    called = [one.call("Dining_Full_Planning_to_Step2").messages for one in (plain, resumed)]
    assert called[0] == called[1]
    # Of 3,672 requests of the shipped suites, with events, refusals and parts left out, this is one.
    # What a message says beside its text came later.
    shown = repr([plain.opening(), plain.state.tools, called[0]]).replace(", named=False", "")
    told = sha256(shown.encode()).hexdigest()
    assert told == "7423a8f5f7cd76c0e155d39e6da20ac8cba3f70945ec964af4037ba7f380fc13"


@pytest.mark.parametrize("length", range(3, 11))
@pytest.mark.parametrize("task", ["location", "dining"])
def test_the_instructions_name_what_the_task_is_about(task: str, length: int) -> None:
    instance = make_instance(task, length, example=length <= 8)
    world = world_of(instance)
    text = Episode(instance).opening()[0].text
    assert not re.search(r"\{\w+\}", text)
    assert f"`{world.goal_type}`" in text
    for kind in world.types:
        if world.bit[kind] & world.start:
            assert f"`{kind}`" in text
    assert " -> ".join(world.sequence) in text
    assert f"<answer> <{world.labels[world.goal_type]}ddddd> </answer>" in text
    assert ("availability" in text) is (length > 3)
    assert f"{3 if length == 3 else 4} stages" in text
    # Hundreds of ways are not asked for.
    assert ("write out every way" in text) is (length <= 8)
    assert "\n\n\n" not in text


def test_parts_of_the_instructions_can_be_left_out() -> None:
    whole = system()
    assert len(whole) > len(system(example=False)) > len(system(example=False, composites=False))
    assert "## Example" not in system(example=False)
    assert "An atomic tool does" in whole
    assert "An atomic tool does" not in system(composites=False)
    assert "Search_Dining_Candidates" not in system(sequence=False)
    assert "Search_Dining_Candidates" in whole


def test_the_user_s_message_follows_the_instructions() -> None:
    instructions, request = Episode(make_instance()).opening()
    assert (instructions.role, request.role) == ("system", "user")
    assert "<TimeInfo00904>" in request.text
    assert "<LocationPreference00017>" in request.text
    assert "Something that suits wish 27." in request.text
    assert "LocationPreference" not in Episode(make_instance("location")).opening()[1].text


@pytest.mark.parametrize("count", range(3, 9))
def test_the_example_lists_every_way_once_in_order(count: int) -> None:
    found = ways(count)
    assert len(found) == len(set(found)) == 2 ** (count - 1) - 1
    assert {"".join(blocks) for blocks in found} == {"ABCDEFGH"[:count]}
    assert [len(blocks) for blocks in found] == sorted((len(blocks) for blocks in found), reverse=True)


def test_the_example_s_ways_are_ordered_by_blocks_then_first_composite_then_sizes() -> None:
    assert [" ".join(blocks) for blocks in ways(4)] == [
        "A B C D",
        "AB C D",
        "A BC D",
        "A B CD",
        "AB CD",
        "ABC D",
        "A BCD",
    ]


def test_the_example_never_grows_beyond_the_reference_s_longest() -> None:
    small, large = (example(count, "{count}: {paths}", "{path}", "{tool}") for count in (8, 30))
    assert small == large
    assert small.startswith("8: ")
    assert len(small.splitlines()) == 127


@pytest.mark.parametrize("task", ["location", "transportation", "accommodation", "attraction", "dining", "shopping"])
def test_tools_say_what_they_cost_and_what_they_give(task: str) -> None:
    instance = make_instance(task, 8)
    world, terms = world_of(instance), terms_of(instance)
    offered = prompt.tools(instance, world, TEXT, terms)
    assert [tool.name for tool in offered] == [tool.name for tool in world.tools]
    assert len(offered) == 35
    for tool, spec, cents in zip(offered, world.tools, terms.costs, strict=False):
        kind = "composite" if spec.size > 1 else "atomic"
        assert tool.description.startswith(f"Tool type: {kind}. ")
        assert (f"Component tools: {', '.join(spec.components)}." in tool.description) is (spec.size > 1)
        told = tool.description.rsplit(" cost ", 1)
        assert f"cost of {show_cost(cents)} units" in "cost " + told[1]
        assert re.search(r"output type is (\w+)\.", tool.description)[1] == spec.output  # type: ignore[index]
        assert not re.search(r"\{\w+\}", tool.description)


def test_a_composite_does_not_speak_of_cost_before_its_cost() -> None:
    instance = make_instance(length=8)
    for tool in prompt.tools(instance, world_of(instance), TEXT, terms_of(instance)):
        if "Component tools" in tool.description:
            assert tool.description.count("cost") == 1


@pytest.mark.parametrize("split", ["test", "train"])
def test_schemas_ask_for_every_input_as_a_text(split: str) -> None:
    instance = make_instance(split=split)
    values = getattr(instance.catalogue.tasks["dining"], split)
    for tool, spec in zip(
        prompt.tools(instance, world_of(instance), TEXT, terms_of(instance)), world_of(instance).tools, strict=True
    ):
        schema = tool.parameters
        assert schema["type"] == "object"
        assert schema.keys() == {"type", "properties", "required"}
        assert schema["required"] == list(spec.inputs) == list(schema["properties"])  # type: ignore[call-overload]
        for name, about in schema["properties"].items():  # type: ignore[attr-defined]
            assert about["type"] == "string"
            assert about["description"]
            key = world_of(instance).dimensions.get(name)
            assert about.get("enum") == (list(values[key]) if key else None)


def test_kinds_of_tools_can_be_kept_back() -> None:
    instance = make_instance(composites=False)
    for tool in prompt.tools(instance, world_of(instance), TEXT, terms_of(instance)):
        assert "composite" not in tool.description
        assert "Component" not in tool.description
        assert "This tool has a cost of " in tool.description


def test_tools_that_are_off_are_not_offered() -> None:
    instance = make_instance()
    world, terms = world_of(instance), terms_of(instance)
    offered = prompt.tools(instance, world, TEXT, Terms(terms.costs, frozenset({0, len(world.tools) - 1})))
    assert [tool.name for tool in offered] == [tool.name for tool in world.tools[1:-1]]


def test_two_episodes_share_all_but_the_costs() -> None:
    first, second = make_instance(), make_instance(seed=43)
    one, other = (prompt.tools(i, world_of(i), TEXT, terms_of(i)) for i in (first, second))
    assert all(a.parameters is b.parameters for a, b in zip(one, other, strict=True))
    assert any(a.description != b.description for a, b in zip(one, other, strict=True))
    opened = prompt.opening(first, world_of(first), TEXT).messages[0].text
    assert opened is prompt.opening(second, world_of(second), TEXT).messages[0].text


def test_a_pack_s_own_words_are_used_and_other_braces_stay() -> None:
    kit = standard_kit()
    texts = {**TEXT, "system": "Go for {goal}, {whoever}.", "tools.terms": " cost {cost}, output type {type}, {x}"}
    episode = Episode(make_instance(), replace(kit, pack=replace(kit.pack, texts=texts)))
    assert episode.opening()[0].text == "Go for TravelDining, {whoever}."
    assert episode.state.tools[0].description.endswith(" cost 17.92, output type DiningPreference, {x}")


def test_the_travel_catalogue_s_digits_reach_the_instructions() -> None:
    assert shipped("travel").digits["train"] == 7
    assert "<DiningCandidateddddddd>" in system(split="train")
