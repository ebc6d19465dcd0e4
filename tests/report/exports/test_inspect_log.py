"""Logs for Inspect AI, looked at without it; `tests/sdks` reads them with Inspect's own reader."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import orjson
import pytest

from evalkit.errors import StorageError
from evalkit.report.exports.episodes import ExportChoice
from evalkit.report.exports.inspect_log import write_inspect
from evalkit.store import disk
from tests.report.exports.conftest import EXPORTED, HOSTILE, ID
from tests.support.guessing_runs import ENVIRONMENTS


def logs(chosen: ExportChoice, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """By agent and suite: each log's members, as JSON."""
    assert write_inspect(chosen, ENVIRONMENTS, folder / "logs") == 0
    found = {}
    for path in (folder / "logs").iterdir():
        with ZipFile(path) as file:
            assert file.testzip() is None
            held = {name: orjson.loads(file.read(name)) for name in file.namelist()}
        spec = held["header.json"]["eval"]
        found[spec["metadata"]["agent"], spec["task"]] = held
    return found


def test_there_is_one_log_an_agent_and_suite_with_one_sample_an_episode(chosen: ExportChoice, tmp_path: Path) -> None:
    found = logs(chosen, tmp_path)
    assert set(found) == {("good", "s"), ("odd", "s"), ("good", "t/x?k=2")}
    samples = [value for held in found.values() for name, value in held.items() if name.startswith("samples/")]
    assert len(samples) == EXPORTED
    assert {sample["uuid"] for sample in samples} <= set(ID.values())
    assert "samples/i2_epoch_2.json" in found["good", "s"]
    assert all(len(held["summaries.json"]) == len(held) - 2 for held in found.values())


def test_a_log_says_what_the_report_says(chosen: ExportChoice, tmp_path: Path) -> None:
    from evalkit.report.report import report

    found, made = logs(chosen, tmp_path), report(chosen.run)
    means = dict(zip(((cell.agent, cell.suite.name) for cell in made.cells), made.table("scores").rows, strict=True))
    for key, held in found.items():
        header = held["header.json"]
        given = {one["name"]: one["metrics"]["mean"]["value"] for one in header["results"]["scores"]}
        assert 100 * given["score"] == pytest.approx(means[key]["score"])
    assert found["good", "s"]["header.json"]["status"] == "success"
    assert found["odd", "s"]["header.json"]["status"] == "cancelled"
    assert found["odd", "s"]["header.json"]["eval"]["metadata"]["void"] == 1


def test_usage_is_counted_as_inspect_counts(chosen: ExportChoice, tmp_path: Path) -> None:
    for held in logs(chosen, tmp_path).values():
        (total,) = held["header.json"]["stats"]["model_usage"].values()
        parts = [
            next(iter(sample["model_usage"].values())) for name, sample in held.items() if name.startswith("samples/")
        ]
        assert total["total_tokens"] == sum(part["total_tokens"] for part in parts)
        for part in parts:
            cached = part["input_tokens_cache_read"] + part["input_tokens_cache_write"]
            assert part["input_tokens"] + cached + part["output_tokens"] == part["total_tokens"]


def test_arguments_that_are_no_object_are_kept_as_text(chosen: ExportChoice, tmp_path: Path) -> None:
    sample = logs(chosen, tmp_path)["odd", "s"]["samples/i0_epoch_1.json"]
    made = [call for message in sample["messages"] for call in message.get("tool_calls", ())]
    assert [call["arguments"] for call in made[:2]] == [{"text": "{]"}, {"text": "[1]"}]
    assert all("parse_error" in call for call in made[:2])
    assert made[2]["arguments"] == {"value": 3}
    assert "parse_error" not in made[2]
    assert HOSTILE in [message["content"] for message in sample["messages"]]
    assert len({message["id"] for message in sample["messages"]}) == len(sample["messages"])


def test_a_full_disk_leaves_nothing_behind(
    chosen: ExportChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "rename", refuse)
    with pytest.raises(StorageError, match="free some space"):
        write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("depth", [99, 101, 5000])
def test_deep_arguments_do_not_break_a_log(depth: int) -> None:
    from evalkit.report.exports.inspect_log import arguments_of

    text = '{"a":' * depth + "1" + "}" * depth
    found = arguments_of(text)
    assert ("parse_error" in found) is (depth > 100)
    orjson.dumps(found)


def test_events_refer_to_messages_and_repeat_none(chosen: ExportChoice, tmp_path: Path) -> None:
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    requests = 0
    for path in (tmp_path / "logs").iterdir():
        with ZipFile(path) as file:
            for name in file.namelist():
                if not name.startswith("samples/"):
                    continue
                sample = orjson.loads(file.read(name))
                pool = sample["events_data"]["messages"]
                assert pool == sample["messages"]
                asked = [event for event in sample["events"] if event["event"] == "model"]
                assert [event["metadata"]["step"] for event in asked] == list(range(len(asked)))
                for event in asked:
                    ((first, end),) = event["input_refs"]
                    assert event["input"] == []
                    assert pool[first]["role"] == "system"
                    if not event.get("error"):
                        assert event["output"]["choices"][0]["message"] == pool[end]
                requests += len(asked)
                assert len({event["uuid"] for event in sample["events"]}) == len(sample["events"])
    assert requests > 20
