import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.envs.environment import Kit, Pack
from evalkit.envs.scheduling.scheduling import ACTION, HISTORY, SCHEDULING, TEXTS
from evalkit.errors import UsageError
from evalkit.spec import packs
from evalkit.spec.importing.executed import import_reference
from evalkit.spec.packs import pack_names, read_pack
from evalkit.spec.reading import parse_text
from tests.support.scheduling_episodes import SMALL, Play, matched


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_standard_pack_holds_every_text_in_both_variants() -> None:
    assert "standard" in pack_names()
    plain, reasoning = read_pack("standard", "scheduling"), read_pack("standard", "scheduling", "reasoning")
    assert plain.texts.keys() == reasoning.texts.keys() == TEXTS.all.keys() - TEXTS.later.keys()
    assert plain.name == reasoning.name == "standard"
    assert plain.digest != reasoning.digest
    assert all(text for key, text in plain.texts.items())


def test_the_standard_texts_use_their_fields_and_no_others() -> None:
    # Fields that a text may leave out without losing information.
    spare = {"tool", "action", "type", "attempt"}
    for key, text in read_pack("standard", "scheduling").texts.items():
        names = {name for fields in TEXTS.all.values() for name in fields}
        used = {name for name in names if "{" + name + "}" in text}
        assert TEXTS.all[key] - spare <= used <= TEXTS.all[key], key


def test_reasoning_models_are_not_asked_to_write_their_thinking_down() -> None:
    kit = Kit(pack=read_pack("standard", "scheduling", "reasoning"))
    play = Play(SMALL, kit)
    told = [message.text for message in play.opening()] + [str(tool) for tool in SCHEDULING.tools(play.state)]
    assert not [text for text in told if "reason" in text.lower() or "thinking" in text.lower()]
    plain = [message.text for message in Play(SMALL).opening()] + [
        str(tool) for tool in SCHEDULING.tools(Play(SMALL).state)
    ]
    assert [text for text in plain if "thinking" in text.lower()]


def test_a_pack_replaces_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[scheduling]\nsystem = "Do {it}."\n[scheduling.tools.submit_assignment]\ndescription = "Go."\n'
    )
    pack, standard = read_pack(path, "scheduling"), read_pack("standard", "scheduling")
    assert pack.name == "mine"
    changed = {key for key in standard.texts if pack.texts[key] != standard.texts[key]}
    assert changed == {"system", f"tools.{ACTION}.description"}
    play = Play(SMALL, Kit(pack=pack))
    assert play.opening()[0].text == "Do {it}."  # a brace that is no field stays
    assert SCHEDULING.tools(play.state)[-1].description == "Go."


def test_a_file_is_parsed_once_while_it_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(packs, "parse_text", lambda text, where: parsed.append(where) or parse_text(text, where))
    path = written(tmp_path, '[scheduling]\nsystem = "Go."\n')
    read_pack("standard", "scheduling")
    parsed.clear()
    assert {read_pack(path, "scheduling").texts["system"] for _ in range(3)} == {"Go."}
    assert parsed == [path]
    written(tmp_path, '[scheduling]\nsystem = "Up."\n')
    assert read_pack(path, "scheduling").texts["system"] == "Up."
    assert parsed == [path, path]


def test_a_pack_s_own_texts_go_before_the_standard_variant_s(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '[scheduling.notes]\nsystem = " Notes!"\n'
        '[scheduling.tools.read_notes]\ndescription = "plain"\n'
        '[scheduling.reasoning.tools.read_notes]\ndescription = "quick"\n',
    )
    plain, reasoning = read_pack(path, "scheduling"), read_pack(path, "scheduling", "reasoning")
    assert plain.texts["notes.system"] == reasoning.texts["notes.system"] == " Notes!"
    assert plain.texts["tools.read_notes.description"] == "plain"
    assert reasoning.texts["tools.read_notes.description"] == "quick"
    standard = read_pack("standard", "scheduling", "reasoning")
    assert reasoning.texts["tools.write_notes.notes"] == standard.texts["tools.write_notes.notes"]


def test_the_digest_is_of_the_texts_not_of_the_file(tmp_path: Path) -> None:
    first = read_pack(written(tmp_path, "# nothing\n"), "scheduling")
    assert first.digest == read_pack("standard", "scheduling").digest
    other = read_pack(written(tmp_path, '[scheduling]\nreply = "On."\n'), "scheduling")
    assert other.digest != first.digest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[scheduling]\nsytem = "x"\n', "mine.toml: scheduling.sytem: unknown text. Did you mean 'system'?"),
        ('[scheduling.results]\nmising = "x"\n', "scheduling.results.mising: unknown text. Did you mean"),
        (
            '[scheduling.reasoning]\nsytem = "x"\n',
            "scheduling.reasoning.sytem: unknown text. Did you mean 'system'",
        ),
        (
            '[scheduling.tools.submit]\ndescription = "x"\n',
            "scheduling.tools.submit.description: unknown text",
        ),
        ("[scheduling]\nsystem = 3\n", "scheduling.system: expected a string, got 3"),
        ('[scheduling.results]\nstyle = "loud"\n', "scheduling.results.style: there is no 'loud'. Valid: plain, repr"),
        ('[sheduling]\nsystem = "x"\n', "unknown environment 'sheduling'. Did you mean 'scheduling'?"),
        ('scheduling = "x"\n', "scheduling: expected a table of texts"),
        ("[scheduling]\nreasoning = 3\n", "scheduling.reasoning: unknown text"),
        ("[scheduling\n", "is not valid TOML"),
    ],
)
def test_what_is_no_pack_is_named_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as flaw:
        read_pack(path, "scheduling")
    assert words in str(flaw.value)
    assert "mine.toml" in str(flaw.value)


@pytest.mark.parametrize(
    ("name", "environment", "variant", "words"),
    [
        ("standart", "scheduling", "", "There is no prompt pack 'standart'. Did you mean 'standard'?"),
        ("../prompts/standard", "scheduling", "", "There is no prompt pack"),
        ("gone.toml", "scheduling", "", "There is no prompt pack gone.toml: no such file."),
        ("standard", "schedule", "", "There is no environment 'schedule'. Did you mean 'scheduling'?"),
        ("standard", "scheduling", "reasonin", "Did you mean 'reasoning'?"),
    ],
)
def test_names_that_stand_for_nothing_are_refused(name: str, environment: str, variant: str, words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        read_pack(name, environment, variant)
    assert words in str(flaw.value)


# Made up, in the shape of the reference's files; no sentence is theirs.
PROMPTS = '''
import os

ROLE = "You sort people."

SYSTEM_PROMPT_V1 = (
    """
Line one. """
    + ROLE
).strip()
SYSTEM_PROMPT_V1_REASONING = f"Quietly: {ROLE}"
INITIAL_PROMPT_V1 = """
  Begin.
""".strip()
INITIAL_PROMPT_FINAL_ATTEMPT_V1 = "Begin.\\n\\n" + "Last \\"one\\" \\\\ caf\\u00e9 \\x7f."
PROMPT_V1: str = "On."
PICK = {"name": "submit_assignment", "description": "Say " + """ "{'A': '1'}" now.""",
        "input_schema": {"type": "object", "properties": {"assignment": {"type": "string", "description": "As text."}}}}
TOOLS_V1 = [
    {"name": "get_worker_ids", "description": "Who.", "input_schema": {"type": "object", "properties": {}}},
    {"name": "get_weather", "description": "Not ours.", "input_schema": {}},
    {"name": "read_notes", "description": "Look.",
     "input_schema": {"properties": {"attempt_number": {"description": "Which."}, "page": {"description": "No."}}}},
    {"name": "get_task_ids", "description": os.environ},
] + [PICK]
TOOLS_V1_REASONING = [
    {"name": "get_worker_ids", "description": "Who.", "input_schema": {}},
    {"name": "read_notes", "description": "Peek.", "input_schema": {}},
]
'''
RUN = """
import gone
from gone.further import anything
from prompts import PROMPT_V1
from stable_matching_environment import is_valid_matching

print("no answer")


def make_readable_previous_attempts_data(matching_attempts, blocking_pair_results):
    output = ""
    for attempt_num in range(len(matching_attempts)):
        output += f"No. {attempt_num}\\n"
        output += f"Said: {matching_attempts[attempt_num]}\\n"
        for i, blocking_pair in enumerate(blocking_pair_results[attempt_num]):
            worker, task = blocking_pair
            task_of_worker = matching_attempts[attempt_num][worker]
            worker_of_task = {v: k for k, v in matching_attempts[attempt_num].items()}[task]
            output += f"\\t{i+1}. {worker} on {task_of_worker}, {worker_of_task} on {task}: bad.\\n"
        output += "--\\n"
    return output


class SchedulingAgent(gone.Base):
    def use_tool(self, name, input, worker_ids: gone.Ids, task_ids):
        if name == "get_previous_attempts_data":
            if self.data_accessed_this_period:
                return ("SUCCESS", str({"previous_attempts_data": "Seen."}))
            return "SUCCESS", str({"previous_attempts_data": text})
        elif name == "write_notes":
            if "notes" in input:
                return "SUCCESS", "Noted."
            return "ERROR", "Where?"
        elif name == "submit_assignment":
            is_valid, invalid_reason = is_valid_matching(parse_dict(input["assignment"]), worker_ids, task_ids)
            return ("RETRY_ERROR", f"Bad: <{invalid_reason}>")
"""
CHECKS = """
def is_valid_matching(matching, worker_ids, task_ids):
    if not isinstance(matching, dict):
        return False, "No mapping"
    unmatched_workers, unmatched_tasks = set(worker_ids) - set(matching), set(task_ids) - set(matching.values())
    if unmatched_workers:
        return False, "Without workers: " + str(unmatched_workers)
    if unmatched_tasks:
        return False, "Without tasks: " + str(unmatched_tasks)
    unknown_workers = set(matching) - set(worker_ids)
    return (False, "Unknown: " + str(unknown_workers)) if unknown_workers else (True, "")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "reference" / "econ_evals" / "experiments" / "scheduling"
    folder.mkdir(parents=True)
    (folder / "prompts.py").write_text(PROMPTS)
    (folder / "run_scheduling_experiment.py").write_text(RUN)
    (folder / "stable_matching_environment.py").write_text(CHECKS)
    return tmp_path / "reference"


def imported(repository: Path, folder: Path, variant: str = "") -> Pack:
    path = folder / "paper.toml"
    path.write_text(import_reference(repository), encoding="utf-8")
    return read_pack(str(path), "scheduling", variant)


def test_prompts_and_tools_are_imported_word_for_word(repository: Path, tmp_path: Path) -> None:
    texts = imported(repository, tmp_path).texts
    assert texts["system"] == "Line one. You sort people."
    assert texts["opening"] == "Begin."
    assert texts["opening_last"] == 'Begin.\n\nLast "one" \\ café \x7f.'
    assert texts["reply"] == "On."
    assert texts["tools.get_worker_ids.description"] == "Who."
    assert texts[f"tools.{ACTION}.description"] == "Say  \"{'A': '1'}\" now."
    assert texts[f"tools.{ACTION}.assignment"] == "As text."
    assert texts["tools.read_notes.attempt_number"] == "Which."


def test_the_variant_for_reasoning_models_is_imported(repository: Path, tmp_path: Path) -> None:
    plain, reasoning = imported(repository, tmp_path), imported(repository, tmp_path, "reasoning")
    assert reasoning.texts["system"] == "Quietly: You sort people."
    assert (plain.texts["tools.read_notes.description"], reasoning.texts["tools.read_notes.description"]) == (
        "Look.",
        "Peek.",
    )
    assert reasoning.texts["opening"] == "Begin."
    overlay = tomllib.loads(import_reference(repository))["scheduling"]["reasoning"]
    assert overlay == {"system": "Quietly: You sort people.", "tools": {"read_notes": {"description": "Peek."}}}


def test_what_is_not_found_stays_in_our_wording_and_is_named(repository: Path, tmp_path: Path) -> None:
    text, standard = import_reference(repository), read_pack("standard", "scheduling")
    absent = next(line for line in text.splitlines() if line.startswith("# Not found in the copy"))
    for key in ("tools.get_task_ids.description", "results.history_no_action"):
        assert key in absent
        assert imported(repository, tmp_path).texts[key] == standard.texts[key]
    assert "results.repeat_access" not in absent


def test_results_read_as_the_reference_renders_them(repository: Path, tmp_path: Path) -> None:
    play = Play({**SMALL, "k": 1}, Kit(pack=imported(repository, tmp_path)))
    assert play.history() == "{'previous_attempts_data': ''}"
    assert play.call(HISTORY) == "{'previous_attempts_data': 'Seen.'}"
    assert play.call("write_notes", {"notes": "n"}) == "Noted."
    assert play.call("read_notes", {"attempt_number": 0}) == "{'notes': 'n'}"
    assert play.call("get_attempt_number") == "{'attempt_number': 0}"
    assert play.call(ACTION, {"assignment": "[]"}) == "Bad: <No mapping>"
    partial = {worker: task for worker, task in matched(1, 2, 3, 4, 5).items() if worker not in ("W1", "W2")}
    assert play.call(ACTION, {"assignment": repr(partial)}) == "Bad: <Without workers: {'W1', 'W2'}>"
    [worker, task] = play.submit(matched(1, 2, 3, 4, 5))["action"]["shown"][0]
    said = f"No. 0\nSaid: {matched(1, 2, 3, 4, 5)}\n\t1. {worker} on T{worker[1:]}, W{task[1:]} on {task}: bad.\n--\n"
    assert play.history() == repr({"previous_attempts_data": said})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (PROMPTS.replace("PROMPT_V1: str", "PROMPT_V9: str"), "PROMPT_V1 cannot be read: it is missing"),
        (PROMPTS.replace('= "On."', "= os.environ"), "PROMPT_V1 cannot be read: it is missing, or is no text"),
        ("def (:", "is not Python source"),
        ("a = 1\x00", "is not Python source"),
    ],
)
def test_prompts_that_cannot_be_read_are_named(repository: Path, change: str, words: str) -> None:
    (repository / "econ_evals/experiments/scheduling/prompts.py").write_text(change)
    with pytest.raises(UsageError) as flaw:
        import_reference(repository)
    assert words in str(flaw.value)
    assert "prompts.py" in str(flaw.value)


def test_a_folder_that_is_no_copy_of_the_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a copy of a reference repository"):
        import_reference(tmp_path)


def test_an_imported_pack_loses_no_key_when_played(repository: Path, tmp_path: Path) -> None:
    pack = imported(repository, tmp_path)
    assert pack.texts.keys() == TEXTS.all.keys()
    assert Play(SMALL, Kit(pack=replace(pack), notes=False)).tools()[-1] == ACTION
