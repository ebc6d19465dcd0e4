"""The data set's folder: three tables of Parquet and a card; `tests/sdks` loads it with Hugging Face's library."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from evalkit.errors import StorageError, UsageError
from evalkit.report.exports import dataset
from evalkit.report.exports.dataset import CONFIGS, write_dataset
from evalkit.report.exports.episodes import Chosen
from evalkit.store import disk
from tests.report.exports.conftest import EXPORTED, HOSTILE, ID, LOG
from tests.support.guessing_runs import ENVIRONMENTS


@pytest.fixture
def tables(chosen: Chosen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    monkeypatch.setattr(dataset, "BATCH", 5)
    assert write_dataset(chosen, ENVIRONMENTS, tmp_path / "data") == 0
    found = {}
    for name in CONFIGS:
        (path,) = (tmp_path / "data" / "data" / name).iterdir()
        found[name] = pq.read_table(path).to_pylist()
    return found


def test_each_table_has_what_counts(tables: dict[str, list[dict[str, Any]]]) -> None:
    assert len(tables["episodes"]) == EXPORTED
    assert sum(row["steps"] for row in tables["episodes"]) == len(tables["steps"])
    assert sum(row["steps"] for row in tables["transcripts"]) == len(tables["steps"])
    for name in ("cost_pico_usd", "tokens_in", "tokens_cached_read"):
        sums = {config: sum(row[name] for row in tables[config]) for config in CONFIGS}
        assert len(set(sums.values())) == 1, name


def test_steps_are_the_logs_in_effect(tables: dict[str, list[dict[str, Any]]]) -> None:
    again = [row for row in tables["steps"] if row["suite"] == "t/x?k=2"]
    assert {row["take"] for row in again} == {1}
    logged = {(row.episode, row.take, row.step): row.reply for row in LOG}
    for row in tables["steps"]:
        reply = logged[row["episode"], row["take"], row["step"]]
        assert row["reply"] == (None if reply is None else reply.decode())
    assert not {"worker", "response_id", "raw"} & set(tables["steps"][0])


def test_transcripts_hold_hostile_texts_as_they_were(tables: dict[str, list[dict[str, Any]]]) -> None:
    episode = ID["odd", "s", "i0", 0]
    chat = next(row for row in tables["transcripts"] if (row["episode"], row["period"]) == (episode, 0))
    assert [message["role"] for message in chat["messages"]][:3] == ["system", "user", "assistant"]
    assert chat["messages"][-1]["content"] == HOSTILE
    assert chat["messages"][2]["tool_calls"][0]["function"] == {"name": "fly", "arguments": "{]"}
    assert [tool["function"]["name"] for tool in orjson.loads(chat["tools"])] == ["hint", "guess"]
    assert orjson.loads(chat["tools_changed"])[0]["from_message"] == 5


def test_the_card_names_what_is_there(chosen: Chosen, tmp_path: Path) -> None:
    write_dataset(chosen, ENVIRONMENTS, tmp_path / "data")
    card = (tmp_path / "data" / "README.md").read_text()
    header = card.split("---\n")[1]
    for name in CONFIGS:
        assert f"- config_name: {name}\n" in header
        assert list((tmp_path / "data").glob(f"data/{name}/*.parquet"))
    assert "1 that are void" in card
    assert "license:" not in header


def test_nothing_is_written_over_or_left_behind(
    chosen: Chosen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        write_dataset(chosen, ENVIRONMENTS, tmp_path / "data")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "rename", refuse)
    with pytest.raises(StorageError, match="free some space"):
        write_dataset(chosen, ENVIRONMENTS, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]
