"""A pack from a copy of CostBench's reference: requests are what the copy's own code makes, byte for byte."""

import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from evalkit.cli.main import main
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.ids import show_id, split_values
from evalkit.envs.costbench.instances.costs import show_cost
from evalkit.envs.environment import Kit
from evalkit.envs.errand import errand
from evalkit.errors import UsageError
from evalkit.spec.importing.executed import import_reference
from evalkit.spec.packs import read_pack
from evalkit.tasks.costbench.record import query_lines
from evalkit.tasks.record import coverage_line
from evalkit.wire.table import DIALECTS
from tests.spec.costbench_copy import Ran, banned, changed, composite_text, everything, ran, write_copy
from tests.spec.test_imported import write_repository
from tests.support.costbench_episodes import Episode, make_instance
from tests.support.period_episodes import replying

BOTH, FINISH = "Dining_Preference_and_Search", "Dining_Finish_from_Step1_3Steps"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return write_copy(tmp_path / "copy")


@pytest.fixture
def kit(copy: Path, tmp_path: Path) -> Kit:
    (tmp_path / "reference.toml").write_text(import_reference(copy), encoding="utf-8")
    return Kit(pack=read_pack(str(tmp_path / "reference.toml"), "costbench"))


@pytest.fixture
def code(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    return ran(copy, monkeypatch)


def instructions(code: Ran, task: str, length: int, *, example: bool, concept: bool, sequence: bool) -> str:
    """The system message, put together as the copy's run does."""
    title, level = task.capitalize(), length - 3
    named = code.steps["REFINEMENT_DIMENSION_MAPPING"]
    refined = code.run["REFINEMENT_CONTENT_TEMPLATE"].format(
        task=title, num_dimensions=level, refinement_dimensions_str=", ".join(named[i] for i in range(1, level + 1))
    )
    row = code.steps["ATOMIC_SEQUENCE_MAPPING"][level].format(task=title)
    told: str = code.run["QUERY_INSTRUCTION"].format(
        task=title,
        tool_num_str=4 if level else 3,
        tool_types_str=code.run["get_tool_types_str"](SimpleNamespace(refinement_level=level)),
        refinement_content=refined if level else "",
        example_content=code.example["example_for_refinement_level"](level) if example else "",
        composite_concept_content=code.run["COMPOSITE_CONCEPT_CONTENT"] if concept else "",
        task_atomic_tool_sequence_str=code.run["TASK_ATOMIC_TOOL_SEQUENCE_TEMPLATE"].format(atomic_tool_sequence=row)
        if sequence
        else "",
        need_loc_pref="" if task == "location" else "the LocationPreference, ",
    )
    return told


def interfaces(code: Ran, episode: Episode, *, concept: bool) -> list[Any]:
    """The tools as the copy shows them."""
    found = []
    for place, spec in enumerate(episode.state.setup.world.tools):
        description = composite_text(spec.components)
        if spec.size == 1:
            description = f"Small {spec.name.lower()} – does its bit."
            if spec.name.startswith("Select"):
                description = f"Takes the one {episode.instance.task} that is best."
        tool = code.types["AtomicTool"]()
        tool.__dict__ |= {"name": spec.name, "input_types": list(spec.inputs), "output_type": spec.output}
        tool.__dict__ |= {"cost": show_cost(episode.state.terms.costs[place]), "description": description}
        tool.__dict__ |= {"component_tool_names": list(spec.components)}
        tool.get_tool_type = lambda spec=spec: "composite" if spec.size > 1 else "atomic"
        found.append(tool.generate_interface(provide_composite_concept=concept))
    return found


@pytest.mark.parametrize("shown", [(True, True, True), (False, True, True), (True, False, False)])
def test_every_opening_request_is_the_copy_s_own(kit: Kit, code: Ran, shown: tuple[bool, bool, bool]) -> None:
    example, concept, sequence = shown
    for task, length in everything():
        episode = Episode(make_instance(task, length, example=example, composites=concept, sequence=sequence), kit=kit)
        wanted = instructions(code, task, length, example=example, concept=concept, sequence=sequence)
        assert episode.opening()[0].text == wanted
        dialect = DIALECTS["openai_chat"]
        sent = dialect.encode_tools(episode.state.tools)
        assert (
            sent
            == json.dumps(
                interfaces(code, episode, concept=concept), ensure_ascii=False, separators=(",", ":")
            ).encode()
        )


def atomic(code: Ran, spec: Any, task: str) -> Any:
    tool = code.types["AtomicTool"]()
    tool.__dict__ |= {"name": spec.name, "output_type": spec.output, "input_types": list(spec.inputs)}
    tool.get_self_task = lambda: task
    return tool


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("length", range(3, 9))
def test_every_result_is_the_copy_s_own(kit: Kit, code: Ran, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    for name in [tool.name for tool in make_episode(kit, length).state.setup.world.tools]:
        episode = make_episode(kit, length)
        world = episode.state.setup.world
        spec = world.tools[world.place[name]]
        if spec.first:  # make what it needs
            episode.call(next(tool.name for tool in world.tools if (tool.first, tool.last) == (0, spec.first - 1)))
        text = episode.call(name).messages[0].text
        known = {tool.name: atomic(code, tool, "dining") for tool in world.tools[:length]}
        made = SimpleNamespace(unique_id=show_id("DiningPreference", episode.state.query.number, 5))
        last = known[spec.components[-1]]
        wanted = last.process_output(made, length - 3, known)
        if spec.size > 1:
            tool = code.composite["CompositeTool"]()
            tool.component_tool_names, tool.refinement_level = list(spec.components), length - 3
            module = ModuleType("env.domains.travel.atomic_tools")
            module.__dict__["get_all_dynamic_atomic_tools"] = lambda _, known=known: known
            monkeypatch.setitem(sys.modules, module.__name__, module)
            wanted = tool.process_output(made, length - 3, known)
        assert text == f"{wanted} Cost: {show_cost(episode.state.terms.costs[world.place[name]])}", name


def make_episode(kit: Kit, length: int = 5, **said: Any) -> Episode:
    return Episode(make_instance(length=length, **said), kit=kit)


def test_refusals_are_the_copy_s_own(kit: Kit) -> None:
    def said(name: str, arguments: Any, *before: str, **fields: Any) -> str:
        episode = make_episode(kit, **fields)
        for one in before:
            episode.call(one)
        return episode.raw(name, arguments if isinstance(arguments, str) else json.dumps(arguments))

    right = make_episode(kit).arguments(BOTH)
    cost = make_episode(kit).state.terms.costs
    place = make_episode(kit).state.setup.world.place
    decide, search = "Decide_Dining_Preference", "Search_Dining_Candidates"
    price = {name: f" Cost: {show_cost(cost[place[name]])}" for name in (decide, search, BOTH, FINISH)}
    held = ["DiningCategory", "DiningFeaturePackage", "DiningStyle", "DiningTier", "LocationPreference", "TimeInfo"]
    without = {key: value for key, value in right.items() if key != "DiningTier"}
    assert said("Nobody", "{}") == "[ERROR] 'Nobody' is nobody's name."
    assert said(FINISH, "{}") == (
        f"[ERROR] '{FINISH}' wants ['DiningCandidate_Raw', 'TimeInfo'] and finds {held}{price[FINISH]}!"
    )
    assert said(decide, "no") == f"[ERROR] These are no arguments.{price[decide]}"
    assert said(decide, without) == f"[ERROR] Give DiningTier{price[decide]}"
    assert said(BOTH, without) == f"[ERROR] Where is 'DiningTier'?{price[BOTH]}"
    options = ["coffee_shop", "restaurant", "street_food_vendor", "bakery"]
    wrong = {**right, "DiningCategory": "zoo"}
    assert said(decide, wrong) == f"[ERROR] DiningCategory is never zoo but of {options}{price[decide]}"
    assert said(BOTH, wrong) == f"[ERROR] 'zoo' is no DiningCategory at all.{price[BOTH]}"
    lost = {**right, "LocationPreference": " LocationPreference99999"}
    assert said(decide, lost) == f"[ERROR] '<LocationPreference99999>' is nowhere.{price[decide]}"
    assert said(BOTH, lost) == f"[ERROR] {BOTH} cannot use that.{price[BOTH]}"
    ids = {"DiningPreference": "<X12>", "LocationPreference": "", "TimeInfo": ""}
    assert said(search, ids, decide) == f"[ERROR] A number too long or short.{price[search]}"
    assert said(search, {**ids, "DiningPreference": "x"}, decide) == f"[ERROR] No number anywhere.{price[search]}"
    raw = {"DiningCandidate_Raw": "none", "TimeInfo": ""}
    assert said(FINISH, raw, BOTH, malformed_ids="charged") == (
        f"Did Sieved for dates => Sieved for ways => Taken. [ERROR] No number anywhere.{price[FINISH]}"
    )
    step = "Dining_Refine_to_Step2"
    # The type's own digit is a number too.
    assert said(step, raw, BOTH).startswith("[ERROR] A number too long or short.")
    both = make_episode(kit).say(replying((decide, right), ("Other", {})))
    assert both.messages[1].text == "[ERROR] One after the other, please."


def test_events_are_told_in_the_copy_s_sentences(kit: Kit) -> None:
    episode = make_episode(kit, schedule=({"at": 1, "kind": "ban_tool"},))
    sentences = {banned(place) for place in range(1, 11)}
    price = show_cost(episode.state.terms.costs[0])
    first = episode.call("Decide_Dining_Preference").messages[0].text
    again = episode.call("Decide_Dining_Preference").messages[0].text
    assert first.removesuffix(f" Cost: {price}") in sentences
    assert again.removesuffix(f" Cost: {price}!") in sentences
    for task, where in (("dining", "Off to <LocationPreference00017> now. "), ("location", "")):
        episode = Episode(make_instance(task, schedule=({"at": 1, "kind": "preference_change"},)), kit=kit)
        told = episode.call(episode.state.setup.world.sequence[0]).messages[-1]
        words = f"{where}{episode.state.query.text} TimeInfo as before."
        assert told.role == "user"
        assert told.text in {changed(place).format(new_user_message=words) for place in range(1, 11)}


def test_results_bear_the_tool_s_name_as_the_copy_s_do(kit: Kit) -> None:
    for pack, named in ((kit, True), (Kit(pack=read_pack("standard", "costbench")), False)):
        seen = Episode(make_instance(), kit=pack).say(replying(("Nobody", {}), ("Other", {}))).messages
        sent = [json.loads(message) for message in encoded(seen)]
        assert [message.get("name") for message in sent] == (["Nobody", "Other"] if named else [None, None])


def encoded(messages: Any) -> list[bytes]:
    parts: list[bytes] = []
    DIALECTS["openai_chat"].join(parts, messages)
    return parts


def test_models_are_asked_about_queries_and_plans_in_the_copy_s_words(copy: Path, tmp_path: Path, kit: Kit) -> None:
    namespace: dict[str, Any] = {}
    exec((copy / "env/utils/prompts.py").read_text(), namespace)
    pack = Kit(pack=read_pack(str(tmp_path / "reference.toml"), "errand"))
    row = make_instance("dining").query
    line = {"id": "q", "environment": "costbench", "task": "dining", "query": msgspec.to_builtins(row)}
    told = {"task": "dining", **row.preferences, "features": row.preferences["feature_package"]}
    values = split_values(shipped("travel"), "dining", "test")
    told |= {f"{key}_candidates": ", ".join(values[key]) for key in ("category", "tier", "style")}
    told["features_candidates"] = ", ".join(values["feature_package"])
    asked = {kind: next(query_lines(kind, [line], "")) for kind in (errand.CONFLICT, errand.REQUIREMENT)}
    asked[errand.ENUMERATION] = coverage_line("e", "A {text} plan ", errand.ENUMERATION)
    wanted = {
        errand.CONFLICT: namespace["QUERY_VALIDATION_INSTRUCTION"]
        + namespace["QUERY_VALIDATION_PROMPT"].format(**told),
        errand.REQUIREMENT: namespace["QUERY_GENERATION_INSTRUCTION"].format(**told)
        + namespace["QUERY_GENERATION_PROMPT"].format(**told),
        errand.ENUMERATION: namespace["COUNT_COVERAGE_INSTRUCTION"]
        + namespace["COUNT_COVERAGE_PROMPT"].format(model_plan="A {text} plan "),
    }
    for kind, line in asked.items():
        (message,) = errand.start(errand.load(line), pack).opening.messages
        assert (message.role, message.text) == ("user", wanted[kind])


def test_copies_of_both_references_make_one_pack(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_repository(other)
    text = import_reference(copy, other)
    assert {"costbench", "errand", "procurement"} <= tomllib.loads(text).keys()
    with pytest.raises(UsageError, match="Name one copy of each reference"):
        import_reference(copy, copy)


def test_the_command_writes_a_pack_that_says_what_is_ours(copy: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.toml"
    assert main(["tools", "prompts", "import", str(copy), "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "in evalkit's wording: parts.graph, parts.sequence_graph, results.failed, results.graph" in text
    assert "Not understood" not in text
    pack = read_pack(str(out), "costbench")
    assert pack.name == "out"
    assert COSTBENCH.texts.all.keys() <= pack.texts.keys()
    assert read_pack(str(out), "scheduling").name == "standard"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("env/run.py", "QUERY_INSTRUCTION = ", "OTHER = ", "no attribute 'QUERY_INSTRUCTION'"),
        ("env/run.py", "{tool_num_str}", "{number}", "it has an unknown field 'number'"),
        ("env/run.py", "are gaps", "are {{title}}", "plain text contains {title}, which would be filled in"),
        ("env/run.py", "need_loc_pref=", "other=", "nothing fills in `need_loc_pref`"),
        ("env/run.py", "new_user_message =", "message =", "the new requirements are missing in it"),
        ("env/core/base_types.py", "def generate_interface", "def generate", "no attribute 'generate_interface'"),
        ("env/core/base_types.py", "properties = {}", "properties = open(self)", "TypeError"),
        ("env/core/base_types.py", "class Tool(ABC)", "class Thing(ABC)", "name 'Tool' is not defined"),
        ("env/utils/example_generator.py", "range(1, remaining + 1)", "range(0, remaining + 1)", "RecursionError"),
        ("env/utils/example_generator.py", "def _sorted(n):", "def _sorted(n)::", "is not Python source"),
        ("env/domains/travel/composite_tool_descriptions.py", "'Search_Dining_Candidates', ", "'x', ", "not described"),
        (
            "env/domains/travel/atomic_tools.py",
            'name="Dining_Refinement_Step3"',
            'name="x"',
            "it is not described there",
        ),
        ("env/domains/travel/refinement_steps_catalog.py", " / Search_", " // Search_", "are not Decide_Dining"),
        ("env/config/travel_config.yaml", "sentence 4", 'sentence" 4', "expected 10 texts in double quotes"),
        ("env/config/travel_config.yaml", "  ban_tool_return_sentences", "  sentences", "found 0"),
    ],
)
def test_what_cannot_be_read_is_named(copy: Path, name: str, old: str, new: str, words: str) -> None:
    path = copy / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError) as flaw:
        import_reference(copy)
    assert words in str(flaw.value)
    assert name in str(flaw.value) or "no attribute" in words


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "env/config/travel_config.yaml").unlink()
    with pytest.raises(UsageError, match=r"travel_config\.yaml cannot be read"):
        import_reference(copy)
