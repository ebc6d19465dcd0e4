"""What TRL's trainers play: the same calls have the same score, and methods describe the tools."""

import inspect
import json
from typing import Any

import pytest

import evalkit
from evalkit.errors import UsageError
from evalkit.integrations.trl import dataset, environment
from tests.integrations.cases import CASES, PERIODS, Case, case_id, played

SINGLE = [case for case in CASES if case[2] in ("oracle", "greedy", "replanner")]
"""Policies that make one call in each reply."""


def of(case: Case) -> tuple[Any, dict[str, Any]]:
    """An object of the class, and its row."""
    vary = PERIODS if "periods" in evalkit.env(case[0].partition("/")[0]).parameters else {}
    (row,) = dataset(case[0], instances=[case[1]], vary=vary)
    return environment(case[0], instances=[case[1]], vary=vary)(), row


def tools_of(instance: object) -> dict[str, Any]:
    """As TRL finds them."""
    names = [name for name, _ in inspect.getmembers(type(instance), predicate=inspect.isfunction)]
    return {
        name: getattr(instance, name)
        for name in names
        if name not in ("reset", "get_reward") and not name.startswith("_")
    }


@pytest.mark.parametrize("case", SINGLE, ids=case_id)
def test_calls_of_methods_score_as_a_run_does(case: Case) -> None:
    rollout, row = of(case)
    assert rollout.get_reward() == 0.0
    shown = [rollout.reset(**row)]
    tools, episode = tools_of(rollout), played(case)
    for reply in episode.replies:
        assert reply is not None
        assert len(reply.calls) <= 1
        for call in reply.calls:
            shown.append(tools[call.name](**json.loads(call.arguments)))
        if not reply.calls:
            shown.append(tools["say"](text=reply.text))
    assert episode.score is not None
    assert rollout.get_reward() == episode.score.value
    # Every chat's opening was read.
    for chat in episode.chats:
        assert any(chat[1].text in text for text in shown)
    for name in ("say", *tools):
        if name in tools:
            with pytest.raises(ValueError, match="over"):
                tools[name](text="")


def test_a_wrong_argument_is_the_environments_to_answer() -> None:
    rollout, row = of(CASES[0])
    rollout.reset(**row)
    assert tools_of(rollout)["submit_assignment"](plan=3)
    assert rollout._game.facts[0]["calls"] == [{"tool": "submit_assignment", "outcome": "missing"}]


def test_a_suite_with_several_lists_of_tools_is_refused() -> None:
    with pytest.raises(UsageError, match="offer different tools"):
        environment("costbench/basic")


def flat(schema: Any) -> Any:
    """A schema with the white space of its texts made one, and without what a signature cannot say."""
    if isinstance(schema, dict):
        return {key: flat(value) for key, value in schema.items() if key not in ("additionalProperties", "return")}
    return " ".join(schema.split()) if isinstance(schema, str) else schema


@pytest.mark.parametrize("case", SINGLE, ids=case_id)
def test_transformers_reads_the_tools_schemas_from_the_methods(case: Case) -> None:
    utils = pytest.importorskip(
        "transformers.utils", reason="needs transformers: `python -m tests.integrations` installs it"
    )
    rollout, row = of(case)
    rollout.reset(**row)
    tools = tools_of(rollout)
    assert [tool.__name__ for tool in tools.values()] == list(tools)
    if "say" in tools:
        assert utils.get_json_schema(tools["say"])["function"]["parameters"]["required"] == ["text"]
    for tool in rollout._game.tools:
        read = utils.get_json_schema(tools[tool.name])["function"]
        wanted = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        wanted["parameters"].setdefault("required", [])
        read["parameters"].setdefault("required", [])
        assert flat(read) == flat(wanted)
