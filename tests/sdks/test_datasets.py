"""Exported data sets, loaded by Hugging Face's own library."""

from pathlib import Path

import pytest

from evalkit.report.exports.dataset import CONFIGS, write_dataset
from evalkit.report.exports.episodes import Chosen
from tests.report.exports.conftest import EXPORTED, HOSTILE, ID, chosen, run
from tests.support.guessing_runs import ENVIRONMENTS

__all__ = ["chosen", "run"]

datasets = pytest.importorskip("datasets", reason="needs datasets: `make sdks` installs it and runs this")


def test_every_configuration_loads(chosen: Chosen, tmp_path: Path) -> None:
    write_dataset(chosen, ENVIRONMENTS, tmp_path / "data")

    def load(*config: str) -> list[dict[str, object]]:
        found = datasets.load_dataset(str(tmp_path / "data"), *config, cache_dir=str(tmp_path / "cache"))
        return list(found["train"])

    tables = {name: load(name) for name in CONFIGS}
    assert load() == tables["episodes"]
    assert len(tables["episodes"]) == EXPORTED
    first = next(
        row for row in tables["transcripts"] if (row["episode"], row["period"]) == (ID["odd", "s", "i0", 0], 0)
    )
    messages: list[dict[str, object]] = first["messages"]  # type: ignore[assignment]
    assert messages[-1]["content"] == HOSTILE
