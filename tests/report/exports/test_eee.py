"""Records of Every Eval Ever: paths, joins, scores as in the report. `make sdks` runs the schema's own validator."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.report.exports.eee import LONGEST_PART, _part, write_eee
from evalkit.report.exports.episodes import Chosen, choose
from evalkit.report.report import report
from tests.report.exports.conftest import EXPORTED, HOSTILE
from tests.support.guessing_runs import ENVIRONMENTS

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def records(chosen: Chosen, tmp_path: Path) -> dict[str, dict[str, Any]]:
    write_eee(chosen, ENVIRONMENTS, tmp_path / "out")
    found = (path for path in (tmp_path / "out").rglob("*.json"))
    return {path.relative_to(tmp_path / "out").as_posix(): json.loads(path.read_bytes()) for path in found}


def samples(folder: Path, record: dict[str, Any]) -> list[dict[str, Any]]:
    data = (folder / record["detailed_evaluation_results"]["file_path"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == record["detailed_evaluation_results"]["checksum"]
    return [json.loads(line) for line in data.splitlines()]


def test_files_lie_where_the_datastore_wants_them(records: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    assert len(records) == 3
    for name, record in records.items():
        assert re.fullmatch(rf"data/evalkit-[\w-]+/lab/m1/{UUID}\.json", name)
        assert record["detailed_evaluation_results"]["file_path"] == f"{name.removesuffix('.json')}_samples.jsonl"
        assert record["schema_version"] == "0.3.0"
    every = [line for record in records.values() for line in samples(tmp_path / "out", record)]
    assert len(every) == EXPORTED
    assert sum(record["detailed_evaluation_results"]["total_rows"] for record in records.values()) == EXPORTED
    assert len({record["evaluation_id"] for record in records.values()}) == 3


def test_scores_are_those_of_the_report(run: Path, records: dict[str, dict[str, Any]]) -> None:
    rows = {(row["agent"], row["suite"]): row for row in report(run).table("scores").rows}
    for record in records.values():
        score, solved = record["evaluation_results"]
        row = rows[record["model_info"]["additional_details"]["agent"], score["evaluation_name"].partition("?")[0]]
        assert score["score_details"]["score"] == pytest.approx(row["score"] / 100)
        assert score["metric_config"]["lower_is_better"] is False
        assert 0 <= solved["score_details"]["score"] <= 1
        interval = score["score_details"]["uncertainty"].get("confidence_interval")
        assert (interval is None) == (row["interval"] is None)
        if interval is not None:
            assert (interval["lower"], interval["upper"]) == pytest.approx([end / 100 for end in row["interval"]])


def test_a_sample_has_its_transcript(records: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    (odd,) = [one for one in records.values() if one["model_info"]["additional_details"]["agent"] == "odd"]
    lines = samples(tmp_path / "out", odd)
    line = next(one for one in lines if (one["sample_id"], one["metadata"]["replicate"]) == ("i0", "0"))
    assert line["evaluation_id"] == odd["evaluation_id"]
    assert line["evaluation_result_id"] == odd["evaluation_results"][0]["evaluation_result_id"]
    assert (line["interaction_type"], line["output"]) == ("agentic", None)
    assert [message["role"] for message in line["messages"][:6]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant")
    ]
    assert [message["turn_idx"] for message in line["messages"]] == list(range(len(line["messages"])))
    assert line["messages"][2]["tool_calls"][0] == {"id": "c0", "name": "fly", "arguments": {"text": "{]"}} | {
        "id": line["messages"][2]["tool_calls"][0]["id"]
    }
    assert line["messages"][5]["content"] == HOSTILE
    assert line["messages"][3]["tool_call_id"] == [line["messages"][2]["tool_calls"][0]["id"]]
    assert all(isinstance(value, str) for value in line["metadata"].values())
    for one in lines:
        assert one["token_usage"]["total_tokens"] == (
            one["token_usage"]["input_tokens"] + one["token_usage"]["output_tokens"]
        )


def test_the_same_run_gives_the_same_files(chosen: Chosen, tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_eee(chosen, ENVIRONMENTS, tmp_path / name)
    one, other = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.json*")}
        for name in ("one", "other")
    )
    assert one == other


def test_without_an_estimate_there_is_no_record(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has an estimate yet"):
        write_eee(choose(run, {"nobody"}), ENVIRONMENTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_of_any_length_is_a_part_of_a_path() -> None:
    assert _part("m" * 300) == "m" * LONGEST_PART
    assert _part("x" * (LONGEST_PART - 1) + "." + "y" * 300) == "x" * (LONGEST_PART - 1)
    assert _part("ü" * 300 + "/m") == "m"
