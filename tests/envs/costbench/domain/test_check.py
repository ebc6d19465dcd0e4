import copy
from typing import Any

import msgspec
import pytest

from evalkit.envs.costbench.domain.catalogue_files import check, parse_catalogue, read_catalogue, shipped
from evalkit.envs.costbench.domain.world import make_world
from evalkit.errors import UsageError

PLAIN: dict[str, Any] = msgspec.to_builtins(shipped("delivery"))


class _Absent:
    """Takes a key away."""

    def __repr__(self) -> str:
        return "absent"


GONE = _Absent()


def changed(path: str, value: object) -> dict[str, Any]:
    """The catalogue `delivery` with one place set to a value, or taken away."""
    found: Any = copy.deepcopy(PLAIN)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    spot = found
    for step in way:
        spot[step] = list(spot[step]) if isinstance(spot[step], tuple) else spot[step]
        spot = spot[step]
    if value is GONE:
        del spot[last]
    else:
        spot[last] = value
    return found


TOOL = {"inputs": ["ReleaseBrief"], "output": "TestReport", "text": "It does."}
TOOLS = "tasks/release/graph/tools"

FLAWS: list[tuple[str, object, str]] = [
    ("tasks", {}, "needs tasks and dimensions"),
    ("dimensions", [], "needs tasks and dimensions"),
    ("tasks/2fast", PLAIN["tasks"]["feature"], "tasks: '2fast' is not a valid name"),
    (f"{TOOLS}/1/name", "Build" * 13, "has 65 characters; providers accept at most 64 in a name"),
    ("chain/names/whole", "{T}_" + "All" * 20, "has 68 characters; providers accept at most 64"),
    ("tasks/Feature", PLAIN["tasks"]["feature"], "tasks: the title 'Feature' is not unique"),
    ("dimensions/0/key", "pace", "dimensions: the key 'pace' is not unique"),
    ("dimensions/0/key", "my key", "dimensions: 'my key' is not a valid name"),
    ("dimensions/0/suffix", "Pace", "dimensions: the suffix 'Pace'"),
    ("dimensions/0/suffix", "Tar-get", "dimensions: 'TTar-get' is not a valid name"),
    ("constants", ["Sprint", "Sprint"], "constants: the type 'Sprint'"),
    ("constants", ["Sprint2"], "constants: 'Sprint2' must not end in a digit"),
    ("context", "sevrice", "context: there is no chain task 'sevrice'. Did you mean 'service'"),
    ("context", "release", "context: there is no chain task 'release'"),
    ("chain", None, r"tasks.service has no graph, and there is no \[chain\]"),
    ("chain/names/hole", "{T}_Hole", "chain.names: there is no kind of composite 'hole'. Did you mean 'whole'"),
    ("chain/names/whole", GONE, "chain.names.whole is missing"),
    (
        "chain/names/whole",
        "{T}_Check1_with_Plan",
        "length 4: the tool 'Service_Check1_with_Plan' is not unique",
    ),
    ("chain/names/steps", "Steps_{s}_{e}", "length 6: the tool 'Steps_1_3' is not unique"),
    ("chain/names/steps", "{T}_{x}", "length 6: 'Service_{x}' is not a valid name"),
    ("chain/names/whole", "{T} All", "length 3: 'Service All' is not a valid name"),
    ("chain/step/output", "{T}Options_{word}", "length 10: the type 'ServiceOptions_Vetted' is not unique"),
    ("chain/first/output", "{T}Target", "length 3: the type 'ServiceTarget' is not unique"),
    ("chain/first/inputs", ["dimension"], "chain.first.inputs: there is no input word 'dimension'. Did you mean"),
    ("chain/first/inputs", ["previous"], "chain.first.inputs: every tool except the first needs `previous`"),
    ("chain/step_one_inputs", ["constants"], "chain.step_one_inputs: every tool except the first"),
    ("chain/second/inputs", ["previous", "previous"], "chain.second.inputs: the input word 'previous'"),
    ("chain/first/label", "{T} Brief", "'Service Brief' is not a valid name"),
    ("chain/step/label", "{T}Set{k}", "'ServiceSet1' must not end in a digit"),
    ("chain/last/label", "{T}Shortlist", "ids of 'ServiceShortlist' also occur before the end"),
    ("words/openings", [], "words.openings is empty"),
    ("words/joins", ["We want it."], "words.joins: 'We want it.' does not contain {phrase}"),
    ("words/request", "Please, {ids}.", "words.request: .* does not contain {requirements}"),
    ("words/request", "Please, {requirements}.", "words.request: .* does not contain {ids}"),
    ("words/given/Sprint", GONE, "words.given.Sprint is missing"),
    ("words/given/context", GONE, "words.given.context is missing"),
    ("words/given/Sprnt", "in {id}", "words.given: there is no id to be given by the name of 'Sprnt'. Did you mean"),
    ("words/given/Sprint", "in it", "words.given.Sprint: 'in it' does not contain {id}"),
    ("tasks/feature/test/pace", GONE, "tasks.feature.test: no values for the dimension 'pace'"),
    ("tasks/feature/train/pace", GONE, "tasks.feature.train: no values for the dimension 'pace'"),
    ("tasks/feature/test/peace", ["a"], "tasks.feature.test: there is no dimension 'peace'. Did you mean 'pace'"),
    (
        "tasks/feature/test/pace",
        ["a", "b"],
        "tasks.feature.test: all dimensions need the same number of values.* pace 2",
    ),
    ("tasks/feature/test/pace", ["a", "b", "c", "a"], "tasks.feature.test.pace: the value 'a'"),
    ("tasks/feature/test/pace", ["a", "b", "c", ""], "tasks.feature.test.pace: a value is empty"),
    ("tasks/feature/test/pace/0", "two_sprints", "pace has the value 'two_sprints' in both the test and the training"),
    ("tasks/feature/phrases/peace", {}, "tasks.feature.phrases: there is no dimension 'peace'"),
    ("tasks/feature/phrases/pace/sloow", ["x"], "tasks.feature.phrases.pace: there is no value 'sloow'"),
    ("tasks/feature/phrases/pace/no_deadline", [], "phrases.pace.no_deadline: the phrase is empty"),
    ("tasks/feature/conflicts", [{}], "tasks.feature.conflicts: entry 1 is empty"),
    ("tasks/feature/conflicts", [{"peace": ["a"]}], "tasks.feature.conflicts: there is no dimension 'peace'"),
    ("tasks/feature/conflicts", [{"pace": ["a"]}], "conflicts: entry 1.pace: there is no value 'a'"),
    (
        f"{TOOLS}/0/inputs",
        ["Wish"],
        "release.graph.tools: Draft_Release_Brief: there is no start type or output called",
    ),
    (f"{TOOLS}/1/inputs", ["ReleaseBrief", "ReleaseBrief"], "Build_Artifact: the input 'ReleaseBrief'"),
    (f"{TOOLS}/1/name", "Run_Full_Tests", "release.graph.tools: the tool 'Run_Full_Tests'"),
    (f"{TOOLS}/1/name", "Build!", "release.graph.tools: 'Build!' is not a valid name"),
    (f"{TOOLS}/1/output", "A-B", "release.graph.tools: 'A-B' is not a valid name"),
    (f"{TOOLS}/10/components", ["Build_Artifact"], "Build_and_Test replaces only one tool"),
    (f"{TOOLS}/10/components", ["Build_Artifact", "Run"], "Build_and_Test: there is no atomic tool 'Run'"),
    ("tasks/release/graph/goal", "ReleasedPublish", "graph.goal: there is no tool that gives 'ReleasedPublish'"),
    ("tasks/release/graph/goal", "Sprint", "graph.goal: 'Sprint' is available from the start"),
    ("tasks/release/graph/start/0", "Springt", "graph.start: there is no dimension type, .* 'Springt'. Did you mean"),
    ("tasks/release/graph/start", ["Sprint", "Sprint"], "graph.start: the type 'Sprint'"),
    ("tasks/release/graph/labels/Nothing", "N", "graph.labels: there is no type 'Nothing'"),
    ("tasks/release/graph/labels/TestReport", "T1", "graph.labels: 'T1' must not end in a digit"),
    ("tasks/release/graph/labels/TestReport", "Release", "graph.labels: the goal's label is also another type's"),
    (f"{TOOLS}/5/inputs", ["ApprovedCandidate", "CanaryReport"], "no sequence of calls leads from the start"),
    ("digits", {"train": 6}, "digits.test is missing"),
    ("digits", {"test": 5}, "digits.train is missing"),
    ("digits/test", 3, "digits.test: ids of feature go up to 4096, which has more digits"),
    ("digits/test", 0, "digits.test must be between"),
    ("digits/exam", 5, "digits: there is no split 'exam'"),
]


@pytest.mark.exhaustive(but=40)
@pytest.mark.parametrize(("path", "value", "said"), FLAWS, ids=[f"{path}={value}"[:60] for path, value, _ in FLAWS])
def test_a_flaw_is_refused_with_its_place(path: str, value: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_catalogue(changed(path, value), "my.toml")
    assert str(caught.value).startswith("my.toml: ")


def test_names_that_meet_in_long_chains_only_are_refused_there() -> None:
    # Steps 1 to 3, and step 13 with the choice, which is there from length 16 on.
    plain = changed("chain/names/steps", "{T}_Row{s}{e}")
    plain["chain"]["names"]["step_last"] = "{T}_Row{s}"
    catalogue = parse_catalogue(plain, "mine")
    assert make_world(catalogue, "feature", 15, False)
    with pytest.raises(UsageError, match=r"two tools in a chain of length 16 have the same name"):
        make_world(catalogue, "feature", 16, False)


def test_a_composite_in_a_graph_may_not_be_made_of_composites() -> None:
    tools = [
        *PLAIN["tasks"]["release"]["graph"]["tools"],
        {"name": "All", "components": ["Build_and_Test"] * 2, **TOOL},
    ]
    with pytest.raises(UsageError, match="All: there is no atomic tool 'Build_and_Test'"):
        parse_catalogue(changed(TOOLS, tools), "my.toml")


def test_fields_and_texts_that_are_no_catalogue_are_refused() -> None:
    with pytest.raises(UsageError, match=r"my\.toml: .*unknown field.*colour"):
        parse_catalogue(changed("colour", "red"), "my.toml")
    with pytest.raises(UsageError, match=r"my\.toml: not valid TOML"):
        read_catalogue("name = ", "my.toml")


def test_a_catalogue_of_graphs_needs_no_chain_and_no_context() -> None:
    plain = changed("tasks", {"release": copy.deepcopy(PLAIN["tasks"]["release"])})
    plain |= {"chain": None, "context": ""}
    del plain["words"]["given"]["context"]
    graph = plain["tasks"]["release"]["graph"]
    graph["start"] = [name for name in graph["start"] if name != "ServiceBrief"]
    graph["tools"][0]["inputs"] = [name for name in graph["tools"][0]["inputs"] if name != "ServiceBrief"]
    check(parse_catalogue(plain, "my.toml"), "my.toml")
