"""Exported logs, read by Inspect AI's own reader."""

from pathlib import Path

import pytest

from evalkit.report.exports.episodes import Chosen
from evalkit.report.exports.inspect_log import write_inspect
from tests.report.exports.conftest import EXPORTED, HOSTILE, chosen, run
from tests.support.guessing_runs import ENVIRONMENTS

__all__ = ["chosen", "run"]

log = pytest.importorskip("inspect_ai.log", reason="needs inspect-ai: `make sdks` installs it and runs this")


def test_inspect_reads_every_sample(chosen: Chosen, tmp_path: Path) -> None:
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    found = [log.read_eval_log(one) for one in log.list_eval_logs(str(tmp_path / "logs"))]
    assert len(found) == 3
    assert sum(len(one.samples) for one in found) == EXPORTED
    for one in found:
        assert one.eval.model == "lab/m1"
        summaries = log.read_eval_log_sample_summaries(one.location)
        assert {(two.id, two.epoch) for two in summaries} == {(two.id, two.epoch) for two in one.samples}
        for sample in one.samples:
            assert sample.scores["score"].as_float() == sample.metadata["score"]
            assert sum(usage.total_tokens for usage in sample.model_usage.values()) > 0
    (odd,) = [one for one in found if one.eval.metadata["agent"] == "odd"]
    sample = next(one for one in odd.samples if (one.id, one.epoch) == ("i0", 1))
    assert [message.role for message in sample.messages[:6]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant"),
    ]
    assert sample.messages[5].text == HOSTILE
    assert sample.messages[3].function == "fly"
    assert sample.messages[2].tool_calls[0].parse_error
