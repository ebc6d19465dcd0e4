"""Chats as JSON lines: what the agent read and said, in order, and nothing that does not count."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.frozen.void import FILE
from evalkit.report.exports.chats import write_transcripts
from evalkit.report.exports.episodes import ExportChoice, choose
from evalkit.store import disk
from tests.report.exports.conftest import EXPORTED, HOSTILE, ID
from tests.support.guessing_runs import ENVIRONMENTS

Line = dict[str, Any]


def lines(chosen: ExportChoice, folder: Path) -> list[Line]:
    out = folder / "out.jsonl"
    assert write_transcripts(chosen, ENVIRONMENTS, out) == 0
    return [orjson.loads(line) for line in out.read_bytes().splitlines()]


def of(found: list[Line], *place: object) -> list[Line]:
    return [line for line in found if line["metadata"]["episode"] == ID[place]]  # type: ignore[index]


def test_each_episode_that_counts_is_there_once_a_period(chosen: ExportChoice, tmp_path: Path) -> None:
    found = lines(chosen, tmp_path)
    assert (chosen.episodes, chosen.voided) == (EXPORTED, 1)
    assert len({line["metadata"]["episode"] for line in found}) == EXPORTED
    places = [(line["metadata"]["episode"], line["metadata"]["chat"]["period"]) for line in found]
    assert len(set(places)) == len(places)
    assert not of(found, "odd", "s", "i2", 0)
    assert not of(found, "odd", "s", "i0", 1)


def test_a_chat_is_what_was_read_and_said(chosen: ExportChoice, tmp_path: Path) -> None:
    first, second, *_ = of(lines(chosen, tmp_path), "odd", "s", "i0", 0)
    roles = ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [message["role"] for message in first["messages"]] == roles
    assert first["messages"][0]["content"] == "Guess."
    assert first["messages"][5]["content"] == HOSTILE
    made = first["messages"][2]["tool_calls"]
    assert [call["function"] for call in made] == [
        {"name": "fly", "arguments": "{]"},
        {"name": "guess", "arguments": "[1]"},
    ]
    assert [message["tool_call_id"] for message in first["messages"][3:5]] == [call["id"] for call in made]
    assert [message["name"] for message in first["messages"][3:5]] == ["fly", "guess"]
    assert second["messages"][1]["content"].startswith("Attempt 1")
    assert [message["content"] for message in second["messages"][2:4]] == [HOSTILE, f"Use a tool. You said: {HOSTILE}"]


def test_tools_are_those_on_offer_and_what_became_of_them(chosen: ExportChoice, tmp_path: Path) -> None:
    first = of(lines(chosen, tmp_path), "odd", "s", "i0", 0)[0]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["hint", "guess"]
    (change,) = first["tools_changed"]
    assert [tool["function"]["name"] for tool in change["tools"]] == ["guess"]
    assert first["messages"][change["from_message"]]["role"] == "assistant"


def test_what_is_known_of_an_episode_is_beside_it(run: Path, chosen: ExportChoice, tmp_path: Path) -> None:
    from evalkit.report.report import report

    results = {one.id: one for cell in report(run).cells for one in cell.episodes}
    for line in lines(chosen, tmp_path):
        about, result = line["metadata"], results[line["metadata"]["episode"]]
        assert (about["score"], about["solved"], about["ending"]) == (result.score, result.solved, result.ending)
        assert (about["cost_pico_usd"], about["tokens"]["in"]) == (result.cost, result.tokens_in)
        assert about["metrics"] == dict(result.metrics)
        assert about["served_model"] == "m1-2026"


def test_chats_take_what_their_episode_took(chosen: ExportChoice, tmp_path: Path) -> None:
    held = of(lines(chosen, tmp_path), "good", "t/x?k=2", "i0", 0)
    assert sum(line["metadata"]["chat"]["cost_pico_usd"] for line in held) == held[0]["metadata"]["cost_pico_usd"]
    assert sum(line["metadata"]["chat"]["steps"] for line in held) == held[0]["metadata"]["steps"]
    assert [line["metadata"]["chat"]["last"] for line in held] == [False] * (len(held) - 1) + [True]
    assert held[0]["metadata"]["axes"] == {"k": 2}


def test_a_request_that_was_refused_has_no_reply(chosen: ExportChoice, tmp_path: Path) -> None:
    last = of(lines(chosen, tmp_path), "odd", "s", "i1", 0)[-1]
    assert last["metadata"]["ending"] == "content_filter"
    assert [message["role"] for message in last["messages"]] == ["system", "user"]


def test_a_choice_of_agents_and_suites_is_kept_to(run: Path, tmp_path: Path) -> None:
    found = lines(choose(run, {"good"}, {"t/x"}), tmp_path)
    assert {(line["metadata"]["agent"], line["metadata"]["suite"]) for line in found} == {("good", "t/x?k=2")}


def test_nothing_is_written_over(chosen: ExportChoice, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_transcripts(chosen, ENVIRONMENTS, out)
    assert out.read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(
    chosen: ExportChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "rename", refuse)
    with pytest.raises(StorageError, match="free some space"):
        write_transcripts(chosen, ENVIRONMENTS, tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_damaged_list_of_void_episodes_is_refused(run: Path) -> None:
    (run / FILE).write_text("{\n")
    with pytest.raises(CorruptLogError, match="damaged"):
        choose(run)


def test_another_environment_than_was_played_is_said(chosen: ExportChoice, tmp_path: Path) -> None:
    from dataclasses import replace

    from evalkit.dialogue import Message
    from evalkit.envs.environment import Opening

    def other(state: Any) -> Opening:
        return Opening(messages=(Message(role="system", text="Something else."),))

    changed = {"guessing": replace(ENVIRONMENTS["guessing"], opening=other)}
    out = tmp_path / "out.jsonl"
    assert write_transcripts(chosen, changed, out) == EXPORTED
    assert not any(orjson.loads(line)["metadata"]["reproduced"] for line in out.read_bytes().splitlines())
